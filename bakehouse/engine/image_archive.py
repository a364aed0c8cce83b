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

from bakehouse.errors import EngineError
from bakehouse.util import archive_reader

READ_BYTES = 1 << 20
_MAX_DOCUMENT_BYTES = 16 << 20
_MAX_BLOBS = 10_000
_HEAD = 512
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_TAR_OFFSET, _TAR = 257, b"ustar"
_HASH = re.compile("[0-9a-f]{64}")
_UNREADABLE = (
    tarfile.TarError,
    gzip.BadGzipFile,
    zlib.error,
    EOFError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
)
"""Exceptions that damaged archives and documents raise."""

Compression = Literal["gzip", "zstd", "none"]
Reader = Callable[[IO[bytes]], object]
ReaderOf = Callable[[str], Reader | None]
"""Returns the reader of a layer's uncompressed archive by its digest; None for layers to skip."""
OnProgress = Callable[[int], object]
"""Receives the number of bytes read so far."""


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
    chunks: Iterable[bytes], reader_of: ReaderOf, on_progress: OnProgress = lambda number: None
) -> SavedImage:
    """Read an image from its archive."""
    with unreadable_as_engine_error():
        return _image(*_members(chunks, reader_of, on_progress))


def walk_to_config(chunks: Iterable[bytes]) -> bytes:
    """Read the configuration of an image from its archive, which may lack layers."""
    with unreadable_as_engine_error():
        _, documents, _ = _members(chunks, lambda digest: None, lambda number: None)
        return _config(documents)[1]


def _members(
    chunks: Iterable[bytes], reader_of: ReaderOf, on_progress: OnProgress
) -> tuple[dict[str, LayerBlob], dict[str, bytes], dict[str, str]]:
    """Return the layers, documents and links of an archive by name."""
    blobs: dict[str, LayerBlob] = {}
    documents: dict[str, bytes] = {}
    links: dict[str, str] = {}
    stream = buffered(chunks, on_progress)
    for member, archive in archive_reader.tar_members(stream, _MAX_BLOBS):
        if member.isreg():
            _take(archive, member, blobs, documents, reader_of)
        elif member.issym():
            # Docker up to version 24 saves the second of two equal layers as a link to the first.
            links[member.name] = posixpath.join(posixpath.dirname(member.name), member.linkname)
    # Read the engine's response to its end; otherwise the connection is aborted
    while stream.read(READ_BYTES):
        pass
    return blobs, documents, links


@contextlib.contextmanager
def unreadable_as_engine_error() -> Iterator[None]:
    """Raise EngineError for a damaged archive or document."""
    try:
        yield
    except _UNREADABLE as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise EngineError(
            "the engine exported an unreadable image",
            facts=(("reason", reason),),
            hint="run `docker save IMAGE | tar t` to see the engine's archive",
        ) from error


def _take(
    archive: tarfile.TarFile,
    member: tarfile.TarInfo,
    blobs: dict[str, LayerBlob],
    documents: dict[str, bytes],
    reader_of: ReaderOf,
) -> None:
    file = archive.extractfile(member)
    assert isinstance(file, io.BufferedReader)
    last = member.name.rpartition("/")[2]
    # Docker's own image store up to version 24 names layers `<id>/layer.tar`
    digest = f"sha256:{last}" if _HASH.fullmatch(last) else member.name
    if layer := read_layer(file, digest, member.size, reader_of):
        blobs[member.name] = layer
    elif member.size <= _MAX_DOCUMENT_BYTES:
        documents[member.name] = file.read()


def read_layer(file: io.BufferedReader, digest: str, size: int, reader_of: ReaderOf) -> LayerBlob | None:
    """Read a layer with the reader for its digest; return None if the file is not a layer."""
    compression = compression_of(file.peek(_HEAD))
    if compression is None:
        return None
    if reader := reader_of(digest):
        with decompressed(file, compression) as inner:
            reader(inner)
    return LayerBlob(digest, size, compression)


def _image(
    blobs: Mapping[str, LayerBlob], documents: Mapping[str, bytes], links: Mapping[str, str]
) -> SavedImage:
    listed, config = _config(documents)
    layers = tuple(blobs[posixpath.normpath(links.get(name, name))] for name in listed["Layers"])
    return SavedImage(layers, instructions(config, len(layers)), config)


def _config(documents: Mapping[str, bytes]) -> tuple[dict[str, Any], bytes]:
    """Return the entry of the only image in an archive, and its configuration."""
    if "manifest.json" not in documents:
        message = "it contains no image"
        raise ValueError(message)
    (listed,) = json.loads(documents["manifest.json"])
    return listed, documents[listed["Config"]]


def instructions(config: bytes, layers: int) -> tuple[str, ...]:
    """Return the instruction of each layer by an image's configuration; empty ones without a history."""
    history = json.loads(config).get("history") or ()
    made_by = tuple(str(step.get("created_by", "")) for step in history if not step.get("empty_layer"))
    return made_by if len(made_by) == layers else ("",) * layers


def buffered(chunks: Iterable[bytes], on_progress: OnProgress) -> io.BufferedReader:
    """Return chunks of bytes as a file."""

    def counted() -> Iterator[bytes]:
        count = 0
        for chunk in chunks:
            count += len(chunk)
            on_progress(count)
            yield chunk

    return archive_reader.as_file(counted())


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
