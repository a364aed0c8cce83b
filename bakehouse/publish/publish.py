"""Publishes built images to every registry of a destination, and records them in the ledger."""

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from bakehouse.builder.built_image import BuiltImage
from bakehouse.builder.pack import Packer
from bakehouse.catalog import git_history
from bakehouse.catalog.project import Project
from bakehouse.cluster import smoke_report
from bakehouse.cluster.smoke_report import SmokeReport
from bakehouse.engine import docker, provision
from bakehouse.engine.protocol import Engine
from bakehouse.errors import (
    BakehouseError,
    NotReleasableError,
    Problems,
    PublishError,
    Reason,
    UsageError,
)
from bakehouse.ledger import image_uris
from bakehouse.ledger.ledger import Ledger, open_ledger
from bakehouse.ledger.releases import ReleasedArtifact, ReleasedRegion, ReleaseRecord
from bakehouse.publish import ecr_scan, push
from bakehouse.publish.attest import Attested, Bundler, attest, bundler_of
from bakehouse.publish.ecr_replication import Waiting, await_replica
from bakehouse.publish.ecr_scan import EcrScan
from bakehouse.publish.queue import PushQueue
from bakehouse.publish.record import describe, record_of, with_known
from bakehouse.publish.release_gate import check_releasable, is_tested
from bakehouse.publish.tags import PublishedImage, release_day
from bakehouse.registry.destination import Destination, destination
from bakehouse.registry.ecr import EcrRegistry
from bakehouse.registry.local_registry import EmbeddedRegistry
from bakehouse.registry.manifest import short
from bakehouse.registry.registry import Registry
from bakehouse.util.aws import summarize
from bakehouse.util.deadline import OverdueError, bounded
from bakehouse.util.format import format_bytes
from bakehouse.util.oci import Digest, region_of
from bakehouse.util.terminal import Reporter

_MAX_DEADLINE = 30 * 24 * 3600
_COMPLETE_HINT = "run the same command again to complete it; the ledger has what was published"


@dataclass(frozen=True, slots=True)
class PublishOptions:
    """Options of the tasks that publish or promote."""

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
    """Attach an SBOM and provenance without signatures."""
    deadline: float = 0.0
    """Seconds for all images and attempts together; 0 is six hours."""
    fail_on: str = ""
    """Lowest severity of scan findings that fails; empty is the registry's setting."""

    def __post_init__(self) -> None:
        """Reject an invalid deadline before anything is built."""
        if not 0 <= self.deadline <= _MAX_DEADLINE:
            raise UsageError(
                f"invalid `--deadline {self.deadline:g}`",
                hint=f"use seconds, at most {_MAX_DEADLINE} (30 days); 0 is six hours",
            )


def push_images(
    project: Project, built: Sequence[BuiltImage], progress: Reporter, options: PublishOptions
) -> tuple[ReleaseRecord, ...]:
    """Push tested images, or candidates, and record them in the ledger."""
    _check_any_releasable(project, built, options)
    bundler = bundler_of(project)
    provision.ensure(provision.ask_at_terminal, progress)
    queue = PushQueue()
    with contextlib.ExitStack() as stack:
        engine = stack.enter_context(contextlib.closing(docker.connect()))
        target = stack.enter_context(destination(project, options.registry, progress, create=options.create))
        push_options, severity = (
            push_options_for(project, options, target.prefix),
            options.fail_on or target.scan,
        )
        pushes = [
            ImagePush(
                *(project, image, target, push_options, severity, queue, progress, engine),
                attest=options.attest,
                bundler=bundler,
            )
            for image in built
        ]
        outcomes = queue.each([image_push.run for image_push in pushes])
        results = [outcome for outcome in outcomes if not isinstance(outcome, BakehouseError)]
        if results and project.keep_registry:
            _keep_registries(target.registries, progress)
    _report_bytes([published for published, _ in results], progress)
    failures = [outcome for outcome in outcomes if isinstance(outcome, BakehouseError)]
    if failures:
        for _, record in results:
            progress(f"{record.image}: published as {record.image_uri}")
        kinds = {type(failure) for failure in failures}
        kind = kinds.pop() if len(kinds) == 1 else PublishError
        raise kind.of(*(diagnostic for failure in failures for diagnostic in failure.diagnostics))
    return tuple(record for _, record in results)


