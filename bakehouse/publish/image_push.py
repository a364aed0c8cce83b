"""Pushes built images to every registry of a destination, and records them in the ledger."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bakehouse.builder.built_image import BuiltImage
from bakehouse.builder.pack import ImagePacker, Packer
from bakehouse.catalog.project import ProjectSettings
from bakehouse.engine import docker, provision
from bakehouse.engine.protocol import Engine
from bakehouse.errors import BakehouseError, NotReleasableError, Problems, PublishError
from bakehouse.evidence.gate import check_releasable
from bakehouse.evidence.known_checks import KnownChecks, known_checks
from bakehouse.ledger.releases import ReleasedArtifact, ReleasedRegion, ReleaseRecord, current_time
from bakehouse.ledger.store import open_ledger
from bakehouse.publish import ecr_scan, push
from bakehouse.publish.attest import Attested, AttestSettings, attest, bundler_of
from bakehouse.publish.ecr_scan import EcrScan, Waiting
from bakehouse.publish.options import PublishOptions, push_options_for, with_uncommitted
from bakehouse.publish.published_checks import differences, require_not_expiring, warn_if_newer_release
from bakehouse.publish.queue import PushQueue
from bakehouse.publish.record import record_of, with_known_facts
from bakehouse.publish.regions import for_each_region, released_regions, with_same_release_day
from bakehouse.publish.tags import PublishedImage
from bakehouse.registry.destination import Destination, destination
from bakehouse.registry.ecr import EcrRegistry
from bakehouse.registry.local_registry import EmbeddedRegistry
from bakehouse.registry.registry import Registry
from bakehouse.util.format import format_bytes
from bakehouse.util.terminal import Reporter


def push_images(
    project: ProjectSettings,
    built: Sequence[BuiltImage],
    progress: Reporter,
    options: PublishOptions,
    packer: ImagePacker | None = None,
) -> tuple[ReleaseRecord, ...]:
    """Push tested images, or candidates, and record them in the ledger.

    Without an engine, a `packer` has the images.
    """
    _check_any_releasable(project, built, options)
    documents = AttestSettings(plain=options.attest, bundler=bundler_of(project))
    queue = PushQueue()
    with contextlib.ExitStack() as stack:
        engine = None
        if packer is None:
            provision.ensure(provision.ask_at_terminal, progress)
            engine = stack.enter_context(contextlib.closing(docker.connect()))
            packer = Packer(engine, project.cache)
        target = stack.enter_context(destination(project, options.registry, progress, create=options.create))
        push_options = push_options_for(project, options, target.prefix)
        severity = options.fail_on or target.scan
        pushes = [
            ImagePush(
                project=project,
                built=image,
                destination=target,
                options=with_uncommitted(push_options, project, image.image),
                fail_on=severity,
                queue=queue,
                progress=progress,
                engine=engine,
                packer=packer,
                documents=documents,
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


def _check_any_releasable(
    project: ProjectSettings, built: Sequence[BuiltImage], options: PublishOptions
) -> None:
    """Raise NotReleasableError, before a registry is asked, if none of the images may be released."""
    problems = Problems()
    for image in built:
        try:
            known = known_checks(project, image.image, image.content)
            check_releasable(image, known, candidate=options.candidate)
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

    project: ProjectSettings
    built: BuiltImage
    destination: Destination
    options: push.PushOptions
    fail_on: str
    """Lowest severity of scan findings that fails; empty requests no scan."""
    queue: PushQueue
    progress: Reporter
    engine: Engine | None
    packer: ImagePacker
    documents: AttestSettings
    """Documents to attach."""

    def run(self) -> tuple[PublishedImage, ReleaseRecord]:
        """Publish the image. Successful registries are recorded before failures of others are raised."""
        # Report an unreadable ledger before anything is pushed.
        open_ledger(self.project).records(self.built.image.name)
        known = known_checks(self.project, self.built.image, self.built.content)
        scan = EcrScan()
        if self.fail_on and (self.options.candidate or not known.blockers):
            scan = self._scanned(known)
        pushed: list[tuple[Registry, PublishedImage]] = []

        def publish(registry: Registry, first: PublishedImage | None) -> PublishedImage:
            published = self._publish(registry, first, known)
            pushed.append((registry, published))
            return published

        results = for_each_region(self.destination.registries, publish)
        # Recorded before attaching, which takes a while and may be interrupted.
        record = self._write(results.published, known, scan, results.regions)
        attested = Attested()
        if not self.documents.is_empty and not results.interrupt:
            # A registry with another manifest has failed already.
            same = [
                (registry, image) for registry, image in pushed if image.digest == results.published.digest
            ]
            attested = attest(
                self.built, same, self.engine, self.options, self.progress, self.documents, known
            )
            record = self._write(results.published, known, scan, results.regions, attested.artifacts)
        results.require_all()
        attested.require_all()
        warn_if_newer_release(self.project, record, self.progress)
        return results.published, record

    def _scanned(self, known: KnownChecks) -> EcrScan:
        """Scan the image as a candidate, so that it gets release tags only after the scan."""
        first = ecr_scan.require_scanning(self.destination.registries[0])
        staged = self._pushed(first, replace(self.options, candidate=True), known)
        scan = EcrScan()
        try:
            scan = ecr_scan.scan(first, staged, self.progress, Waiting(until=self.options.until))
            ecr_scan.require_clean(scan, self.fail_on, staged)
        except BaseException:
            # The candidate is published, even if the wait is interrupted.
            self._write(staged, known, scan, released_regions([(first, staged)]))
            raise
        return scan

    def _publish(
        self, registry: Registry, first: PublishedImage | None, known: KnownChecks
    ) -> PublishedImage:
        until = self.options.until
        published = self._pushed(registry, with_same_release_day(self.options, first), known)
        require_not_expiring(registry, published, open_ledger(self.project), self.progress, until)
        if isinstance(registry, EcrRegistry):
            # Bakehouse never changes existing repositories.
            repository = f"`{registry.host}/{published.repository}`"
            for reason in differences(registry, published, until):
                self.progress(f"{published.image}: warning: {repository}: {reason.text}")
        return published

    def _pushed(self, registry: Registry, options: push.PushOptions, known: KnownChecks) -> PublishedImage:
        return push.publish(self.built, known, registry, self.packer, options, self.progress, self.queue)

    def _write(
        self,
        published: PublishedImage,
        known: KnownChecks,
        scan: EcrScan,
        regions: tuple[ReleasedRegion, ...],
        artifacts: tuple[ReleasedArtifact, ...] = (),
    ) -> ReleaseRecord:
        ledger = open_ledger(self.project)
        options = self.options
        record = record_of(published, self.built.image, known, options.day, options.revision)
        record = replace(record, time=current_time(), uncommitted=options.uncommitted)
        record = with_known_facts(record, ledger.records(published.image), artifacts)
        record = scan.recorded(replace(record, regions=regions))
        ledger.add(record)
        return record
