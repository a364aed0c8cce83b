"""Pushes one built image to one registry, as a release or a candidate."""

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
from bakehouse.publish.release_gate import check_releasable
from bakehouse.publish.tags import PublishedImage, ReleaseTags, candidate_tag, immutable_tag
from bakehouse.publish.target import ReleaseTarget
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
"""Default deadline of a push."""
_RETRIED = (Fault.TRANSIENT, Fault.CORRUPTED)
_BUSY = re.compile(r"\b429\b|\b503\b|(?i:too ?many ?requests)")


@dataclass(frozen=True, slots=True)
class PushOptions:
    """Options of the push of one image."""

    day: date
    """Today in UTC, for the release tag."""
    locks: Path
    """Directory of the locks between pushes of one image on this machine."""
    prefix: str = "bakehouse"
    """Prefix of repositories: `prefix/image`."""
    candidate: bool = False
    """Publish for testing, tested or not, without a release tag."""
    stall: float = 50.0
    """Seconds without progress until a push is stopped; more while the registry stores layers."""
    until: float = field(default_factory=lambda: time.monotonic() + SIX_HOURS)
    """Deadline by time.monotonic(), which includes requests to the registry."""
    retry_policy: RetryPolicy = field(default_factory=RetryPolicy)
    revision: str = ""
    """Commit that is published from."""
    history: Callable[[str, Digest], str] = lambda image, digest: ""
    """Description of an image's digest by the ledger."""
    settle: float = 1.0
    """Seconds after a push until the tag is read once more, because it may be mutable."""


def publish(
    built: BuiltImage,
    report: SmokeReport | None,
    registry: Registry,
    pusher: Pusher,
    options: PushOptions,
    progress: Reporter,
    queue: PushQueue | None = None,
) -> PublishedImage:
    """Push a tested image, or a candidate, and read it back from the registry.

    The same content under the same build key is published once; later calls change nothing. Parallel pushes
    share a `queue`.
    """
    image = built.image
    check_releasable(built, report, candidate=options.candidate)
    if options.candidate:
        tag = candidate_tag(image.name, built.digest)
    else:
        tag = immutable_tag(image.name, options.day, image.key)
    try:
        bounded_registry = DeadlineRegistry(registry, options.until)
    except OverdueError as error:
        message = f"`{image.name}` was not pushed: {error}"
        raise PublishError(Diagnostic(message, hint="increase `--deadline`")) from error
    repository = f"{options.prefix}/{image.name}"
    check_names(bounded_registry.host, repository, tag, image.name)
    target = ReleaseTarget(
        *(image.name, image.key, built.digest, bounded_registry, repository, tag),
        form=FORMS[image.format],
    )

    def wait() -> None:
        progress(f"{image.name}: waiting for another push of it on this machine")

    options = replace(options, retry_policy=replace(options.retry_policy, until=options.until))
    push = _Push(target, pusher, options, progress, queue or PushQueue())
    try:
        with exclusive(options.locks / f"push-{image.name}.lock", wait, options.until):
            return push.run()
    except OverdueError as error:
        raise push.diagnostics.overdue() from error


