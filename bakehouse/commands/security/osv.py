"""Vulnerabilities of Python packages, from a snapshot of OSV's data for PyPI.

A snapshot is the export `all.zip` of the ecosystem, or a directory of its JSON files. The fields and the
evaluation of ranges are those of the OSV schema, https://ossf.github.io/osv-schema/.
"""

import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.version import InvalidVersion, Version

from bakehouse.catalog.python_lock import normal_name
from bakehouse.commands.security.contents import python_packages
from bakehouse.errors import RecipeError
from bakehouse.plan.model import Image
from bakehouse.trust.document import MAX_BYTES, DocumentError, DocumentValue, parse, read
from bakehouse.trust.findings import NotScanned, PackageFinding, Usage, Vulnerability, named
from bakehouse.util import archive_reader
from bakehouse.util.files import display_path, files_below
from bakehouse.util.format import format_count
from bakehouse.util.terminal import Reporter

SOURCE = "OSV"
_ORDER = ("introduced", "last_affected", "fixed", "limit")
"""Order of events of the same version."""


@dataclass(frozen=True, slots=True)
class _Event:
    kind: str
    version: Version | None
    """None for the version before all others, or for a limit after all others."""


@dataclass(frozen=True, slots=True)
class Affected:
    """The versions of a package that a vulnerability affects."""

    id: str
    """The CVE number if the record has one."""
    aliases: tuple[str, ...]
    versions: tuple[str, ...]
    ranges: tuple[tuple[_Event, ...], ...]
    unreadable: str = ""
    """Why some versions cannot be compared; empty if all can."""


@dataclass(frozen=True, slots=True)
class OsvSnapshot:
    """Data of a day about some Python packages."""

    day: str
    """Day of the newest change."""
    records: int
    affected: Mapping[str, tuple[Affected, ...]]
    """By normalized name of the package."""

    @property
    def title(self) -> str:
        return f"{format_count(self.records, 'record')} of PyPI, the newest of {self.day}"


def scan(
    path: Path, images: Collection[Image], report: Reporter
) -> tuple[OsvSnapshot, tuple[PackageFinding, ...], tuple[NotScanned, ...]]:
    """Return the known vulnerabilities of the Python packages of images."""
    report(f"reading the OSV data in {display_path(path)}")
    packages = python_packages(images)
    snapshot = load(path, {package.name for package in packages})
    findings: list[PackageFinding] = []
    not_scanned: list[NotScanned] = []
    unknown: list[tuple[Usage, ...]] = []
    for package, usages in packages.items():
        names = tuple(dict.fromkeys(usage.image for usage in usages))
        title = f"{package.name} {package.version}"
        if not package.is_from_index:
            unknown.append(usages)
            continue
        try:
            vulnerabilities, undecided = find_vulnerabilities(
                snapshot.affected.get(package.name, ()), package.version
            )
        except InvalidVersion:
            not_scanned.append(NotScanned("Python", title, "its version does not follow PEP 440", names))
            continue
        not_scanned += [NotScanned("Python", f"{title}: {id}", reason, names) for id, reason in undecided]
        if vulnerabilities:
            fixes = [Version(vulnerability.fixed) for vulnerability in vulnerabilities if vulnerability.fixed]
            newer = str(max(fixes)) if fixes else ""
            findings.append(
                PackageFinding(
                    kind="Python",
                    name=package.name,
                    version=package.version,
                    newer=newer,
                    source=SOURCE,
                    packages=(package.name,),
                    vulnerabilities=vulnerabilities,
                    usages=usages,
                )
            )
    if unknown:
        what = f"{format_count(len(unknown), 'Python package')} from files of their own"
        names = tuple(dict.fromkeys(usage.image for usages in unknown for usage in usages))
        reason = "their code may differ from that of the package index"
        not_scanned.append(NotScanned("Python", what, reason, names))
    return snapshot, tuple(findings), tuple(not_scanned)


def find_vulnerabilities(
    records: Iterable[Affected], version: str
) -> tuple[tuple[Vulnerability, ...], tuple[tuple[str, str], ...]]:
    """Return the vulnerabilities of a version, and those that cannot be decided, each with the reason.

    Records of one CVE count as one vulnerability; the highest fixed version counts. Raises InvalidVersion.
    """
    # A local version such as 2.9.0+cu130 is a build of the version that records name
    public = Version(Version(version).public)
    fixes: dict[str, Version | None] = {}
    aliases: dict[str, dict[str, None]] = {}
    undecided: dict[str, str] = {}
    for record in records:
        matching = [events for events in record.ranges if _is_in(public, events)]
        if matching or any(_is_same(public, affected) for affected in record.versions):
            fix = max(filter(None, (_fix(public, events) for events in matching)), default=None)
            known = fixes.get(record.id)
            fixes[record.id] = max(filter(None, (fix, known)), default=None)
            aliases.setdefault(record.id, {}).update(dict.fromkeys(record.aliases))
        elif record.unreadable:
            undecided[record.id] = record.unreadable
    vulnerabilities = (
        Vulnerability(id, str(fix) if fix else "", tuple(aliases[id])) for id, fix in fixes.items()
    )
    return tuple(sorted(vulnerabilities)), tuple(
        (id, reason) for id, reason in sorted(undecided.items()) if id not in fixes
    )


