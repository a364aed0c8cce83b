"""Metadata in the archive of a source distribution, read without unpacking it or running its code."""

import contextlib
import re
from pathlib import Path

from packaging.metadata import parse_email
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from bakehouse.lock.python import Metadata
from bakehouse.util import archive_reader

_MAX_BYTES = 1_000_000
_SECTION = re.compile(r"\[(?P<extra>[^:\]]*)(?::(?P<marker>[^\]]+))?\]")


def recorded(sdist: Path) -> Metadata | None:
    """Return the metadata that the author's build backend wrote; None if the archive has none.

    setuptools wrote the requirements to another file before release 68.
    """
    raw, _ = parse_email(read(sdist, "PKG-INFO"))
    requires = raw.get("requires_dist") or _requires_txt(read(sdist, r"[^/]+\.egg-info/requires\.txt"))
    try:
        return Metadata(
            canonicalize_name(raw["name"]),
            str(Version(raw["version"])),
            tuple(str(Requirement(text)) for text in requires),
            str(SpecifierSet(raw.get("requires_python", ""))),
        )
    except (KeyError, InvalidVersion, InvalidRequirement, InvalidSpecifier):
        return None


def read(sdist: Path, pattern: str) -> str:
    """Return the text of a file below the top directory of the archive; empty if it has none."""
    path = re.compile(rf"(?:\./)?[^/]+/(?:src/)?{pattern}")
    with contextlib.suppress(archive_reader.ArchiveError):
        return (archive_reader.find(sdist, path, _MAX_BYTES) or b"").decode(errors="replace")
    return ""


def _requires_txt(text: str) -> list[str]:
    """Return the requirements of a file of setuptools, whose sections are extras and markers."""
    requires, marker = [], ""
    for line in map(str.strip, text.splitlines()):
        if match := _SECTION.fullmatch(line):
            extra = f"extra == '{match['extra']}'" if match["extra"] else ""
            marker = " and ".join(filter(None, (match["marker"] and f"({match['marker']})", extra)))
        elif line:
            requires.append(f"{line} ; {marker}" if marker else line)
    return requires
