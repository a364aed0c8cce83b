"""Ledger records of published images."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import date

from bakehouse.builder.verify import Outcome
from bakehouse.catalog.job_checks import GPU_CHECKS
from bakehouse.evidence.known_checks import KnownChecks
from bakehouse.ledger.releases import (
    ReleasedArtifact,
    ReleasedCheck,
    ReleasedComponent,
    ReleasedName,
    ReleaseRecord,
)
from bakehouse.ledger.toolkit import toolkit_versions
from bakehouse.plan.model import Image
from bakehouse.plan.unpinned import unpinned_inputs
from bakehouse.publish.tags import PublishedImage, release_day


def record_of(
    published: PublishedImage, image: Image, state: KnownChecks | None, day: date, revision: str = ""
) -> ReleaseRecord:
    """Return the record of a published image, with the results of its checks."""
    versions = dict(name_version for part in image.all_parts for name_version in part.provides)
    components = {part.component for part in image.all_parts}
    versions |= {name: text for name, text in toolkit_versions(image).items() if name not in components}
    record = ReleaseRecord(
        image=image.name,
        key=image.key,
        digest=published.digest,
        registry=published.registry,
        repository=published.repository,
        tags=published.tags,
        image_uri=published.image_uri,
        date=(release_day(published.tags[0]) or day).isoformat(),
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
        provides=tuple(ReleasedName(name, version) for name, version in sorted(versions.items())),
        gpu_architecture=image.gpu_architecture,
        neuron_architecture=image.neuron_architecture,
        platform=image.platform,
        config=published.config or "",
        revision=revision,
        tested_on_gpus=False if image.gpu else None,
        unpinned=tuple(item.text for item in unpinned_inputs(image)),
    )
    return with_state(record, state, image) if state and state.date else record


def with_state(record: ReleaseRecord, state: KnownChecks, image: Image) -> ReleaseRecord:
    """Return a record with the results of the checks."""
    return replace(
        record,
        tested=not state.blockers,
        transport=state.transport,
        tested_on_gpus=_tested_on_gpus(state) if image.gpu else None,
        checks=tuple(ReleasedCheck(check.name, check.outcome) for check in state.checks),
    )


def _tested_on_gpus(state: KnownChecks) -> bool:
    return any(check.name in GPU_CHECKS and check.outcome is Outcome.PASSED for check in state.checks)


def describe(records: Iterable[ReleaseRecord], digest: str) -> str:
    """Return how, when and from which commit a digest was published; empty if it was not."""
    for record in records:
        if record.digest == digest:
            verb = "staged" if record.candidate else "released"
            return (
                f"{verb} {record.date}, {f'revision {record.revision}' if record.revision else 'no commit'}"
            )
    return ""


def with_known_facts(
    record: ReleaseRecord, ledger: Sequence[ReleaseRecord], attached: Iterable[ReleasedArtifact] = ()
) -> ReleaseRecord:
    """Return a record with the attachments of its image URI and the last scan of its digest."""
    artifacts = {*record.artifacts, *attached}
    artifacts.update(*(other.artifacts for other in ledger if other.image_uri == record.image_uri))
    in_order = sorted(artifacts, key=lambda artifact: (artifact.media_type, artifact.digest))
    same = [other for other in reversed(ledger) if other.digest == record.digest]
    scans = next((other.scans for other in same if other.scans), record.scans)
    record = replace(record, artifacts=tuple(in_order), scans=scans)
    for other in same:
        if other.scanned or other.not_scanned:
            return replace(
                record, scanned=other.scanned, not_scanned=other.not_scanned, findings=other.findings
            )
    return record
