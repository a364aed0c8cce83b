"""Archives and compressed content of others: streamed, and refused where they unpack to too much."""

import bz2
import gzip
import io
import lzma
import re
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from bakehouse.util import archive_reader
from bakehouse.util.archive_reader import ArchiveError, Compression, as_file, decompress, limited

PACK: dict[Compression, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bz2": bz2.compress,
    "xz": lambda data: lzma.compress(data, preset=0),
    "zstd": zstandard.ZstdCompressor().compress,
    "none": bytes,
}
PACKED = [kind for kind in PACK if kind != "none"]
ANY = re.compile(".*")


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    return iter([data[at : at + size] for at in range(0, len(data), size)])


def peak_of(call: Callable[[], object]) -> int:
    """Return the most memory that a call takes."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@given(st.sampled_from(list(PACK)), st.lists(st.binary(max_size=300), max_size=3), st.integers(1, 99))
def test_content_is_the_same_in_any_pieces(kind: Compression, parts: list[bytes], size: int) -> None:
    packed = b"".join(PACK[kind](part * 1000) for part in parts)

    assert b"".join(decompress(pieces(packed, size * 50), kind)) == b"".join(part * 1000 for part in parts)
    assert not packed or kind == "none" or archive_reader.compression_of(packed) == kind


@pytest.mark.parametrize("kind", PACKED)
def test_content_that_is_cut_off_or_damaged_is_refused(kind: Compression) -> None:
    packed = bytearray(PACK[kind](bytes(range(256)) * 4))
    with pytest.raises(ArchiveError):
        list(decompress([bytes(packed[: len(packed) // 2])] if kind != "zstd" else [b"x"], kind))
    packed[len(packed) // 2 :] = b"\xff" * (len(packed) - len(packed) // 2)
    with pytest.raises(ArchiveError):
        list(decompress([bytes(packed)], kind))


@pytest.mark.parametrize("kind", PACKED)
def test_what_unpacks_to_much_takes_little_memory(kind: Compression) -> None:
    packed = PACK[kind](bytes(15_000_000))
    sizes: list[int] = []

    def unpack() -> None:
        with pytest.raises(ArchiveError, match=r"^it has more than 10.0 MB$"):
            sizes.extend(map(len, limited(decompress([packed], kind), 10_000_000)))

    assert peak_of(unpack) < 4_000_000
    assert max(sizes) <= archive_reader.CHUNK_BYTES


def tar_of(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for member, content in members:
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def header(kind: bytes, size: int) -> bytes:
    member = tarfile.TarInfo("x")
    member.type, member.size = kind, size
    return member.tobuf(tarfile.USTAR_FORMAT)


def endless(start: bytes) -> Iterator[bytes]:
    yield start
    for _ in range(4000):
        yield bytes(1 << 20)


@pytest.mark.parametrize(
    "kind",
    [tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE],
    ids=["long name", "long link", "attributes", "attributes of all"],
)
def test_a_header_without_end_takes_little_memory(kind: bytes) -> None:
    def read() -> None:
        with pytest.raises(ArchiveError, match=r"^it has a header of 4\.00 GB$"):
            list(archive_reader.tar_members(as_file(endless(header(kind, 4 * 10**9)))))

    assert peak_of(read) < 8_000_000


def test_an_entry_with_headers_without_end_is_refused() -> None:
    longs = (header(tarfile.GNUTYPE_LONGNAME, 2) + b"a".ljust(512, b"\0")) * 5000

    with pytest.raises(ArchiveError, match=r"^it has too many headers of one entry$"):
        list(archive_reader.tar_members(io.BytesIO(longs)))


def test_a_file_with_holes_without_end_is_refused() -> None:
    sparse = bytearray(header(tarfile.GNUTYPE_SPARSE, 0))
    sparse[482] = 1  # More holes follow
    sparse[148:156] = b"%06o\0 " % (sum(sparse[:148]) + sum(sparse[156:512]) + 8 * 32)

    with pytest.raises(ArchiveError, match=r"^it has a file with many holes, which are not read$"):
        list(archive_reader.tar_members(as_file(endless(bytes(sparse)))))


def test_entries_are_counted() -> None:
    archive = tar_of(*((tarfile.TarInfo(str(number)), b"") for number in range(4)))

    assert len(list(archive_reader.tar_members(io.BytesIO(archive), 4))) == 4
    with pytest.raises(ArchiveError, match=r"^it has more than 3 entries$"):
        list(archive_reader.tar_members(io.BytesIO(archive), 3))


def zip_of(method: int, **files: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def test_a_zip_archive_with_a_large_directory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_reader, "_MAX_ZIP_DIRECTORY", 100)
    archive_reader.open_zip(io.BytesIO(zip_of(zipfile.ZIP_STORED, a=b"1"))).close()
    with pytest.raises(ArchiveError, match=r"^its directory has more than 100 bytes$"):
        archive_reader.open_zip(io.BytesIO(zip_of(zipfile.ZIP_STORED, a=b"1", b=b"2", c=b"3")))


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_compression_that_zipfile_does_not_limit_is_refused(method: int) -> None:
    with pytest.raises(ArchiveError, match=r"^`.` has a compression that is not read$"):
        archive_reader.find(io.BytesIO(zip_of(method, a=b"1")), ANY, 1)


def test_a_zip_member_is_limited_whatever_it_states() -> None:
    content = zip_of(zipfile.ZIP_DEFLATED, a=bytes(20_000_000))
    with archive_reader.open_zip(io.BytesIO(content)) as archive:
        archive.getinfo("a").file_size = 10**12

        def read() -> None:
            with pytest.raises(ArchiveError, match=r"^it has more than 1.0 MB$"):
                archive_reader.zip_content(archive, "a", 1_000_000)

        assert peak_of(read) < 4_000_000


@pytest.mark.parametrize("kind", [*PACK, "zip"])
def test_a_file_is_found_in_each_kind_of_archive(kind: str, tmp_path: Path) -> None:
    path, pattern = tmp_path / "archive", re.compile("[ab]")
    files = {"c": b"other", "b": b"22", "a": b"1"}
    tar = tar_of(*((tarfile.TarInfo(name), content) for name, content in files.items()))
    path.write_bytes(zip_of(zipfile.ZIP_DEFLATED, **files) if kind == "zip" else PACK[kind](tar))  # type: ignore[index]

    assert archive_reader.find(path, pattern, 2) == b"22"
    assert archive_reader.find(path, pattern, 1) == b"1", "a larger file counts as missing"
    assert archive_reader.find(path, re.compile("d"), 1) is None


def test_an_archive_that_unpacks_to_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_reader, "_FREE_BYTES", 1_000_000)
    bomb = gzip.compress(tar_of((tarfile.TarInfo("a"), bytes(3_000_000)), (tarfile.TarInfo("b"), b"1")))
    with pytest.raises(ArchiveError, match=r"^it has more than 1.0 MB$"):
        archive_reader.find(io.BytesIO(bomb), re.compile("b"), 1)
