"""Turns a BuiltImage and its SmokeReport into a PublishedImage: a release, or a candidate for one."""

import re
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path

from bakehouse.build.built_image import BuiltImage
from bakehouse.cluster.smoke_report import SmokeReport
from bakehouse.errors import Diagnostic, PublishError
from bakehouse.publish.diagnostics import PushDiagnostics
from bakehouse.publish.queue import PushQueue
from bakehouse.publish.release_gate import check_pinned, check_tested
from bakehouse.publish.tags import PublishedImage, ReleaseTags, candidate_tag, immutable_tag
from bakehouse.registry.client import Repository, RetryPolicy
from bakehouse.registry.http_errors import RegistryError
from bakehouse.registry.manifest import FORMS, Manifest, short, unfit
from bakehouse.registry.registry import DeadlineRegistry, Registry
from bakehouse.registry.transfer import Fault, Pusher, StallPolicy, TransferError
from bakehouse.util.deadline import OverdueError, remaining
from bakehouse.util.file_lock import exclusive
from bakehouse.util.format import format_bytes, format_count
from bakehouse.util.oci import Digest, check_names
from bakehouse.util.terminal import Reporter

SIX_HOURS = 21600.0
"""Until everything that talks to a registry is given up."""
_PASSING = (Fault.TRANSIENT, Fault.CORRUPTED)
_BUSY = re.compile(r"\b429\b|\b503\b|(?i:too ?many ?requests)")


@dataclass(frozen=True, slots=True)
class PushOptions:
    """How an image is to be published."""

    day: date
    """Today in UTC; it goes into the tag."""
    locks: Path
    """A folder for what keeps two pushes of one image on this machine apart."""
    prefix: str = "bakehouse"
    """What repositories begin with: `prefix/image`."""
    candidate: bool = False
    """Publish as a candidate, to be tried: under no release tag, tested or not."""
    stall: float = 50.0
    """Seconds in which nothing moves before a push is given up; more while layers are being stored."""
    until: float = field(default_factory=lambda: time.monotonic() + SIX_HOURS)
    """By time.monotonic(): the end of everything, questions to the registry included."""
    retry_policy: RetryPolicy = field(default_factory=RetryPolicy)
    revision: str = ""
    """The commit that is published from."""
    history: Callable[[str, Digest], str] = lambda image, digest: ""
    """What the ledger says of an image's digest."""
    settle: float = 1.0
    """Seconds after a push until the tag is looked at once more: it may be one that can be overwritten."""


def publish(
    built: BuiltImage,
    report: SmokeReport | None,
    registry: Registry,
    pusher: Pusher,
    publication: PushOptions,
    progress: Reporter,
    queue: PushQueue | None = None,
) -> PublishedImage:
    """Push an image that may be released, or a candidate, and read back what the registry then holds.

    The same content under the same key is published once: later calls find it and change nothing. `queue`
    is shared by all that are pushed at once.
    """
    image = built.image
    if built.is_rehearsed:
        message = f"`{image.name}` was rehearsed, not built: there are stand-ins in it"
        raise PublishError(Diagnostic(message, hint=f"run `bake release {image.name}`"))
    check_pinned(image)
    if not publication.candidate:
        check_tested(built, report)
    name = f"{publication.prefix}/{image.name}"
    tag = immutable_tag(image.name, publication.day, image.key)
    if publication.candidate:
        tag = candidate_tag(image.name, built.digest)
    try:
        timely = DeadlineRegistry(registry, publication.until)
    except OverdueError as error:
        message = f"the push of `{image.name}` was stopped before it began: {error}"
        hint = "to find out where to push takes longer: give `--deadline` more"
        raise PublishError(Diagnostic(message, hint=hint)) from error
    check_names(timely.host, name, tag, image.name)

    def wait() -> None:
        progress(f"{image.name}: waiting for another push of it on this machine")

    within = replace(publication, retry_policy=replace(publication.retry_policy, until=publication.until))
    one = _Push(built, timely, pusher, within, progress, name, tag, queue or PushQueue())
    try:
        with exclusive(publication.locks / f"push-{image.name}.lock", wait, publication.until):
            return one.run()
    except OverdueError as error:
        raise one.refusals.overdue() from error


