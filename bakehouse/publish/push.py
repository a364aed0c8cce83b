"""Pushes one built image to one registry, as a release or a candidate."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import date
from functools import partial
from pathlib import Path

from bakehouse.builder.built_image import BuiltImage
from bakehouse.builder.pack import ImagePacker, PackedImage
from bakehouse.errors import PublishError
from bakehouse.evidence.gate import check_releasable
from bakehouse.evidence.known_checks import KnownChecks
from bakehouse.fetch.retry import RetryPolicy
from bakehouse.publish.diagnostics import PushDiagnostics
from bakehouse.publish.queue import PushQueue
from bakehouse.publish.tags import PublishedImage, ReleaseTags, candidate_tag, immutable_tag
from bakehouse.publish.target import ReleaseTarget
from bakehouse.registry.client import Repository
from bakehouse.registry.http_errors import RegistryError
from bakehouse.registry.layer_cache import CompressedLayer
from bakehouse.registry.manifest import FORMS, digest_of, short, unfit_platform
from bakehouse.registry.registry import DeadlineRegistry, Registry
from bakehouse.registry.upload import Blob, DamagedFileError, Sent, Uploader
from bakehouse.util.deadline import OverdueError, remaining
from bakehouse.util.file_lock import exclusive
from bakehouse.util.files import remove_file
from bakehouse.util.format import format_bytes, format_count
from bakehouse.util.oci import Digest, check_names
from bakehouse.util.terminal import Reporter, detail

SIX_HOURS = 21600.0
"""Default deadline of a push."""
_PROGRESS_SECONDS = 5.0


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
    """Seconds without progress until an upload is stopped; more while the registry stores a layer."""
    until: float = field(default_factory=lambda: time.monotonic() + SIX_HOURS)
    """Deadline by time.monotonic(), which includes requests to the registry."""
    retry_policy: RetryPolicy = field(default_factory=RetryPolicy)
    revision: str = ""
    """Commit that is published from, with `-dirty` if files of the image differ from it."""
    uncommitted: tuple[str, ...] = ()
    """These files, relative to the repository."""
    history: Callable[[str, Digest], str] = lambda image, digest: ""
    """Description of an image's digest by the ledger."""
    settle: float = 1.0
    """Seconds after a push until the tag is read once more, because it may be mutable."""


def publish(
    built: BuiltImage,
    state: KnownChecks,
    registry: Registry,
    packer: ImagePacker,
    options: PushOptions,
    progress: Reporter,
    queue: PushQueue | None = None,
) -> PublishedImage:
    """Push a tested image, or a candidate, and read it back from the registry.

    The same content under the same build key is published once; later calls change nothing. Parallel pushes
    share a `queue`.
    """
    image = built.image
    check_releasable(built, state, candidate=options.candidate)
    if options.candidate:
        tag = candidate_tag(image.name, built.digest, image.format)
    else:
        tag = immutable_tag(image.name, options.day, image.key)
    try:
        bounded_registry = DeadlineRegistry(registry, options.until)
    except OverdueError as error:
        raise PublishError(
            f"`{image.name}` was not pushed: {error}",
            hint="run the same command again: the registry keeps the layers that it has",
        ) from error
    repository = f"{options.prefix}/{image.name}"
    check_names(bounded_registry.host, repository, tag, image.name)
    target = ReleaseTarget(
        *(image.name, image.key, built.digest, bounded_registry, repository, tag),
        config=lambda: packer.config(built),
        form=FORMS[image.format],
        platform=image.platform,
    )

    def wait() -> None:
        progress(f"{image.name}: waiting for another push of it on this machine")

    options = replace(options, retry_policy=replace(options.retry_policy, until=options.until))
    push = _Push(target, built, packer, options, progress, queue or PushQueue())
    try:
        with exclusive(options.locks / f"push-{image.name}.lock", wait, options.until):
            return push.run()
    except OverdueError as error:
        raise push.diagnostics.overdue(push.retried[-1] if push.retried else "") from error


