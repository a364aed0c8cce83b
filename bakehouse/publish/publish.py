"""Publishes built images, promotes candidates, and records both in the ledger."""

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from bakehouse.build.built_image import BuiltImage
from bakehouse.catalog import git_history
from bakehouse.catalog.project import Project
from bakehouse.cluster import smoke_report
from bakehouse.engine import docker, provision
from bakehouse.errors import BakehouseError, Diagnostic, PublishError, UsageError
from bakehouse.plan.model import Image
from bakehouse.publish import ecr_scan, image_uris, push, regions
from bakehouse.publish import promote as promotion
from bakehouse.publish import record as recording
from bakehouse.publish import verify as verification
from bakehouse.publish.ecr_replication import Waiting
from bakehouse.publish.image import (
    ImagePush,
    require_not_expiring,
    scanned,
    warn_if_newer_release,
    with_same_release_day,
)
from bakehouse.publish.ledger import open_ledger
from bakehouse.publish.queue import PushQueue
from bakehouse.publish.releases import ReleaseRecord
from bakehouse.publish.tags import PublishedImage
from bakehouse.registry import destination
from bakehouse.registry.client import RetryPolicy
from bakehouse.registry.registry import Registry
from bakehouse.util.format import format_bytes
from bakehouse.util.oci import Digest
from bakehouse.util.terminal import Reporter

_LONGEST = 30 * 24 * 3600


@dataclass(frozen=True, slots=True)
class PublishOptions:
    """Where images are published, and as what."""

    registry: str = ""
    """`local`, `ecr`, a registry of the settings or a host, and a prefix; empty is the default."""
    create: bool = False
    """Create missing ECR repositories."""
    candidate: bool = False
    """Publish as candidates."""
    move_tag: bool = False
    """Move the image's moving tag to the release."""
    image_uri: str = ""
    """Candidate to promote; empty is the newest."""
    reports: tuple[Path, ...] = ()
    """Smoke reports from other machines."""
    attest: bool = False
    """Attach an SBOM and provenance."""
    deadline: float = 0.0
    """Seconds for all images and attempts together; 0 is six hours."""
    fail_on: str = ""
    """Lowest severity of scan findings that fails; empty is the registry's setting."""

    def __post_init__(self) -> None:
        """Reject an invalid deadline before anything is built."""
        if not 0 <= self.deadline <= _LONGEST:
            message = f"invalid `--deadline {self.deadline:g}`"
            hint = f"use seconds, at most {_LONGEST} (30 days); 0 is six hours"
            raise UsageError(Diagnostic(message, hint=hint))


def push_images(
    project: Project, built: Sequence[BuiltImage], say: Reporter, terms: PublishOptions
) -> tuple[ReleaseRecord, ...]:
    """Push tested images, or candidates, and record them in the ledger."""
    provision.ensure(provision.ask_at_terminal, say)
    queue = PushQueue()
    with contextlib.ExitStack() as stack:
        engine = stack.enter_context(contextlib.closing(docker.connect())) if terms.attest else None
        where = stack.enter_context(
            destination.destination(project, terms.registry, say, create=terms.create)
        )
        publication, severity = _publication(project, terms, where.prefix), terms.fail_on or where.scan
        pushes = [ImagePush(project, one, where, publication, severity, queue, say, engine) for one in built]
        outcomes = queue.each([one.run for one in pushes])
    done = [one for one in outcomes if not isinstance(one, BakehouseError)]
    _tell_bytes([published for published, _ in done], say)
    failures = [one for one in outcomes if isinstance(one, BakehouseError)]
    if failures:
        for _, record in done:
            say(f"{record.image}: published as {record.image_uri}")
        kinds = {type(one) for one in failures}
        kind = kinds.pop() if len(kinds) == 1 else PublishError
        raise kind(*(told for one in failures for told in one.diagnostics))
    return tuple(record for _, record in done)


def _tell_bytes(published: Sequence[PublishedImage], say: Reporter) -> None:
    """What a push of many has spared, in all."""
    if len(published) < 2 or any(one.sent is None for one in published):
        return
    sent, whole = sum(one.sent or 0 for one in published), sum(one.bytes for one in published)
    say(f"{len(published)} images of {format_bytes(whole)}: {format_bytes(sent)} had to be sent")