def _keep_registries(registries: Sequence[Registry], progress: Reporter) -> None:
    """Let the local registry run, so that the published images can be pulled."""
    for registry in registries:
        if isinstance(registry, EmbeddedRegistry):
            registry.keep()
            progress(f"the registry at {registry.host} keeps running; `bake registry stop` stops it")


def _check_any_releasable(project: Project, built: Sequence[BuiltImage], options: PublishOptions) -> None:
    """Raise NotReleasableError, before a registry is asked, if none of the images may be released."""
    problems = Problems()
    for image in built:
        try:
            report = smoke_report.load_all(project.state, image.digest)
            check_releasable(image, report, candidate=options.candidate)
        except NotReleasableError as error:
            problems.extend(error.diagnostics)
        else:
            return
    problems.raise_as(NotReleasableError)


def _report_bytes(published: Sequence[PublishedImage], progress: Reporter) -> None:
    """Report how much of several images had to be uploaded."""
    if len(published) < 2:
        return
    sent, total = sum(image.sent for image in published), sum(image.bytes for image in published)
    progress(f"{len(published)} images of {format_bytes(total)}: uploaded {format_bytes(sent)}")


@dataclass(frozen=True, slots=True)
class ImagePush:
    """Publication of one image."""

    project: Project
    built: BuiltImage
    destination: Destination
    options: push.PushOptions
    fail_on: str
    """Lowest severity of scan findings that fails; empty requests no scan."""
    queue: PushQueue
    progress: Reporter
    engine: Engine
    attest: bool = False
    """Attach an SBOM and provenance without signatures."""
    bundler: Bundler | None = None
    """Key for signed statements; None attaches none."""

    def run(self) -> tuple[PublishedImage, ReleaseRecord]:
        """Publish the image. Successful registries are recorded before failures of others are raised."""
        # Report an unreadable ledger before anything is pushed.
        open_ledger(self.project).records(self.built.image.name)
        report = smoke_report.load_all(self.project.state, self.built.digest)
        scan = EcrScan()
        if self.fail_on and (self.options.candidate or is_tested(self.built, report)):
            scan = self._scanned(report)
        pushed: list[tuple[Registry, PublishedImage]] = []

        def publish(registry: Registry, first: PublishedImage | None) -> PublishedImage:
            published = self._publish(registry, first, report)
            pushed.append((registry, published))
            return published

        results = for_each_region(self.destination.registries, publish)
        # Recorded before attaching, which takes a while and may be interrupted.
        record = self._write(results.published, report, scan, results.regions)
        attested = Attested()
        if (self.attest or self.bundler) and not results.interrupt:
            # A registry with another manifest has failed already.
            same = [
                (registry, image) for registry, image in pushed if image.digest == results.published.digest
            ]
            attested = attest(
                *(self.built, same, self.engine, self.options, self.progress),
                plain=self.attest,
                bundler=self.bundler,
                report=report,
            )
            record = self._write(results.published, report, scan, results.regions, attested.artifacts)
        results.require_all()
        attested.require_all()
        warn_if_newer_release(self.project, record, self.progress)
        return results.published, record

    def _scanned(self, report: SmokeReport | None) -> EcrScan:
        """Scan the image as a candidate, so that it gets release tags only after the scan."""
        first = ecr_scan.require_scanning(self.destination.registries[0])
        staged = self._pushed(first, replace(self.options, candidate=True), report)
        scan = EcrScan()
        try:
            scan = ecr_scan.scan(first, staged, self.progress, Waiting(until=self.options.until))
            ecr_scan.require_clean(scan, self.fail_on, staged)
        except BaseException:
            # The candidate is published, even if the wait is interrupted.
            self._write(staged, report, scan, released_regions([(first, staged)]))
            raise
        return scan

    def _publish(
        self, registry: Registry, first: PublishedImage | None, report: SmokeReport | None
    ) -> PublishedImage:
        until = self.options.until
        if first and isinstance(registry, EcrRegistry):
            # A replicated image is found in the registry and checked as after a push.
            await_replica(self._source(first), registry, first, self.progress, Waiting(until=until))
        published = self._pushed(registry, with_same_release_day(self.options, first), report)
        require_not_expiring(registry, published, open_ledger(self.project), self.progress, until)
        if isinstance(registry, EcrRegistry):
            # Bakehouse never changes existing repositories.
            repository = f"`{registry.host}/{published.repository}`"
            for reason in differences(registry, published, until):
                self.progress(f"{published.image}: warning: {repository}: {reason.text}")
        return published

    def _pushed(
        self, registry: Registry, options: push.PushOptions, report: SmokeReport | None
    ) -> PublishedImage:
        packer = Packer(self.engine, self.project.cache)
        return push.publish(self.built, report, registry, packer, options, self.progress, self.queue)

    def _source(self, published: PublishedImage) -> EcrRegistry:
        """Registry that has the image, of those in several regions."""
        [source] = [item for item in self.destination.registries if item.host == published.registry]
        assert isinstance(source, EcrRegistry), "several registries that aren't ECR's"
        return source

    def _write(
        self,
        published: PublishedImage,
        report: SmokeReport | None,
        scan: EcrScan,
        regions: tuple[ReleasedRegion, ...],
        artifacts: tuple[ReleasedArtifact, ...] = (),
    ) -> ReleaseRecord:
        ledger = open_ledger(self.project)
        record = record_of(published, self.built.image, report, self.options.day, self.options.revision)
        record = with_known(record, ledger.records(published.image), artifacts)
        record = scan.recorded(replace(record, regions=regions))
        ledger.add(record)
        return record


