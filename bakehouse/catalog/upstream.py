"""Upstreams of components: the places of their new releases, as `upstream` describes them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from packaging.version import InvalidVersion, Version

from bakehouse.errors import Location
from bakehouse.util.yaml_fields import Fields

UpstreamKind = Literal["pypi", "git", "page", "none"]
KINDS: tuple[UpstreamKind, ...] = ("pypi", "git", "page", "none")

_PROJECT = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_URL = re.compile(r"(https?|file)://[^\s]+")
VERSION = "{version}"
"""Placeholder of the version in `tag`, `provides` and `notes`."""


@dataclass(frozen=True, slots=True)
class ChecksumPage:
    """A page that states the checksums of archives."""

    address: str
    pattern: str
    """Regular expression with the groups `version` and `sha256`."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """The place where releases of a component appear, and how its facts follow from them."""

    kind: UpstreamKind
    location: Location
    projects: tuple[str, ...] = ()
    """Projects of the package index; the first one has the versions of the component."""
    address: str = ""
    """The URL of a repository or of a page, or the reason of `none`."""
    tag: str = VERSION
    """Tags of a repository's releases, such as `v{version}`."""
    pattern: str = ""
    """Regular expression of a release on a page, with the groups `version` and, if stated there, `sha256`."""
    date: str = ""
    """Regular expression of a release date, searched in the text between this release and the next one."""
    checksums: ChecksumPage | None = None
    provides: Mapping[str, str] = field(default_factory=dict)
    """Maps each provided name to the package, or glob of packages, whose version it takes.

    For a page, the value is a regular expression like `date`, with the group `version`. For releases without
    packages, it can also be `{version}`, the version of the release.
    """
    without: tuple[str, ...] = ()
    """Packages that other components install, so locks of this one leave them out."""
    same: Mapping[str, str] = field(default_factory=dict)
    """Maps required names to components. This component requires the version that the other one provides."""
    skip: Mapping[str, str] = field(default_factory=dict)
    """Versions that the catalogue leaves out, with the reasons."""
    notes: str = ""
    """The URL of the notes of a release, with `{version}`."""
    by_hand: str = ""
    """The reason why new releases are only listed, without proposed entries."""


def read_upstream(fields: Fields) -> Upstream | None:
    """Read `upstream` of a component; None if it has none."""
    child = fields.child("upstream", "`upstream`")
    if child is None:
        return None
    kind = child.one_of(KINDS)
    addresses: dict[str, str] = {name: child.text(name) for name in KINDS if name != "pypi"}
    projects = child.matching("pypi", _PROJECT, "project of the package index")
    upstream = Upstream(
        kind or "none",
        child.location,
        projects,
        addresses.get(kind or "none", ""),
        child.text("tag", VERSION),
        child.text("pattern"),
        child.text("date"),
        _read_checksums(child),
        {name.text: value.text for name, value in child.text_pairs("provides")},
        child.matching("without", _PROJECT, "Python package"),
        {name.text: value.text for name, value in child.text_pairs("same")},
        {name.text: value.text for name, value in child.text_pairs("skip")},
        child.text("notes"),
        child.text("by_hand"),
    )
    _check(upstream, child)
    child.finish()
    return upstream


def _read_checksums(fields: Fields) -> ChecksumPage | None:
    child = fields.child("checksums", "`checksums`")
    if child is None:
        return None
    page = ChecksumPage(child.text("page", required=True), child.text("pattern", required=True))
    if page.address:
        _check_address(page.address, "page", child)
    if page.pattern:
        _check_pattern(page.pattern, "pattern", child, "version", "sha256")
    child.finish()
    return page


def _check(upstream: Upstream, fields: Fields) -> None:
    if upstream.kind in ("git", "page"):
        _check_address(upstream.address, upstream.kind, fields)
    elif upstream.kind == "none" and fields.has("none") and not upstream.address:
        fields.report("`none` has no reason", fields.place("none"))
    for key, text in (("tag", upstream.tag), ("notes", upstream.notes or VERSION)):
        if VERSION not in text:
            fields.report(f"`{text}` does not contain `{VERSION}`", fields.place(key))
    if fields.has("notes"):
        _check_address(upstream.notes, "notes", fields)
    if fields.has("pattern") or upstream.kind == "page":
        _check_pattern(upstream.pattern, "pattern", fields, "version")
    if fields.has("date"):
        _check_pattern(upstream.date, "date", fields)
    if upstream.kind == "page":
        for pattern in upstream.provides.values():
            if pattern != VERSION:
                _check_pattern(pattern, "provides", fields, "version")
    for version in upstream.skip:
        try:
            Version(version)
        except InvalidVersion:
            fields.report(f"`{version}` is not a version", fields.place("skip"))


def _check_address(address: str, key: str, fields: Fields) -> None:
    if not _URL.fullmatch(address):
        fields.report(f"`{address}` is not a URL", fields.place(key), hint="write `https://host/path`")


def _check_pattern(pattern: str, key: str, fields: Fields, *groups: str) -> None:
    """Report a text that is not a regular expression with some groups."""
    try:
        known = re.compile(pattern).groupindex
    except re.error:
        fields.report(f"`{key}` is not a regular expression", fields.place(key))
        return
    for group in (name for name in groups if name not in known):
        message = f"`{key}` is not a regular expression with a group `{group}`"
        hint = "write the version as `(?P<version>…)`" if group == "version" else ""
        fields.report(message, fields.place(key), hint=hint)
