"""Metadata in the archive of a source distribution, read without unpacking it or running its code."""

import contextlib
import re
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from packaging.metadata import parse_email
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from bakehouse.lock.python import Metadata

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
    return next(_contents(sdist, path), b"").decode(errors="replace")


def _contents(sdist: Path, path: re.Pattern[str]) -> Iterator[bytes]:
    with contextlib.suppress(OSError, tarfile.TarError, zipfile.BadZipFile):
        if zipfile.is_zipfile(sdist):
            with zipfile.ZipFile(sdist) as archive:
                for entry in archive.infolist():
                    if path.fullmatch(entry.filename) and entry.file_size <= _MAX_BYTES:
                        yield archive.read(entry)
            return
        with tarfile.open(sdist) as archive:
            for member in archive:
                if path.fullmatch(member.name) and member.isfile() and member.size <= _MAX_BYTES:
                    content = archive.extractfile(member)
                    yield content.read() if content else b""


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
