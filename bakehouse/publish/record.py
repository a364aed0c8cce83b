"""Ledger records of published images."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import date

from bakehouse.cluster.smoke_report import SmokeReport, release_blockers
from bakehouse.plan.model import Image
from bakehouse.publish.releases import (
    ReleasedArtifact,
    ReleasedCheck,
    ReleasedComponent,
    ReleasedName,
    ReleaseRecord,
)
from bakehouse.publish.tags import PublishedImage


def record_of(
    published: PublishedImage, image: Image, report: SmokeReport | None, day: date, revision: str = ""
) -> ReleaseRecord:
    """Return the record of a published image; a report of another digest is ignored."""
    if report and not published.has_digest(report.digest):
        report = None
    names = dict(one for part in image.all_parts for one in part.provides)
    record = ReleaseRecord(
        image=image.name,
        key=image.key,
        digest=published.digest,
        registry=published.registry,
        repository=published.repository,
        tags=published.tags,
        image_uri=published.image_uri,
        date=day.isoformat(),
        tested=False,
        transport="",
        checks=(),
        parts=tuple(
            ReleasedComponent(part.component, part.version, part.variant) for part in image.all_parts
        ),
        gpu=image.gpu,
        launchers=image.launchers,
        training_module=image.training_module or "",
        entry_point=image.entry_point or "",
        media_type=published.media_type,
        bytes=published.bytes,
        candidate=published.candidate,
        provides=tuple(ReleasedName(name, version) for name, version in sorted(names.items())),
        gpu_architecture=image.gpu_architecture,
        config=published.config or "",
        revision=revision,
    )
    return with_report(record, report, image.required) if report else record


def with_report(record: ReleaseRecord, report: SmokeReport, required: tuple[str, ...]) -> ReleaseRecord:
    """Return a record with the results of a smoke report."""
    return replace(
        record,
        tested=not release_blockers(report, required),
        transport=report.transport,
        checks=tuple(ReleasedCheck(check.name, check.outcome) for check in report.checks),
    )


def describe(records: Iterable[ReleaseRecord], digest: str) -> str:
    """Return how, when and from which commit a digest was published; empty where it was not."""
    for record in records:
        if record.digest == digest:
            how = "staged" if record.candidate else "released"
            return f"{how} {record.date}, {f'revision {record.revision}' if record.revision else 'no commit'}"
    return ""


def with_known(
    record: ReleaseRecord, known: Sequence[ReleaseRecord], attached: Iterable[ReleasedArtifact] = ()
) -> ReleaseRecord:
    """Return a record with the attachments and the last scan of its digest."""
    return _with_scan(_with_artifacts(record, known, attached), known)


def _with_scan(record: ReleaseRecord, known: Sequence[ReleaseRecord]) -> ReleaseRecord:
    for other in reversed(known):
        if other.digest == record.digest and (other.scanned or other.not_scanned):
            return replace(
                record, scanned=other.scanned, not_scanned=other.not_scanned, findings=other.findings
            )
    return record


def _with_artifacts(
    record: ReleaseRecord, known: Iterable[ReleaseRecord], attached: Iterable[ReleasedArtifact]
) -> ReleaseRecord:
    earlier = (one for other in known if other.image_uri == record.image_uri for one in other.artifacts)
    found = {*record.artifacts, *earlier, *attached}
    return replace(record, artifacts=tuple(sorted(found, key=lambda one: (one.media_type, one.digest))))
