"""Reads an image as the engine saves it, in one pass: no layer is unpacked to disk or held in memory."""

import gzip
import io
import json
import re
import tarfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import IO, Any

from bakehouse.analysis import layers
from bakehouse.analysis.decompression import Compression, compression_of, opened
from bakehouse.analysis.layers import Contents
from bakehouse.errors import Diagnostic, EngineError

_LARGEST_DOCUMENT = 16 << 20
_HEAD = 512
_HASH = re.compile("[0-9a-f]{64}")
_UNREADABLE = (
    *(tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError),
    *(ValueError, LookupError, TypeError, AttributeError),
)
"""What reading damaged archives and documents raises."""

Reader = Callable[[IO[bytes]], object]


@dataclass(frozen=True, slots=True)
class Blob:
    """A layer as the engine stores it."""

    digest: str
    bytes: int
    compression: Compression


@dataclass(frozen=True, slots=True)
class SavedImage:
    """The layers of an image, lowest first, and how each was made."""

    layers: tuple[Blob, ...]
    made_by: tuple[str, ...]
    """The instruction of each layer; empty where the image doesn't tell."""
    other_bytes: int = 0
    """Of its manifest and its configuration."""
    config: bytes = b""
    """Its configuration, as JSON."""

    @property
    def is_as_pushed(self) -> bool:
        """Whether the engine stores layers compressed, as it pushes them."""
        return all(layer.compression != "none" for layer in self.layers)

    @property
    def bytes(self) -> int:
        """All that a registry stores for it, where the engine stores it so."""
        return self.other_bytes + sum(layer.bytes for layer in self.layers)


def read(
    chunks: Iterable[bytes],
    contents: dict[str, Contents] | None = None,
    heard: Callable[[int], object] = lambda number: None,
) -> SavedImage:
    """The image that comes in pieces; raises EngineError where it can't be read.

    What the layers hold goes into `contents` by their digests, and what is there already is not read again;
    without it layers are only weighed. `heard` is told how many bytes have come.
    """

    def reader_of(digest: str) -> Reader | None:
        if contents is None or digest in contents:
            return None
        return lambda layer: contents.update({digest: layers.read(layer)})

    return walk(chunks, reader_of, heard)


def walk(
    chunks: Iterable[bytes],
    reader_of: Callable[[str], Reader | None],
    heard: Callable[[int], object] = lambda number: None,
) -> SavedImage:
    """The same with a reader for the uncompressed archive of each layer, chosen by the layer's digest."""
    blobs: dict[str, Blob] = {}
    documents: dict[str, bytes] = {}
    stream = io.BufferedReader(_Chunks(chunks, heard), 1 << 20)
    try:
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            while member := archive.next():
                if member.isreg():
                    _take(archive, member, blobs, documents, reader_of)
        # What the engine says after the archive's end has to be heard, or it is cut off.
        while stream.read(1 << 20):
            pass
        return _image(blobs, documents)
    except _UNREADABLE as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise EngineError(_unreadable(reason)) from error


def _unreadable(reason: str) -> Diagnostic:
    hint = "`docker save IMAGE | tar t` shows what the engine gives"
    return Diagnostic("the engine saves an image that can't be read", facts=(("reason", reason),), hint=hint)


def _take(
    archive: tarfile.TarFile,
    member: tarfile.TarInfo,
    blobs: dict[str, Blob],
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
    # Docker 24's own store names layers after its ids, each `layer.tar`.
    digest = f"sha256:{last}" if _HASH.fullmatch(last) else member.name
    blobs[member.name] = Blob(digest, member.size, compression)
    if reader := reader_of(digest):
        with opened(file, compression) as inner:
            reader(inner)


def _image(blobs: Mapping[str, Blob], documents: Mapping[str, bytes]) -> SavedImage:
    if "manifest.json" not in documents:
        message = "it lists no image"
        raise ValueError(message)
    (listed,) = json.loads(documents["manifest.json"])
    config = documents[listed["Config"]]
    found = tuple(blobs[name] for name in listed["Layers"])
    history = json.loads(config).get("history") or ()
    made_by = tuple(str(one.get("created_by", "")) for one in history if not one.get("empty_layer"))
    digest = f"sha256:{listed['Config'].rpartition('/')[2]}"
    manifests = (content for content in documents.values() if _config_of(content) == digest)
    size = len(config) + len(next(manifests, b""))
    return SavedImage(found, made_by if len(made_by) == len(found) else ("",) * len(found), size, config)


def _config_of(content: bytes) -> object:
    """The digest of the configuration that a manifest names; None where this is none."""
    document: Any = json.loads(content)
    config = document.get("config") if isinstance(document, dict) else None
    return config.get("digest") if isinstance(config, dict) else None


class _Chunks(io.RawIOBase):
    """Pieces as a file."""

    def __init__(self, chunks: Iterable[bytes], heard: Callable[[int], object]) -> None:
        self._chunks, self._heard = iter(chunks), heard
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
            self._heard(self._count)
        size = min(len(buffer), len(self._left))
        buffer[:size] = self._left[:size]
        self._left = self._left[size:]
        return size