@dataclass(frozen=True, slots=True)
class RegionResults:
    """Results of publishing an image to several registries."""

    published: PublishedImage
    """Image in the first registry that accepted it."""
    regions: tuple[ReleasedRegion, ...]
    failures: tuple[BakehouseError, ...]
    """Failures of the others."""
    interrupt: BaseException | None = None
    """Interrupt, such as Ctrl-C, before all were tried."""

    def require_all(self) -> None:
        """Raise the failures, after the successes are recorded."""
        if self.interrupt:
            raise self.interrupt
        _raise_all(self.failures)


def for_each_region(
    registries: Sequence[Registry], publish: Callable[[Registry, PublishedImage | None], PublishedImage]
) -> RegionResults:
    """Publish to one registry after the other; raise only if none accepts the image.

    `publish` gets the first published image, whose tag the others reuse.
    """
    results: list[tuple[Registry, PublishedImage]] = []
    failures: list[tuple[Registry, BakehouseError]] = []
    interrupt: BaseException | None = None
    for registry in registries:
        try:
            first = results[0][1] if results else None
            published = publish(registry, first)
            if first and published.digest != first.digest:
                raise _different_manifest(first, published)
        except BakehouseError as error:
            failures.append((registry, error))
        except BaseException as error:
            if not results:
                raise
            interrupt = error
            break
        else:
            results.append((registry, published))
    if not results:
        if len(failures) == 1:
            raise failures[0][1]
        _raise_all([error for _, error in failures])
    regions = released_regions(results)
    names = ", ".join(region.region for region in regions)
    errors = tuple(_with_region(registry, error, names) for registry, error in failures)
    return RegionResults(results[0][1], regions, errors, interrupt)


def _raise_all(failures: Sequence[BakehouseError]) -> None:
    problems = Problems()
    for failure in failures:
        problems.extend(failure.diagnostics)
    if failures:
        problems.raise_as(type(failures[0]))