@dataclass(frozen=True, slots=True)
class _Push:
    """One publication on its way."""

    built: BuiltImage
    registry: Registry
    pusher: Pusher
    publication: PushOptions
    progress: Reporter
    repository: str
    tag: str
    queue: PushQueue

    def run(self) -> PublishedImage:
        staged = self.publication.candidate
        found = self.tags.is_there() if staged else self.tags.named(self._create_repository)
        if found:
            what = "staged" if staged else "published"
            self.progress(f"{self.name}: already {what} as {short(self.built.digest)}")
            tag, manifest = found
            if absent := self.tags.absent(manifest):
                lost = ", ".join(short(part.digest) for part in absent)
                self._tell(f"the registry has lost {lost}: pushing again")
                found = None
        pushed: Collection[str] = ()
        if not found:
            pushed = self._send(self._shown())
            tag, manifest = self.tag, self.tags.read_back()
        self.tags.check(manifest)
        if not found:
            # Who looked before our push and pushed after it is seen only now; on Amazon ECR too, where a
            # repository that somebody else made may have tags that can be overwritten.
            time.sleep(min(self.publication.settle, remaining(self.publication.until)))
            self.tags.read_back()
        published = self.tags.published(tag, manifest, was_there=found is not None, candidate=staged)
        published = replace(published, sent=_sent(manifest, pushed))
        if pushed and published.sent is not None:
            there = manifest.layer_bytes - published.sent
            spared = f", {format_bytes(there)} were there already" if there else ""
            self._tell(f"{format_bytes(published.sent)} sent{spared}")
        return published

    @property
    def name(self) -> str:
        return self.built.image.name

    @property
    def refusals(self) -> PushDiagnostics:
        image, digest = self.built.image, self.built.digest
        command = "push --candidate" if self.publication.candidate else "push"
        given = self.publication
        return PushDiagnostics(
            *(image.name, image.key, digest, self.registry, self.repository, self.tag, command),
            form=FORMS[image.format],
            revision=given.revision,
            history=lambda there: given.history(image.name, there),
        )

    @property
    def tags(self) -> ReleaseTags:
        def tell(line: str) -> None:
            self.progress(f"{self.name}: {line}")

        remote = Repository(self.registry, self.repository, self.publication.retry_policy, tell)
        return ReleaseTags(remote, self.refusals)

    def _create_repository(self) -> None:
        self.registry.create_repository(self.repository, self.name)

    def _shown(self) -> Manifest | None:
        """The manifest that is going to be sent; what would be refused after the push is refused before."""
        try:
            manifest = self.pusher.manifest(self.built.digest)
        except TransferError as error:
            raise self.refusals.broken_off(error, None, 1) from error
        if manifest is None:
            self.progress(f"{self.name}: the engine does not show its manifest; it is checked after the push")
        elif not self.tags.matches_image(manifest):
            raise self.refusals.sent_another(manifest.digest)
        elif reasons := unfit(manifest, self.refusals.form):
            raise self.refusals.unfit(reasons, pushed=False)
        size = (
            f" ({format_count(len(manifest.layers), 'layer')}, {format_bytes(manifest.bytes)})"
            if manifest
            else ""
        )
        what = f"{short(self.built.digest)}{size}"
        self.progress(f"{self.name}: pushing {what} to {self.refusals.place}:{self.tag}")
        form = self.refusals.form
        if form is not FORMS["docker"]:
            self._tell(f"its recipe makes it an {form}: SageMaker may refuse that, and takes Docker schema 2")
        return manifest

    def _send(self, shown: Manifest | None) -> Collection[str]:
        """Push when it is its turn; gives the layers that were sent, as the engine calls them."""
        layers = [layer.digest for layer in shown.layers] if shown else ()
        with self.queue.turn(layers, self.publication.until) as turn:
            watch = StallPolicy(self.publication.stall, self.publication.until, moved=turn.moved)
            self._send_within(watch, shown)
        return watch.pushed

    def _send_within(self, watch: StallPolicy, manifest: Manifest | None) -> None:
        """Push until the registry has it, or until no further attempt makes sense."""
        reference = f"{self.refusals.place}:{self.tag}"
        attempts, renewed, made, before = 1, False, False, ""
        while True:
            try:
                watch.check(moved_at=time.monotonic())
                sent = self.pusher.push(
                    self.built.digest, reference, self.registry.credentials(), watch, self._tell
                )
            except TransferError as failure:
                if failure.fault is Fault.TIMED_OUT:
                    raise self.refusals.broken_off(failure, None, attempts, before) from failure
                if failure.fault in (Fault.UNAUTHORIZED, Fault.DENIED) and not renewed:
                    renewed = True
                    self.registry.credentials(renew=True)
                elif self._arrived():
                    self.progress(f"{self.name}: the push failed, but the registry has all of it")
                    return
                elif failure.fault is Fault.MISSING and not made:
                    made = True
                    self._create_repository()
                elif failure.fault in _PASSING and self._may_try_again(failure, attempts):
                    attempts += 1
                else:
                    complaint = self._complaint(failure, manifest)
                    if complaint is None and self._arrived():
                        return
                    raise self.refusals.broken_off(failure, complaint, attempts, before) from failure
                before = failure.text
            else:
                there = self._named() if sent != self.built.digest else None
                if sent != self.built.digest and not (there and self.tags.matches_image(there)):
                    # An engine that has shown the manifest sends no other, unless another push of this
                    # machine has given it the name meanwhile.
                    raise self.tags.taken(there) if manifest and there else self.refusals.sent_another(sent)
                return

    def _tell(self, text: str) -> None:
        self.progress(f"{self.name}: {text}")

    def _arrived(self) -> bool:
        """Whether the registry has the image although the push failed: a reply can get lost."""
        there = self._there()
        if there and not self.tags.matches_image(there):
            raise self.tags.taken(there)
        return there is not None and self._is_whole(there)

    def _is_whole(self, there: Manifest) -> bool:
        """Whether the registry has what its manifest names: a release may have lost layers since."""
        try:
            return not ReleaseTags(self._hasty, self.refusals).absent(there)
        except PublishError:
            return False

    def _named(self) -> Manifest | None:
        """What the tag names after a push that went well."""
        try:
            return self.tags.remote.manifest(self.tag)
        except RegistryError as error:
            raise self.refusals.unanswered(error) from error

    def _there(self) -> Manifest | None:
        try:
            return self._hasty.manifest(self.tag)
        except RegistryError:
            return None

    def _may_try_again(self, failure: TransferError, attempts: int) -> bool:
        """Pause, as long as the registry asks for, and tell whether another attempt may help."""
        retry_policy = self.publication.retry_policy
        if attempts >= retry_policy.attempts:
            return False
        # The engine keeps to itself how long the registry asked it to wait.
        busy = self._hasty.refusal() if _BUSY.search(failure.text) else None
        pause = busy.retry_after if busy else 0.0
        asked = f" in {pause:.0f} s, as the registry asks" if pause else ""
        self.progress(f"{self.name}: attempt {attempts} failed, trying again{asked}: {failure.text}")
        return retry_policy.wait(attempts - 1, pause)

    def _complaint(self, failure: TransferError, manifest: Manifest | None) -> RegistryError | None:
        """The registry's own words, which the engine loses: what it refused is asked for once more."""
        if manifest and "/manifests/" in failure.text:
            try:
                self._hasty.tag(manifest, self.tag)
            except RegistryError as said:
                return said
            return None
        return self._hasty.refusal()

    @property
    def _hasty(self) -> Repository:
        return Repository(self.registry, self.repository, replace(self.publication.retry_policy, attempts=1))


def _sent(manifest: Manifest, pushed: Collection[str]) -> int | None:
    """The size of these layers; None where the engine has other names for them than the registry."""
    sizes = {_engines_name(layer.digest): layer.bytes for layer in manifest.layers}
    config = {_engines_name(manifest.config.digest)} if manifest.config else set()
    if not sizes.keys() | config >= set(pushed):
        return None
    return sum(sizes.get(layer, 0) for layer in pushed)


def _engines_name(digest: Digest) -> str:
    return digest.removeprefix("sha256:")[:12]
