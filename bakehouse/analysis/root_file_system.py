"""The root file system of an image: its layers as one archive."""

import copy
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import IO

from bakehouse.analysis.layers import CHUNK, OPAQUE, WHITEOUT, members, parents, rooted

OpenLayer = Callable[[], AbstractContextManager[IO[bytes]]]
"""Opens the uncompressed archive of a layer; it is read twice."""


def root_archive(layers: Sequence[OpenLayer]) -> Iterator[bytes]:
    """Yield one archive of the layers, lowest first, in chunks.

    It has no devices, names of owners or extended attributes.
    """
    upper = _Upper()
    contents = []
    for open_layer in reversed(layers):
        with open_layer() as stream:
            contents.append(_read(stream, upper))
    for open_layer, content in zip(layers, reversed(contents), strict=True):
        with open_layer() as stream:
            yield from _entries(stream, content)
    yield bytes(2 * tarfile.BLOCKSIZE)


@dataclass(slots=True)
class _Upper:
    """Paths of the layers above another one."""

    paths: dict[str, bool] = field(default_factory=dict)
    """True for paths that are directories in all layers that have them."""
    removed: set[str] = field(default_factory=set)
    emptied: set[str] = field(default_factory=set)

    def hides(self, path: str) -> bool:
        """Return whether the image does not have this path of a lower layer."""
        if path in self.paths or path in self.removed:
            return True
        return any(
            parent in self.removed or parent in self.emptied or not self.paths.get(parent, True)
            for parent in parents(path)
        )


@dataclass(frozen=True, slots=True)
class _LayerPaths:
    """Paths of a layer that the image does not have, and the new names of their content."""

    hidden: frozenset[str]
    renamed: dict[str, str]
    """A hard link of the image by the hidden path with its content."""


def _read(stream: IO[bytes], upper: _Upper) -> _LayerPaths:
    """Read the paths of a layer, and add them to those above the next one."""
    layer = _Upper()
    hidden: set[str] = set()
    links: dict[str, str] = {}
    for path, member, _ in members(stream):
        directory, _, name = path.rpartition("/")
        if name == OPAQUE:
            layer.emptied.add(directory or "/")
        elif name.startswith(WHITEOUT):
            layer.removed.add(f"{directory}/{name.removeprefix(WHITEOUT)}")
        else:
            layer.paths[path] = member.isdir()
            if upper.hides(path):
                hidden.add(path)
            elif member.islnk():
                links.setdefault(rooted(member.linkname), path)
    upper.paths |= {path: is_dir and upper.paths.get(path, True) for path, is_dir in layer.paths.items()}
    upper.removed |= layer.removed
    upper.emptied |= layer.emptied
    return _LayerPaths(frozenset(hidden), {path: link for path, link in links.items() if path in hidden})


def _entries(stream: IO[bytes], layer: _LayerPaths) -> Iterator[bytes]:
    for path, member, archive in members(stream):
        path = layer.renamed.get(path, path)
        target = layer.renamed.get(rooted(member.linkname), "") if member.islnk() else ""
        is_marker = path.rpartition("/")[2].startswith(WHITEOUT)
        if path in ("/", target) or path in layer.hidden or is_marker or member.isdev():
            continue
        entry = copy.copy(member)
        entry.name, entry.uname, entry.gname, entry.pax_headers = path[1:], "", "", {}
        entry.linkname = target[1:] or member.linkname
        # It may have been sparse
        entry.type = tarfile.REGTYPE if member.isreg() else member.type
        yield entry.tobuf(tarfile.GNU_FORMAT, errors="surrogateescape")
        content = archive.extractfile(member) if member.isreg() else None
        if content:
            while chunk := content.read(CHUNK):
                yield chunk
            yield bytes(-member.size % tarfile.BLOCKSIZE)
