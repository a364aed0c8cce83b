"""Locks made by the real uv out of a directory of packages."""

import socket
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bakehouse.catalog.python_lock import Package, load_lock
from bakehouse.errors import BuildError, ConflictError, Location, Problems
from bakehouse.fetch.pip_config import PipConfig
from bakehouse.fetch.sources import DownloadConfig
from bakehouse.lock import python
from bakehouse.lock.python import Index, lock_text, resolve
from tests.support.errors import error_text, raised
from tests.support.file_server import company_certificate, serving
from tests.support.wheels import sha256, wheel


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    return Index(PipConfig(find_links=(str(tmp_path / "wheels"),), no_index=True), None)


def test_a_lock_is_closed_sorted_and_reads_back(tmp_path: Path, index: Index) -> None:
    directory = tmp_path / "wheels"
    six = wheel(directory, "six_seven", "1.0")
    top = wheel(
        directory, "top", "2.0+cpu", requires=("six-seven>=1", 'only-windows; sys_platform == "win32"')
    )
    wheel(directory, "unrelated", "1.0")
    output = tmp_path / "lock.txt"

    output.write_text(lock_text("# Python 3.11: top", resolve(["top"], [], index)))

    assert output.read_text() == (
        "# Python 3.11: top\n"
        f"six-seven==1.0 --hash=sha256:{sha256(six)}  # six_seven-1.0-py3-none-any.whl {six.stat().st_size}\n"
        f"top==2.0+cpu --hash=sha256:{sha256(top)}  # top-2.0+cpu-py3-none-any.whl {top.stat().st_size}\n"
    )
    problems = Problems()
    packages = load_lock(output, Location(output, 1, 1), problems)
    assert ([package.name for package in packages], bool(problems)) == (["six-seven", "top"], False)


def test_a_size_of_thousands_of_digits_is_an_invalid_line(tmp_path: Path) -> None:
    lock = tmp_path / "lock.txt"
    lock.write_text(f"six==1.0 --hash=sha256:{'ab' * 32}  # six-1.0-py3-none-any.whl {'9' * 5_000}\n")
    problems = Problems()

    assert load_lock(lock, Location(lock, 1, 1), problems) == ()
    assert [problem.message for problem in problems.all] == ["invalid line in a lock"]


def test_a_file_without_a_line_of_a_lock_is_one_mistake_at_its_name(tmp_path: Path) -> None:
    lock, problems = tmp_path / "pixi.lock", Problems()
    lock.write_text("version: 6\n" * 500)

    load_lock(lock, Location(tmp_path / "small.yaml", 4, 15), problems)

    assert [(problem.message, str(problem.location), problem.hint) for problem in problems.all] == [
        (
            "`pixi.lock` is not a lock of Bakehouse",
            str(Location(tmp_path / "small.yaml", 4, 15)),
            "name the requirements file; `bake lock` writes its lock",
        )
    ]


def test_the_wheel_that_fits_best_is_taken(tmp_path: Path, index: Index) -> None:
    directory = tmp_path / "wheels"
    for tag in (
        "py3-none-any",
        "cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64",
        "cp311-cp311-manylinux_2_28_x86_64",
        "cp311-cp311-manylinux_2_39_x86_64",
        "cp312-cp312-manylinux_2_28_x86_64",
        "cp311-cp311-win_amd64",
    ):
        wheel(directory, "fast", "1.0", tag=tag)
    (file,) = resolve(["fast"], [], index)
    assert file.file == "fast-1.0-cp311-cp311-manylinux_2_28_x86_64.whl"


def test_no_python_is_downloaded(tmp_path: Path, index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """uv downloads the Python of a lock if the machine lacks it, although a lock of wheels needs none."""
    wheel(tmp_path / "wheels", "top", "1.0")
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path / "pythons"))
    with serving() as server:
        monkeypatch.setenv("UV_PYTHON_INSTALL_MIRROR", server.url)
        resolve(["top"], [], replace(index, python_version="3.13"))
        assert server.paths == []


def test_constraints_bound_what_is_chosen(tmp_path: Path, index: Index) -> None:
    directory = tmp_path / "wheels"
    for version in ("1.0", "2.0"):
        wheel(directory, "six", version)
    (file,) = resolve(["six"], ["six<2"], index)
    assert file.version == "1.0"


def test_a_preferred_version_may_have_its_wheel_in_a_later_index(tmp_path: Path, index: Index) -> None:
    def simple_index(name: str, *files: tuple[str, str, str]) -> str:
        for package, version, tag in files:
            path = wheel(tmp_path / name / package, package, version, tag=tag)
            with (path.parent / "index.html").open("a") as page:
                page.write(f'<a href="{path.name}">{path.name}</a>\n')
        return (tmp_path / name).as_uri()

    any_python, of_310, of_311 = "py3-none-any", "cp310-cp310-linux_x86_64", "cp311-cp311-linux_x86_64"
    first = simple_index("first", ("fast", "1.0", of_310))
    fast = (("fast", each, of_311) for each in ("0.9", "1.0"))
    second = simple_index("second", *fast, *(("six", each, any_python) for each in "12"))
    several = replace(index, pip=PipConfig(index_url=second, extra_index_urls=(first,)))
    preferred = [
        Package(name, version, "", "", 0, Location(tmp_path, 1, 1))
        for name, version in (("fast", "1.0"), ("six", "1"))
    ]

    files = resolve(["fast", "six"], [], several, preferred=preferred)

    assert [file.file for file in files] == [f"fast-1.0-{of_311}.whl", f"six-1-{any_python}.whl"]


