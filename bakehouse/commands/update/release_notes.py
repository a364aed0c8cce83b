"""Release notes of a new release: its date, and the lines about components that it has to fit."""

import re
from collections.abc import Collection
from dataclasses import dataclass

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.upstream import VERSION, Upstream
from bakehouse.commands.update.page_text import plain
from bakehouse.fetch.sources import DownloadConfig
from bakehouse.util.format import format_count
from bakehouse.util.json_reader import parse_json
from bakehouse.util.terminal import clip, printable

_MAX_TEXT_BYTES = 2 * 10**6
_MAX_LINES = 6
_MAX_LINE_LENGTH = 200
_COMMANDS = re.compile(
    r"\[(?=(?:skip|ci|no|actions) )|@(?=\w)|#(?=\d)|\bGH(?=-\d)|<(?=[a-z!/?])|`(?=`)", re.I
)
"""Starts of `[skip ci]`, mentions, issues, HTML tags and code fences; a space after them disables these."""
_DAY = re.compile(r"\d{4}-\d\d-\d\d")


@dataclass(frozen=True, slots=True)
class ReleaseNotes:
    """The text of release notes; GitHub states the other values as well."""

    address: str
    text: str
    day: str = ""
    is_prerelease: bool = False

    def about(self, names: Collection[str]) -> tuple[str, ...]:
        """Return the first lines that name one of some components, without their markup."""
        words = "|".join(re.escape(name).replace(r"\-", "[-_ ]?") for name in sorted(names))
        pattern = re.compile(rf"(?<![\w-])(?:{words})(?![\w-])", re.IGNORECASE)
        lines = [_printable(line) for line in self.text.splitlines() if words and pattern.search(line)]
        rest = len(lines) - _MAX_LINES
        more = [f"{format_count(rest, 'other line')} like these"] if rest > 0 else []
        return (*lines[:_MAX_LINES], *more)


def read(upstream: Upstream, version: str, downloads: DownloadConfig) -> ReleaseNotes:
    """Return the notes of a release: the text of a page, or a release of GitHub's API. Raises SourceError."""
    address = upstream.notes.replace(VERSION, version)
    page = downloads.page(address, _MAX_TEXT_BYTES)
    try:
        document = parse_json(page)
    except ValueError:
        return ReleaseNotes(address, plain(page))
    if not isinstance(document, dict) or not isinstance(document.get("body"), str):
        return ReleaseNotes(address, "")
    day = _DAY.match(str(document.get("published_at")))
    return ReleaseNotes(address, document["body"], day[0] if day else "", document.get("prerelease") is True)


def partners(name: str, version: str, catalog: Catalog) -> set[str]:
    """Return the components that a release requires or limits, and those of known conflicts with it."""
    [release] = [release for release in catalog.components[name].releases if release.version == version]
    names = set[str]()
    for spec in (variant.spec for variant in release.variants):
        names.update(part.name for part in (*spec.requires, *spec.constraints))
        names.update(part.name for conflict in spec.conflicts for part in conflict.parts)
    for other in catalog.components.values():
        for variant in other.releases[0].variants:
            for conflict in variant.spec.conflicts:
                parts = {other.name, *(part.name for part in conflict.parts)}
                names.update(parts if name in parts else ())
    return names & catalog.provided_names - {name, "python", "glibc"}


def _printable(line: str) -> str:
    """Return a line without commands for commit messages and pull requests, such as `[skip ci]`."""
    text = printable(line).strip().lstrip("*-# ").strip()
    return clip(_COMMANDS.sub(r"\g<0> ", text), _MAX_LINE_LENGTH)
