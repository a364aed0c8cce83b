"""New upstream releases of components, as package indexes, repositories and pages list them.

An answer that does not look like the expected one is an error, never "nothing new".
"""

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from html.parser import HTMLParser
from itertools import pairwise

from packaging.metadata import InvalidMetadata, Metadata
from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

from bakehouse.catalog.component import Component
from bakehouse.catalog.upstream import VERSION, Upstream
from bakehouse.errors import BuildError, Reason
from bakehouse.fetch.faults import SourceError
from bakehouse.fetch.simple_index import IndexFile
from bakehouse.fetch.sources import DownloadConfig
from bakehouse.lock.python import marker_environment, python_tags
from bakehouse.util import git
from bakehouse.util.terminal import clip, printable

_IS_HTML = re.compile(r"\s*<(!doctype html|html)\b", re.IGNORECASE)
_INLINE = frozenset(
    {"a", "abbr", "b", "code", "em", "i", "kbd", "s", "samp", "small", "span", "strong", "tt", "u"}
)
"""Elements that do not end a line."""
_HIDDEN = frozenset({"script", "style"})


class _Lines(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self._hidden += tag in _HIDDEN
        self._end_line(tag)

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in _HIDDEN and self._hidden > 0
        self._end_line(tag)

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.parts.append(re.sub(r"\s+", " ", data))

    def _end_line(self, tag: str) -> None:
        if tag not in _INLINE:
            self.parts.append("\n")


def plain(page: str) -> str:
    """Return the text of an HTML page, each paragraph, item and cell on a line; other pages as they are."""
    if not _IS_HTML.match(page):
        return page
    parser = _Lines()
    parser.feed(page)
    parser.close()
    lines = (line.strip() for line in "".join(parser.parts).split("\n"))
    return "".join(f"{line}\n" for line in lines if line)


_MAX_PAGE_BYTES = 4 * 10**6
_DATES = ("%Y-%m-%d", "%B %d, %Y")
_MAX_REASON_LENGTH = 200
_SHA256 = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class UpstreamRelease:
    """A release that the catalogue does not have."""

    version: str
    date: str = ""
    """Date of the release, such as `2026-11-23`; empty if upstream does not state it."""
    files: Mapping[str, tuple[IndexFile, ...]] = field(default_factory=dict)
    """Its files by project of the package index, without withdrawn ones."""
    sha256: str = ""
    """The checksum that upstream states for its archive."""
    provides: Mapping[str, str] = field(default_factory=dict)
    """Versions that a page states, by the name that the component provides."""


@dataclass(frozen=True, slots=True)
class UpstreamState:
    """The new releases of an upstream, oldest first, and remarks about the known ones."""

    releases: tuple[UpstreamRelease, ...]
    remarks: tuple[str, ...] = ()


class UpstreamError(BuildError):
    """A component cannot be updated because its upstream failed or gave an unusable answer."""

    def __init__(self, name: str, *reasons: str, hint: str = "") -> None:
        message = f"`{name}` was not updated"
        super().__init__(message, reasons=tuple(map(Reason, reasons)), hint=hint)


def new_releases(component: Component, downloads: DownloadConfig) -> UpstreamState:
    """Return the releases of a component's upstream that the catalogue lacks.

    These are the newest patch release of each minor version above the newest known release.
    Raises BuildError if the answer of the upstream is not usable.
    """
    upstream = component.upstream
    assert upstream
    with _naming(component, _place(upstream)):
        match upstream.kind:
            case "pypi":
                return _from_index(component, upstream, downloads)
            case "git":
                return _selected(component, upstream, _tags(component, upstream))
            case "page":
                return _from_page(component, upstream, downloads)
            case _:
                return UpstreamState(())


@contextlib.contextmanager
def _naming(component: Component, place: str) -> Iterator[None]:
    """Raise UpstreamError with the name of a place if its answer is not usable."""
    try:
        yield
    except SourceError as error:
        raise UpstreamError(component.name, f"{place}: {error.reason}") from error


def _place(upstream: Upstream) -> str:
    match upstream.kind:
        case "pypi":
            return "the package index"
        case _:
            return f"`{upstream.address}`"


def _from_index(component: Component, upstream: Upstream, downloads: DownloadConfig) -> UpstreamState:
    pages = {project: downloads.project(project) for project in upstream.projects}
    files: dict[str, dict[Version, list[IndexFile]]] = {}
    remarks = []
    for project, links in pages.items():
        by_version: dict[Version, list[IndexFile]] = {}
        for link in links:
            if version := file_version(link.file, project):
                by_version.setdefault(version, []).append(link)
        if not by_version:
            reason = f"its page of `{project}` lists no file of that project"
            raise SourceError(reason)
        files[project] = by_version
        _compare_known(component, project, links)
        remarks += _withdrawn(component, project, by_version)
    usable = {
        project: {
            version: kept
            for version, all_links in by_version.items()
            if (kept := [link for link in all_links if link.yanked is None and _is_for_linux(link)])
        }
        for project, by_version in files.items()
    }
    first = usable[upstream.projects[0]]
    listed = [
        UpstreamRelease(
            str(version),
            min((link.uploaded for link in links), default=""),
            {project: tuple(own[version]) for project, own in usable.items() if version in own},
        )
        for version, links in first.items()
    ]
    state = _selected(component, upstream, listed)
    return replace(state, remarks=(*remarks, *state.remarks))


def file_version(file: str, project: str) -> Version | None:
    """Return the version of a wheel or source distribution of a project; None for other files."""
    try:
        name, version = (
            parse_wheel_filename(file)[:2] if file.endswith(".whl") else parse_sdist_filename(file)
        )
    except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion):
        return None
    return version if name == canonicalize_name(project) else None