def _with_region(registry: Registry, error: BakehouseError, published_in: str) -> BakehouseError:
    """Failure with its region, the published regions and a hint."""
    facts = (("region", _region(registry)), ("published in", published_in))
    return type(error).of(
        *(
            replace(diagnostic, facts=(*facts, *diagnostic.facts), hint=diagnostic.hint or _COMPLETE_HINT)
            for diagnostic in error.diagnostics
        )
    )


def _different_manifest(first: PublishedImage, published: PublishedImage) -> PublishError:
    facts = (("there", published.image_uri), ("first", first.image_uri))
    hint = "another version of Bakehouse compressed it; delete the release that was there, and push again"
    message = f"`{published.registry}` has a different manifest of `{published.image}`"
    return PublishError(message, facts=facts, hint=hint)


def released_regions(published: Sequence[tuple[Registry, PublishedImage]]) -> tuple[ReleasedRegion, ...]:
    """Return the AWS regions of an image as ledger records."""
    return tuple(
        ReleasedRegion(region, image.image_uri, image.tags[0])
        for registry, image in published
        if (region := _region(registry))
    )


def _region(registry: Registry) -> str:
    """AWS region of a registry; empty outside AWS."""
    return registry.region if isinstance(registry, EcrRegistry) else region_of(registry.host)


def with_same_release_day(options: push.PushOptions, first: PublishedImage | None) -> push.PushOptions:
    """Return options with the day of the first region's tag, so that all regions have the same tag."""
    day = release_day(first.tags[0]) if first else None
    return replace(options, day=day) if day else options


def differences(registry: EcrRegistry, published: PublishedImage, until: float) -> tuple[Reason, ...]:
    """Return how a repository differs from the settings, or why the comparison failed."""
    try:
        return bounded(lambda: registry.differences(published.repository, published.image), until)
    except PublishError as error:
        cause = summarize(error)
    except OverdueError as error:
        cause = str(error)
    return (Reason(f"not compared with the settings: {cause}"),)


def require_not_expiring(
    registry: Registry,
    published: PublishedImage,
    ledger: Ledger,
    progress: Reporter,
    until: float,
    *,
    move_tag: bool = False,
) -> None:
    """Raise PublishError for an image that a lifecycle rule would expire by any of its tags."""
    if isinstance(registry, EcrRegistry):
        locations = (location for record in ledger.records(published.image) for location in record.locations)
        recorded = {
            tag
            for location in locations
            if location.image_uri == published.image_uri
            for tag in location.tags
        }
        moving = [published.image] if move_tag else []

        def report(line: str) -> None:
            progress(f"{published.image}: {line}")

        tags = {*published.tags, *moving, *recorded}
        try:
            bounded(lambda: registry.require_not_expiring(published.repository, tags, report), until)
        except OverdueError as error:
            repository = f"`{registry.host}/{published.repository}`"
            report(f"warning: could not read the lifecycle policy of {repository}; not checked: {error}")


def warn_if_newer_release(project: Project, record: ReleaseRecord, progress: Reporter) -> None:
    """Report a release that is not the newest, which look-ups return."""
    if record.candidate:
        return
    newest = image_uris.newest(project.images, record.image)
    if newest.digest != record.digest:
        progress(
            f"{record.image}: {short(Digest(record.digest))} was released before "
            f"{short(Digest(newest.digest))} of {newest.date}, "
            f"which `bake uri {record.image}` still returns"
        )


def push_options_for(project: Project, options: PublishOptions, prefix: str = "") -> push.PushOptions:
    """Return the options of each push of a task."""
    push_options = push.PushOptions(
        day=datetime.now(UTC).date(),
        locks=project.state / "locks",
        prefix=prefix or project.repository_prefix,
        candidate=options.candidate,
        revision=git_history.current(project.root),
        history=partial(_history, project),
    )
    if options.deadline:
        return replace(push_options, until=time.monotonic() + options.deadline)
    return push_options


def _history(project: Project, image: str, digest: Digest) -> str:
    # This runs after a push has failed.
    with contextlib.suppress(BakehouseError):
        return describe(open_ledger(project).records(image), digest)
    return ""
