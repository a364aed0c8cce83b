"""Publishes one image to every registry of a destination, and records it in the ledger."""

from dataclasses import dataclass, replace

from bakehouse.build.built_image import BuiltImage
from bakehouse.catalog.project import Project
from bakehouse.cluster import smoke_report
from bakehouse.cluster.smoke_report import SmokeReport
from bakehouse.engine.protocol import Engine
from bakehouse.errors import Diagnostic, PublishError, Reason, UsageError
from bakehouse.publish import ecr_replication, ecr_scan, image_uris, push, regions
from bakehouse.publish import record as recording
from bakehouse.publish.attest import Attested, attest
from bakehouse.publish.ecr_replication import Waiting
from bakehouse.publish.ecr_scan import Scan
from bakehouse.publish.ledger import Ledger, open_ledger
from bakehouse.publish.queue import PushQueue
from bakehouse.publish.release_gate import is_tested
from bakehouse.publish.releases import ReleasedArtifact, ReleasedRegion, ReleaseRecord
from bakehouse.publish.tags import PublishedImage, release_day
from bakehouse.registry import docker_push
from bakehouse.registry.destination import Destination
from bakehouse.registry.ecr import EcrRegistry
from bakehouse.registry.manifest import short
from bakehouse.registry.registry import Registry
from bakehouse.util.aws import summarize
from bakehouse.util.deadline import OverdueError, bounded
from bakehouse.util.oci import Digest
from bakehouse.util.terminal import Reporter


@dataclass(frozen=True, slots=True)
class ImagePush:
    """Publication of one image."""

    project: Project
    built: BuiltImage
    where: Destination
    publication: push.PushOptions
    fail_on: str
    """Lowest severity of scan findings that fails; empty requests no scan."""
    queue: PushQueue
    say: Reporter
    engine: Engine | None = None
    """Engine to inspect the image for its attachments; None attaches nothing."""

    def run(self) -> tuple[PublishedImage, ReleaseRecord]:
        """Publish the image. Successful registries are recorded before failures of others are raised."""
        # Report an unreadable ledger before anything is pushed.
        open_ledger(self.project).records(self.built.image.name)
        report = smoke_report.load_all(self.project.state, self.built.digest)
        found = Scan()
        if self.fail_on and (self.publication.candidate or is_tested(self.built, report)):
            found = self._scanned(report)
        taken: list[tuple[Registry, PublishedImage]] = []

        def publish(target: Registry, first: PublishedImage | None) -> PublishedImage:
            published = self._publish(target, first, report)
            taken.append((target, published))
            return published

        spread = regions.for_each_region(self.where.registries, publish)
        # Recorded before attaching, which takes a while and may be interrupted.
        record = self._write(spread.published, report, found, spread.regions)
        attested = Attested()
        if self.engine and not spread.interrupt:
            # A registry with another manifest has failed already.
            alike = [one for one in taken if one[1].digest == spread.published.digest]
            attested = attest(self.built, alike, self.engine, self.publication, self.say)
            record = self._write(spread.published, report, found, spread.regions, attested.artifacts)
        spread.require_all()
        attested.require_all()
        warn_if_newer_release(self.project, record, self.say)
        return spread.published, record

    def _scanned(self, report: SmokeReport | None) -> Scan:
        """Scan the image as a candidate, so that it gets release tags only after the scan."""
        first = self.where.registries[0]
        require_scanning(first)
        staging = replace(self.publication, candidate=True)
        staged = self._pushed(first, staging, report)
        found = Scan()
        try:
            found = scanned(first, staged, self.say, self._waiting)
            ecr_scan.require_clean(found, self.fail_on, staged)
        except BaseException:
            # The candidate is published, even if the wait is interrupted.
            self._write(staged, report, found, regions.places([(first, staged)]))
            raise
        return found

    def _publish(
        self, target: Registry, first: PublishedImage | None, report: SmokeReport | None
    ) -> PublishedImage:
        if first and isinstance(target, EcrRegistry):
            # A replicated image is found in the registry and checked as after a push.
            ecr_replication.await_replica(self._source(first), target, first, self.say, self._waiting)
        published = self._pushed(target, with_same_release_day(self.publication, first), report)
        until = self.publication.until
        require_not_expiring(target, published, open_ledger(self.project), self.say, until)
        if isinstance(target, EcrRegistry):
            # Bakehouse never changes existing repositories.
            place = f"`{target.host}/{published.repository}`"
            for reason in differences(target, published, until):
                self.say(f"{published.image}: warning: {place}: {reason.text}")
        return published

    def _pushed(
        self, target: Registry, publication: push.PushOptions, report: SmokeReport | None
    ) -> PublishedImage:
        pushing = docker_push.connect(self.project.state / "pushes")
        return push.publish(self.built, report, target, pushing, publication, self.say, self.queue)

    @property
    def _waiting(self) -> Waiting:
        return Waiting(until=self.publication.until)

    def _source(self, published: PublishedImage) -> EcrRegistry:
        """Registry that has the image, of those in several regions."""
        [found] = [one for one in self.where.registries if one.host == published.registry]
        assert isinstance(found, EcrRegistry), "several registries that aren't ECR's"
        return found

    def _write(
        self,
        published: PublishedImage,
        report: SmokeReport | None,
        found: Scan,
        places: tuple[ReleasedRegion, ...],
        artifacts: tuple[ReleasedArtifact, ...] = (),
    ) -> ReleaseRecord:
        day, revision = self.publication.day, self.publication.revision
        ledger = open_ledger(self.project)
        record = recording.record_of(published, self.built.image, report, day, revision)
        record = recording.with_known(record, ledger.records(published.image), artifacts)
        record = found.recorded(replace(record, regions=places))
        ledger.add(record)
        return record


