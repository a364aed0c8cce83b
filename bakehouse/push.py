"""Turns a BuiltImage and its SmokeReport into a PublishedImage: a release, or a candidate for one."""

import time
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path

from bakehouse.build import BuiltImage
from bakehouse.distribution import DistributionError, Patience, Repository
from bakehouse.errors import Diagnostic, Problems, PublishError, Reason
from bakehouse.locks import exclusive
from bakehouse.manifests import FORMS, Manifest, short, unfit
from bakehouse.plan import Digest, Image, RegistryBase
from bakehouse.push_queue import PushQueue
from bakehouse.refusals import Refusals
from bakehouse.registry import Registry, candidate_tag, check_names, immutable_tag
from bakehouse.release_tags import PublishedImage, ReleaseTags
from bakehouse.smoke_report import SmokeReport, lacking
from bakehouse.transfer import Fault, Progress, Pusher, TransferError, Watch


@dataclass(frozen=True, slots=True)
class Publication:
    """How an image is to be published."""

    day: date
    """Today in UTC; it goes into the tag."""
    locks: Path
    """A folder for what keeps two pushes of one image on this machine apart."""
    prefix: str = "bakehouse"
    """What repositories begin with: `prefix/image`."""
    stage: bool = False
    """Publish as a candidate, to be tried: under no release tag, tested or not."""
    stall: float = 180.0
    """Seconds in which nothing moves before a push is given up; storing a big layer may take minutes."""
    total: float = 7200.0
    """Seconds for all attempts together."""
    patience: Patience = field(default_factory=Patience)


def publish(
    built: BuiltImage,
    report: SmokeReport | None,
    registry: Registry,
    pusher: Pusher,
    publication: Publication,
    progress: Progress,
    queue: PushQueue | None = None,
) -> PublishedImage:
    """Push an image that may be released, or a candidate, and read back what the registry then holds.

    The same content under the same key is published once: later calls find it and change nothing. `queue`
    is shared by all that are pushed at once.
    """
    image = built.image
    if built.is_rehearsed:
        message = f"`{image.name}` was rehearsed, not built: there are stand-ins in it"
        raise PublishError(Diagnostic(message, hint=f"run `./bake release {image.name}`"))
    _check_pinned(image)
    if not publication.stage:
        _check_tested(built, report)
    name = f"{publication.prefix}/{image.name}"
    tag = immutable_tag(image.name, publication.day, image.key)
    if publication.stage:
        tag = candidate_tag(image.name, built.digest)
    check_names(registry.host, name, tag, image.name)

    def wait() -> None:
        progress(f"{image.name}: waiting for another push of it on this machine")

    with exclusive(publication.locks / f"push-{image.name}.lock", wait):
        return _Push(built, registry, pusher, publication, progress, name, tag, queue or PushQueue()).run()


def is_tested(built: BuiltImage, report: SmokeReport | None) -> bool:
    """Whether this very digest passed all that has to be passed before it is released."""
    return report is not None and report.digest == built.digest and not lacking(report, built.image.required)


def _check_pinned(image: Image) -> None:
    """Refuse what nobody could build a second time."""
    problems = Problems()
    if isinstance(image.base, RegistryBase) and image.base.digest is None:
        message = f"the base of `{image.name}`, `{image.base.reference}`, is not pinned to a digest"
        problems.add(Diagnostic(message, hint="write the digest into the recipe, then build and test again"))
    for artifact in image.unpinned:
        message = f"nobody knows the sha256 of `{artifact.name}`, which is in `{image.name}`"
        hint = "run `./bake pin`, compare what it prints with the publisher's, then build and test again"
        problems.add(Diagnostic(message, artifact.location, hint=hint))
    problems.raise_as(PublishError)


def _check_tested(built: BuiltImage, report: SmokeReport | None) -> None:
    if is_tested(built, report):
        return
    name = built.image.name
    here = short(built.digest)
    facts: tuple[tuple[str, str], ...] = ()
    if report is None:
        reasons: tuple[str, ...] = (f"no smoke test of {here} is on record",)
    elif report.digest != built.digest:
        reasons = ("the smoke test on record is of another build",)
        facts = (("tested", report.digest), ("built", built.digest))
    else:
        reasons = lacking(report, built.image.required)
        facts = (("digest", built.digest),)
    hint = f"run `./bake smoke {name}`, or publish it as a candidate with `./bake push --stage {name}`"
    message = f"`{name}` has not passed its smoke test"
    told = tuple(Reason(text) for text in reasons)
    raise PublishError(Diagnostic(message, reasons=told, facts=facts, hint=hint))


