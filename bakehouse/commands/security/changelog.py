"""Changelogs of Debian packages: the vulnerabilities that newer versions fix."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from pathlib import Path

from debian.debian_support import NativeVersion

from bakehouse.util import archive_reader
from bakehouse.util.deb import open_files
from bakehouse.util.files import open_file

_HEADER = re.compile(r"[a-z0-9][a-z0-9.+-]+ \((?P<version>[^()\s]+)\) (?P<suite>[^;]+);")
_CVE = re.compile(r"CVE-[0-9]{4}-[0-9]{4,}")
_FILE = re.compile(r"\./usr/share/doc/[^/]+/changelog(?P<debian>\.Debian)?\.gz")
_MAX_BYTES = 64_000_000
_REBUILD = re.compile(r"\+b[0-9]+$")


@dataclass(frozen=True, slots=True)
class ChangelogEntry:
    """One version of a source package."""

    version: str
    suite: str
    """The suite that it was uploaded to, such as `bookworm-security`."""
    cves: tuple[str, ...]
    """The CVE numbers in its text."""


def read_changelog(deb: Path) -> tuple[ChangelogEntry, ...]:
    """Return the changelog of a package file, newest entry first; empty if the file has none."""
    # Packages of Debian itself have no upstream changelog, so that `changelog.gz` is the one of Debian
    native: tuple[ChangelogEntry, ...] = ()
    with open_file(deb) as file, open_files(file) as archive:
        for member in archive:
            match = _FILE.fullmatch(member.name)
            content = archive.extractfile(member) if match and member.isfile() else None
            if match and content:
                chunks = archive_reader.decompress(iter(partial(content.read, 1 << 16), b""), "gzip")
                text = b"".join(archive_reader.limited(chunks, _MAX_BYTES)).decode("utf-8", errors="replace")
                entries = tuple(parse(text))
                if match["debian"]:
                    return entries
                native = entries
    return native


def parse(text: str) -> Iterator[ChangelogEntry]:
    """Yield the entries of a changelog, newest first; nothing if it is not one of Debian."""
    header, cves = None, dict[str, None]()
    for line in text.splitlines():
        match = _HEADER.match(line)
        if match is None:
            cves.update(dict.fromkeys(_CVE.findall(line)))
            continue
        if header:
            yield ChangelogEntry(header["version"], header["suite"], tuple(cves))
        header, cves = match, {}
    if header:
        yield ChangelogEntry(header["version"], header["suite"], tuple(cves))


def newer_entries(entries: tuple[ChangelogEntry, ...], version: str) -> tuple[ChangelogEntry, ...]:
    """Return the entries above a version."""
    return tuple(takewhile(lambda entry: is_newer(entry.version, version), entries))


def is_newer(version: str, other: str) -> bool:
    """Return whether a Debian version is newer than another one. Raises ValueError for invalid versions."""
    # `Version` would use python-apt on machines that have it
    return NativeVersion(version) > NativeVersion(other)


def source_of(fields: Mapping[str, str]) -> tuple[str, str]:
    """Return name and version of the source package in the index fields of a package."""
    name, _, version = fields.get("Source", fields["Package"]).partition(" ")
    return name, version.strip("()") or fields["Version"]


def without_rebuild(version: str) -> str:
    """Return a version without the number of Debian's rebuild of the same source, such as `+b1`."""
    return _REBUILD.sub("", version)
