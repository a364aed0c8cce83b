"""The gate of releases: an image must have passed its checks and be reproducible from its pins."""

from bakehouse.builder.built_image import BuiltImage
from bakehouse.errors import NotReleasableError, Problems, Reason
from bakehouse.evidence.known_checks import KnownChecks
from bakehouse.ledger.releases import ReleaseRecord
from bakehouse.plan.model import Image
from bakehouse.plan.unpinned import unpinned_inputs


def check_releasable(built: BuiltImage, state: KnownChecks, *, candidate: bool) -> None:
    """Raise NotReleasableError for a rehearsed or unpinned image, or an untested one unless `candidate`."""
    name = built.image.name
    if built.is_rehearsed:
        raise NotReleasableError(
            f"`{name}` was rehearsed, not built: it contains stubs", hint=f"run `bake release {name}`"
        )
    check_pinned(built.image)
    reasons = state.blockers if state.content == built.content else ("its results are of another build",)
    if reasons and not candidate:
        raise NotReleasableError(
            f"`{name}` has not passed its smoke test",
            reasons=tuple(map(Reason, reasons)),
            facts=(("content", built.content),),
            hint=f"run `bake smoke {name}`, or publish it as a candidate with `bake push --candidate {name}`",
        )


def check_pinned(image: Image) -> None:
    """Raise NotReleasableError for unpinned inputs, with which the image cannot be built again."""
    problems = Problems()
    problems.extend(item.diagnostic for item in unpinned_inputs(image) if item.problem)
    problems.raise_as(NotReleasableError)


def check_candidate(candidate: ReleaseRecord, state: KnownChecks) -> None:
    """Raise NotReleasableError for a candidate that has not passed its checks."""
    if candidate.candidate and state.blockers:
        facts = (("candidate", candidate.image_uri),)
        raise NotReleasableError(
            f"`{candidate.image}` cannot be released yet",
            reasons=tuple(map(Reason, state.blockers)),
            facts=facts,
            hint=(
                f"run `bake smoke {candidate.image} --image-uri {candidate.image_uri} --report FILE` where "
                f"these checks can run, then `bake promote {candidate.image} --report FILE` here"
            ),
        )
