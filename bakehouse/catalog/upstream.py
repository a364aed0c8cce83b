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
"""Placeholder of the version in `tag`."""


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
    provides: Mapping[str, str] = field(default_factory=dict)
    """Packages, or globs of packages, by the name that the component provides in their version."""
    without: tuple[str, ...] = ()
    """Packages that other components install, so locks of this one leave them out."""
    same: Mapping[str, str] = field(default_factory=dict)
    """Components by the name that this one requires in the version that they provide."""
    skip: Mapping[str, str] = field(default_factory=dict)
    """Reasons by version of releases that the catalogue leaves out."""


def read_upstream(fields: Fields) -> Upstream | None:
    """Read `upstream` of a component; None if it has none."""
    child = fields.child("upstream", "`upstream`")
    if child is None:
        return None
    kind = child.one_of(KINDS)
    addresses: dict[str, str] = {each: child.text(each) for each in KINDS if each != "pypi"}
    projects = child.matching("pypi", _PROJECT, "project of the package index")
    tag, pattern = child.text("tag", VERSION), child.text("pattern")
    upstream = Upstream(
        kind or "none",
        child.location,
        projects,
        addresses.get(kind or "none", ""),
        tag,
        pattern,
        {name.text: value.text for name, value in child.text_pairs("provides")},
        child.matching("without", _PROJECT, "Python package"),
        {name.text: value.text for name, value in child.text_pairs("same")},
        {name.text: value.text for name, value in child.text_pairs("skip")},
    )
    _check(upstream, child)
    child.finish()
    return upstream


def _check(upstream: Upstream, fields: Fields) -> None:
    if upstream.kind in ("git", "page") and not _URL.fullmatch(upstream.address):
        place = fields.place(upstream.kind)
        fields.report(f"`{upstream.address}` is not a URL", place, hint="write `https://host/path`")
    elif upstream.kind == "none" and fields.has("none") and not upstream.address:
        fields.report("`none` has no reason", fields.place("none"))
    if VERSION not in upstream.tag:
        fields.report(f"`{upstream.tag}` does not contain `{VERSION}`", fields.place("tag"))
    if fields.has("pattern") or upstream.kind == "page":
        try:
            has_version = "version" in re.compile(upstream.pattern).groupindex
        except re.error:
            has_version = False
        if not has_version:
            hint = "write the version as `(?P<version>…)`"
            message = "`pattern` is not a regular expression with a group `version`"
            fields.report(message, fields.place("pattern"), hint=hint)
    for version in upstream.skip:
        try:
            Version(version)
        except InvalidVersion:
            fields.report(f"`{version}` is not a version", fields.place("skip"))
