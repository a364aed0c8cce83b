"""Turns a BuiltImage and its SmokeReport into a PublishedImage."""

import time
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path

from bakehouse.build import BuiltImage
from bakehouse.checks import Outcome
from bakehouse.distribution import DistributionError, Patience, Repository
from bakehouse.errors import Diagnostic, Problems, PublishError, Reason
from bakehouse.locks import exclusive
from bakehouse.manifests import Manifest, short, unfit, unfit_platform
from bakehouse.plan import Digest, Image, RegistryBase
from bakehouse.refusals import Refusals
from bakehouse.registry import Registry, check_names, immutable_tag, is_release_of
from bakehouse.smoke_report import SmokeReport
from bakehouse.transfer import Fault, Progress, Pusher, TransferError, Watch


@dataclass(frozen=True, slots=True)
class PublishedImage:
    """An image that lies in a registry under a digest read back from there."""

    image: str
    registry: str
    repository: str
    tags: tuple[str, ...]
    digest: Digest
    media_type: str = ""
    bytes: int = 0
    """What the registry stores for it: manifest, configuration and layers, compressed."""
    was_there: bool = False
    """Whether nothing had to be pushed."""

    @property
    def image_uri(self) -> str:
        return f"{self.registry}/{self.repository}@{self.digest}"


@dataclass(frozen=True, slots=True)
class Publication:
    """How an image is to be published."""

    day: date
    """Today in UTC; it goes into the tag."""
    locks: Path
    """A folder for what keeps two pushes of one image on this machine apart."""
    prefix: str = "bakehouse"
    """What repositories begin with: `prefix/image`."""
    untested: bool = False
    """Publish although the smoke test was not passed; the ledger will say so."""
    moving_tag: bool = False
    """Let the tag that is the image's own name point to it as well."""
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
) -> PublishedImage:
    """Push an image that passed its smoke test, and read back what the registry then holds.

    The same content under the same key is published once: later calls find it and change nothing.
    """
    image = built.image
    if built.is_rehearsed:
        message = f"`{image.name}` was rehearsed, not built: there are stand-ins in it"
        raise PublishError(Diagnostic(message, hint=f"run `./bake release {image.name}`"))
    _check_pinned(image)
    if not publication.untested:
        _check_tested(built, report)
    name = f"{publication.prefix}/{image.name}"
    tag = immutable_tag(image.name, publication.day, image.key)
    check_names(registry.host, name, tag, image.name)

    def wait() -> None:
        progress(f"{image.name}: waiting for another push of it on this machine")

    with exclusive(publication.locks / f"push-{image.name}.lock", wait):
        return _Push(built, registry, pusher, publication, progress, name, tag).run()


