"""The report of `bake security`: the findings of scanners, and the contents that no report covers."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from bakehouse.commands.security import waivers
from bakehouse.commands.security.findings import (
    ContentKind,
    NotScanned,
    PackageFinding,
    PackageKind,
    SecurityReport,
    Usage,
    Vulnerability,
    Waiver,
)
from bakehouse.commands.security.imports import BuildsOf, import_reports
from bakehouse.errors import UsageError
from bakehouse.plan.model import Image, RegistryBase
from bakehouse.plan.workspace import Workspace
from bakehouse.util.format import format_table

_MAX_IMAGES = 4
_KINDS: tuple[Literal["Debian", "Python"], ...] = ("Debian", "Python")


def make_report(
    workspace: Workspace,
    images: Sequence[Image],
    builds_of: BuildsOf,
    reports: Sequence[Path],
    *,
    is_whole: bool = True,
) -> SecurityReport:
    """Return the findings of scanners in images, and the contents that their reports do not cover.

    `reports` are files of scanners. `is_whole` means that `images` are all images of the project. Raises
    UsageError without reports.
    """
    if not reports:
        raise UsageError(
            "`security` reads the reports of scanners",
            hint="scan the pushed image, as with `trivy image --format json`, and add `--import FILE`",
        )
    imported = import_reports(reports, images, builds_of)
    covered = {image.name: imported.covered.get(image.name, frozenset()) for image in images}
    statements = waivers.load(workspace.project.root)
    waived, used = waivers.apply(statements, imported.findings, datetime.now(UTC).date())
    # If only some images are scanned, waivers may match findings of the others
    scanned = [kind for kind in _KINDS if is_whole and all(kind in kinds for kinds in covered.values())]
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
    not_scanned: dict[tuple[ContentKind, str, str], list[str]] = {}
    for image in images:
        for content in _uncovered(image, covered[image.name]):
            not_scanned.setdefault(content, []).append(image.name)
    return SecurityReport(
        tuple(image.name for image in images),
        tuple(imported.sources),
        tuple(ordered),
        tuple(NotScanned(*content, tuple(names)) for content, names in not_scanned.items()),
        tuple(warnings),
    )


def _uncovered(image: Image, covered: frozenset[PackageKind]) -> Iterator[tuple[ContentKind, str, str]]:
    """Yield the contents of an image that no report covers, each with the reason."""
    for kind in _KINDS:
        if kind not in covered:
            yield kind, f"{kind} packages", "no report covers them"
    if isinstance(image.base, RegistryBase) and image.uses_dnf:
        what = f"packages of dnf on {image.base.reference}"
        yield "base", what, "reports are read for Debian and Python packages only"
    if any(not file.file.endswith(".whl") for stage in image.stages for file in stage.artifacts.values()):
        yield "files", "archives of components", "no source of vulnerabilities covers them"
    if image.content.run:
        yield "run", "`run` steps of recipes", "they can install anything"


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
    return "\n".join(blocks)


def as_json(report: SecurityReport) -> dict[str, Any]:
    """Return the findings of images, and the contents that were not scanned."""
    return {
        "images": list(report.images),
        "sources": [
            {"name": source.name, "title": source.title, "images": list(source.images)}
            for source in report.sources
        ],
        "findings": [
            {
                "open": finding.is_open,
                "kind": finding.kind,
                "name": finding.name,
                "version": finding.version,
                "newer": finding.newer,
                "source": finding.source,
                "packages": list(finding.packages),
                "vulnerabilities": [
                    {**asdict(vulnerability), "aliases": list(vulnerability.aliases)}
                    for vulnerability in finding.vulnerabilities
                ],
                "usages": [asdict(usage) for usage in finding.usages],
                "waivers": [{**asdict(waiver), "images": list(waiver.images)} for waiver in finding.waivers],
            }
            for finding in report.findings
        ],
        "not_scanned": [
            {"kind": item.kind, "what": item.what, "reason": item.reason, "images": list(item.images)}
            for item in report.not_scanned
        ],
    }


def _finding_text(finding: PackageFinding) -> str:
    by_version: dict[str, list[str]] = {}
    for vulnerability in finding.open_vulnerabilities:
        by_version.setdefault(vulnerability.fixed, []).append(_vulnerability_text(vulnerability))
    rows = [
        (f"fixed in {version}" if version else "no known fix", ", ".join(ids))
        for version, ids in by_version.items()
    ]
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