def _compare_known(component: Component, project: str, links: Iterable[IndexFile]) -> None:
    """Raise SourceError if a file that the catalogue locks has another checksum now."""
    known = {
        package.file: package.sha256
        for spec in component.specs
        if (package := spec.packages_by_name.get(canonicalize_name(project))) and package.file
    }
    for link in links:
        if link.sha256 and known.get(link.file, link.sha256) != link.sha256:
            reason = f"has another checksum for `{link.file}` than the lock of this component"
            raise SourceError(reason)


def _withdrawn(component: Component, project: str, files: Mapping[Version, list[IndexFile]]) -> list[str]:
    """Return a remark on each withdrawn release that is known, or newer than all known ones."""
    known = {Version(release.version) for release in component.releases}
    remarks = []
    for version, all_links in sorted(files.items()):
        links = [link for link in all_links if _is_for_linux(link)]
        is_of_interest = version in known or (version > max(known) and not version.is_prerelease)
        if is_of_interest and links and all(link.yanked is not None for link in links):
            reason = next((f": {_one_line(link.yanked)}" for link in links if link.yanked), "")
            remarks.append(f"{project} {version} was withdrawn from the package index{reason}")
    return remarks


def _one_line(text: str) -> str:
    """Remove control characters from a text of the index, and shorten it."""
    return clip(printable(text), _MAX_REASON_LENGTH)


def _is_for_linux(link: IndexFile) -> bool:
    """Return whether a file can be installed on 64-bit Linux, by some Python."""
    if not link.file.endswith(".whl"):
        return True
    tags = parse_wheel_filename(link.file)[3]
    return any(
        tag.platform == "any" or tag.platform.endswith("linux_x86_64") or _is_manylinux(tag.platform)
        for tag in tags
    )


def _is_manylinux(platform: str) -> bool:
    return platform.startswith("manylinux") and platform.endswith("_x86_64")


def installable(links: Iterable[IndexFile], python: str) -> tuple[IndexFile, ...]:
    """Return the files that a Python version can install on 64-bit Linux, wheels first."""
    tags = python_tags(python)
    wheels, others = [], []
    for link in links:
        try:
            if link.requires_python and not SpecifierSet(link.requires_python).contains(f"{python}.0"):
                continue
        except InvalidSpecifier:
            continue
        if not link.file.endswith(".whl"):
            others.append(link)
        elif any(tag in tags for tag in parse_wheel_filename(link.file)[3]):
            wheels.append(link)
    return (*wheels, *others)


def _selected(component: Component, upstream: Upstream, listed: Sequence[UpstreamRelease]) -> UpstreamState:
    """Return the new releases of a list, with remarks on those that are left out."""
    known = {Version(release.version) for release in component.releases}
    skipped = {Version(version): reason for version, reason in upstream.skip.items()}
    newest = max(known)
    chosen: dict[object, UpstreamRelease] = {}
    older: list[str] = []
    remarks: list[str] = []
    for release in sorted(listed, key=lambda release: Version(release.version)):
        version = Version(release.version)
        if version.is_prerelease or version.local or version in known or version <= newest:
            continue
        if version in skipped:
            remarks.append(f"{version} was left out: {skipped[version]}")
            continue
        key = version.release[:2]
        if key in chosen:
            older.append(chosen[key].version)
        chosen[key] = release
    if older:
        remarks.append(f"older patch releases were left out: {', '.join(older)}")
    return UpstreamState(tuple(chosen.values()), tuple(remarks))


def _tags(component: Component, upstream: Upstream) -> list[UpstreamRelease]:
    before, _, after = upstream.tag.partition(VERSION)
    try:
        names = git.tags(upstream.address)
    except git.GitError as error:
        raise SourceError(str(error)) from error
    texts = [
        name.removeprefix(before).removesuffix(after)
        for name in names
        if name.startswith(before) and name.endswith(after)
    ]
    return _known_among(component, [UpstreamRelease(text) for text in texts if _is_version(text)])


