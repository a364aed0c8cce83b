"""File server of build steps: it serves only the files of the plan."""

import http.client
import socket
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from bakehouse.builder import file_server
from bakehouse.fetch.cache import FileCache
from bakehouse.fetch.downloader import Fetcher
from bakehouse.fetch.local_mirror import HashCache, LocalMirrors
from bakehouse.fetch.pip_config import PipConfig
from bakehouse.fetch.required_files import RequiredFile, RequiredFiles
from bakehouse.fetch.sources import DownloadConfig
from tests.support.fake_engine import HOST
from tests.support.file_server import FileServer, required_file, serving

ONE = required_file(b"one", "Tiny.Part-1.0+cpu-py3-none-any.whl", "wheel", "Tiny.Part==1.0+cpu")
TWO = required_file(b"two", "tiny_part-2.0.tar.gz", "sdist", "tiny-part==2.0")
ARCHIVE = required_file(b"archive", "part.tgz", "url", "")
WHEEL = required_file(
    b"wheel", "torch-2.0+cpu-cp311-cp311-linux_x86_64.whl", "url", "https://x.example/t.whl"
)
LOST = required_file(b"lost", "lost-1.0.tar.gz", "sdist", "lost==1.0")


class Steps:
    """Server of the files of two stages, with a mirror and a cache."""

    def __init__(self, url: str, mirror: FileServer, fetcher: Fetcher) -> None:
        self.url, self.mirror, self.fetcher = url, mirror, fetcher

    def get(self, path: str) -> bytes:
        with urllib.request.urlopen(self.url + path, timeout=30) as response:
            return bytes(response.read())

    def status(self, path: str) -> int:
        url = urlsplit(self.url)
        connection = http.client.HTTPConnection(url.netloc, timeout=30)
        connection.request("GET", path if path.startswith("//") else url.path + path)
        status = connection.getresponse().status
        connection.close()
        return status


@pytest.fixture
def steps(tmp_path: Path) -> Iterator[Steps]:
    stages: tuple[tuple[RequiredFile, ...], ...] = ((ONE, TWO), (ARCHIVE, LOST), (WHEEL,))
    files = tuple(file for stage in stages for file in stage)
    plan = RequiredFiles(files, dict.fromkeys(files, ("image",)), stages)
    with serving() as mirror:
        for file, content in ((ONE, b"one"), (TWO, b"two"), (ARCHIVE, b"archive")):
            mirror.files[f"/{file.sha256}/{file.file.replace('+', '%2B')}"] = content
        mirror.files[f"/{'0' * 64}/unused.tgz"] = b"anything"
        machine = DownloadConfig((mirror.url,), PipConfig(no_index=True), None, {})
        store = FileCache(tmp_path / "store", print)
        fetcher = Fetcher(store, LocalMirrors((), HashCache(tmp_path / "hashes")), offers=machine.offers)
        with fetcher, file_server.serve(plan, fetcher, HOST) as url:
            yield Steps(url, mirror, fetcher)


def test_a_projects_page_has_the_files_of_the_plan_alone(steps: Steps) -> None:
    first, two = ONE.sha256, TWO.sha256
    assert steps.get("/simple/Tiny_Part/").decode() == (
        "<!DOCTYPE html><html><body>\n"
        f'<a href="../../sha256/{first}/Tiny.Part-1.0%2Bcpu-py3-none-any.whl#sha256={first}">'
        "Tiny.Part-1.0+cpu-py3-none-any.whl</a><br>\n"
        f'<a href="../../sha256/{two}/tiny_part-2.0.tar.gz#sha256={two}">tiny_part-2.0.tar.gz</a><br>\n'
        "</body></html>\n"
    )
    assert steps.mirror.requests == []


def test_a_body_does_not_wait_for_the_acknowledgement_of_its_headers(steps: Steps) -> None:
    url = urlsplit(steps.url)
    connection = http.client.HTTPConnection(url.netloc, timeout=30)
    seconds = []
    for _ in range(10):
        began = time.monotonic()
        connection.request("GET", f"{url.path}/simple/tiny-part/")
        connection.getresponse().read()
        seconds.append(time.monotonic() - began)
    connection.close()
    # The kernel acknowledges the first packets at once, and later ones after 40 ms
    assert min(seconds[2:]) < 0.03


def test_a_wheel_of_a_component_is_on_the_page_of_its_project(steps: Steps) -> None:
    assert f"../../sha256/{WHEEL.sha256}/torch-2.0%2Bcpu-cp311" in steps.get("/simple/torch/").decode()


def test_a_file_is_fetched_when_it_is_asked_for_and_its_stage_with_it(steps: Steps) -> None:
    assert steps.get(f"/sha256/{ONE.sha256}/{ONE.file.replace('+', '%2B')}") == b"one"
    transfers = steps.fetcher.transfers
    assert {transfer.file for transfer in transfers} == {ONE, TWO}
    for transfer in transfers:
        assert transfer.done.wait(30)
    assert len(steps.mirror.requests) == 2


def test_an_unavailable_file_is_not_found_and_reported(steps: Steps) -> None:
    assert steps.status(f"/sha256/{LOST.sha256}/{LOST.file}") == 404
    assert [failure.file for failure in steps.fetcher.take_failures()] == [LOST]


@pytest.mark.parametrize(
    "path",
    [
        f"/sha256/{'0' * 64}/unused.tgz",
        f"/sha256/{ONE.sha256}/{TWO.file}",
        f"/sha256/unknown/{ARCHIVE.file}",
        f"/sha256/{ONE.sha256}/..%2F..%2F..%2Fetc%2Fpasswd",
        "/simple/other/",
        "/simple/part-tgz/",
        "/simple/",
        "/index/0/x/",
        "//wrong/simple/tiny-part/",
    ],
)
def test_what_the_plan_does_not_name_is_refused(steps: Steps, path: str) -> None:
    assert steps.status(path) == 404
    assert steps.mirror.requests == []


@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE", "PATCH", "OPTIONS"])
def test_files_can_only_be_read(steps: Steps, method: str) -> None:
    url = urlsplit(steps.url)
    path = f"{url.path}/sha256/{ONE.sha256}/{ONE.file.replace('+', '%2B')}"
    assert request(url.netloc, method, path) == 501
    assert (request(url.netloc, "GET", path), request(url.netloc, "HEAD", path)) == (200, 200)


def test_the_prefix_is_secret(steps: Steps) -> None:
    url = urlsplit(steps.url)
    for prefix in ("", "/", f"{url.path[:-1]}", f"{url.path}x", f"/{'A' * 32}"):
        assert request(url.netloc, "GET", f"{prefix}/simple/tiny-part/") == 404
    assert len(url.path) > 32
    assert steps.mirror.requests == []


def test_only_the_given_address_is_served(steps: Steps) -> None:
    port = urlsplit(steps.url).port
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", port), timeout=5)


def test_the_server_ends_with_its_block(tmp_path: Path) -> None:
    with file_server.serve_stubs(tmp_path, HOST) as url:
        port = urlsplit(url).port
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)


def request(netloc: str, method: str, path: str) -> int:
    """Send a request as it is, without a client that corrects it; return the status."""
    host, _, port = netloc.partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        return int(connection.makefile("rb").readline().split()[1])