@dataclass(frozen=True, slots=True)
class _Push:
    """One publication on its way."""

    built: BuiltImage
    registry: Registry
    pusher: Pusher
    publication: Publication
    progress: Progress
    repository: str
    tag: str
    queue: PushQueue

    def run(self) -> PublishedImage:
        staged = self.publication.stage
        found = self.tags.is_there() if staged else self.tags.named(self._make_repository)
        if found:
            what = "staged" if staged else "published"
            self.progress(f"{self.name}: already {what} as {short(self.built.digest)}")
            tag, manifest = found
            pushed: Collection[str] = ()
        else:
            pushed = self._send(self._check_form())
            tag, manifest = self.tag, self.tags.read_back()
        self.tags.check(manifest)
        published = self.tags.published(tag, manifest, was_there=found is not None, candidate=staged)
        published = replace(published, sent=_sent(manifest, pushed))
        if pushed and published.sent is not None:
            there = (manifest.layer_bytes - published.sent) / 1e6
            spared = f", {there:.1f} MB were there already" if there else ""
            self._tell(f"{published.sent / 1e6:.1f} MB sent{spared}")
        return published

    @property
    def name(self) -> str:
        return self.built.image.name

    @property
    def refusals(self) -> Refusals:
        image, digest = self.built.image, self.built.digest
        command = "push --stage" if self.publication.stage else "push"
        return Refusals(
            image.name,
            image.key,
            digest,
            self.registry,
            self.repository,
            self.tag,
            command,
            FORMS[image.format],
        )

    @property
    def tags(self) -> ReleaseTags:
        return ReleaseTags(
            Repository(self.registry, self.repository, self.publication.patience), self.refusals
        )

    def _make_repository(self) -> None:
        self.registry.make_repository(self.repository, self.name)

    def _check_form(self) -> Manifest | None:
        """Refuse before pushing what would be refused after; gives what will be sent, where that shows."""
        try:
            manifest = self.pusher.manifest(self.built.digest)
        except TransferError as error:
            raise self.refusals.broken_off(error, None, 1) from error
        if manifest is None:
            self.progress(f"{self.name}: the engine does not show its manifest; it is checked after the push")
        elif not self.tags.is_it(manifest):
            raise self.refusals.sent_another(manifest.digest)
        elif reasons := unfit(manifest, self.refusals.form):
            raise self.refusals.unfit(reasons, pushed=False)
        size = f" ({len(manifest.layers)} layers, {manifest.bytes / 1e6:.1f} MB)" if manifest else ""
        what = f"{short(self.built.digest)}{size}"
        self.progress(f"{self.name}: pushing {what} to {self.refusals.place}:{self.tag}")
        form = self.refusals.form
        if form is not FORMS["docker"]:
            self._tell(f"its recipe makes it an {form}: SageMaker may refuse that, and takes Docker schema 2")
        return manifest

    def _send(self, shown: Manifest | None) -> Collection[str]:
        """Push when it is its turn; gives the layers that were sent, as the engine calls them."""
        with self.queue.turn([layer.digest for layer in shown.layers] if shown else ()) as turn:
            watch = Watch(self.publication.stall, time.monotonic() + self.publication.total, moved=turn.moved)
            self._send_within(watch)
        return watch.pushed

    def _send_within(self, watch: Watch) -> None:
        """Push until the registry has it, or until no further attempt makes sense."""
        reference = f"{self.refusals.place}:{self.tag}"
        attempts, renewed, made = 1, False, False
        while True:
            try:
                watch.check(moved_at=time.monotonic())
                sent = self.pusher.push(
                    self.built.digest, reference, self.registry.credentials(), watch, self._tell
                )
            except TransferError as failure:
                if failure.fault in (Fault.UNAUTHORIZED, Fault.DENIED) and not renewed:
                    renewed = True
                    self.registry.credentials(renew=True)
                elif self._arrived():
                    self.progress(f"{self.name}: the push failed, but the registry has all of it")
                    return
                elif failure.fault is Fault.MISSING and not made:
                    made = True
                    self._make_repository()
                elif failure.fault is Fault.TRANSIENT and attempts < self.publication.patience.attempts:
                    self.progress(f"{self.name}: attempt {attempts} failed, trying again: {failure.text}")
                    self.publication.patience.wait(attempts - 1)
                    attempts += 1
                else:
                    raise self.refusals.broken_off(failure, self._complaint(), attempts) from failure
            else:
                there = self._there() if sent != self.built.digest else None
                if sent != self.built.digest and not (there and self.tags.is_it(there)):
                    raise self.refusals.sent_another(sent)
                return

    def _tell(self, text: str) -> None:
        self.progress(f"{self.name}: {text}")

    def _arrived(self) -> bool:
        """Whether the registry has the image although the push failed: a reply can get lost."""
        there = self._there()
        if there and not self.tags.is_it(there):
            raise self.refusals.tag_taken(there.digest)
        return there is not None

    def _there(self) -> Manifest | None:
        try:
            return self._hasty.manifest(self.tag)
        except DistributionError:
            return None

    def _complaint(self) -> DistributionError | None:
        return self._hasty.refusal()

    @property
    def _hasty(self) -> Repository:
        return Repository(self.registry, self.repository, replace(self.publication.patience, attempts=1))


def _sent(manifest: Manifest, pushed: Collection[str]) -> int | None:
    """The size of these layers; None where the engine has other names for them than the registry."""
    sizes = {_engines_name(layer.digest): layer.bytes for layer in manifest.layers}
    config = {_engines_name(manifest.config.digest)} if manifest.config else set()
    if not sizes.keys() | config >= set(pushed):
        return None
    return sum(sizes.get(layer, 0) for layer in pushed)


def _engines_name(digest: Digest) -> str:
    return digest.removeprefix("sha256:")[:12]
