"""Error messages for images that are not published."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from bakehouse.errors import PublishError, Reason, RegistryAuthError, TagTakenError
from bakehouse.fetch.faults import unreachable
from bakehouse.ledger.releases import ReleaseRecord
from bakehouse.plan.model import ImageKey
from bakehouse.publish.target import ReleaseTarget
from bakehouse.registry.client import Repository
from bakehouse.registry.http_errors import RegistryError
from bakehouse.registry.manifest import Descriptor, Origin, short
from bakehouse.registry.registry import Registry
from bakehouse.util.deadline import OverdueError
from bakehouse.util.oci import Digest


@dataclass(frozen=True, slots=True)
class PushDiagnostics:
    """Failures of one publication as errors."""

    target: ReleaseTarget
    command: str = "push"
    """Task, with options, to repeat."""
    revision: str = ""
    """Commit that is published from."""
    history: Callable[[str, Digest], str] = lambda image, digest: ""
    """Description of an image's digest by the ledger."""

    @property
    def retry(self) -> str:
        """The command to repeat."""
        return f"`bake {self.command} {self.target.image}`"

    @property
    def _registry(self) -> Registry:
        return self.target.registry

    def tag_taken(self, other: Digest, origin: Origin, pushed: str) -> TagTakenError:
        """The immutable tag names another image, which is never overwritten.

        `pushed` is the registry's record of the time and user of the push.
        """
        target = self.target
        facts = (
            ("pushed", pushed),
            ("ledger", self.history(target.image, other)),
            ("revision", origin.revision),
            ("created", origin.created),
            ("by", origin.authors),
        )
        return TagTakenError(
            f"tag `{target.tag}` is taken by a different image",
            reasons=(Reason(self._cause(origin)),),
            facts=(
                ("in repository", target.repository_uri),
                ("there, manifest", other),
                *((f"there, {name}", value) for name, value in facts if value),
                ("here, configuration", target.digest),
                *((("here, revision", self.revision),) if self.revision else ()),
                ("to use it", f"{target.repository_uri}@{other}"),
            ),
            hint="use the existing image, or push under tomorrow's tag",
        )

    def format_taken(self, other: Digest, reasons: tuple[Reason, ...]) -> TagTakenError:
        """The immutable tag names this image in another format."""
        target = self.target
        return TagTakenError(
            f"tag `{target.tag}` is taken by the same image in another format",
            reasons=reasons,
            facts=(("in repository", target.repository_uri), ("there, manifest", other)),
            hint=f"set the previous `format` of `{target.image}`, or push under tomorrow's tag",
        )

    def _cause(self, origin: Origin) -> str:
        if origin.is_ours:
            key = self.target.key[:8]
            return f"both have the build key {key} but different content: the build is not reproducible"
        return "the existing image has no Bakehouse labels, so another tool pushed it"

    def unfit(self, reasons: tuple[Reason, ...], *, pushed: bool) -> PublishError:
        """The image has a format that its recipe does not select, or that SageMaker rejects."""
        result = "it was pushed, but no release was recorded" if pushed else "nothing was pushed"
        message = f"`{self.target.image}` is not a single {self.target.platform} {self.target.form}"
        facts = (("digest", self.target.digest), ("result", result))
        hint = f"run `bake build {self.target.image}` to build it in that format"
        return PublishError(message, reasons=reasons, facts=facts, hint=hint)

    @contextlib.contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Raise errors of the registry as PublishError."""
        try:
            yield
        except RegistryError as error:
            raise self.unanswered(error) from error

    def unanswered(self, error: RegistryError) -> PublishError:
        """The registry did not respond, or rejected a request."""
        if error.status == 401:
            return self._not_logged_in(error.text)
        if error.status == 403:
            return self._not_allowed_to_read(error.text)
        host = self._registry.host
        if error.status is None:
            cause = unreachable(host, error.fault, error.text)
            if error.fault is None or error.fault.may_pass:
                reasons = self._registry.known_problems()
                cause = replace(cause, reasons=reasons, hint=f"{cause.hint}, then run {self.retry}")
            return PublishError.of(cause)
        return self._failure(f"`{host}` failed", (("answer", error.answer),))

    def untagged(self, error: RegistryError) -> PublishError:
        """The registry did not set a tag on a manifest that it has."""
        if error.status != 403:
            return self.unanswered(error)
        hint = f"use credentials with push permission, then run {self.retry}"
        message = f"not allowed to set a tag in `{self.target.repository_uri}`"
        return RegistryAuthError(message, reasons=(self._denied(error.text),), hint=hint)

    def broken_off(self, error: RegistryError) -> PublishError:
        """An upload failed permanently."""
        repository = self.target.repository_uri
        pause = f"{error.retry_after:.0f} s" if error.retry_after else ""
        answers = tuple(
            (name, text) for name, text in (("registry", error.answer), ("retry after", pause)) if text
        )
        if error.is_full:
            hint = f"free space or raise the quota, then run {self.retry}"
            return self._failure(f"`{repository}` is out of space (quota or disk)", answers, hint)
        if error.is_corrupted:
            message = f"`{repository}` received corrupted data"
            hint = "check the proxy and the network path to the registry"
            return PublishError(message, facts=answers, hint=hint)
        if error.is_stalled:
            message = f"the push to `{repository}` stalled and was stopped"
            return self._failure(message, (), self._resume_hint)
        if error.status == 401:
            return self._not_logged_in(error.text)
        if error.status == 403:
            return self._not_allowed(error.text)
        if error.is_repository_missing:
            message = f"there is no repository `{self.target.repository}` in `{self._registry.host}`"
            return PublishError(message, facts=answers, hint=f"create it, then run {self.retry}")
        if error.status is None:
            return self.unanswered(error)
        hint = f"check the registry's log and disk, then {self._resume_hint}"
        if not error.may_pass:
            hint = f"check the registry's log, then run {self.retry}"
        return self._failure(f"the push to `{repository}` failed", answers, hint)

    @property
    def _resume_hint(self) -> str:
        return f"run {self.retry} again; uploaded layers are reused"

    def overdue(self, before: str = "") -> PublishError:
        """The deadline passed; `before` is the last failure that was retried."""
        overdue = str(OverdueError())
        if self.command == "promote":
            message = f"the promotion in `{self.target.repository_uri}` was stopped: {overdue}"
            return self._failure(message, (), f"run {self.retry} again")
        return self._failure(
            f"the push to `{self.target.repository_uri}` was stopped: {overdue}",
            (("previous attempt", before),) if before else (),
            self._resume_hint,
        )

    def incomplete(self, absent: Sequence[Descriptor], count: int) -> PublishError:
        """The registry accepted the manifest, but lacks some of its `count` blobs."""
        message = (
            f"`{self.target.repository_uri}` accepted the push, but lacks {len(absent)} of {count} blobs"
        )
        facts = tuple((f"blob {number}", blob.digest) for number, blob in enumerate(absent, 1))
        hint = f"run {self.retry} again to upload the missing blobs"
        return PublishError(message, facts=(("digest", self.target.digest), *facts), hint=hint)

    def tag_missing(self) -> PublishError:
        """A successful push left no tag."""
        message = f"`{self.target.repository_uri}` accepted the push, but has no tag `{self.target.tag}`"
        return PublishError(message, hint=f"run {self.retry} again")

    def damaged(self, diff_id: Digest) -> PublishError:
        """A file of the layer cache was changed on disk, and is removed."""
        message = f"the compressed layer {short(diff_id)} in the cache was damaged; it was removed"
        return PublishError(message, hint=f"run {self.retry} to compress it again")

    def candidate_gone(self) -> PublishError:
        """The candidate is no longer in the registry."""
        message = f"`{self.target.repository_uri}` no longer has the candidate {short(self.target.digest)}"
        hint = f"run `bake push --candidate {self.target.image}` again"
        return PublishError(message, hint=hint)

    def _not_logged_in(self, text: str) -> RegistryAuthError:
        principal = self._registry.principal()
        reason = Reason(f"it answered {principal}: {text}" if principal else f"not logged in: {text}")
        hint = f"log in, then run {self.retry}; the built image is reused"
        message = f"`{self._registry.host}` does not accept the credentials"
        return RegistryAuthError(message, reasons=(reason,), hint=hint)

    def _not_allowed(self, text: str) -> RegistryAuthError:
        reasons = (
            self._denied(text),
            Reason(f"no tag was set; the image is built as {short(self.target.digest)}"),
        )
        hint = f"use credentials with push permission, then run {self.retry}; the built image is reused"
        message = f"not allowed to push to `{self.target.repository_uri}`"
        return RegistryAuthError(message, reasons=reasons, hint=hint)

    def _not_allowed_to_read(self, text: str) -> RegistryAuthError:
        permissions = "`ecr:BatchGetImage` and `ecr:GetDownloadUrlForLayer` on Amazon ECR"
        hint = f"use credentials with read permission ({permissions}), then run {self.retry}"
        message = f"not allowed to read from `{self.target.repository_uri}`"
        return RegistryAuthError(message, reasons=(self._denied(text),), hint=hint)

    def _denied(self, text: str) -> Reason:
        principal = self._registry.principal()
        return Reason(
            f"{principal} is valid but not authorized: {text}" if principal else f"not logged in: {text}"
        )

    def _failure(self, message: str, facts: tuple[tuple[str, str], ...], hint: str = "") -> PublishError:
        """Failure for which a problem on this side may be the reason."""
        return PublishError(message, reasons=self._registry.known_problems(), facts=facts, hint=hint)


def diagnostics_of(record: ReleaseRecord, remote: Repository, command: str) -> PushDiagnostics:
    """Return the errors of requests for a recorded image to one of its repositories."""
    target = ReleaseTarget(
        image=record.image,
        key=ImageKey(record.key),
        digest=Digest(record.digest),
        registry=remote.registry,
        repository=remote.name,
        tag=record.tags[0],
        platform=record.platform,
    )
    return PushDiagnostics(target, command)
