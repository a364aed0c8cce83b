"""The report of `bake security`: the findings of all sources, and the contents that no source covers."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from bakehouse.plan.model import Image, RegistryBase
from bakehouse.plan.workspace import Workspace, plan_images
from bakehouse.security import debian, osv
from bakehouse.security.contents import python_packages
from bakehouse.security.findings import Finding, NotScanned, SecurityReport, Source, Usage
from bakehouse.util.format import format_count, format_table
from bakehouse.util.terminal import Reporter

_MOST_IMAGES = 4
_NO_DATA = "no data about their vulnerabilities, see `--osv`"
_NO_FIX = "Vulnerabilities without a fix in the suites are not listed.\n"


def make_report(
    workspace: Workspace, patterns: Sequence[str], report: Reporter, snapshot: Path | None = None
) -> SecurityReport:
    """Return the findings of images, and the contents that were not scanned.

    `snapshot` is OSV's data of PyPI.
    """
    images = plan_images(workspace, patterns).images
    names = tuple(image.name for image in images)
    sources: list[Source] = []
    findings: list[Finding] = []
    not_scanned: list[NotScanned] = []
    if snapshot:
        data, vulnerable, undecided = osv.scan(snapshot, images, report)
        sources.append(Source(osv.SOURCE, data.title, names))
        findings += vulnerable
        not_scanned += undecided
    else:
        not_scanned += _python_packages(images)
    updates, unread = debian.pending_updates(workspace, images, report)
    findings += updates
    findings.sort(key=lambda finding: (not finding.is_open, finding.kind, finding.name, finding.version))
    not_scanned = [*unread, *_uncovered(images), *not_scanned]
    return SecurityReport(names, tuple(sources), tuple(findings), tuple(not_scanned))


def _python_packages(images: Sequence[Image]) -> Iterator[NotScanned]:
    if packages := python_packages(images):
        what = format_count(len(packages), "Python package")
        names = dict.fromkeys(usage.image for usages in packages.values() for usage in usages)
        yield NotScanned(what, _NO_DATA, tuple(names))


def _uncovered(images: Iterable[Image]) -> Iterator[NotScanned]:
    """Yield the contents of images that have no source of vulnerabilities."""
    reasons: dict[tuple[str, str], dict[str, None]] = {}
    files: dict[str, dict[str, None]] = {}
    scripted: dict[str, None] = {}
    for image in images:
        if image.content.run:
            scripted[image.name] = None
        for key in _uncovered_bases(image):
            reasons.setdefault(key, {})[image.name] = None
        for stage in image.stages:
            for artifact in stage.artifacts.values():
                if not artifact.file.endswith(".whl"):
                    files.setdefault(artifact.pin_name, {})[image.name] = None
    for (what, reason), names in reasons.items():
        yield NotScanned(what, reason, tuple(names))
    if files:
        what = format_count(len(files), "archive of a component", "archives of components")
        yield NotScanned(what, "no source of vulnerabilities covers them", _all_names(files.values()))
    if scripted:
        yield NotScanned("`run` steps of recipes", "they can install anything", tuple(scripted))


def _uncovered_bases(image: Image) -> Iterator[tuple[str, str]]:
    """Yield Debian packages and vendor bases of an image that are not compared, each with the reason."""
    if isinstance(image.base, RegistryBase):
        yield f"vendor base {image.base.reference}", "Bakehouse does not read its packages"
        if image.installs_apt or image.debs:
            yield f"packages of apt on {image.base.reference}", "run `bake lock --check` to compare them"
    elif not image.locks_apt:
        yield f"Debian packages of {image.base.suite}", "they are not locked"


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
    if report.not_scanned:
        rows = [(item.what, item.reason, _name_list(item.images)) for item in report.not_scanned]
        blocks.append(f"not scanned:\n{format_table(rows, indent='  ')}")
    return "\n".join([*blocks, _NO_FIX])


def _finding_text(finding: Finding) -> str:
    by_version: dict[str, list[str]] = {}
    for vulnerability in finding.vulnerabilities:
        by_version.setdefault(vulnerability.fixed, []).append(vulnerability.id)
    rows = [
        (f"fixed in {version}" if version else "no known fix", ", ".join(ids))
        for version, ids in by_version.items()
    ]
    if not rows:
        rows = [("fixes", "its changelog names no CVE")]
    rows.append(("packages", ", ".join(finding.packages)))
    rows += [("affected", f"{step}: {images}") for step, images in _by_step(finding.usages)]
    newer = f" -> {finding.newer}" if finding.newer else ""
    heading = f"{finding.name} {finding.version}{newer} ({finding.source})"
    return f"{heading}\n{format_table(rows, indent='  ')}"


def _by_step(usages: Iterable[Usage]) -> Iterator[tuple[str, str]]:
    """Yield each affected step with its images; steps of build stages are marked."""
    steps: dict[tuple[str, bool], list[str]] = {}
    for usage in usages:
        steps.setdefault((usage.step, usage.in_image), []).append(usage.image)
    for (step, in_image), images in steps.items():
        yield f"{step}{'' if in_image else ' (not in the image)'}", _name_list(images)


def _name_list(names: Sequence[str]) -> str:
    rest = f" and {len(names) - _MOST_IMAGES} more" if len(names) > _MOST_IMAGES else ""
    return f"{', '.join(names[:_MOST_IMAGES])}{rest}"