def _from_page(component: Component, upstream: Upstream, downloads: DownloadConfig) -> UpstreamState:
    text = plain(downloads.page(upstream.address, _MAX_PAGE_BYTES))
    matches = list(re.finditer(upstream.pattern, text))
    checksums = _checksums(matches)
    releases: dict[str, UpstreamRelease] = {}
    for match, following in pairwise((*matches, None)):
        assert match
        version, end = match["version"], following.start() if following else len(text)
        if _is_version(version) and version not in releases:
            section = text[match.start() : end]
            provides = _stated(upstream, version, section)
            releases[version] = UpstreamRelease(
                version, _date(upstream, section), sha256=checksums.get(version, ""), provides=provides
            )
    listed = _known_among(component, [*releases.values()])
    page = upstream.checksums
    with _naming(component, f"`{page.address}`") if page else contextlib.nullcontext():
        if page:
            text = plain(downloads.page(page.address, _MAX_PAGE_BYTES))
            checksums = _checksums(re.finditer(page.pattern, text))
            listed = [replace(release, sha256=checksums.get(release.version, "")) for release in listed]
        remarks = [*_compare_checksums(component, checksums)]
    state = _selected(component, upstream, listed)
    return replace(state, remarks=(*remarks, *state.remarks))


def _checksums(matches: Iterable[re.Match[str]]) -> dict[str, str]:
    """Return the checksums on a page by version. Raises SourceError if it states two for one version."""
    checksums: dict[str, str] = {}
    for match in matches:
        groups = match.groupdict()
        version, sha256 = groups["version"], groups.get("sha256") or ""
        if _SHA256.fullmatch(sha256) and checksums.setdefault(version, sha256) != sha256:
            reason = f"states two checksums of {version}"
            raise SourceError(reason)
    return checksums


def _compare_checksums(component: Component, checksums: Mapping[str, str]) -> Iterator[str]:
    """Yield remarks on releases whose checksum is unknown here. Raises SourceError if one differs."""
    for release in component.releases:
        stated = checksums.get(release.version)
        artifacts = {
            artifact.source: artifact for variant in release.variants for artifact in variant.spec.artifacts
        }
        if not stated or len(artifacts) != 1:
            continue
        [artifact] = artifacts.values()
        if artifact.sha256 is None:
            yield f"the checksum of {release.version} is unknown here, and upstream states {stated}"
        elif artifact.sha256 != stated:
            reason = f"states another checksum of {release.version} than this component has"
            raise SourceError(reason)


def _stated(upstream: Upstream, version: str, section: str) -> dict[str, str]:
    """Return the versions that the text of a release states, by the name that the component provides."""
    provides = {}
    for name, pattern in upstream.provides.items():
        if pattern == VERSION:
            provides[name] = version
        elif (match := re.search(pattern, section)) and _is_version(match["version"]):
            provides[name] = match["version"]
    return provides


def _date(upstream: Upstream, section: str) -> str:
    if upstream.date and (match := re.search(upstream.date, section)):
        for form in _DATES:
            with contextlib.suppress(ValueError):
                return datetime.strptime(match[0], form).date().isoformat()
    return ""


def _known_among(component: Component, releases: list[UpstreamRelease]) -> list[UpstreamRelease]:
    """Return the releases. Raises SourceError if none is in the catalogue, because the list is wrong."""
    known = {Version(release.version) for release in component.releases}
    if not any(Version(release.version) in known for release in releases):
        reason = "lists none of the releases that the catalogue has"
        raise SourceError(reason)
    return releases


def _is_version(text: str) -> bool:
    try:
        return len(text) < 100 and bool(Version(text))
    except InvalidVersion:
        return False


@dataclass(frozen=True, slots=True)
class WheelMetadata:
    """The fields of METADATA that a release entry is made from."""

    file: str
    requires: Mapping[str, Requirement]
    """Its requirements without extras, by normal name."""
    requires_python: str


def read_metadata(
    link: IndexFile, project: str, version: str, python: str, downloads: DownloadConfig
) -> WheelMetadata:
    """Return the metadata of a wheel for a Python version.

    Raises SourceError if it describes another wheel or is unreadable.
    """
    try:
        metadata = Metadata.from_email(downloads.wheel_metadata(link), validate=False)
        name, stated = metadata.name, metadata.version
        requires = _requirements(metadata.requires_dist or (), python)
        requires_python = metadata.requires_python
    except (InvalidMetadata, ExceptionGroup, ValueError, KeyError):
        reason = f"has no readable metadata of `{link.file}`"
        raise SourceError(reason) from None
    if canonicalize_name(name) != canonicalize_name(project) or stated != Version(version):
        reason = f"has {name} {stated} in `{link.file}`"
        raise SourceError(reason)
    return WheelMetadata(link.file, requires, str(requires_python or ""))


def _requirements(stated: Iterable[Requirement], python: str) -> dict[str, Requirement]:
    """Return the requirements that apply, by normal name; several of one project are joined."""
    environment = {**marker_environment(python), "extra": ""}
    requires: dict[str, Requirement] = {}
    for requirement in stated:
        if requirement.marker is None or requirement.marker.evaluate({**environment}):
            first = requires.setdefault(canonicalize_name(requirement.name), requirement)
            first.specifier &= requirement.specifier
    return requires