def is_tested(built: BuiltImage, report: SmokeReport | None) -> bool:
    """Whether this very digest passed its smoke test."""
    return report is not None and report.digest == built.digest and report.passed


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
        reason = Reason(f"no smoke test of {here} is on record")
    elif report.digest != built.digest:
        reason = Reason("the smoke test on record is of another build")
        facts = (("tested", report.digest), ("built", built.digest))
    else:
        failed = [check.name for check in report.checks if check.outcome is Outcome.FAILED]
        reason = Reason(f"its smoke test failed: {', '.join(f'`{check}`' for check in failed)}")
        if not failed:
            reason = Reason("its smoke test made no check")
        facts = (("digest", built.digest),)
    hint = f"run `./bake smoke {name}`, or push it as it is with `--untested`"
    message = f"`{name}` has not passed its smoke test"
    raise PublishError(Diagnostic(message, reasons=(reason,), facts=facts, hint=hint))


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

    def run(self) -> PublishedImage:
        found = self._published_before()
        if found:
            tag, manifest = found
            self.progress(f"{self.name}: already published as {short(self.built.digest)}")
        else:
            self._check_form()
            self._send()
            tag, manifest = self.tag, self._read_back()
        self._check_published(manifest)
        if self.publication.moving_tag:
            self._move_tag(manifest)
        return PublishedImage(
            image=self.name,
            registry=self.registry.host,
            repository=self.repository,
            tags=(tag, self.name) if self.publication.moving_tag else (tag,),
            digest=manifest.digest,
            media_type=manifest.media_type,
            bytes=manifest.bytes,
            was_there=found is not None,
        )

    @property
    def name(self) -> str:
        return self.built.image.name

    @property
    def refusals(self) -> Refusals:
        return Refusals(self.built, self.registry, self.repository, self.tag)

    @property
    def remote(self) -> Repository:
        return Repository(self.registry, self.repository, self.publication.patience)

    def _published_before(self) -> tuple[str, Manifest] | None:
        """The immutable tag, of any day, that names this very image already."""
        try:
            there = {tag: self.remote.manifest(tag) for tag in self._release_tags()}
        except DistributionError as error:
            raise self.refusals.unanswered(error) from error
        for tag, manifest in there.items():
            if manifest and manifest.digest == self.built.digest:
                return tag, manifest
        if taken := there.get(self.tag):
            raise self.refusals.tag_taken(taken.digest)
        return None

    def _release_tags(self) -> list[str]:
        try:
            tags = self.remote.tags()
        except DistributionError as error:
            if error.status == 404:
                self._make_repository()
                return []
            # ECR's usual rights to push don't include listing: then only today's tag is looked at.
            if error.status == 403:
                return [self.tag]
            raise
        earlier = {tag for tag in tags if is_release_of(tag, self.name, self.built.image.key)}
        return sorted({self.tag, *earlier}, reverse=True)

    def _make_repository(self) -> None:
        self.registry.make_repository(self.repository, self.name if self.publication.moving_tag else None)

    def _check_form(self) -> None:
        """Refuse before pushing what would be refused after."""
        try:
            manifest = self.pusher.manifest(self.built.digest)
        except TransferError as error:
            raise self.refusals.broken_off(error, None, 1) from error
        if manifest is None:
            self.progress(f"{self.name}: the engine does not show its manifest; it is checked after the push")
        elif manifest.digest != self.built.digest:
            raise self.refusals.sent_another(manifest.digest)
        elif reasons := unfit(manifest):
            raise self.refusals.unfit(reasons, pushed=False)
        size = f" ({len(manifest.layers)} layers, {manifest.bytes / 1e6:.1f} MB)" if manifest else ""
        what = f"{short(self.built.digest)}{size}"
        self.progress(f"{self.name}: pushing {what} to {self.refusals.place}:{self.tag}")

    def _send(self) -> None:
        """Push until the registry has it, or until no further attempt makes sense."""
        watch = Watch(self.publication.stall, time.monotonic() + self.publication.total)
        reference = f"{self.refusals.place}:{self.tag}"
        attempts, renewed, made = 1, False, False
        while True:
            try:
                watch.check(moved_at=time.monotonic())
                sent = self.pusher.push(
                    self.built.digest, reference, self.registry.credentials(), watch, self.progress
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
                if sent != self.built.digest:
                    raise self.refusals.sent_another(sent)
                return

    def _arrived(self) -> bool:
        """Whether the registry has the image although the push failed: a reply can get lost."""
        try:
            there = self._hasty.manifest(self.tag)
        except DistributionError:
            return False
        if there and there.digest != self.built.digest:
            raise self.refusals.tag_taken(there.digest)
        return there is not None

    def _complaint(self) -> DistributionError | None:
        return self._hasty.refusal()

    @property
    def _hasty(self) -> Repository:
        return Repository(self.registry, self.repository, replace(self.publication.patience, attempts=1))

    def _read_back(self) -> Manifest:
        try:
            manifest = self.remote.manifest(self.tag)
        except DistributionError as error:
            raise self.refusals.unanswered(error) from error
        if manifest is None:
            raise self.refusals.not_there()
        if manifest.digest != self.built.digest:
            # Somebody pushed between our look and now, and the registry let both.
            raise self.refusals.tag_taken(manifest.digest)
        return manifest

    def _check_published(self, manifest: Manifest) -> None:
        reasons = unfit(manifest)
        try:
            if not reasons and manifest.config:
                reasons = unfit_platform(self.remote.blob(manifest.config.digest))
        except DistributionError as error:
            raise self.refusals.unanswered(error) from error
        if reasons:
            raise self.refusals.unfit(reasons, pushed=True)

    def _move_tag(self, manifest: Manifest) -> None:
        try:
            there = self.remote.manifest(self.name)
            if there is None or there.digest != manifest.digest:
                self.remote.tag(manifest, self.name)
        except DistributionError as error:
            raise self.refusals.tag_stays(self.name, error) from error
