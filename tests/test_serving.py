"""Folders of this machine over HTTP: what is served, and that nothing else is."""

import hashlib
import http.client
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from bakehouse.mirrors import Hashes
from bakehouse.serving import Shelves, serve

WHEEL = "six-1.17.0-py2.py3-none-any.whl"
TORCH = "torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A mirror, an index in pip's usual layout, and something that is nobody's business."""
    (tmp_path / "mirror/deep").mkdir(parents=True)
    (tmp_path / "mirror/deep" / TORCH).write_bytes(b"torch")
    files, project = tmp_path / "index/files", tmp_path / "index/simple/six"
    files.mkdir(parents=True)
    project.mkdir(parents=True)
    (files / WHEEL).write_bytes(b"six")
    (project / "index.html").write_text(
        f'<html><a href="../../files/{WHEEL}#sha256=aa" data-requires-python="&gt;=3.8">{WHEEL}</a>'
        '<a href="../../../secret.whl">leads out</a><a href="https://elsewhere.example/x.whl">x</a></html>'
    )
    (tmp_path / "secret.whl").write_text("secret")
    return tmp_path


@pytest.fixture
def base(machine: Path) -> Iterator[str]:
    shelves = Shelves((machine / "mirror",), (machine / "index/simple",), (machine / "index/files",))
    with serve(shelves, "127.0.0.1", Hashes(machine / "hashes.json")) as url:
        yield url


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=5) as response:
        content = response.read()
        assert int(response.headers["Content-Length"]) == len(content)
        return bytes(content)


def status(base: str, path: str) -> int:
    """Of a path as it stands, which urllib would tidy up."""
    url = urlsplit(base)
    connection = http.client.HTTPConnection(url.netloc, timeout=5)
    connection.putrequest("GET", path, skip_accept_encoding=True)
    connection.endheaders()
    response = connection.getresponse()
    response.read()
    connection.close()
    return response.status


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_a_file_is_found_by_its_hash(base: str) -> None:
    assert get(f"{base}/sha256/{sha256(b'torch')}/{TORCH.replace('+', '%2B')}") == b"torch"


def test_a_file_of_another_hash_is_not_served(base: str) -> None:
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(f"{base}/sha256/{sha256(b'other')}/{TORCH}")


def test_a_file_may_be_called_as_its_hash(machine: Path, base: str) -> None:
    (machine / "mirror" / sha256(b"anonymous")).write_bytes(b"anonymous")
    assert get(f"{base}/sha256/{sha256(b'anonymous')}/any.tar.gz") == b"anonymous"


def test_a_projects_page_has_relative_links_and_keeps_what_pip_reads(base: str) -> None:
    assert get(f"{base}/index/0/Six/").decode() == (
        "<!DOCTYPE html><html><body>\n"
        f'<a data-requires-python="&gt;=3.8" href="{WHEEL}#sha256=aa">{WHEEL}</a><br>\n'
        '<a href="secret.whl">leads out</a><br>\n'
        '<a href="https://elsewhere.example/x.whl">x</a><br>\n'
        "</body></html>\n"
    )
    assert get(f"{base}/index/0/six/{WHEEL}") == b"six"


def test_a_link_folder_lists_its_packages(base: str) -> None:
    assert get(f"{base}/links/0/").decode() == (
        f'<!DOCTYPE html><html><body>\n<a href="{WHEEL}">{WHEEL}</a><br>\n</body></html>\n'
    )
    assert get(f"{base}/links/0/{WHEEL}") == b"six"


@pytest.mark.parametrize(
    "path",
    [
        "/index/0/six/secret.whl",
        "/index/0/../index.html",
        "/index/0/%2e%2e/",
        "/index/0/six/..%2F..%2F..%2Fsecret.whl",
        "/links/0/..%2F..%2Fsecret.whl",
        "/links/0/../../secret.whl",
        "/links/1/",
        "/links/-1/",
        "/sha256/..%2F..%2Fsecret.whl/x",
        "/sha256/",
        "/",
        "",
    ],
)
def test_nothing_outside_is_served(base: str, path: str) -> None:
    assert status(base, urlsplit(base).path + path) == 404


def test_a_link_in_a_folder_that_leads_out_is_not_followed(machine: Path, base: str) -> None:
    (machine / "index/files/out-1-py3-none-any.whl").symlink_to(machine / "secret.whl")
    (machine / "mirror/out.whl").symlink_to(machine / "secret.whl")
    assert status(base, f"{urlsplit(base).path}/links/0/out-1-py3-none-any.whl") == 404
    assert status(base, f"{urlsplit(base).path}/sha256/{sha256(b'secret')}/out.whl") == 404


def test_without_the_token_nothing_is_served(base: str) -> None:
    assert status(base, f"/sha256/{sha256(b'torch')}/{TORCH}") == 404
    assert status(base, "/wrong/links/0/") == 404


def test_the_prefix_is_another_one_each_time(machine: Path, base: str) -> None:
    with serve(Shelves(), "127.0.0.1", Hashes(machine / "hashes.json")) as other:
        assert urlsplit(other).path != urlsplit(base).path
        assert len(urlsplit(other).path) > 30


def test_head_has_no_body(base: str) -> None:
    with urllib.request.urlopen(urllib.request.Request(f"{base}/links/0/{WHEEL}", method="HEAD")) as response:
        assert (response.headers["Content-Length"], response.read()) == ("3", b"")


def test_hashes_are_remembered_until_the_file_changes(tmp_path: Path) -> None:
    file, memory = tmp_path / "file", tmp_path / "hashes.json"
    file.write_bytes(b"one")
    hashes = Hashes(memory)
    assert hashes.sha256(file) == sha256(b"one")
    hashes.save()
    memory.write_text(memory.read_text().replace(sha256(b"one"), "remembered"))
    assert Hashes(memory).sha256(file) == "remembered"
    file.write_bytes(b"three")
    assert Hashes(memory).sha256(file) == sha256(b"three")


def test_an_address_of_another_machine_is_refused() -> None:
    with (
        pytest.raises(OSError, match="Cannot assign requested address"),
        serve(Shelves(), "198.51.100.1", Hashes(Path("hashes.json"))),
    ):
        pass
