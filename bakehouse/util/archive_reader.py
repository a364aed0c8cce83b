"""Readers of compressed content and archives that others made: streamed, with limits of size and number.

A few kilobytes can unpack to gigabytes. So nothing is unpacked as a whole: decoders return chunks of limited
size, and the limits are checked before the next chunk.
"""

import bz2
import contextlib
import io
import itertools
import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, Literal, Protocol

from bakehouse.util.format import format_bytes, format_count

CHUNK_BYTES = 1 << 16
MAX_MEMBERS = 2_000_000
"""Limit of the entries of a tar archive. Images have some 100,000."""
_MAX_ZIP_DIRECTORY = 16_000_000
"""Limit of the directory of a zip archive. That of PyTorch's wheel has 2 MB."""
_MAX_HEADER_BYTES = 1 << 20
"""Limit of a header of a tar archive with a long name or other attributes."""
_MAX_DICTIONARY = 1 << 28
_FREE_BYTES = 1 << 26
_MAX_RATIO = 200
"""Limit of unpacked to packed bytes above `_FREE_BYTES`. Source code and libraries have less than 20."""
_MAX_UNPACKED = 1 << 32
_MAGIC: dict[bytes, "Compression"] = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bz2",
    b"\xfd7zXZ\0": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
}
_EXTENDED = (
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
)
DAMAGED = (
    *(OSError, EOFError, ValueError, LookupError, TypeError, AttributeError),
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, RuntimeError, NotImplementedError),
)
"""Exceptions that damaged archives raise."""

Compression = Literal["gzip", "bz2", "xz", "zstd", "none"]


class ArchiveError(ValueError):
    """An archive is damaged, or exceeds a limit."""