def test_alone_leaves_out_what_a_package_needs(tmp_path: Path, index: Index) -> None:
    wheel(tmp_path / "wheels", "top", "1.0", requires=("missing",))
    assert [file.name for file in resolve(["top"], [], index, alone=True)] == ["top"]


def test_what_cannot_be_had_is_reported_in_uvs_words(tmp_path: Path, index: Index) -> None:
    wheel(tmp_path / "wheels", "top", "1.0", requires=("missing",))
    (diagnostic,) = raised(ConflictError, resolve, ["top"], [], index).diagnostics
    assert diagnostic.message == "no versions satisfy `top`"
    assert "missing was not found" in "\n".join(diagnostic.tail)
    assert diagnostic.hint == "the indexes of this machine's pip are used; run `pip config list` to see them"


@pytest.mark.parametrize(
    ("constraint", "meant"), [("six==1.0", ""), ("Pandas==2.0", " (did you mean `Pandas`?)")]
)
def test_a_misspelt_name_is_to_be_checked_first(
    tmp_path: Path, index: Index, constraint: str, meant: str
) -> None:
    wheel(tmp_path / "wheels", "top", "1.0")
    (diagnostic,) = raised(ConflictError, resolve, ["top", "Pandsa>=2"], [constraint], index).diagnostics
    assert diagnostic.hint == (
        f"check the spelling of `pandsa`{meant}; "
        "the indexes of this machine's pip are used; run `pip config list` to see them"
    )


def test_a_package_is_not_called_missing_if_an_index_rejects_the_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serving() as server:
        server.login = "user:word"
        url = server.url.replace("//", "//user:old-word@") + "/simple"
        with pytest.raises(BuildError) as caught:
            resolve(["top"], [], Index(PipConfig(index_url=url), None))

    assert error_text(caught.value) == (
        f"error: cannot search the package indexes for `top`: {server.url}/simple refused access (401)\n\n"
        "hint: the indexes of this machine's pip are used; run `pip config list` to see them\n"
    )


@pytest.fixture
def silent_index() -> Iterator[str]:
    """The address of an index that does not answer."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}/simple"


def test_an_unreachable_index_is_not_a_conflict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, silent_index: str
) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    error = raised(BuildError, resolve, ["top"], [], Index(PipConfig(index_url=silent_index), None))
    (diagnostic,) = error.diagnostics
    assert diagnostic.message == "uv failed to find versions of `top`"
    assert diagnostic.hint == "the indexes of this machine's pip are used; run `pip config list` to see them"


def test_a_file_of_unknown_size_is_named(silent_index: str) -> None:
    url = f"{silent_index}/top-1.0-py3-none-any.whl"
    with pytest.raises(BuildError) as caught:
        python._size({"url": f"{url}?key=canary"}, DownloadConfig((), PipConfig(), None, {}))
    [diagnostic] = caught.value.diagnostics
    assert diagnostic.message == "the size of `top-1.0-py3-none-any.whl` is unknown"
    assert [reason.text for reason in diagnostic.reasons] == [f"`{url}` is unreachable: connection refused"]


def test_an_index_is_asked_through_pips_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    path = wheel(tmp_path, "top", "1.0")
    with serving() as server, serving() as proxy:
        proxy.is_proxy = True
        server.files["/files/" + path.name] = path.read_bytes()
        link = f'<a href="/files/{path.name}#sha256={sha256(path)}">{path.name}</a>'
        server.files["/simple/top/"], proxy.kinds[f"{server.url}/simple/top/"] = link.encode(), "text/html"
        pip = PipConfig(index_url=f"{server.url}/simple", proxy=proxy.url)
        [file] = resolve(["top"], [], Index(pip, None), alone=True)
        assert (file.file, file.bytes) == (path.name, path.stat().st_size)
        assert f"{server.url}/simple/top/" in proxy.paths


def test_a_size_is_asked_for_with_the_login_of_its_index() -> None:
    with serving() as server:
        server.files["/files/top-1.0-py3-none-any.whl"], server.login = b"wheel", "user:word"
        pip = PipConfig(index_url=server.url.replace("//", "//user:word@") + "/simple/")
        url = f"{server.url}/files/top-1.0-py3-none-any.whl"
        assert python._size({"url": url}, DownloadConfig((), pip, None, {})) == 5


def test_a_size_is_asked_for_through_pips_proxy() -> None:
    with serving() as server, serving() as proxy:
        proxy.is_proxy = True
        server.files["/top-1.0-py3-none-any.whl"] = b"wheel"
        url = f"{server.url}/top-1.0-py3-none-any.whl"
        assert python._size({"url": url}, DownloadConfig((), PipConfig(proxy=proxy.url), None, {})) == 5
        assert proxy.paths == [url]


def test_a_size_is_asked_for_with_the_certificates_of_this_machine(tmp_path: Path) -> None:
    certificate = company_certificate(tmp_path)
    with serving(certificate) as server:
        server.files["/top-1.0-py3-none-any.whl"] = b"wheel"
        file = {"url": f"{server.url}/top-1.0-py3-none-any.whl"}
        assert python._size(file, DownloadConfig((), PipConfig(), certificate, {})) == 5
