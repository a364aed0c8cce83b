"""Publishes built images and promotes candidates, and writes both into the ledger."""

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
    """`local`, `ecr`, a registry of the settings or a host, and a prefix; empty is the project's."""
    create: bool = False
    """Make an ECR repository that is not there."""
    candidate: bool = False
    """As candidates."""
    move_tag: bool = False
    """Let the moving tag follow."""
    image_uri: str = ""
    """What is to be promoted; empty is the newest candidate."""
    reports: tuple[Path, ...] = ()
    """Smoke reports that other machines made."""
    attest: bool = False
    """Attach what is in the image and how it came to be."""
    deadline: float = 0.0
    """Seconds that pushing may take, all images and attempts together; 0 is six hours."""
    fail_on: str = ""
    """The least severity of a scan's finding that is too much; empty is what the settings say."""

    def __post_init__(self) -> None:
        """Refuse what is no time: it is found out before anything is built."""
        if not 0 <= self.deadline <= _LONGEST:
            message = f"`--deadline` can't be `{self.deadline:g}`"
            hint = f"it is seconds, at most {_LONGEST} (30 days); 0 is six hours"
            raise UsageError(Diagnostic(message, hint=hint))


def push_images(
    project: Project, built: Sequence[BuiltImage], say: Reporter, terms: PublishOptions
) -> tuple[ReleaseRecord, ...]:
    """Push what may be released, or candidates, and write it into the ledger."""
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
    """Release an image's newest candidate, by what was seen of it on all machines."""
    ledger = open_ledger(project)
    known = ledger.records(image.name)
    candidate = image_uris.to_promote(
        project.images, image.name, registry=terms.registry or None, image_uri=terms.image_uri
    )
    if candidate.candidate and candidate.key != image.key:
        # What a recipe requires today may be less than what it required then
        facts = (("recipe's key", image.key), ("candidate's key", candidate.key))
        hint = "check out the commit that it was staged from: `bake releases` tells it"
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
        # Before the alias, which a registry may not let move: it is released all the same.
        ledger.add(record)
        if terms.move_tag and not spread.interrupt:
            unmoved = _move_tages(taken, publication)
            spread = replace(spread, failures=(*spread.failures, *unmoved))
    spread.require_all()
    if terms.move_tag:
        say(f"{image.name}: the tag `{image.name}` means it now")
    warn_if_newer_release(project, record, say)
    return record


def _move_tages(
    released: Sequence[tuple[Registry, PublishedImage]], publication: push.PushOptions
) -> tuple[PublishError, ...]:
    """Let the moving tag mean a release in each registry that has it; what kept it where it was."""
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
    """A candidate with the outcome of a scan, where one is wanted; written down where it is too bad."""
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
        # Of what is released already nothing new is told: it stays as it was.
        if candidate.candidate:
            open_ledger(project).add(candidate)
        raise
    return candidate


def _everywhere(candidate: ReleaseRecord, known: Sequence[ReleaseRecord]) -> dict[str, ReleaseRecord]:
    """A candidate as each registry has it, also those that an earlier promotion did not reach."""
    together = [
        one.places for one in known if candidate.image_uri in {place.image_uri for place in one.places}
    ]
    earlier = {place.registry: place for places in together for place in places}
    own = {place.registry: place for place in candidate.places}
    return {**own, **{host: place for host, place in earlier.items() if host not in own}}


def _in_regions(record: ReleaseRecord, spread: regions.RegionResults) -> ReleaseRecord:
    """A record of what is released, in the registries that have it now."""
    first = spread.published
    return replace(
        record,
        registry=first.registry,
        repository=first.repository,
        image_uri=first.image_uri,
        tags=first.tags,
        regions=spread.regions,
    )


def verify(
    project: Project, records: Sequence[ReleaseRecord], say: Reporter
) -> tuple[verification.Verified, ...]:
    """Ask the registries of records for each of them."""
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
    # It is asked where a push has failed already.
    with contextlib.suppress(BakehouseError):
        return recording.told_of(open_ledger(project).records(image), digest)
    return ""
