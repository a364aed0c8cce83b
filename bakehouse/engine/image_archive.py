"""Images as the engine exports them, read in one pass: no layer is unpacked to disk or held in memory."""

import contextlib
import gzip
import io
import json
import posixpath
import re
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any, Literal

from bakehouse.errors import Diagnostic, EngineError

_LARGEST_DOCUMENT = 16 << 20
_HEAD = 512
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_TAR_OFFSET, _TAR = 257, b"ustar"
_HASH = re.compile("[0-9a-f]{64}")
_UNREADABLE = (
    *(tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError),
    *(ValueError, LookupError, TypeError, AttributeError),
)
"""Exceptions that damaged archives and documents raise."""

Compression = Literal["gzip", "zstd", "none"]
Reader = Callable[[IO[bytes]], object]


@dataclass(frozen=True, slots=True)
class LayerBlob:
    """A layer as the engine stores it."""

    digest: str
    bytes: int
    compression: Compression


@dataclass(frozen=True, slots=True)
class SavedImage:
    """The layers of an image, lowest first, and the instructions that made them."""

    layers: tuple[LayerBlob, ...]
    made_by: tuple[str, ...]
    """The instruction of each layer; empty if the image has no history."""
    config: bytes = b""
    """Its configuration, as JSON."""


def walk(
    chunks: Iterable[bytes],
    reader_of: Callable[[str], Reader | None],
    on_progress: Callable[[int], object] = lambda number: None,
) -> SavedImage:
    """Read an image; `reader_of` returns the reader of a layer's uncompressed archive, or None."""
    blobs: dict[str, LayerBlob] = {}
    documents: dict[str, bytes] = {}
    links: dict[str, str] = {}
    stream = io.BufferedReader(_Chunks(chunks, on_progress), 1 << 20)
    try:
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            while member := archive.next():
                if member.isreg():
                    _take(archive, member, blobs, documents, reader_of)
                elif member.issym():
                    # Docker up to version 24 saves the second of two equal layers as a link to the first.
                    links[member.name] = posixpath.join(posixpath.dirname(member.name), member.linkname)
        # Read the engine's response to its end; otherwise the connection is aborted
        while stream.read(1 << 20):
            pass
        return _image(blobs, documents, links)
    except _UNREADABLE as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise EngineError(_unreadable(reason)) from error


def _unreadable(reason: str) -> Diagnostic:
    hint = "run `docker save IMAGE | tar t` to see the engine's archive"
    return Diagnostic("the engine exported an unreadable image", facts=(("reason", reason),), hint=hint)


def _take(
    archive: tarfile.TarFile,
    member: tarfile.TarInfo,
    blobs: dict[str, LayerBlob],
    documents: dict[str, bytes],
    reader_of: Callable[[str], Reader | None],
) -> None:
    file = archive.extractfile(member)
    assert isinstance(file, io.BufferedReader)
    compression = compression_of(file.peek(_HEAD))
    if compression is None:
        if member.size <= _LARGEST_DOCUMENT:
            documents[member.name] = file.read()
        return
    last = member.name.rpartition("/")[2]
    # Docker's own image store up to version 24 names layers `<id>/layer.tar`
    digest = f"sha256:{last}" if _HASH.fullmatch(last) else member.name
    blobs[member.name] = LayerBlob(digest, member.size, compression)
    if reader := reader_of(digest):
        with decompressed(file, compression) as inner:
            reader(inner)


def _image(
    blobs: Mapping[str, LayerBlob], documents: Mapping[str, bytes], links: Mapping[str, str]
) -> SavedImage:
    if "manifest.json" not in documents:
        message = "it contains no image"
        raise ValueError(message)
    (listed,) = json.loads(documents["manifest.json"])
    config = documents[listed["Config"]]
    layers = tuple(blobs[posixpath.normpath(links.get(name, name))] for name in listed["Layers"])
    return SavedImage(layers, instructions(config, len(layers)), config)


def instructions(config: bytes, layers: int) -> tuple[str, ...]:
    """Return the instruction of each layer by an image's configuration; empty ones without a history."""
    history = json.loads(config).get("history") or ()
    made_by = tuple(str(step.get("created_by", "")) for step in history if not step.get("empty_layer"))
    return made_by if len(made_by) == layers else ("",) * layers


class _Chunks(io.RawIOBase):
    """Chunks of bytes as a file."""

    def __init__(self, chunks: Iterable[bytes], on_progress: Callable[[int], object]) -> None:
        self._chunks, self._on_progress = iter(chunks), on_progress
        self._left = memoryview(b"")
        self._count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left:
            try:
                self._left = memoryview(next(self._chunks))
            except StopIteration:
                return 0
            self._count += len(self._left)
            self._on_progress(self._count)
        size = min(len(buffer), len(self._left))
        buffer[:size] = self._left[:size]
        self._left = self._left[size:]
        return size


def compression_of(head: bytes) -> Compression | None:
    """Return the compression of a tar archive by its first bytes; None if it is not an archive."""
    if head.startswith(_GZIP):
        return "gzip"
    if head.startswith(_ZSTD):
        return "zstd"
    is_empty = len(head) >= _HEAD and not any(head[:_HEAD])
    return "none" if is_empty or head[_TAR_OFFSET:].startswith(_TAR) else None


@contextlib.contextmanager
def decompressed(file: IO[bytes], compression: Compression) -> Iterator[IO[bytes]]:
    """Open the decompressed content of a file, to be read once."""
    if compression == "gzip":
        with gzip.GzipFile(fileobj=file) as inner:
            yield inner  # type: ignore[misc]  # reads as any file does
    elif compression == "zstd":
        import zstandard

        try:
            with zstandard.ZstdDecompressor().stream_reader(
                file, read_across_frames=True, closefd=False
            ) as inner:
                yield inner
        except zstandard.ZstdError as error:
            raise ValueError(str(error)) from error
    else:
        yield file
