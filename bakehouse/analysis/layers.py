"""Contents of a layer, read from its stream: names and sizes of files, never their content."""

import hashlib
import struct
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import IO

from bakehouse.engine.image_archive import Reader, ReaderOf
from bakehouse.util import archive_reader

HASHED_BYTES = 16 * 1024
"""Files of at least this size are hashed."""
WHITEOUT, OPAQUE = ".wh.", ".wh..wh..opq"
CHUNK = 1 << 20

_ELF_MAGIC = b"\x7fELF"
_ELF_TAIL = 1 << 18
"""Bytes at the end of an ELF file that are read, because its section table is there."""
_ELF_IDENT = struct.Struct("<4sBB58x")
_ELF_SECTION_TABLE = struct.Struct("<40xQ10xHHH")
_ELF_SECTION = struct.Struct("<II16xQQ24x")
_ELF_NO_BITS = 8
_SYMBOL_SECTIONS = (b".symtab", b".strtab", b".debug", b".zdebug", b".gdb_index")


@dataclass(frozen=True, slots=True)
class LayerFile:
    """A regular file of a layer."""

    path: str
    """The absolute path in the image, such as `/opt/venv/pyvenv.cfg`."""
    bytes: int
    sha256: str = ""
    """Empty for small files."""
    symbols: int = 0
    """Bytes of its symbol tables and debug information."""
    links: tuple[str, ...] = ()
    """Other names of the same file (hard links)."""


@dataclass(frozen=True, slots=True)
class LayerContents:
    """Files and removals of one layer."""

    files: tuple[LayerFile, ...]
    others: tuple[str, ...] = ()
    """Entries without a size, such as symbolic links and devices. They hide files of lower layers."""
    removed: tuple[str, ...] = ()
    """Paths of lower layers that are removed."""
    emptied: tuple[str, ...] = ()
    """Directories whose contents in lower layers are removed."""

    @property
    def bytes(self) -> int:
        """The size of all files, unpacked."""
        return sum(file.bytes for file in self.files)


def read(stream: IO[bytes]) -> LayerContents:
    """Read the contents of a layer from an uncompressed archive; the stream is read to its end."""
    files: dict[str, LayerFile] = {}
    others, removed, emptied = set(), [], []
    for path, member, archive in members(stream):
        directory, _, name = path.rpartition("/")
        if name == OPAQUE:
            emptied.append(directory or "/")
        elif name.startswith(WHITEOUT):
            removed.append(f"{directory}/{name.removeprefix(WHITEOUT)}")
        elif member.isreg():
            others.discard(path)
            files[path] = _file(path, member, archive)
        elif member.islnk():
            _link(path, rooted(member.linkname), files)
        elif not member.isdir():
            files.pop(path, None)
            others.add(path)
    return LayerContents(tuple(files.values()), tuple(sorted(others)), tuple(removed), tuple(emptied))


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


def _link(path: str, target: str, files: dict[str, LayerFile]) -> None:
    """Add a name to a file; the target may be a link itself."""
    file = files.get(target) or next((file for file in files.values() if target in file.links), None)
    if file:
        files[file.path] = replace(file, links=(*file.links, path))


def _file(path: str, member: tarfile.TarInfo, archive: tarfile.TarFile) -> LayerFile:
    if member.size < HASHED_BYTES:
        return LayerFile(path, member.size)
    content = archive.extractfile(member)
    assert content is not None
    digest = hashlib.sha256()
    head = tail = b""
    while chunk := content.read(CHUNK):
        digest.update(chunk)
        head = head or chunk[:64]
        if head.startswith(_ELF_MAGIC):
            tail = (tail + chunk)[-_ELF_TAIL:]
    return LayerFile(path, member.size, digest.hexdigest(), symbol_bytes(head, tail, member.size))


def symbol_bytes(head: bytes, tail: bytes, size: int) -> int:
    """Return the bytes of symbol tables and debug information in a 64-bit ELF file.

    `head` and `tail` are the beginning and the end of the file of `size` bytes. Returns 0 if `tail` does not
    contain the section table.
    """
    if len(head) < _ELF_SECTION_TABLE.size or _ELF_IDENT.unpack_from(head) != (_ELF_MAGIC, 2, 1):
        return 0
    table, entry_size, count, names_index = _ELF_SECTION_TABLE.unpack_from(head)
    tail_offset = size - len(tail)
    start = table - tail_offset
    if (
        start < 0
        or entry_size != _ELF_SECTION.size
        or start + count * entry_size > len(tail)
        or names_index >= count
    ):
        return 0
    sections = [_ELF_SECTION.unpack_from(tail, start + index * entry_size) for index in range(count)]
    names_start = sections[names_index][2] - tail_offset
    if names_start < 0:
        return 0
    return sum(
        length
        for name, kind, _, length in sections
        if kind != _ELF_NO_BITS and tail.startswith(_SYMBOL_SECTIONS, names_start + name)
    )