def promote_image(project: Project, image: Image, say: Reporter, terms: PublishOptions) -> ReleaseRecord:
    """Release an image's newest candidate, by the smoke reports of all machines."""
    ledger = open_ledger(project)
    known = ledger.records(image.name)
    candidate = image_uris.to_promote(
        project.images, image.name, registry=terms.registry or None, image_uri=terms.image_uri
    )
    if candidate.candidate and candidate.key != image.key:
        # Today's recipe may require fewer checks than the candidate's did.
        facts = (("recipe's key", image.key), ("candidate's key", candidate.key))
        hint = "check out the commit that it was published from, which `bake releases` shows"
        message = f"the candidate of `{image.name}` was not built from this recipe"
        raise UsageError(Diagnostic(message, facts=facts, hint=hint))
    digests = [Digest(digest) for digest in (candidate.digest, candidate.config) if digest]
    for path in terms.reports:
        smoke_report.attach(path, image.name, digests, project.state)
    found = [report for digest in digests if (report := smoke_report.load_all(project.state, digest))]
    report = smoke_report.merge_reports(found) if found else None
    publication = _publication(project, terms)
    places = _everywhere(candidate, known)
    taken: list[tuple[Registry, PublishedImage]] = []

    def promote(target: Registry, first: PublishedImage | None) -> PublishedImage:
        same_day = with_same_release_day(publication, first)
        published = promotion.promote(places[target.host], image, report, target, same_day, say)
        require_not_expiring(target, published, ledger, say, publication.until, move_tag=terms.move_tag)
        taken.append((target, published))
        return published

    with contextlib.ExitStack() as stack:
        targets = [stack.enter_context(destination.registry(project, host, say)) for host in places]
        candidate = _scanned(project, candidate, targets[0], say, terms, publication)
        spread = regions.for_each_region(targets, promote)
        record = candidate
        if candidate.candidate:
            assert report, "a promotion without a report"
            released = replace(candidate, candidate=False, date=publication.day.isoformat())
            record = recording.with_report(released, report, image.required)
        record = _in_regions(record, spread)
        # Before the moving tag, which a registry may reject: the image is released all the same.
        ledger.add(record)
        if terms.move_tag and not spread.interrupt:
            unmoved = _move_tages(taken, publication)
            spread = replace(spread, failures=(*spread.failures, *unmoved))
    spread.require_all()
    if terms.move_tag:
        say(f"{image.name}: tag `{image.name}` now points to this release")
    warn_if_newer_release(project, record, say)
    return record


def _move_tages(
    released: Sequence[tuple[Registry, PublishedImage]], publication: push.PushOptions
) -> tuple[PublishError, ...]:
    """Move the moving tag in each registry that has the release; return the failures."""
    failures = []
    for target, published in released:
        try:
            promotion.move_tag(published, target, publication)
        except PublishError as error:
            failures.append(error)
    return tuple(failures)


def _scanned(
    project: Project,
    candidate: ReleaseRecord,
    registry: Registry,
    say: Reporter,
    terms: PublishOptions,
    publication: push.PushOptions,
) -> ReleaseRecord:
    """Candidate with the result of a scan where one is requested; recorded even if findings fail it."""
    settings = destination.settings_of(project, candidate.registry)
    severity = terms.fail_on or (settings.scan if settings else "")
    if not severity:
        return candidate
    published = PublishedImage(
        candidate.image, candidate.registry, candidate.repository, candidate.tags, Digest(candidate.digest)
    )
    found = scanned(registry, published, say, Waiting(until=publication.until))
    candidate = found.recorded(candidate)
    try:
        ecr_scan.require_clean(found, severity, published)
    except PublishError:
        # The record of a release stays unchanged.
        if candidate.candidate:
            open_ledger(project).add(candidate)
        raise
    return candidate


def _everywhere(candidate: ReleaseRecord, known: Sequence[ReleaseRecord]) -> dict[str, ReleaseRecord]:
    """Candidate in each registry, including those that an earlier promotion did not reach."""
    together = [
        one.places for one in known if candidate.image_uri in {place.image_uri for place in one.places}
    ]
    earlier = {place.registry: place for places in together for place in places}
    own = {place.registry: place for place in candidate.places}
    return {**own, **{host: place for host, place in earlier.items() if host not in own}}


def _in_regions(record: ReleaseRecord, spread: regions.RegionResults) -> ReleaseRecord:
    """Record with the registries that have the release now."""
    first = spread.published
    return replace(
        record,
        registry=first.registry,
        repository=first.repository,
        image_uri=first.image_uri,
        tags=first.tags,
        regions=spread.regions,
    )


def verify_releases(
    project: Project, records: Sequence[ReleaseRecord], say: Reporter
) -> tuple[verification.Verified, ...]:
    """Compare records with their registries."""
    with contextlib.ExitStack() as stack:

        def registry_of(host: str) -> Registry:
            return stack.enter_context(destination.registry(project, host, say))

        return verification.verify(records, registry_of, RetryPolicy(until=time.monotonic() + push.SIX_HOURS))


def _publication(project: Project, terms: PublishOptions, prefix: str = "") -> push.PushOptions:
    publication = push.PushOptions(
        day=datetime.now(UTC).date(),
        locks=project.state / "locks",
        prefix=prefix or project.repository_prefix,
        candidate=terms.candidate,
        revision=git_history.current(project.root),
        history=partial(_history, project),
    )
    if terms.deadline:
        return replace(publication, until=time.monotonic() + terms.deadline)
    return publication


def _history(project: Project, image: str, digest: Digest) -> str:
    # This runs after a push has failed.
    with contextlib.suppress(BakehouseError):
        return recording.describe(open_ledger(project).records(image), digest)
    return ""
