"""Conflicts between two assumptions alone, on any base and whatever else an image contains."""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from itertools import permutations
from pathlib import Path

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.component import Requirement
from bakehouse.catalog.recipe import Recipe, Targets
from bakehouse.errors import Location, Reason
from bakehouse.resolve.candidate import Candidate, Conflict, Demand, Refusal
from bakehouse.resolve.phrases import demand_reason, owner_text
from bakehouse.resolve.relaxation import COMMAND, is_requested_variant
from bakehouse.util.yaml_reader import Scalar


def direct_conflict(recipe: Recipe, catalog: Catalog) -> Conflict | None:
    """Return the conflict of two assumptions that exclude each other on any base.

    A search on a base can end at the base's own content first, which the assumptions do not name.
    """
    for requirement, assumed in permutations(recipe.components, 2):
        versions = provided_versions(assumed, catalog)
        glob = recipe.variants.get(requirement.name)
        # A build that follows from another assumption is not needed for most conflicts
        globs = [glob] if glob and is_requested_variant(requirement.name, glob) else [None, glob]
        for pattern in dict.fromkeys(globs) if versions else ():
            candidates = _candidates(requirement, pattern, catalog)
            refusals = _refusals(candidates, assumed, versions, catalog)
            if candidates and len(refusals) == len(candidates):
                pair = (requirement, assumed)
                return Conflict(
                    recipe=replace(
                        recipe,
                        base=replace(recipe.base, location=Location(Path("--assume"), COMMAND, COMMAND)),
                        components=pair,
                        variants={requirement.name: pattern} if pattern else {},
                        targets=Targets(),
                    ),
                    name=requirement.name,
                    demands=tuple(Demand(part, None) for part in pair),
                    _reasons=partial(tuple, refusals),
                )
    return None


def _refusals(
    candidates: list[Candidate], assumed: Requirement, versions: set[str], catalog: Catalog
) -> list[Refusal]:
    """Return why candidates do not fit an assumption, those that it excludes itself first.

    The others are builds for something else, if each needs a component that the excluded ones do not need.
    """
    by_candidate = [
        (candidate, _direct_refusal(candidate, assumed, versions, catalog)) for candidate in candidates
    ]
    common = {
        requirement.name
        for candidate, refusal in by_candidate
        if refusal
        for requirement in candidate.spec.requires
    }
    refusals = []
    for candidate, refusal in by_candidate:
        others = (needed for needed in candidate.spec.requires if needed.name not in {*common, assumed.name})
        other = next((needed for needed in others if needed.name in catalog.components), None)
        if refusal is None and common and other:
            refusal = Refusal(candidate, other.name, Demand(other, candidate))
        refusals += [refusal] if refusal else []
    return sorted(refusals, key=lambda refusal: refusal.name not in (assumed.name, refusal.candidate.name))


def _candidates(requirement: Requirement, glob: Scalar | None, catalog: Catalog) -> list[Candidate]:
    """Return the candidates of a component that a requirement and a pattern of variants allow."""
    component = catalog.components.get(requirement.name)
    return [
        Candidate(component, release, variant)
        for release in (component.releases if component else ())
        if component and requirement.allows(release.version)
        for variant in release.variants
        if glob is None or variant.matches(glob.text)
    ]


def direct_reasons(
    conflict: Conflict, recipe: Recipe, assumptions: Iterable[Requirement], catalog: Catalog
) -> list[Reason]:
    """Return why components of a recipe fit no assumed version, whatever else the image contains.

    The search may end at another conflict first, such as the CUDA of a base.
    """
    reasons = []
    reported = {(refusal.candidate.name, refusal.name) for refusal in conflict.refusals}
    for assumed in assumptions:
        versions = provided_versions(assumed, catalog)
        for requirement in (recipe.base, *recipe.components):
            if not versions or requirement.name == assumed.name:
                continue
            if (requirement.name, assumed.name) in reported:
                continue
            candidates = _candidates(requirement, recipe.variants.get(requirement.name), catalog)
            refusals = [_direct_refusal(candidate, assumed, versions, catalog) for candidate in candidates]
            pairs = [(refusal.candidate, _direct_reason(refusal)) for refusal in refusals if refusal]
            # Reasons that differ from one candidate to the next are in the table.
            texts = {reason.text.removeprefix(str(candidate)) for candidate, reason in pairs}
            if len(texts) == 1 and all(refusals):
                reasons.append(pairs[0][1])
    return reasons


def provided_versions(assumed: Requirement, catalog: Catalog) -> set[str]:
    """Return the versions in the catalogue that an assumption allows."""
    versions: set[str | None] = set()
    for component in catalog.components.values():
        for release in component.releases:
            provided = {variant.spec.provides.get(assumed.name) for variant in release.variants}
            versions |= {release.version} if component.name == assumed.name else provided - {None}
    return {version for version in versions if version and assumed.allows(version)}


def _direct_refusal(
    candidate: Candidate, assumed: Requirement, versions: set[str], catalog: Catalog
) -> Refusal | None:
    """Return why a candidate fits none of some versions; None if it may fit one."""
    name, spec = assumed.name, candidate.spec
    if name in candidate.provided and not assumed.allows(candidate.provided[name]):
        return Refusal(candidate, name, Demand(assumed, None))
    for requirement in (*spec.constraints, *spec.requires):
        if requirement.name == name and not any(map(requirement.allows, versions)):
            demand = Demand(requirement, candidate, is_required=requirement in spec.requires)
            return Refusal(candidate, name, demand, next(iter(_candidates(assumed, None, catalog)), None))
    for conflict in spec.conflicts:
        [part, *others] = conflict.parts
        if conflict.is_error and not others and part.name == name and all(map(part.allows, versions)):
            involved = tuple(_candidates(assumed, None, catalog)[:1])
            return Refusal(candidate, candidate.name, incompatibility=conflict, others=involved)
    return None


def _direct_reason(refusal: Refusal) -> Reason:
    candidate, conflict, demand = refusal.candidate, refusal.incompatibility, refusal.demand
    if conflict:
        return Reason(f"{owner_text(candidate, conflict)}: {conflict.reason}", conflict.location)
    if demand and demand.required_by:
        return demand_reason(demand)
    provided = f"{candidate} provides {refusal.name} {candidate.provided[refusal.name]}"
    return Reason(provided, candidate.variant.location)
