"""The report of `bake security`: the findings of all sources, and the contents that no source covers."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from bakehouse.commands.security import debian, imports, osv
from bakehouse.commands.security.contents import python_packages
from bakehouse.commands.security.imports import BuildsOf, Imported
from bakehouse.plan.model import Image, RegistryBase
from bakehouse.plan.workspace import Workspace
from bakehouse.trust import waivers
from bakehouse.trust.findings import (
    ContentKind,
    NotScanned,
    PackageFinding,
    PackageKind,
    SecurityReport,
    Source,
    Usage,
    Vulnerability,
    Waiver,
)
from bakehouse.util.format import format_count, format_table
from bakehouse.util.terminal import Reporter

_MAX_IMAGES = 4
_NO_DATA = "no data about their vulnerabilities, see `--osv`"
Covered = Mapping[str, frozenset[PackageKind]]
"""Kinds of packages that a scanner read, by image."""
_NO_FIX = "Vulnerabilities without a fix in the suites are not listed.\n"


def make_report(
    workspace: Workspace,
    images: Sequence[Image],
    report: Reporter,
    builds_of: BuildsOf,
    snapshot: Path | None = None,
    reports: Sequence[Path] = (),
    *,
    is_whole: bool = True,
) -> SecurityReport:
    """Return the findings of images, and the contents that were not scanned.

    `snapshot` is OSV's data for PyPI, and `reports` are files of scanners. `is_whole` means that `images` are
    all images of the project.
    """
    names = tuple(image.name for image in images)
    imported = imports.import_reports(reports, images, builds_of) if reports else Imported()
    sources, findings = imported.sources, imported.findings
    not_scanned: list[NotScanned] = []
    if snapshot:
        data, vulnerable, undecided = osv.scan(snapshot, images, report)
        sources.insert(0, Source(osv.SOURCE, data.title, names, data.day))
        findings += vulnerable
        not_scanned += undecided
    else:
        not_scanned += _python_packages(images, imported.covered)
    updates, unread = debian.pending_updates(workspace, images, report)
    findings += updates
    statements = waivers.load(workspace.project.root)
    waived, used = waivers.apply(statements, findings, datetime.now(UTC).date())
    # If only some images are scanned, waivers may match findings of the others
    scanned = _scanned_kinds(images, imported.covered, snapshot) if is_whole else ()
    warnings = waivers.warnings(statements, used, tuple(workspace.recipes), scanned)
    ordered = sorted(
        waived,
        key=lambda finding: (
            not finding.is_open,
            finding.kind,
            finding.name,
            finding.version,
            finding.source,
        ),
    )
    not_scanned = [*unread, *_uncovered(images, imported.covered), *not_scanned]
    return SecurityReport(names, tuple(sources), tuple(ordered), tuple(not_scanned), tuple(warnings))


def _scanned_kinds(
    images: Iterable[Image], covered: Covered, snapshot: Path | None
) -> tuple[PackageKind, ...]:
    """Return the kinds of packages that were scanned in all images."""
    has_python = snapshot or all("Python" in covered.get(image.name, ()) for image in images)
    return ("Debian", "Python") if has_python else ("Debian",)


def _python_packages(images: Sequence[Image], covered: Covered) -> Iterator[NotScanned]:
    left = [image for image in images if "Python" not in covered.get(image.name, ())]
    if packages := python_packages(left):
        what = format_count(len(packages), "Python package")
        names = dict.fromkeys(usage.image for usages in packages.values() for usage in usages)
        yield NotScanned("Python", what, _NO_DATA, tuple(names))


def _uncovered(images: Iterable[Image], covered: Covered) -> Iterator[NotScanned]:
    """Yield the contents of images that have no source of vulnerabilities."""
    reasons: dict[tuple[ContentKind, str, str], dict[str, None]] = {}
    files: dict[str, dict[str, None]] = {}
    scripted: dict[str, None] = {}
    for image in images:
        if image.content.run:
            scripted[image.name] = None
        for key in _uncovered_bases(image, covered.get(image.name, frozenset())):
            reasons.setdefault(key, {})[image.name] = None
        for stage in image.stages:
            for artifact in stage.artifacts.values():
                if not artifact.file.endswith(".whl"):
                    files.setdefault(artifact.pin_name, {})[image.name] = None
    for (kind, what, reason), names in reasons.items():
        yield NotScanned(kind, what, reason, tuple(names))
    if files:
        what = format_count(len(files), "archive of a component", "archives of components")
        reason = "no source of vulnerabilities covers them"
        yield NotScanned("files", what, reason, _all_names(files.values()))
    if scripted:
        yield NotScanned("run", "`run` steps of recipes", "they can install anything", tuple(scripted))


def _uncovered_bases(image: Image, covered: frozenset[PackageKind]) -> Iterator[tuple[ContentKind, str, str]]:
    """Yield Debian packages and vendor bases of an image that are not compared, each with the reason."""
    if isinstance(image.base, RegistryBase):
        if not covered.issuperset(("Debian", "Python")):
            yield "base", f"vendor base {image.base.reference}", "Bakehouse does not read its packages"
        if image.uses_dnf:
            what = f"packages of dnf on {image.base.reference}"
            yield "base", what, "Bakehouse only compares Debian packages"
        elif "Debian" not in covered and (image.installs_apt or image.debs):
            what = f"packages of apt on {image.base.reference}"
            yield "Debian", what, "run `bake lock --check` to compare them"
    elif "Debian" not in covered and not image.locks_apt:
        yield "Debian", f"Debian packages of {image.base.suite}", "they are not locked"


def _all_names(groups: Iterable[Iterable[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for names in groups for name in names))


def text(report: SecurityReport) -> str:
    """Format the findings, and the contents that were not scanned."""
    blocks = [_finding_text(finding) for finding in report.findings]
    if not blocks:
        blocks = ["no finding\n"]
    if report.sources:
        rows = [(source.name, source.title, _name_list(source.images)) for source in report.sources]
        blocks.append(f"scanned with:\n{format_table(rows, indent='  ')}")
    for heading, items in (("not scanned", report.left_out), ("cannot be scanned", report.unknown)):
        if items:
            rows = [(item.what, item.reason, _name_list(item.images)) for item in items]
            blocks.append(f"{heading}:\n{format_table(rows, indent='  ')}")
    return "\n".join([*blocks, _NO_FIX])


def _finding_text(finding: PackageFinding) -> str:
    by_version: dict[str, list[str]] = {}
    for vulnerability in finding.open_vulnerabilities:
        by_version.setdefault(vulnerability.fixed, []).append(_vulnerability_text(vulnerability))
    rows = [
        (f"fixed in {version}" if version else "no known fix", ", ".join(ids))
        for version, ids in by_version.items()
    ]
    if not finding.vulnerabilities:
        rows = [("fixes", "its changelog names no CVE")]
    rows += [_waiver_row(waiver, finding) for waiver in finding.waivers]
    rows.append(("packages", ", ".join(finding.packages)))
    rows += [("affected", f"{step}: {images}") for step, images in _by_step(finding.usages)]
    newer = f" -> {finding.newer}" if finding.newer else ""
    heading = f"{finding.name} {finding.version}{newer} ({finding.source})"
    return f"{heading}\n{format_table(rows, indent='  ')}"


def _waiver_row(waiver: Waiver, finding: PackageFinding) -> tuple[str, str]:
    """Return a waiver as a row; one of a part of the affected images names them."""
    is_partial = {usage.image for usage in finding.usages}.difference(waiver.images)
    images = f" in {_name_list(waiver.images)}" if is_partial else ""
    label = "expired waiver" if waiver.is_expired else waiver.status
    return label, f"{waiver.vulnerability}{images} until {waiver.expires}, {waiver.owner}: {waiver.reason}"


def _vulnerability_text(vulnerability: Vulnerability) -> str:
    return f"{vulnerability.id}{f' ({vulnerability.severity})' if vulnerability.severity else ''}"


def _by_step(usages: Iterable[Usage]) -> Iterator[tuple[str, str]]:
    """Yield each affected step with its images; steps of build stages are marked."""
    steps: dict[tuple[str, bool], list[str]] = {}
    for usage in usages:
        steps.setdefault((usage.step, usage.in_image), []).append(usage.image)
    for (step, in_image), images in steps.items():
        yield f"{step}{'' if in_image else ' (not in the image)'}", _name_list(images)


def _name_list(names: Sequence[str]) -> str:
    rest = f" and {len(names) - _MAX_IMAGES} more" if len(names) > _MAX_IMAGES else ""
    return f"{', '.join(names[:_MAX_IMAGES])}{rest}"
