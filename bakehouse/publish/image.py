"""Brings one image to every registry of a destination, and what became of it into the ledger."""

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
    """One image on its way."""

    project: Project
    built: BuiltImage
    where: Destination
    publication: push.PushOptions
    fail_on: str
    """The least severity of a scan's finding that is too much; empty asks for no scan."""
    queue: PushQueue
    say: Reporter
    engine: Engine | None = None
    """Where it is looked at for what is attached to it; None attaches nothing."""

    def run(self) -> tuple[PublishedImage, ReleaseRecord]:
        """Publish it; what was published is written down before a failure of the rest is raised."""
        # A ledger that can't be read is told before anything is pushed.
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
        # Before anything is attached, which takes a while and may be interrupted.
        record = self._write(spread.published, report, found, spread.regions)
        attested = Attested()
        if self.engine and not spread.interrupt:
            # Not to another manifest, which counts as a failure of its registry.
            alike = [one for one in taken if one[1].digest == spread.published.digest]
            attested = attest(self.built, alike, self.engine, self.publication, self.say)
            record = self._write(spread.published, report, found, spread.regions, attested.artifacts)
        spread.require_all()
        attested.require_all()
        warn_if_newer_release(self.project, record, self.say)
        return spread.published, record

    def _scanned(self, report: SmokeReport | None) -> Scan:
        """The scan of the image as a candidate: until it was scanned it has no release tag anywhere."""
        first = self.where.registries[0]
        require_scanning(first)
        staging = replace(self.publication, candidate=True)
        staged = self._pushed(first, staging, report)
        found = Scan()
        try:
            found = scanned(first, staged, self.say, self._waiting)
            ecr_scan.require_clean(found, self.fail_on, staged)
        except BaseException:
            # Also where somebody does not wait for it: the candidate is there.
            self._write(staged, report, found, regions.places([(first, staged)]))
            raise
        return found

    def _publish(
        self, target: Registry, first: PublishedImage | None, report: SmokeReport | None
    ) -> PublishedImage:
        if first and isinstance(target, EcrRegistry):
            # What arrives by itself is found there, and looked at as after a push.
            ecr_replication.await_replica(self._source(first), target, first, self.say, self._waiting)
        published = self._pushed(target, with_same_release_day(self.publication, first), report)
        until = self.publication.until
        require_not_expiring(target, published, open_ledger(self.project), self.say, until)
        if isinstance(target, EcrRegistry):
            # Bakehouse changes nothing that is there.
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
        """The registry that took the image, of those in several regions."""
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
    """The scan of an image in a registry that can make one."""
    return ecr_scan.scan(require_scanning(registry), published, say, waiting)


def require_scanning(registry: Registry) -> EcrRegistry:
    """A registry as one that scans; raises UsageError where it is another."""
    if not isinstance(registry, EcrRegistry):
        message = f"`{registry.host}` scans nothing: only Amazon ECR does"
        raise UsageError(Diagnostic(message, hint="leave out `--scan` and `--fail-on`"))
    return registry


def with_same_release_day(publication: push.PushOptions, first: PublishedImage | None) -> push.PushOptions:
    """Every region gives an image the tag that the first one gave it, on whichever day that was."""
    day = release_day(first.tags[0]) if first else None
    return replace(publication, day=day) if day else publication


def differences(target: EcrRegistry, published: PublishedImage, until: float) -> tuple[Reason, ...]:
    """What a repository has otherwise than the settings say, or why that is not known."""
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
    """Let nothing into the ledger that the registry is going to expire, by whichever of its tags."""
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
    """To publish again what was released before doesn't make it the newest: look-ups give another."""
    if record.candidate:
        return
    newest = image_uris.newest(project.images, record.image)
    if newest.digest != record.digest:
        here, there = short(Digest(record.digest)), short(Digest(newest.digest))
        say(
            f"{record.image}: {here} was released before {there} of {newest.date}, "
            f"which `bake uri {record.image}` still gives"
        )