@dataclass(frozen=True, slots=True)
class _Push:
    """Push of one image to one tag."""

    target: ReleaseTarget
    pusher: Pusher
    options: PushOptions
    progress: Reporter
    queue: PushQueue

    def run(self) -> PublishedImage:
        is_candidate = self.options.candidate
        existing = (
            self.tags.find_target() if is_candidate else self.tags.find_release(self._create_repository)
        )
        if existing:
            tag, manifest = existing
            state = "staged" if is_candidate else "published"
            self._report(f"already {state} as {short(self.target.digest)}")
            if absent := self.tags.absent(manifest):
                names = ", ".join(short(blob.digest) for blob in absent)
                self._report(f"the registry has lost {names}: pushing again")
                existing = None
        uploaded: Collection[str] = ()
        if not existing:
            uploaded = self._push(self._shown())
            tag, manifest = self.target.tag, self.tags.read_back()
        self.tags.check(manifest)
        if not existing:
            # A concurrent push that checked the tag before this one may overwrite it afterwards if tags are
            # mutable, as in ECR repositories that Bakehouse did not create.
            time.sleep(min(self.options.settle, remaining(self.options.until)))
            self.tags.read_back()
        published = self.tags.published(tag, manifest, was_there=existing is not None, candidate=is_candidate)
        published = replace(published, sent=_layer_bytes(manifest, uploaded))
        if uploaded and published.sent is not None:
            reused = manifest.layer_bytes - published.sent
            detail = f", reused {format_bytes(reused)}" if reused else ""
            self._report(f"uploaded {format_bytes(published.sent)}{detail}")
        return published

    @property
    def diagnostics(self) -> PushDiagnostics:
        command = "push --candidate" if self.options.candidate else "push"
        return PushDiagnostics(self.target, command, self.options.revision, self.options.history)

    @property
    def tags(self) -> ReleaseTags:
        repository = Repository(
            self.target.registry, self.target.repository, self.options.retry_policy, self._report
        )
        return ReleaseTags(repository, self.target, self.diagnostics)

    def _create_repository(self) -> None:
        self.target.registry.create_repository(self.target.repository, self.target.image)

    def _shown(self) -> Manifest | None:
        """Manifest that the engine will push, checked before the push; None if it does not show it."""
        try:
            manifest = self.pusher.manifest(self.target.digest)
        except TransferError as error:
            raise self.diagnostics.broken_off(error, None, 1) from error
        if manifest is None:
            self._report("the engine does not show its manifest; it is checked after the push")
        elif not self.target.matches_image(manifest):
            raise self.diagnostics.wrong_manifest(manifest.digest)
        elif reasons := unfit(manifest, self.target.form):
            raise self.diagnostics.unfit(reasons, pushed=False)
        size = (
            f" ({format_count(len(manifest.layers), 'layer')}, {format_bytes(manifest.bytes)})"
            if manifest
            else ""
        )
        self._report(f"pushing {short(self.target.digest)}{size} to {self.target.reference}")
        form = self.target.form
        if form is not FORMS["docker"]:
            self._report(f"its recipe builds an {form}; SageMaker may reject it, but accepts Docker schema 2")
        return manifest

    def _push(self, manifest: Manifest | None) -> Collection[str]:
        """Push in turn; return the uploaded layers by the engine's names."""
        layers = [layer.digest for layer in manifest.layers] if manifest else ()
        with self.queue.turn(layers, self.options.until) as turn:
            policy = StallPolicy(self.options.stall, self.options.until, moved=turn.moved)
            self._push_within(policy, manifest)
        return policy.pushed

    def _push_within(self, policy: StallPolicy, manifest: Manifest | None) -> None:
        """Push until the registry has the image, or no further attempt can help."""
        attempts, has_renewed, has_created, before = 1, False, False, ""
        while True:
            try:
                policy.check(moved_at=time.monotonic())
                credentials = self.target.registry.credentials()
                pushed = self.pusher.push(
                    self.target.digest, self.target.reference, credentials, policy, self._report
                )
            except TransferError as failure:
                if failure.fault is Fault.TIMED_OUT:
                    raise self.diagnostics.broken_off(failure, None, attempts, before) from failure
                if failure.fault in (Fault.UNAUTHORIZED, Fault.DENIED) and not has_renewed:
                    has_renewed = True
                    self.target.registry.credentials(renew=True)
                elif self._arrived():
                    self._report("the push failed, but the registry has the whole image")
                    return
                elif failure.fault is Fault.MISSING and not has_created:
                    has_created = True
                    self._create_repository()
                elif failure.fault in _RETRIED and self._wait_for_retry(failure, attempts):
                    attempts += 1
                else:
                    refusal = self._refusal(failure, manifest)
                    if refusal is None and self._arrived():
                        return
                    raise self.diagnostics.broken_off(failure, refusal, attempts, before) from failure
                before = failure.text
            else:
                if pushed != self.target.digest:
                    tagged = self._tagged()
                    if not tagged or not self.target.matches_image(tagged):
                        # An engine that showed the manifest pushes another only if another push on this
                        # machine has taken the name meanwhile.
                        if manifest and tagged:
                            raise self.tags.taken(tagged)
                        raise self.diagnostics.wrong_manifest(pushed)
                return

    def _report(self, text: str) -> None:
        self.progress(f"{self.target.image}: {text}")

    def _arrived(self) -> bool:
        """Return whether the registry has the image although the push failed, as after a lost response."""
        try:
            tagged = self._without_retries.manifest(self.target.tag)
        except RegistryError:
            return False
        if tagged and not self.target.matches_image(tagged):
            raise self.tags.taken(tagged)
        return tagged is not None and self._is_complete(tagged)

    def _is_complete(self, manifest: Manifest) -> bool:
        """Return whether the registry has all blobs; it may have lost some of an earlier release."""
        try:
            return not replace(self.tags, remote=self._without_retries).absent(manifest)
        except PublishError:
            return False

    def _tagged(self) -> Manifest | None:
        """Manifest that the tag names after a successful push."""
        with self.diagnostics.translate_errors():
            return self.tags.remote.manifest(self.target.tag)

    def _wait_for_retry(self, failure: TransferError, attempts: int) -> bool:
        """Pause as long as the registry asks for; return False if no further attempt may follow."""
        retry_policy = self.options.retry_policy
        if attempts >= retry_policy.attempts:
            return False
        # The engine does not report how long the registry asks to wait.
        busy = self._without_retries.refusal() if _BUSY.search(failure.text) else None
        pause = busy.retry_after if busy else 0.0
        delay = f" in {pause:.0f} s, as the registry asks" if pause else ""
        self._report(f"attempt {attempts} failed, retrying{delay}: {failure.text}")
        return retry_policy.wait(attempts - 1, pause)

    def _refusal(self, failure: TransferError, manifest: Manifest | None) -> RegistryError | None:
        """Repeat the rejected request for the registry's error message, which the engine loses."""
        if manifest and "/manifests/" in failure.text:
            try:
                self._without_retries.tag(manifest, self.target.tag)
            except RegistryError as refusal:
                return refusal
            return None
        return self._without_retries.refusal()

    @property
    def _without_retries(self) -> Repository:
        retry_policy = replace(self.options.retry_policy, attempts=1)
        return Repository(self.target.registry, self.target.repository, retry_policy)


def _layer_bytes(manifest: Manifest, uploaded: Collection[str]) -> int | None:
    """Size of the uploaded layers; None if the engine's names do not match the manifest."""
    sizes = {_engine_name(layer.digest): layer.bytes for layer in manifest.layers}
    config = {_engine_name(manifest.config.digest)} if manifest.config else set()
    if not sizes.keys() | config >= set(uploaded):
        return None
    return sum(sizes.get(layer, 0) for layer in uploaded)


def _engine_name(digest: Digest) -> str:
    return digest.removeprefix("sha256:")[:12]