class _Decoder(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _GzipDecoder:
    """Decoder of zlib with the interface of those of bz2 and lzma."""

    def __init__(self) -> None:
        # With the header of gzip or of zlib
        self._decoder, self._rest = zlib.decompressobj(47), b""

    @property
    def eof(self) -> bool:
        return self._decoder.eof

    @property
    def needs_input(self) -> bool:
        return not self._rest

    @property
    def unused_data(self) -> bytes:
        return self._decoder.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        content = self._decoder.decompress(self._rest + data, max_length)
        self._rest = self._decoder.unconsumed_tail
        return content


_DECODERS: dict[str, Callable[[], _Decoder]] = {
    "gzip": _GzipDecoder,
    "bz2": bz2.BZ2Decompressor,
    "xz": lambda: lzma.LZMADecompressor(memlimit=_MAX_DICTIONARY),
}


def compression_of(head: bytes) -> Compression:
    """Return the compression of a file by its first bytes."""
    for magic, compression in _MAGIC.items():
        if head.startswith(magic):
            return compression
    return "none"


def decompress(chunks: Iterable[bytes], compression: Compression) -> Iterator[bytes]:
    """Yield the content in chunks of limited size. Raises ArchiveError if it is damaged or cut off."""
    if compression == "none":
        yield from chunks
    elif compression == "zstd":
        import zstandard

        decoder = zstandard.ZstdDecompressor(max_window_size=_MAX_DICTIONARY)
        with decoder.stream_reader(as_file(chunks), read_across_frames=True) as stream:
            try:
                while chunk := stream.read(CHUNK_BYTES):
                    yield chunk
            except zstandard.ZstdError as error:
                raise ArchiveError(str(error)) from error
    else:
        yield from _decoded(chunks, _DECODERS[compression])


def _decoded(chunks: Iterable[bytes], new: Callable[[], _Decoder]) -> Iterator[bytes]:
    decoder: _Decoder | None = None
    for chunk in chunks:
        while chunk or (decoder and not decoder.eof and not decoder.needs_input):
            if decoder is None or decoder.eof:
                # Zeros after the end are padding.
                chunk, decoder = chunk.lstrip(b"\0") if decoder else chunk, new()
                if not chunk:
                    decoder = None
                    break
            try:
                content = decoder.decompress(chunk, CHUNK_BYTES)
            except (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError) as error:
                raise ArchiveError(str(error)) from error
            yield content
            chunk = decoder.unused_data if decoder.eof else b""
    if decoder and not decoder.eof:
        message = "it is cut off"
        raise ArchiveError(message)


def limited(chunks: Iterable[bytes], max_bytes: int) -> Iterator[bytes]:
    """Yield chunks up to a limit; raise ArchiveError beyond it."""
    count = 0
    for chunk in chunks:
        count += len(chunk)
        if count > max_bytes:
            message = f"it has more than {format_bytes(max_bytes)}"
            raise ArchiveError(message)
        yield chunk


def unpacked_limit(packed: int) -> int:
    """Return the limit of the unpacked bytes of a file of this size."""
    return min(max(_FREE_BYTES, _MAX_RATIO * packed), _MAX_UNPACKED)


def as_file(chunks: Iterable[bytes]) -> io.BufferedReader:
    """Return chunks of bytes as a file."""
    return io.BufferedReader(_Chunks(chunks), CHUNK_BYTES)


class _Chunks(io.RawIOBase):
    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks, self._left = iter(chunks), memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left:
            try:
                self._left = memoryview(next(self._chunks))
            except StopIteration:
                return 0
        size = min(len(buffer), len(self._left))
        buffer[:size] = self._left[:size]
        self._left = self._left[size:]
        return size


class _Header(tarfile.TarInfo):
    """Header of an entry. tarfile would read long names and lists of holes of any length into memory."""

    def _proc_member(self, archive: tarfile.TarFile) -> Any:
        if self.type in _EXTENDED and self.size > _MAX_HEADER_BYTES:
            message = f"it has a header of {format_bytes(self.size)}"
            raise ArchiveError(message)
        return super()._proc_member(archive)  # type: ignore[misc]

    def _proc_sparse(self, archive: tarfile.TarFile) -> Any:
        if self._sparse_structs[1]:  # type: ignore[attr-defined]
            raise _sparse()
        return super()._proc_sparse(archive)  # type: ignore[misc]

    def _proc_gnusparse_10(self, *_: object) -> Any:
        raise _sparse()


def _sparse() -> ArchiveError:
    return ArchiveError("it has a file with many holes, which are not read")


def tar_members(
    file: IO[bytes], max_members: int = MAX_MEMBERS
) -> Iterator[tuple[tarfile.TarInfo, tarfile.TarFile]]:
    """Yield the entries of an uncompressed archive in their order; each can be read until the next one.

    Raises ArchiveError for too many or too long headers, tarfile.TarError for damaged ones.
    """
    with contextlib.ExitStack() as stack:
        archive: tarfile.TarFile | None = None
        for count in itertools.count():
            try:
                # Opening it reads its first header.
                archive = archive or stack.enter_context(
                    tarfile.open(fileobj=file, mode="r|", tarinfo=_Header)
                )
                member = archive.next()
            except RecursionError as error:
                message = "it has too many headers of one entry"
                raise ArchiveError(message) from error
            if member is None:
                return
            if count == max_members:
                message = f"it has more than {format_count(max_members, 'entry', 'entries')}"
                raise ArchiveError(message)
            # Without this, the archive keeps every member in memory
            archive.members.clear()  # type: ignore[attr-defined]
            yield member, archive


def open_zip(file: IO[bytes] | Path) -> zipfile.ZipFile:
    """Open a zip archive whose directory has a limited size. Raises ArchiveError or zipfile.BadZipFile."""
    if isinstance(file, Path):
        with file.open("rb") as stream:
            _check_directory(stream)
    else:
        _check_directory(file)
    return zipfile.ZipFile(file)


def _check_directory(file: IO[bytes]) -> None:
    record = zipfile._EndRecData(file)  # type: ignore[attr-defined]
    if record and record[zipfile._ECD_SIZE] > _MAX_ZIP_DIRECTORY:  # type: ignore[attr-defined]
        message = f"its directory has more than {format_bytes(_MAX_ZIP_DIRECTORY)}"
        raise ArchiveError(message)


def zip_content(archive: zipfile.ZipFile, name: str | zipfile.ZipInfo, max_bytes: int) -> bytes:
    """Return a file of a zip archive. Raises ArchiveError if it is larger, and errors of zipfile."""
    info = archive.getinfo(name) if isinstance(name, str) else name
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        # zipfile does not limit what the others unpack to.
        message = f"`{info.filename}` has a compression that is not read"
        raise ArchiveError(message)
    with archive.open(info) as file:
        return b"".join(limited(iter(lambda: file.read(CHUNK_BYTES), b""), max_bytes))


def find(path: Path | IO[bytes], pattern: re.Pattern[str], max_bytes: int) -> bytes | None:
    """Return the first file of a zip or tar archive whose name matches; None without one.

    Larger files count as missing. Raises ArchiveError, with any cause that a damaged archive has.
    """
    try:
        with path.open("rb") if isinstance(path, Path) else path as file:
            is_zip = zipfile.is_zipfile(file)
            size = file.seek(0, io.SEEK_END)
            file.seek(0)
            return _in_zip(file, pattern, max_bytes) if is_zip else _in_tar(file, size, pattern, max_bytes)
    except ArchiveError:
        raise
    except DAMAGED as error:
        raise ArchiveError(str(error)) from error


def _in_zip(file: IO[bytes], pattern: re.Pattern[str], max_bytes: int) -> bytes | None:
    with open_zip(file) as archive:
        infos = (info for info in archive.infolist() if info.file_size <= max_bytes)
        info = next((info for info in infos if pattern.fullmatch(info.filename)), None)
        return zip_content(archive, info, max_bytes) if info else None


def _in_tar(file: IO[bytes], size: int, pattern: re.Pattern[str], max_bytes: int) -> bytes | None:
    head = file.read(8)
    file.seek(0)
    chunks = decompress(iter(lambda: file.read(CHUNK_BYTES), b""), compression_of(head))
    for member, archive in tar_members(as_file(limited(chunks, unpacked_limit(size)))):
        if pattern.fullmatch(member.name) and member.isfile() and member.size <= max_bytes:
            content = archive.extractfile(member)
            return content.read(max_bytes) if content else b""
    return None
