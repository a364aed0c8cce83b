"""Reads what a layer holds from its stream: names and sizes are kept, never content."""

import hashlib
import tarfile
from dataclasses import dataclass, replace
from typing import IO

from bakehouse.analysis import elf

HASHED_BYTES = 16 * 1024
"""Files from this size on are told apart by their content."""
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class File:
    """A regular file that a layer brings."""

    path: str
    """From the image's root: `/opt/venv/pyvenv.cfg`."""
    bytes: int
    sha256: str = ""
    """Empty for small files."""
    symbols: int = 0
    """Of its bytes, those of symbol tables and debug information."""
    links: tuple[str, ...] = ()
    """More names of the same file."""


@dataclass(frozen=True, slots=True)
class Contents:
    """All that a layer says."""

    files: tuple[File, ...]
    others: tuple[str, ...] = ()
    """Symbolic links, devices and the like: they weigh nothing, and hide a file below of the same name."""
    removed: tuple[str, ...] = ()
    """Paths of layers below that are gone."""
    emptied: tuple[str, ...] = ()
    """Folders of which nothing in layers below is there any more."""

    @property
    def bytes(self) -> int:
        """Of all files, unpacked."""
        return sum(one.bytes for one in self.files)


def read(stream: IO[bytes]) -> Contents:
    """What the layer holds that comes as an uncompressed archive; the stream is read to its end."""
    files: dict[str, File] = {}
    others, removed, emptied = set(), [], []
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        while member := archive.next():
            # Else the archive remembers every member it gave.
            archive.members.clear()  # type: ignore[attr-defined]
            path = _rooted(member.name)
            folder, _, name = path.rpartition("/")
            if name == _OPAQUE:
                emptied.append(folder or "/")
            elif name.startswith(_WHITEOUT):
                removed.append(f"{folder}/{name.removeprefix(_WHITEOUT)}")
            elif member.isreg():
                others.discard(path)
                files[path] = _file(path, member, archive)
            elif member.islnk():
                _link(path, _rooted(member.linkname), files)
            elif not member.isdir():
                files.pop(path, None)
                others.add(path)
    while stream.read(_CHUNK):
        pass
    return Contents(tuple(files.values()), tuple(sorted(others)), tuple(removed), tuple(emptied))


def _rooted(name: str) -> str:
    return "/" + name.removeprefix("./").strip("/")


def _link(path: str, target: str, files: dict[str, File]) -> None:
    """Give a file one more name; its first may be a link itself."""
    found = files.get(target) or next((one for one in files.values() if target in one.links), None)
    if found:
        files[found.path] = replace(found, links=(*found.links, path))


def _file(path: str, member: tarfile.TarInfo, archive: tarfile.TarFile) -> File:
    if member.size < HASHED_BYTES:
        return File(path, member.size)
    content = archive.extractfile(member)
    assert content is not None
    digest = hashlib.sha256()
    head = tail = b""
    while chunk := content.read(_CHUNK):
        digest.update(chunk)
        head = head or chunk[:64]
        if head.startswith(elf.MAGIC):
            tail = (tail + chunk)[-elf.TAIL :]
    return File(path, member.size, digest.hexdigest(), elf.symbol_bytes(head, tail, member.size))
