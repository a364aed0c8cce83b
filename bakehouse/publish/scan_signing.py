"""Signed scan results: the findings of `bake security` about the digests of published images."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from bakehouse import __version__
from bakehouse.catalog.project import ProjectSettings
from bakehouse.errors import Diagnostic, Problems, UsageError
from bakehouse.ledger.releases import ReleaseRecord
from bakehouse.ledger.store import open_ledger
from bakehouse.plan.model import Image
from bakehouse.publish.attest import Bundler
from bakehouse.publish.record import with_scans
from bakehouse.publish.signing import require_published, sign_published
from bakehouse.trust import provenance, waivers
from bakehouse.trust.bundle import SignedStatement, Statement, statement
from bakehouse.trust.findings import PackageFinding, SecurityReport, Source, Vulnerability
from bakehouse.trust.signed_scans import NOT_SCANNED, read_scans, summarize, time_text
from bakehouse.trust.statements import SCAN
from bakehouse.util.oci import Digest
from bakehouse.util.terminal import Reporter

_SOURCES = "bakehouse_sources"
"""Extension field of the predicate."""


def require_all_published(
    project: ProjectSettings, images: Iterable[Image]
) -> dict[str, tuple[ReleaseRecord, ...]]:
    """Return the records of each image with its current build key. Raises UsageError if an image has none."""
    problems = Problems()
    records = {}
    for image in images:
        try:
            records[image.name] = require_published(project, image)
        except UsageError as error:
            problems.extend(error.diagnostics)
    problems.raise_as(UsageError)
    return records


def sign_scans(
    project: ProjectSettings,
    records: Mapping[str, Sequence[ReleaseRecord]],
    report: SecurityReport,
    started: datetime,
    bundler: Bundler,
    progress: Reporter,
) -> None:
    """Attach the results of a scan to the published builds of the scanned images, and record them."""
    targets = []
    problems = Problems()
    for image, published in records.items():
        sources = [source for source in report.sources if image in source.images]
        problems.extend(_undated(source) for source in sources if not source.day)
        builds: dict[str, list[ReleaseRecord]] = defaultdict(list)
        for record in published:
            if all(_is_about(source, record) for source in sources):
                builds[record.digest].append(record)
        if not builds:
            message = f"the reports of scanners are about different builds of `{image}`"
            problems.add(Diagnostic(message, hint="scan one digest with all scanners"))
        targets += [(image, Digest(digest), build_records) for digest, build_records in builds.items()]
    problems.raise_as(UsageError)
    finished = datetime.now(UTC)
    ledger, waived = open_ledger(project), waivers.load(project.root)
    for image, digest, builds_of_digest in targets:
        predicate = _predicate(image, report, started, finished)

        def scan(name: str, digest: Digest = digest, predicate: object = predicate) -> Statement:
            return statement(name, digest, SCAN, predicate)

        sign_published(project, builds_of_digest, scan, bundler, progress, f"security {image} --sign")
        [signed] = read_scans([SignedStatement(SCAN, predicate, bundler.public_key)], image).newest
        ledger.add(with_scans(builds_of_digest[-1], [summarize(signed, waived)]))


def _undated(source: Source) -> Diagnostic:
    message = f"the report `{source.title}` of {source.name} has no time, so the age of its data is unknown"
    return Diagnostic(message, hint="import a report in the scanner's JSON format")


def _is_about(source: Source, record: ReleaseRecord) -> bool:
    return not source.digests or not source.digests.isdisjoint((record.digest, record.config))


def statement_of(
    image: str, digest: Digest, report: SecurityReport, started: datetime, finished: datetime
) -> Statement:
    """Return the statement with the findings in an image, waived ones included."""
    return statement(image, digest, SCAN, _predicate(image, report, started, finished))


def _predicate(
    image: str, report: SecurityReport, started: datetime, finished: datetime
) -> Mapping[str, Any]:
    sources = [source for source in report.sources if image in source.images]
    days = [datetime.fromisoformat(source.day).replace(tzinfo=UTC) for source in sources]
    not_scanned = {(item.kind, item.reason) for item in report.not_scanned if image in item.images}
    return {
        "scanner": {
            "uri": provenance.BUILDER["id"],
            "version": __version__,
            "db": {"lastUpdate": time_text(min((started, *days)))},
            "result": _results(image, report.findings),
        },
        "metadata": {"scanStartedOn": time_text(started), "scanFinishedOn": time_text(finished)},
        _SOURCES: [{"name": source.name, "day": source.day} for source in sources],
        NOT_SCANNED: [{"kind": kind, "reason": reason} for kind, reason in sorted(not_scanned)],
    }


def _results(image: str, findings: Iterable[PackageFinding]) -> list[dict[str, Any]]:
    """Return the vulnerabilities of packages in an image; packages of build stages are not in it."""
    results = []
    for finding in findings:
        if not any(usage.image == image and usage.in_image for usage in finding.usages):
            continue
        vulnerabilities = finding.vulnerabilities
        if not vulnerabilities and finding.is_open:
            vulnerabilities = (
                Vulnerability(f"{finding.source}: {finding.name} {finding.newer}", finding.newer),
            )
        for vulnerability in vulnerabilities:
            rating = (
                [{"method": finding.source, "score": vulnerability.severity}]
                if vulnerability.severity
                else []
            )
            package = {
                "kind": finding.kind,
                "name": finding.name,
                "version": finding.version,
                "packages": list(finding.packages),
                "fixed": vulnerability.fixed,
                "aliases": list(vulnerability.aliases),
                "source": finding.source,
            }
            results.append({"id": vulnerability.id, "severity": rating, "annotations": [package]})
    return results
