"""Release gate: a release must have passed its smoke test and be reproducible from its pins."""

from bakehouse.builder.built_image import BuiltImage
from bakehouse.cluster.smoke_report import SmokeReport, release_blockers
from bakehouse.errors import NotReleasableError, Problems, Reason
from bakehouse.ledger.releases import ReleaseRecord
from bakehouse.plan.model import Image
from bakehouse.plan.unpinned import unpinned_inputs
from bakehouse.registry.manifest import short


def is_tested(built: BuiltImage, report: SmokeReport | None) -> bool:
    """Return whether this digest passed all required checks."""
    return (
        report is not None
        and report.digest == built.digest
        and not release_blockers(report, built.image.required, built.image.smoke)
    )


def check_releasable(built: BuiltImage, report: SmokeReport | None, *, candidate: bool) -> None:
    """Raise NotReleasableError for a rehearsed or unpinned image, or an untested one unless `candidate`."""
    if built.is_rehearsed:
        raise NotReleasableError(
            f"`{built.image.name}` was rehearsed, not built: it contains stubs",
            hint=f"run `bake release {built.image.name}`",
        )
    check_pinned(built.image)
    if not candidate:
        check_tested(built, report)


def check_pinned(image: Image) -> None:
    """Raise NotReleasableError for unpinned inputs, with which the image cannot be built again."""
    problems = Problems()
    problems.extend(item.diagnostic for item in unpinned_inputs(image) if item.problem)
    problems.raise_as(NotReleasableError)


def check_tested(built: BuiltImage, report: SmokeReport | None) -> None:
    """Raise NotReleasableError for an image that has not passed its required checks."""
    if is_tested(built, report):
        return
    name = built.image.name
    here = short(built.digest)
    facts: tuple[tuple[str, str], ...] = ()
    if report is None:
        reasons: tuple[str, ...] = (f"no smoke test of {here} is recorded",)
    elif report.digest != built.digest:
        reasons = ("the recorded smoke test is of another build",)
        facts = (("tested", report.digest), ("built", built.digest))
    else:
        reasons = release_blockers(report, built.image.required, built.image.smoke)
        facts = (("digest", built.digest),)
    raise NotReleasableError(
        f"`{name}` has not passed its smoke test",
        reasons=tuple(map(Reason, reasons)),
        facts=facts,
        hint=f"run `bake smoke {name}`, or publish it as a candidate with `bake push --candidate {name}`",
    )


def check_candidate(candidate: ReleaseRecord, report: SmokeReport | None, image: Image) -> None:
    """Raise NotReleasableError for a candidate that has not passed its required checks."""
    if candidate.candidate and (reasons := release_blockers(report, image.required, image.smoke)):
        facts = (("candidate", candidate.image_uri),)
        raise NotReleasableError(
            f"`{candidate.image}` cannot be released yet",
            reasons=tuple(Reason(text) for text in reasons),
            facts=facts,
            hint=(
                f"run `bake smoke {candidate.image} --image-uri {candidate.image_uri} --report FILE` where "
                f"these checks can run, then `bake promote {candidate.image} --report FILE` here"
            ),
        )
