"""Contents of a layer, read from its stream: names and sizes of files, never their content."""

import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import starmap
from typing import IO

from bakehouse.engine.image_archive import Reader, ReaderOf
from bakehouse.util import archive_reader

WHITEOUT, OPAQUE = ".wh.", ".wh..wh..opq"
CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class LayerFile:
    """A regular file of a layer."""

    path: str
    """The absolute path in the image, such as `/opt/venv/pyvenv.cfg`."""
    bytes: int


@dataclass(frozen=True, slots=True)
class LayerContents:
    """Files of one layer."""

    files: tuple[LayerFile, ...]

    @property
    def bytes(self) -> int:
        """The size of all files, unpacked."""
        return sum(file.bytes for file in self.files)


def read(stream: IO[bytes]) -> LayerContents:
    """Read the contents of a layer from an uncompressed archive; the stream is read to its end."""
    files: dict[str, int] = {}
    for path, member, _ in members(stream):
        if member.isreg() and not path.rpartition("/")[2].startswith(WHITEOUT):
            files[path] = member.size
        elif not member.isdir():
            files.pop(path, None)
    return LayerContents(tuple(starmap(LayerFile, files.items())))


def parents(path: str) -> Iterator[str]:
    """Yield the directories above a path, the root last."""
    while path := path.rpartition("/")[0]:
        yield path
    yield "/"


def readers_into(contents: dict[str, LayerContents]) -> ReaderOf:
    """Return the readers of layers that `contents` lacks. Each adds its layer to `contents`, by digest."""

    def reader_of(digest: str) -> Reader | None:
        if digest in contents:
            return None
        return lambda layer: contents.update({digest: read(layer)})

    return reader_of


def members(stream: IO[bytes]) -> Iterator[tuple[str, tarfile.TarInfo, tarfile.TarFile]]:
    """Yield the absolute path and the member of each entry of an archive, which is read to its end."""
    for member, archive in archive_reader.tar_members(stream):
        yield rooted(member.name), member, archive
    while stream.read(CHUNK):
        pass


def rooted(name: str) -> str:
    """Return the absolute path of an entry of a layer."""
    return "/" + name.removeprefix("./").strip("/")
