"""Dependency confusion: two indexes on local servers, and the real uv between them."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from bakehouse.catalog.python_lock import Package, locked_sums
from bakehouse.errors import BuildError
from bakehouse.fetch.pip_config import PipConfig
from bakehouse.lock.python import Index, lock_text, resolve
from tests.support.errors import refusal
from tests.support.file_server import FileServer, serving
from tests.support.index_server import metadata, put_index, wheel_file

OURS = wheel_file("ours", "1.0", "py3-none-any")
NEWER = wheel_file("ours", "1.1", "py3-none-any")
FOREIGN = wheel_file("ours", "99.0", "py3-none-any")


def put(server: FileServer, *files: dict[str, object]) -> None:
    versions = {str(file["filename"]).split("-")[1] for file in files}
    answer = {"files": files, "metadata": {version: metadata("ours", version) for version in versions}}
    put_index(server, {"ours": answer})


@pytest.fixture
def internal() -> Iterator[FileServer]:
    with serving() as server:
        put(server, OURS)
        yield server


@pytest.fixture
def public() -> Iterator[FileServer]:
    with serving() as server:
        put(server, FOREIGN)
        yield server


@pytest.fixture(params=["the internal index first", "the public index first"])
def index(
    request: pytest.FixtureRequest,
    internal: FileServer,
    public: FileServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Index:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    servers = [internal, public] if request.param.startswith("the internal") else [public, internal]
    first, second = (f"{server.url}/simple" for server in servers)
    return Index(PipConfig(index_url=first, extra_index_urls=(second,)), None)


def locked_before(directory: Path, file: dict[str, object]) -> frozenset[str]:
    name = str(file["filename"])
    sha256 = hashlib.sha256(name.encode()).hexdigest()
    lock = directory / "requirements.txt.lock"
    lock.write_text(lock_text("# of x", [Package("ours", name.split("-")[1], sha256, name, 1000)]))
    return locked_sums(lock)


def with_lock(index: Index, locked: frozenset[str]) -> Index:
    return Index(index.pip, index.certificates, index.python_version, locked)


def versions(index: Index, *requirements: str) -> list[str]:
    return [file.version for file in resolve(requirements, [], index)]


def test_a_higher_version_on_another_index_is_refused(
    index: Index, internal: FileServer, public: FileServer
) -> None:
    expected = f"""\
error: package indexes have different projects called `ours`
  chosen   ours 99.0
  from     {public.url}/simple
  also in  {internal.url}/simple

hint: require the version that you want, such as `ours==1.0`, or remove one of the indexes
"""
    assert refusal(BuildError, resolve, ["ours>=1.0"], [], index) == expected


def test_an_exact_requirement_selects_the_index(index: Index) -> None:
    assert versions(index, "ours==1.0") == ["1.0"]


def test_a_requirement_for_a_series_of_versions_does_not_select_the_index(
    index: Index, public: FileServer
) -> None:
    put(public, wheel_file("ours", "1.5", "py3-none-any"))

    with pytest.raises(BuildError, match="different projects called `ours`"):
        resolve(["ours==1.*"], [], index)


def test_the_same_file_name_with_other_bytes_is_refused_for_an_exact_requirement_too(
    index: Index, public: FileServer
) -> None:
    put(public, {**OURS, "hashes": {"sha256": "ab" * 32}})

    with pytest.raises(BuildError, match="different projects called `ours`"):
        resolve(["ours==1.0"], [], index)


def test_the_index_of_the_present_lock_may_have_newer_versions(
    index: Index, internal: FileServer, public: FileServer, tmp_path: Path
) -> None:
    put(internal, OURS, NEWER)
    put(public, wheel_file("ours", "0.9", "py3-none-any"))
    with pytest.raises(BuildError, match="different projects called `ours`"):
        resolve(["ours"], [], index)

    assert versions(with_lock(index, locked_before(tmp_path, OURS)), "ours") == ["1.1"]


def test_another_index_than_that_of_the_present_lock_is_refused(index: Index, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="different projects called `ours`"):
        resolve(["ours"], [], with_lock(index, locked_before(tmp_path, OURS)))


def test_a_file_of_the_present_lock_is_taken_from_any_index(index: Index, tmp_path: Path) -> None:
    assert versions(with_lock(index, locked_before(tmp_path, FOREIGN)), "ours") == ["99.0"]


def test_a_copy_of_an_index_has_the_same_project(index: Index, public: FileServer) -> None:
    put(public, OURS, NEWER)

    assert versions(index, "ours") == ["1.1"]


def test_an_index_may_refuse_access_to_a_missing_project(index: Index, public: FileServer) -> None:
    del public.files["/simple/ours/"]
    public.statuses = [403] * 20

    assert versions(index, "ours") == ["1.0"]


def test_an_index_that_rejects_the_login_cannot_be_compared(index: Index, public: FileServer) -> None:
    public.login = "user:word"

    assert refusal(BuildError, versions, index, "ours") == (
        f"error: cannot compare the package indexes: {public.url}/simple refused access (401)\n"
    )


def test_one_index_is_not_compared(internal: FileServer, index: Index) -> None:
    alone = Index(PipConfig(index_url=f"{internal.url}/simple"), None)
    requests = len(internal.requests)

    assert versions(alone, "ours") == ["1.0"]
    assert len(internal.requests) - requests <= 2
