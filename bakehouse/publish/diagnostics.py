"""What to tell when an image is not published: facts that were checked, and what to do now."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bakehouse.errors import Diagnostic, PublishError, Reason, RegistryAuthError, TagTakenError
from bakehouse.plan.model import ImageKey
from bakehouse.registry.http_errors import RegistryError, Unreached
from bakehouse.registry.manifest import FORMS, Descriptor, Form, Origin, short
from bakehouse.registry.registry import Registry
from bakehouse.registry.transfer import Fault, TransferError, fault_in
from bakehouse.util.oci import Digest


@dataclass(frozen=True, slots=True)
class PushDiagnostics:
    """The failures of one publication, in words."""

    name: str
    """The image's."""
    key: ImageKey
    digest: Digest
    registry: Registry
    repository: str
    tag: str
    command: str = "push"
    """What is tried."""
    form: Form = FORMS["docker"]
    """What its recipe asks for."""
    revision: str = ""
    """The commit that is published from."""
    history: Callable[[Digest], str] = lambda digest: ""
    """What the ledger says of a digest."""

    @property
    def place(self) -> str:
        return f"{self.registry.host}/{self.repository}"

    @property
    def again(self) -> str:
        return f"`bake {self.command} {self.name}`"

    def tag_taken(self, there: Digest, origin: Origin, pushed: str) -> TagTakenError:
        """An immutable tag names something else: nothing is overwritten.

        `pushed` is what the registry knows of when and by whom.
        """
        told = (
            ("pushed", pushed),
            ("ledger", self.history(there)),
            ("revision", origin.revision),
            ("made", origin.created),
            ("by", origin.authors),
        )
        return TagTakenError(
            Diagnostic(
                f"tag `{self.tag}` is taken by a different image",
                reasons=(Reason(self._cause(origin)),),
                facts=(
                    ("in repository", self.place),
                    ("there", there),
                    *((f"there, {name}", value) for name, value in told if value),
                    ("here", self.digest),
                    *((("here, revision", self.revision),) if self.revision else ()),
                    ("to use it", f"{self.place}@{there}"),
                ),
                hint="use the one already there, or push under tomorrow's tag",
            )
        )

    def _cause(self, origin: Origin) -> str:
        if origin.key == self.key:
            return (
                f"both have the plan key {self.key[:8]} but different content: the build is not reproducible"
            )
        if origin.key:
            return f"what is there was built from another plan, {origin.key[:8]}"
        return "what is there carries no label of Bakehouse: something else pushed it"

    def unfit(self, reasons: tuple[Reason, ...], *, pushed: bool) -> PublishError:
        """An image in another form than was asked for, which SageMaker would not take."""
        done = "it was pushed, and no release was recorded" if pushed else "nothing was pushed"
        message = f"`{self.name}` is not one linux/amd64 {self.form}"
        facts = (("digest", self.digest), ("so", done))
        hint = f"run `bake build {self.name}`, which makes it in that form"
        return PublishError(Diagnostic(message, reasons=reasons, facts=facts, hint=hint))

    def unanswered(self, error: RegistryError) -> PublishError:
        """The registry did not answer, or refused a question."""
        if error.status == 401:
            return self._not_logged_in(error.text)
        if error.status == 403:
            return self._not_allowed_to_read(error.text)
        host = self.registry.host
        match error.unreached:
            case Unreached.NAME:
                return PublishError(Diagnostic(f"no address is known for `{host}`", hint=self._spelling))
            case Unreached.TRUST:
                facts = (("because", error.text),)
                return PublishError(Diagnostic(f"`{host}` is not trusted", facts=facts, hint=self._trusting))
        hint = ""
        if error.status is None:
            message, said = f"`{host}` does not answer", error.text
            hint = f"see whether it runs, and whether this machine reaches it; then {self.again}"
        else:
            message, said = f"`{host}` failed", f"HTTP {error.status}: {error.text}"
        return PublishError(
            self._with_known_problems(Diagnostic(message, facts=(("answer", said),), hint=hint))
        )

    def untagged(self, error: RegistryError) -> PublishError:
        """The registry did not let a tag be set on what it holds."""
        if error.status != 403:
            return self.unanswered(error)
        hint = f"use credentials with push rights, then {self.again}"
        message = f"not allowed to set a tag in `{self.place}`"
        return RegistryAuthError(Diagnostic(message, reasons=(self._may_not(error.text),), hint=hint))

    @property
    def _spelling(self) -> str:
        name = self.registry.host.partition(":")[0]
        return f"compare the name with the registry's own; `getent hosts {name}` asks for its address"

    @property
    def _trusting(self) -> str:
        authority = f"/etc/docker/certs.d/{self.registry.host}/ca.crt"
        return f"give its authority to the engine, as {authority}, and to Bakehouse, by REQUESTS_CA_BUNDLE"

    def broken_off(
        self, error: TransferError, said: RegistryError | None, attempts: int, before: str = ""
    ) -> PublishError:
        """A transfer failed for good; `said` is what the registry itself says of a new one.

        `before` is how the attempt before ended, which tells why there was a second.
        """
        text = said.text if said else error.text
        full = said and fault_in(said.text) is Fault.FULL
        host = self.registry.host
        match Fault.FULL if full else error.fault:
            case Fault.FULL:
                message = f"`{self.place}` is full: a quota, or the registry's disk, lets no more in"
                hint = f"make room there or have the quota raised, then {self.again}"
                return PublishError(
                    self._with_known_problems(Diagnostic(message, facts=self._words(error, said), hint=hint))
                )
            case Fault.NAME:
                message = f"the engine finds no address for `{host}`"
                facts = (("engine", error.text),)
                return PublishError(Diagnostic(message, facts=facts, hint=self._spelling))
            case Fault.TRUST:
                message = f"the engine does not trust `{host}`"
                facts = (("engine", error.text),)
                return PublishError(Diagnostic(message, facts=facts, hint=self._trusting))
            case Fault.CORRUPTED:
                message = f"what arrives at `{self.place}` is not what was sent, {attempts} times"
                hint = "look at what lies between here and the registry: a proxy, a cable, a disk there"
                return PublishError(Diagnostic(message, facts=self._words(error, said), hint=hint))
            case Fault.UNAUTHORIZED:
                return self._not_logged_in(text)
            case Fault.DENIED:
                return self._not_allowed(text)
            case Fault.NOT_FOUND:
                message = f"the engine no longer holds {short(self.digest)}, the image that was tested"
                hint = f"run `bake release {self.name}`"
                return PublishError(Diagnostic(message, hint=hint))
            case Fault.MISSING:
                message = f"there is no repository `{self.repository}` in `{host}`"
                hint = f"make it there, then {self.again}"
                return PublishError(Diagnostic(message, facts=self._words(error, said), hint=hint))
            case Fault.STALLED:
                message = f"the push to `{self.place}` stalled and was stopped: {error.text}"
                hint = f"run {self.again} again: layers that arrived are not sent twice"
                return PublishError(self._with_known_problems(Diagnostic(message, hint=hint)))
            case Fault.TIMED_OUT:
                message = f"the push to `{self.place}` was stopped: {error.text}"
                words = (("before", before),) if before else ()
                hint = f"run {self.again} again: layers that arrived are not sent twice"
                return PublishError(self._with_known_problems(Diagnostic(message, facts=words, hint=hint)))
            case _:
                tries = f" after {attempts} attempts" if attempts > 1 else ""
                message = f"the push to `{self.place}` failed{tries}"
                hint = f"ask whoever runs the registry what its log says of it, then {self.again}"
                if error.fault is Fault.TRANSIENT:
                    hint = (
                        f"look at the registry's log and its disk, then run {self.again} again: "
                        "layers that arrived are not sent twice"
                    )
                return PublishError(
                    self._with_known_problems(Diagnostic(message, facts=self._words(error, said), hint=hint))
                )

    @staticmethod
    def _words(error: TransferError, said: RegistryError | None) -> tuple[tuple[str, str], ...]:
        pause = f"{said.retry_after:.0f} s" if said and said.retry_after else ""
        words = (
            ("engine", error.text),
            ("registry", said.text if said else ""),
            ("wants a pause", pause),
        )
        return tuple((name, text) for name, text in words if text)

    def overdue(self) -> PublishError:
        """The deadline came."""
        if self.command == "promote":
            message = f"the promotion in `{self.place}` was stopped: the time for it was over"
            return PublishError(
                self._with_known_problems(Diagnostic(message, hint=f"run {self.again} again"))
            )
        return self.broken_off(TransferError(Fault.TIMED_OUT, "the time for it was over"), None, 1)

    def incomplete(self, absent: Sequence[Descriptor], count: int) -> PublishError:
        """The registry took the manifest, but lacks some of the `count` things that it names."""
        message = f"`{self.place}` took the push, but lacks {len(absent)} of its {count} parts"
        facts = tuple((f"part {number}", part.digest) for number, part in enumerate(absent, 1))
        hint = f"run {self.again} again: what is missing is sent again"
        return PublishError(Diagnostic(message, facts=(("digest", self.digest), *facts), hint=hint))

    def sent_another(self, sent: Digest) -> PublishError:
        """The engine pushed something else than what was tested."""
        facts = (("tested", self.digest), ("pushed", sent))
        hint = "use an engine with the containerd image store: run `bake doctor`"
        message = "the engine pushes another manifest than was tested"
        return PublishError(Diagnostic(message, facts=facts, hint=hint))

    def not_there(self) -> PublishError:
        """A push that counts as done left nothing."""
        message = f"`{self.place}` took the push, but has nothing under `{self.tag}`"
        return PublishError(Diagnostic(message, hint=f"run {self.again} again"))

    def candidate_gone(self) -> PublishError:
        """What was staged is no longer in the registry."""
        message = f"`{self.place}` no longer holds {short(self.digest)}, the candidate"
        return PublishError(Diagnostic(message, hint=f"run `bake push --candidate {self.name}` again"))

    def _not_logged_in(self, said: str) -> RegistryAuthError:
        principal = self.registry.principal()
        reason = Reason(
            f"it answered to {principal}: {said}" if principal else f"nobody is logged in there: {said}"
        )
        hint = f"log in, then {self.again}: what was built is reused"
        message = f"`{self.registry.host}` does not accept the credentials"
        return RegistryAuthError(Diagnostic(message, reasons=(reason,), hint=hint))

    def _not_allowed(self, said: str) -> RegistryAuthError:
        reasons = (
            self._may_not(said),
            Reason(f"no tag was set; the image is built, as {short(self.digest)}"),
        )
        hint = f"use credentials with push rights, then {self.again}: what was built is reused"
        message = f"not allowed to push to `{self.place}`"
        return RegistryAuthError(Diagnostic(message, reasons=reasons, hint=hint))

    def _not_allowed_to_read(self, said: str) -> RegistryAuthError:
        rights = "`ecr:BatchGetImage` and `ecr:GetDownloadUrlForLayer` on Amazon ECR"
        hint = f"use credentials that may also read there ({rights}), then {self.again}"
        message = f"not allowed to read from `{self.place}`"
        return RegistryAuthError(Diagnostic(message, reasons=(self._may_not(said),), hint=hint))

    def _may_not(self, said: str) -> Reason:
        principal = self.registry.principal()
        return Reason(
            f"{principal} is valid, but may not: {said}"
            if principal
            else f"nobody is logged in there: {said}"
        )

    def _with_known_problems(self, diagnostic: Diagnostic) -> Diagnostic:
        known_problems = self.registry.known_problems()
        return Diagnostic(
            diagnostic.message, reasons=known_problems, facts=diagnostic.facts, hint=diagnostic.hint
        )