def scanned(registry: Registry, published: PublishedImage, say: Reporter, waiting: Waiting) -> Scan:
    """Return the scan of an image; raise UsageError for a registry without scans."""
    return ecr_scan.scan(require_scanning(registry), published, say, waiting)


def require_scanning(registry: Registry) -> EcrRegistry:
    """Return a registry that scans; raise UsageError for others."""
    if not isinstance(registry, EcrRegistry):
        message = f"`{registry.host}` does not scan images; only Amazon ECR does"
        raise UsageError(Diagnostic(message, hint="leave out `--scan` and `--fail-on`"))
    return registry


def with_same_release_day(publication: push.PushOptions, first: PublishedImage | None) -> push.PushOptions:
    """Return options with the day of the first region's tag, so that all regions have the same tag."""
    day = release_day(first.tags[0]) if first else None
    return replace(publication, day=day) if day else publication


def differences(target: EcrRegistry, published: PublishedImage, until: float) -> tuple[Reason, ...]:
    """Return how a repository differs from the settings, or why the comparison failed."""
    try:
        return bounded(lambda: target.differences(published.repository, published.image), until)
    except PublishError as error:
        why = summarize(error)
    except OverdueError as error:
        why = str(error)
    return (Reason(f"not compared with the settings: {why}"),)


def require_not_expiring(
    target: Registry,
    published: PublishedImage,
    ledger: Ledger,
    say: Reporter,
    until: float,
    *,
    move_tag: bool = False,
) -> None:
    """Raise PublishError for an image that a lifecycle rule would expire by any of its tags."""
    if isinstance(target, EcrRegistry):
        places = (place for record in ledger.records(published.image) for place in record.places)
        known = {tag for place in places if place.image_uri == published.image_uri for tag in place.tags}
        moving = [published.image] if move_tag else []

        def tell(line: str) -> None:
            say(f"{published.image}: {line}")

        tags = {*published.tags, *moving, *known}
        try:
            bounded(lambda: target.require_not_expiring(published.repository, tags, tell), until)
        except OverdueError as error:
            place = f"`{target.host}/{published.repository}`"
            tell(f"warning: could not read the lifecycle policy of {place}; not checked: {error}")


def warn_if_newer_release(project: Project, record: ReleaseRecord, say: Reporter) -> None:
    """Report a release that is not the newest, which look-ups return."""
    if record.candidate:
        return
    newest = image_uris.newest(project.images, record.image)
    if newest.digest != record.digest:
        here, there = short(Digest(record.digest)), short(Digest(newest.digest))
        say(
            f"{record.image}: {here} was released before {there} of {newest.date}, "
            f"which `bake uri {record.image}` still gives"
        )