@dataclass(frozen=True, slots=True)
class _Push:
    """Push of one image to one tag."""

    target: ReleaseTarget
    built: BuiltImage
    packer: ImagePacker
    options: PushOptions
    progress: Reporter
    queue: PushQueue
    retried: list[str] = field(default_factory=list)
    """Failures so far."""

    def run(self) -> PublishedImage:
        is_candidate = self.options.candidate
        existing = (
            self.tags.find_target() if is_candidate else self.tags.find_release(self._create_repository)
        )
        if existing:
            tag, manifest = existing
            state = "staged" if is_candidate else "published"
            self._report(f"already {state} as {short(manifest.digest)}")
            if absent := self.tags.absent(manifest):
                names = ", ".join(short(blob.digest) for blob in absent)
                self._report(f"the registry has lost {names}: pushing again")
                existing = None
        sent = 0
        if not existing:
            sent = self._push()
            tag, manifest = self.target.tag, self.tags.read_back()
        self.tags.check_manifest(manifest)
        if not existing:
            # A concurrent push that checked the tag before this one may overwrite it afterwards if tags are
            # mutable, as in ECR repositories that Bakehouse did not create.
            time.sleep(min(self.options.settle, remaining(self.options.until)))
            self.tags.read_back()
        published = self.tags.published(tag, manifest, was_there=existing is not None, candidate=is_candidate)
        if sent:
            reused = manifest.layer_bytes - sent
            extra = f", reused {format_bytes(reused)}" if reused else ""
            self._report(f"uploaded {format_bytes(sent)}{extra}")
        return replace(published, sent=sent)

    @property
    def diagnostics(self) -> PushDiagnostics:
        command = "push --candidate" if self.options.candidate else "push"
        return PushDiagnostics(self.target, command, self.options.revision, self.options.history)

    @property
    def tags(self) -> ReleaseTags:
        return ReleaseTags(self._repository, self.target, self.diagnostics)

    @property
    def _repository(self) -> Repository:
        return Repository(
            self.target.registry, self.target.repository, self.options.retry_policy, self._report_retry
        )

    def _create_repository(self) -> None:
        self.target.registry.create_repository(self.target.repository, self.target.image)

    def _push(self) -> int:
        """Upload what the registry lacks, then the manifest; return the bytes of the uploaded layers."""
        packed = self.packer.pack(self.built, self.target.form, self._report, self.options.until)
        if reasons := unfit_platform(packed.config, self.target.platform):
            raise self.diagnostics.unfit(reasons, pushed=False)
        manifest = packed.manifest
        size = f"{format_count(len(packed.layers), 'layer')}, {format_bytes(manifest.bytes)}"
        detail(self._report)(f"pushing {short(manifest.digest)} ({size}) to {self.target.reference}")
        form = self.target.form
        if form is not FORMS["docker"]:
            self._report(f"its recipe builds an {form}; SageMaker may reject it, but accepts Docker schema 2")
        sent = 0
        try:
            try:
                sent = self._upload(packed)
            except RegistryError as error:
                if not error.is_repository_missing:
                    raise
                self._create_repository()
                sent = self._upload(packed)
            self._repository.tag(manifest, self.target.tag)
        except RegistryError as error:
            if not self._arrived():
                raise self.diagnostics.broken_off(error) from error
            self._report("the push failed, but the registry has the whole image")
        return sent

    def _upload(self, packed: PackedImage) -> int:
        progress = _Progress(packed.manifest.bytes, self._report)
        config = Blob(digest_of(packed.config), len(packed.config), packed.config)

        def upload(layer: CompressedLayer) -> int:
            try:
                state = self._upload_blob(Blob(layer.digest, layer.bytes, layer.path), progress)
            except DamagedFileError as error:
                remove_file(layer.path, missing_ok=True)
                raise self.diagnostics.damaged(layer.diff_id) from error
            detail(self._report)(f"layer {short(layer.diff_id)} {state} ({format_bytes(layer.bytes)})")
            return layer.bytes if state is Sent.UPLOADED else 0

        self._upload_blob(config, progress)
        return sum(self.queue.uploads([partial(upload, layer) for layer in dict.fromkeys(packed.layers)]))

    def _upload_blob(self, blob: Blob, progress: "_Progress") -> Sent:
        host, repository = self.target.registry.host, self.target.repository
        # An upload that stalls is resumed once within the time.
        policy = replace(self.options.retry_policy, timeout=self.options.stall / 2)
        with self.queue.turn(host, repository, blob.digest, self.options.until) as turn:

            def moved(count: int) -> None:
                turn.moved()
                progress.add(count)

            remote = Repository(self.target.registry, repository, policy, self._report_retry)
            other = self.queue.repository_of(host, blob.digest)
            sources = [other] if other and other != repository else []
            return Uploader(remote, moved, self._report_retry).upload(blob, sources)

    def _report(self, text: str) -> None:
        self.progress(f"{self.target.image}: {text}")

    def _report_retry(self, text: str) -> None:
        self.retried.append(text)
        self._report(text)

    def _arrived(self) -> bool:
        """Return whether the registry has the image although the push failed, as after a lost response."""
        remote = Repository(
            self.target.registry, self.target.repository, replace(self.options.retry_policy, attempts=1)
        )
        try:
            tagged = remote.manifest(self.target.tag)
        except RegistryError:
            return False
        if tagged and not self.tags.matches_image(tagged):
            raise self.tags.taken(tagged)
        try:
            return tagged is not None and not replace(self.tags, remote=remote).absent(tagged)
        except PublishError:
            return False


class _Progress:
    """Reports how much of an image was sent, every few seconds."""

    def __init__(self, total: int, report: Reporter) -> None:
        self._total, self._report = total, report
        self._lock = threading.Lock()
        self._sent = 0
        self._reported_at = time.monotonic()

    def add(self, count: int) -> None:
        with self._lock:
            self._sent += count
            if time.monotonic() - self._reported_at < _PROGRESS_SECONDS:
                return
            self._reported_at = time.monotonic()
            sent = self._sent
        self._report(f"{format_bytes(sent)} of {format_bytes(self._total)} sent")
