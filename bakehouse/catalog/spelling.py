"""Names that differ only in case, which are the same name on case-insensitive file systems.

macOS and Windows have such file systems. They also treat the Unicode forms of an accented letter as equal.
"""

import os
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path

from bakehouse.util.files import is_directory, is_file, names_in

HINT = "rename one of them: macOS and Windows keep only one"


def clashes(paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each pair of files or directories whose paths differ only in case; paths have slashes."""
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
    """Return a relative path to the existing `path`, in the spelling of the directories on the disk.

    The spelling can differ only on case-insensitive file systems. The file system is tested, because the
    operating system does not determine its kind.
    """
    names = os.path.normpath(text).split("/")
    written = [name for name in names if name not in ("..", ".")]
    other = path.with_name(path.name.swapcase()) if written else path
    if other == path or not (is_file(other) or is_directory(other)) or not other.samefile(path):
        return text
    directory, listed = path, list[str]()
    for name in reversed(written):
        directory = directory.parent
        entries = names_in(directory) if os.access(directory, os.R_OK) else [name]
        same = [entry for entry in entries if _folded(entry) == _folded(name)]
        listed.insert(0, name if name in entries or not same else same[0])
    return "/".join([*(name for name in names if name == ".."), *listed])


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()
