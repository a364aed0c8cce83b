"""What to tell when an image is not published: facts that were checked, and what to do now."""

from dataclasses import dataclass

from bakehouse.distribution import DistributionError
from bakehouse.errors import Diagnostic, PublishError, Reason, RegistryAuthError, TagTakenError
from bakehouse.manifests import FORMS, Form, short
from bakehouse.plan import Digest, ImageKey
from bakehouse.registry import Registry
from bakehouse.transfer import Fault, TransferError


@dataclass(frozen=True, slots=True)
class Refusals:
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

    @property
    def place(self) -> str:
        return f"{self.registry.host}/{self.repository}"

    @property
    def again(self) -> str:
        return f"`./bake {self.command} {self.name}`"

    def tag_taken(self, there: Digest) -> TagTakenError:
        """An immutable tag names something else: nothing is overwritten."""
        key = self.key[:8]
        cause = f"both have the plan key {key} but different content: the build is not reproducible"
        return TagTakenError(
            Diagnostic(
                f"tag `{self.tag}` is taken by a different image",
                reasons=(Reason(cause),),
                facts=(
                    ("in repository", self.place),
                    ("there", there),
                    ("here", self.digest),
                    ("to use it", f"{self.place}@{there}"),
                ),
                hint="use the one already there, or push under tomorrow's tag",
            )
        )

    def unfit(self, reasons: tuple[Reason, ...], *, pushed: bool) -> PublishError:
        """An image in another form than was asked for, which SageMaker would not take."""
        done = "it was pushed, and no release was recorded" if pushed else "nothing was pushed"
        message = f"`{self.name}` is not one linux/amd64 {self.form}"
        facts = (("digest", self.digest), ("so", done))
        hint = f"run `./bake build {self.name}`, which makes it in that form"
        return PublishError(Diagnostic(message, reasons=reasons, facts=facts, hint=hint))

    def unanswered(self, error: DistributionError) -> PublishError:
        """The registry did not answer, or refused a question."""
        if error.status == 401:
            return self._not_logged_in(error.text)
        if error.status == 403:
            return self._not_allowed(error.text)
        if error.status is None:
            message, said = f"`{self.registry.host}` does not answer", error.text
        else:
            message, said = f"`{self.registry.host}` failed", f"HTTP {error.status}: {error.text}"
        return PublishError(self._with_troubles(Diagnostic(message, facts=(("answer", said),))))

    def broken_off(self, error: TransferError, said: DistributionError | None, attempts: int) -> PublishError:
        """A transfer failed for good; `said` is what the registry itself says of a new one."""
        text = said.text if said else error.text
        match error.fault:
            case Fault.UNAUTHORIZED:
                return self._not_logged_in(text)
            case Fault.DENIED:
                return self._not_allowed(text)
            case Fault.GONE:
                message = f"the engine no longer holds {short(self.digest)}, the image that was tested"
                hint = f"run `./bake release {self.name}`"
                return PublishError(Diagnostic(message, hint=hint))
            case Fault.STALLED:
                message = f"the push to `{self.place}` stalled and was stopped: {error.text}"
                hint = f"run {self.again} again: layers that arrived are not sent twice"
                return PublishError(self._with_troubles(Diagnostic(message, hint=hint)))
            case Fault.LATE:
                message = f"the push to `{self.place}` was stopped: {error.text}"
                hint = f"run {self.again} again: layers that arrived are not sent twice"
                return PublishError(self._with_troubles(Diagnostic(message, hint=hint)))
            case _:
                tries = f" after {attempts} attempts" if attempts > 1 else ""
                message = f"the push to `{self.place}` failed{tries}"
                facts = [("engine", error.text)]
                if said:
                    facts.append(("registry", said.text))
                return PublishError(self._with_troubles(Diagnostic(message, facts=tuple(facts))))

    def sent_another(self, sent: Digest) -> PublishError:
        """The engine pushed something else than what was tested."""
        facts = (("tested", self.digest), ("pushed", sent))
        hint = "use an engine with the containerd image store: see `./bake doctor`"
        message = "the engine pushes another manifest than was tested"
        return PublishError(Diagnostic(message, facts=facts, hint=hint))

    def not_there(self) -> PublishError:
        """A push that counts as done left nothing."""
        message = f"`{self.place}` took the push, but has nothing under `{self.tag}`"
        return PublishError(Diagnostic(message, hint=f"run {self.again} again"))

    def candidate_gone(self) -> PublishError:
        """What was staged is no longer in the registry."""
        message = f"`{self.place}` no longer holds {short(self.digest)}, the candidate"
        return PublishError(Diagnostic(message, hint=f"run `./bake push --stage {self.name}` again"))

    def _not_logged_in(self, said: str) -> RegistryAuthError:
        whom = self.registry.whom()
        reason = Reason(f"it answered to {whom}: {said}" if whom else f"nobody is logged in there: {said}")
        hint = f"log in, then {self.again}: what was built is reused"
        message = f"`{self.registry.host}` does not accept the credentials"
        return RegistryAuthError(Diagnostic(message, reasons=(reason,), hint=hint))

    def _not_allowed(self, said: str) -> RegistryAuthError:
        whom = self.registry.whom()
        reasons = (
            Reason(f"{whom} is valid, but may not: {said}" if whom else f"nobody is logged in there: {said}"),
            Reason(f"nothing was pushed; the image is built, as {short(self.digest)}"),
        )
        hint = f"use credentials with push rights, then {self.again}: what was built is reused"
        message = f"not allowed to push to `{self.place}`"
        return RegistryAuthError(Diagnostic(message, reasons=reasons, hint=hint))

    def _with_troubles(self, diagnostic: Diagnostic) -> Diagnostic:
        troubles = self.registry.troubles()
        return Diagnostic(diagnostic.message, reasons=troubles, facts=diagnostic.facts, hint=diagnostic.hint)