def _is_in(version: Version, events: Iterable[_Event]) -> bool:
    """Return whether a range contains a version."""
    is_affected = False
    limits = [event for event in events if event.kind == "limit"]
    if limits and not any(limit.version is None or version < limit.version for limit in limits):
        return False
    for event in events:
        at = event.version
        if event.kind == "introduced" and (at is None or version >= at):
            is_affected = True
        elif (event.kind == "fixed" and at and version >= at) or (
            event.kind == "last_affected" and at and version > at
        ):
            is_affected = False
    return is_affected


def _fix(version: Version, events: Iterable[_Event]) -> Version | None:
    """Return the first version above this one that fixes the vulnerability."""
    fixes = (event.version for event in events if event.kind == "fixed" and event.version)
    return min((fix for fix in fixes if fix > version), default=None)


def _is_same(version: Version, text: str) -> bool:
    try:
        return version == Version(text)
    except InvalidVersion:
        return False


def load(path: Path, names: Collection[str]) -> OsvSnapshot:
    """Read the records about packages with these normalized names. Raises RecipeError."""
    count, day = 0, ""
    affected: dict[str, list[Affected]] = {}
    for name, content in _files(path):
        try:
            record = parse(content)
            record["id"].needed  # noqa: B018 (not a record of OSV otherwise)
            entries = [entry for entry in record["affected"] if _is_pypi(entry["package"]["ecosystem"].text)]
            if not entries:
                continue
            count += 1
            day = max(day, record["modified"].day)
            if record["withdrawn"].value is not None:
                continue
            for entry in entries:
                package = normal_name(entry["package"]["name"].needed)
                if package in names:
                    affected.setdefault(package, []).append(_affected(record, entry))
        except DocumentError as error:
            raise RecipeError(
                f"`{name}` is not a valid record of OSV: {error}", hint="download the snapshot again"
            ) from error
    if not count:
        raise RecipeError(
            f"`{display_path(path)}` has no record of PyPI",
            hint="use the export `PyPI/all.zip` of OSV, or its JSON files",
        )
    return OsvSnapshot(day, count, {name: tuple(records) for name, records in affected.items()})


def _is_pypi(ecosystem: str) -> bool:
    return ecosystem.partition(":")[0] == "PyPI"


def _affected(record: DocumentValue, entry: DocumentValue) -> Affected:
    id, aliases = named(record["id"].needed, record["aliases"].texts)
    versions = entry["versions"].texts
    ranges = []
    unreadable = ""
    for item in entry["ranges"]:
        if item["type"].needed == "GIT":
            continue
        try:
            ranges.append(_events(item["events"]))
        except InvalidVersion as error:
            unreadable = f"a range of it is unreadable: {error}"
    if not ranges and not versions:
        unreadable = unreadable or "its record names only commits"
    return Affected(id, aliases, versions, tuple(ranges), unreadable)


def _events(events: DocumentValue) -> tuple[_Event, ...]:
    """Return the events of a range by version. Raises InvalidVersion."""
    made = []
    for item in events:
        for kind in _ORDER:
            if kind in item:
                text = item[kind].needed
                is_end = (kind, text) in (("introduced", "0"), ("limit", "*"))
                made.append(_Event(kind, None if is_end else Version(text)))
    return tuple(
        sorted(made, key=lambda event: (event.version or Version("0.dev0"), _ORDER.index(event.kind)))
    )


def _files(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the JSON files of a snapshot with their names. Raises RecipeError."""
    if path.is_dir():
        for file in (file for file in files_below(path) if file.suffix == ".json"):
            yield display_path(file), read(file)
        return
    try:
        with archive_reader.open_zip(path) as archive:
            for info in archive.infolist():
                if info.filename.endswith(".json"):
                    if info.file_size > MAX_BYTES:
                        message = f"`{info.filename}` is too large"
                        raise zipfile.BadZipFile(message)
                    yield info.filename, archive_reader.zip_content(archive, info, MAX_BYTES)
    except archive_reader.DAMAGED as error:
        reason = (error.strerror if isinstance(error, OSError) else "") or str(error)
        raise RecipeError(
            f"`{display_path(path)}` cannot be read as a zip archive: {reason}",
            hint="use the export `all.zip` of OSV, or a directory of its JSON files",
        ) from error
