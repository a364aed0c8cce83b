"""Names that are one name on file systems that do not tell upper and lower case apart.

macOS and Windows have such file systems. They also take two ways to write an accent for one.
"""

import os
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path

from bakehouse.util.files import is_directory, is_file

HINT = "rename one of them: macOS and Windows keep only one"


def clashes(paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each pair of files or directories in which only the case differs; paths have slashes."""
    seen: dict[str, str] = {}
    pairs: set[tuple[str, str]] = set()
    for path in paths:
        names = path.split("/")
        for depth in range(1, len(names) + 1):
            part = "/".join(names[:depth])
            pair = seen.setdefault(_folded(part), part), part
            if pair[0] != part:
                if pair not in pairs:
                    pairs.add(pair)
                    yield pair
                break


def as_listed(text: str, path: Path) -> str:
    """Return a relative path, which leads to the existing `path`, as the directories on the disk spell it.

    Only a file system that does not tell cases apart can have another spelling. It is probed for: the name of
    the system does not tell.
    """
    names = os.path.normpath(text).split("/")
    written = [name for name in names if name not in ("..", ".")]
    other = path.with_name(path.name.swapcase()) if written else path
    if other == path or not (is_file(other) or is_directory(other)) or not other.samefile(path):
        return text
    directory, listed = path, list[str]()
    for name in reversed(written):
        directory = directory.parent
        entries = [entry.name for entry in os.scandir(directory)] if os.access(directory, os.R_OK) else [name]
        same = [entry for entry in entries if _folded(entry) == _folded(name)]
        listed.insert(0, name if name in entries or not same else same[0])
    return "/".join([*(name for name in names if name == ".."), *listed])


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()
