"""Division of the bytes of an image by component and directory, without overlap."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bakehouse.analysis.layers import LayerContents, LayerFile, parents

_LEAST = 0.005
"""A directory with a smaller share of the image counts as part of the directory above it."""


@dataclass(frozen=True, slots=True)
class OwnedDirectory:
    """Files of one component below a directory, except those below a listed subdirectory."""

    owner: str
    """The component or recipe key that made the files."""
    path: str
    bytes: int
    """The unpacked size."""
    files: int


def divide(layers: Iterable[tuple[str, LayerContents]]) -> tuple[OwnedDirectory, ...]:
    """Return the directories of each owner of layers, largest first; together they have all files."""
    owned: dict[str, list[LayerFile]] = {}
    for owner, contents in layers:
        owned.setdefault(owner, []).extend(contents.files)
    least = _LEAST * sum(file.bytes for files in owned.values() for file in files)
    directories = [
        directory for owner, files in owned.items() if files for directory in _divide(owner, files, least)
    ]
    return tuple(sorted(directories, key=lambda each: (-each.bytes, each.owner, each.path)))


def _divide(owner: str, files: Sequence[LayerFile], least: float) -> Iterable[OwnedDirectory]:
    sizes, counts = Counter[str](), Counter[str]()
    for file in files:
        for directory in parents(file.path):
            sizes[directory] += file.bytes
            counts[directory] += 1
    top = max((path for path, count in counts.items() if count == len(files)), key=len)
    listed = {top, *(path for path in sizes if sizes[path] >= least and counts[path] < len(files))}
    deepest_first = sorted(listed - {top}, key=lambda path: (-path.count("/"), path))
    for path in reversed(deepest_first):
        above = _nearest(path, listed)
        sizes[above] -= sizes[path]
        counts[above] -= counts[path]
    # What is left of a directory without its listed subdirectories can be small
    for path in deepest_first:
        if sizes[path] < least:
            listed.remove(path)
            above = _nearest(path, listed)
            sizes[above] += sizes[path]
            counts[above] += counts[path]
    return (OwnedDirectory(owner, path, sizes[path], counts[path]) for path in listed if counts[path])


def _nearest(path: str, listed: set[str]) -> str:
    """Return the deepest of the listed directories above a path."""
    return next(directory for directory in parents(path) if directory in listed)
