"""Pages of package indexes, and METADATA of the wheels that they list."""

import io
import json
import os
import tracemalloc
import zipfile
from collections.abc import Callable

import pytest

from bakehouse.fetch import http_client
from bakehouse.fetch.faults import SourceError
from bakehouse.fetch.pip_config import PipConfig
from bakehouse.fetch.simple_index import JSON, IndexFile, links
from bakehouse.fetch.sources import DownloadConfig
from tests.support.file_server import FileServer, serving

TEXT = "Metadata-Version: 2.1\nName: part\nVersion: 1.0\n"
NAME = "part-1.0.dist-info/METADATA"


@pytest.mark.parametrize(
    ("yanked", "reason"), [(False, None), (None, None), ("", None), (True, ""), ("it hangs", "it hangs")]
)
def test_only_true_and_a_reason_withdraw_a_file(yanked: object, reason: str | None) -> None:
    page = json.dumps({"files": [{"url": "part-1.0.tar.gz", "yanked": yanked}]})
    [link] = links(page, JSON, "https://index.example/part/")
    assert link.yanked == reason


def test_html_that_python_cannot_parse_is_not_a_page() -> None:
    assert links("<a href='part-1.0.tar.gz'></a><![sorry[", "text/html", "https://index.example/part/") == ()


def wheel(compression: int = zipfile.ZIP_DEFLATED, text: str = TEXT, padding: int = 0) -> bytes:
    """Return a wheel that starts with other contents."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive:
        archive.writestr(zipfile.ZipInfo("part/data"), b"x" * padding)
        archive.writestr(NAME, text)
    return stream.getvalue()


def config() -> DownloadConfig:
    return DownloadConfig((), PipConfig(), None, {**os.environ, "NO_PROXY": "127.0.0.1"})


def metadata_of(server: FileServer, content: bytes) -> str:
    server.files["/part.whl"] = content
    return config().wheel_metadata(IndexFile(f"{server.url}/part.whl", "", len(content)))


@pytest.mark.parametrize(
    "read",
    [
        lambda config, url: config.page(url, 10**6),
        lambda config, url: config.sha256(url, 10**6),
        lambda config, url: config.wheel_metadata(IndexFile(url, "", 100)),
    ],
)
def test_an_answer_that_trickles_is_left(
    read: Callable[[DownloadConfig, str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_client, "_SLOW_SECONDS", 0.1)
    with serving() as server:
        server.files["/page"], server.pause = bytes(100), 0.01
        with pytest.raises(SourceError, match="too slow"):
            read(config(), f"{server.url}/page")


def test_a_compressed_page_is_read_to_its_end() -> None:
    with serving() as server:
        server.packs = True
        server.files["/page"] = TEXT.encode() * 10**5
        assert config().page(f"{server.url}/page", 10**8) == TEXT * 10**5


def test_metadata_is_read_from_a_part_of_the_wheel() -> None:
    with serving() as server:
        assert metadata_of(server, wheel(padding=10**6)) == TEXT
        assert all(int(start.strip("bytes=-")) > 9 * 10**5 for start in server.ranges())


def damaged(compression: int) -> bytes:
    content = wheel(compression, text="".join(map(str, range(1000))))
    start = content.index(NAME.encode()) + len(NAME) + 20
    return content[:start] + bytes(50) + content[start + 50 :]


@pytest.mark.parametrize(
    "content",
    [
        b"sorry",
        damaged(zipfile.ZIP_DEFLATED),
        damaged(zipfile.ZIP_BZIP2),
        damaged(zipfile.ZIP_LZMA),
        wheel().replace(b"METADATA", b"METADATO"),
    ],
)
def test_a_damaged_wheel_is_an_answer_that_is_not_usable(content: bytes) -> None:
    with serving() as server, pytest.raises(SourceError, match=r"has no readable wheel `part\.whl`"):
        metadata_of(server, content)


def test_a_wheel_that_states_a_small_size_does_not_fill_the_memory() -> None:
    content = wheel(text="x" * 6 * 10**7)
    content = content.replace((6 * 10**7).to_bytes(4, "little"), (100).to_bytes(4, "little"))
    tracemalloc.start()
    try:
        with serving() as server, pytest.raises(SourceError):
            metadata_of(server, content)
        assert tracemalloc.get_traced_memory()[1] < 3 * 10**7
    finally:
        tracemalloc.stop()
