"""Error reports of conflicts: demands, the reasons against each candidate, and the closest alternatives."""

import difflib
import re
from collections import Counter
from collections.abc import Sequence

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.component import Release
from bakehouse.catalog.recipe import Recipe
from bakehouse.errors import ConflictError, Diagnostic, Location, Reason, Table
from bakehouse.resolve.alternatives import BUDGET, Alternative, Alternatives, AlternativeSearch, PinChange
from bakehouse.resolve.candidate import Candidate, Conflict, Demand, Refusal
from bakehouse.resolve.phrases import (
    demand_reason,
    group_predicate,
    group_text,
    grouped,
    is_because_of_target,
    is_version_excluded,
    location_text,
    opposing_reasons,
    reason_location,
    requirement_text,
    subject_text,
)
from bakehouse.resolve.relaxation import is_requested_variant
from bakehouse.util.format import format_count
from bakehouse.util.yaml_reader import Scalar

CALLS = 80
"""Calls of the resolver that look for alternatives of an unsatisfiable image."""
_BUDGET_OF_A_CALL = 5_000
_MAX_GROUPS = 3
_MAX_HINTS = 3
_MAX_PROVIDERS = 3
_MAX_ROWS = 10
_MAX_VARIANTS = 5


def conflict_error(conflict: Conflict, catalog: Catalog, calls: int = CALLS) -> ConflictError:
    """Return the error of a conflict: its demands, the reasons against candidates, and alternatives.

    With `calls=0` the report neither minimizes the conflict nor searches for alternatives.
    """
    search = AlternativeSearch(conflict.recipe, catalog, calls, budget=min(BUDGET, calls * _BUDGET_OF_A_CALL))
    message = f"no versions satisfy image `{conflict.recipe.name}` on {conflict.recipe.platform}"
    nearest = search.nearest(_MAX_HINTS) if calls else None
    return ConflictError.of(diagnostic(message, minimal_conflict(conflict, search), catalog, nearest))


def minimal_conflict(conflict: Conflict, search: AlternativeSearch) -> Conflict:
    """Return the conflict without pins that do not contribute to it."""
    return _most_informative(search.minimal_conflict() or conflict)


def first_reason(conflict: Conflict) -> Reason | None:
    """Return the first reason against the newest candidate."""
    informative = _most_informative(conflict)
    refusals = [refusal for refusal in informative.refusals if not is_version_excluded(refusal)]
    for group in grouped(refusals or informative.refusals)[:1]:
        return Reason(group_text(group), reason_location(group[0]))
    return None


def _most_informative(conflict: Conflict) -> Conflict:
    """Return the conflict that choosing a candidate leads to, if it explains more."""
    named = {requirement.name for requirement in conflict.recipe.components}
    refusals = [refusal for refusal in conflict.refusals if refusal.then]
    if conflict.name == conflict.recipe.base.name:
        # The base that the search tries first may fail for reasons of its own
        refusals.sort(key=_rank_of_base)
    deeper = [refusal.then for refusal in refusals if refusal.then]
    deeper.sort(key=lambda inner: inner.name not in named)
    others = [
        refusal for refusal in conflict.refusals if not refusal.then and not is_version_excluded(refusal)
    ]
    if not deeper or (others and deeper[0].name not in named and conflict.name != conflict.recipe.base.name):
        return conflict
    return _most_informative(deeper[0])


def _rank_of_base(refusal: Refusal) -> tuple[bool, bool, float]:
    """Return a sort key: a name lacks a provider, no target is at fault, how much the base is at fault."""
    refusals = refusal.then.refusals if refusal.then else ()
    lacks_provider = any(inner.then and not inner.then.refusals for inner in refusals)
    informative = [inner for inner in refusals if not is_version_excluded(inner)]
    blamed = [inner for inner in informative if refusal.candidate in (inner.other, *inner.others)]
    is_free_of_targets = not any(map(is_because_of_target, refusals))
    return lacks_provider, is_free_of_targets, len(blamed) / max(len(informative), 1)


def diagnostic(
    message: str, conflict: Conflict, catalog: Catalog, nearest: Alternatives | None
) -> Diagnostic:
    """Return the error of a conflict: its causes in order with their locations, and the best alternative."""
    location, label, reasons = _causes(conflict, _refusals(conflict, catalog))
    hint = alternatives_hint(nearest, conflict.recipe.name) if nearest else ""
    if any(refusal.packages for refusal in conflict.refusals) and not (nearest and _keeps_all(nearest)):
        hint = "run `bake lock` to lock versions that agree"
    return Diagnostic(message, location, label, reasons, hint=hint)


def diagnostic_with_candidates(message: str, conflict: Conflict, catalog: Catalog) -> Diagnostic:
    """Return the error of a conflict without a hint, but with a table of all candidates and the reasons."""
    if not conflict.refusals:
        return Diagnostic(message, *_causes(conflict, _refusals(conflict, catalog)))
    requested = _requested(conflict)
    groups = grouped(requested or conflict.refusals)
    # Candidates that provide different wrong versions of one name share a row
    others = [group for group in groups if _provides_other_version(group[0])]
    is_shortened = _MAX_GROUPS < len(others) < len(groups)
    shortened = Counter(group[0].name for group in others if is_shortened for _ in group)
    groups = [group for group in groups if not shortened or group not in others]
    facts = [
        fact
        for group in groups[:_MAX_GROUPS]
        for fact in (*opposing_reasons(group[0]), *_why_chosen(group[0], conflict, catalog))
    ]
    rows = [
        (subject_text(group), group_predicate(group), location_text(reason_location(group[0])))
        for group in groups[:_MAX_ROWS]
    ]
    if rest := sum(map(len, groups[_MAX_ROWS:])):
        rows.append((f"and {rest} more", "", ""))
    for name, count in shortened.items():
        rows.append((f"{count} others", f"provide another {name}", ""))
    excluded = [refusal for refusal in conflict.refusals if requested and refusal not in requested]
    if releases := {refusal.candidate.release.version for refusal in excluded}:
        rows.append((f"{len(releases)} other releases", "are outside the requested range", ""))
    tables = (Table(f"candidates for {conflict.name}", tuple(rows)),)
    return Diagnostic(message, *_causes(conflict, facts), tables=tables)


def _provides_other_version(refusal: Refusal) -> bool:
    """Return whether a candidate provides a version that the recipe itself excludes."""
    demand = refusal.demand
    return demand is not None and demand.required_by is None and refusal.name != refusal.candidate.name


def _causes(conflict: Conflict, facts: list[Reason]) -> tuple[Location, str, tuple[Reason, ...]]:
    """Return the location, its label, and the reasons, each once; the label is not repeated as a reason."""
    location, label, chain = _head(conflict)
    facts = [*chain, *_demands(conflict), *facts]
    base = conflict.recipe.base
    mentions = re.compile(rf"\b{re.escape(base.name)} [0-9]")
    glob = conflict.recipe.variants.get(base.name)
    of_base = (base.location, glob.location if glob else None)
    is_mentioned = any(mentions.search(fact.text) for fact in facts)
    pinned = [
        reason for reason in _image_demands(conflict.recipe) if is_mentioned or reason.location not in of_base
    ]
    reasons = (reason for reason in (*pinned, *facts) if reason.location != location)
    return location, label, tuple(dict.fromkeys(reasons))


def alternatives_hint(nearest: Alternatives, image: str) -> str:
    """Return the alternatives with the fewest changes as a hint; of these, the ones that drop least."""
    fewest = min((alternative.rank[:2] for alternative in nearest.alternatives), default=(0, 0))
    best = [alternative for alternative in nearest.alternatives if alternative.rank[:2] == fewest]
    # Alternatives with new values come first, and their verb is not repeated
    best = sorted(best[:_MAX_HINTS], key=lambda alternative: not _new_values(alternative))
    hints = [_hint(alternative, image, "" if number else "use ") for number, alternative in enumerate(best)]
    return ", or ".join(hints)


def _keeps_all(nearest: Alternatives) -> bool:
    """Return whether an alternative drops no component."""
    return any(alternative.rank[1] == 0 for alternative in nearest.alternatives)


def _new_values(alternative: Alternative) -> list[PinChange]:
    return [change for change in alternative.changes if change.value]


def _hint(alternative: Alternative, image: str, verb: str) -> str:
    values = [_value(change) for change in _new_values(alternative)]
    drops = [f"`{change.pin.name}`" for change in alternative.changes if change.is_dropped]
    hints = [f"{verb}{' and '.join(values)}"] if values else []
    hints += [f"leave out {' and '.join(drops)}"] if drops else []
    if any(change.pin.kind == "lock" for change in alternative.changes):
        hints.append(f"run `bake lock {image}` to update the lock of the requirements")
    if any(change.pin.kind == "requirements" for change in alternative.changes):
        hints.append("change the versions in the requirements, and lock them again")
    return ", and ".join(hints)


def _value(change: PinChange) -> str:
    """Return a new value of a pin as recipes or the command line write it."""
    pin = change.pin
    if change.base:
        return f'`base: {{{change.base}: "{change.value}"}}`'
    if pin.is_given_by_command:
        return f"`--assume {pin.name}={change.value}`"
    if change.is_added:
        return f'the component `{pin.name}: "{change.value}"`'
    if pin.kind == "driver":
        return f"a host with driver {change.value}"
    if pin.kind == "variant":
        return f"variant `{change.value}` of {pin.name}"
    entry = f'{pin.name}: "{change.value}"'
    return f"`base: {{{entry}}}`" if pin.kind == "base" else f"`{entry}`"


def _head(conflict: Conflict) -> tuple[Location, str, list[Reason]]:
    """Return the line of the recipe where a conflict starts, its label, and the demands that follow."""
    pattern = conflict.recipe.variants.get(conflict.name)
    if pattern and not conflict.refusals:
        return pattern.location, f"no variant of {conflict.name} matches", []
    name, seen = conflict.name, set()
    chain: list[Reason] = []
    while name not in seen:
        seen.add(name)
        demands = [
            demand for demand in conflict.demands if demand.requirement.name == name and demand.is_required
        ]
        for demand in demands:
            if demand.required_by is None:
                location = demand.requirement.location
                value = requirement_text(demand.requirement) if demand.requirement.specifier else name
                return location, f"requests {value}" if location.line else "", chain[::-1]
        if not demands:
            break
        chain.append(demand_reason(demands[0]))
        name = demands[0].required_by.name if demands[0].required_by else name
    return conflict.recipe.location, "", chain[::-1]


def _image_demands(recipe: Recipe) -> list[Reason]:
    pinned = [requirement for requirement in (recipe.base, *recipe.components) if requirement.specifier]
    instances, driver = recipe.targets.instances, recipe.targets.driver
    return [
        *(demand_reason(Demand(requirement, None)) for requirement in pinned),
        *(Reason(f"the image targets {instance.text}", instance.location) for instance in instances),
        *([Reason(f"the host has driver {driver.text}", driver.location)] if driver else []),
        *(_variant_reason(name, glob) for name, glob in recipe.variants.items()),
    ]


def _variant_reason(name: str, glob: Scalar) -> Reason:
    if is_requested_variant(name, glob):
        return Reason(f"{_requester(glob.location)} variant `{glob.text}` of {name}", glob.location)
    return Reason(f"only builds `{glob.text}` of {name} are considered", glob.location)


def _requester(location: Location) -> str:
    return "the image requests" if location.line else "you requested"


def _demands(conflict: Conflict) -> list[Reason]:
    """Return the demands of chosen components on the missing name, and on names that candidates provide."""
    demands = [demand for demand in conflict.demands if demand.requirement.name == conflict.name]
    unmet = [(refusal.demand, refusal.candidate) for refusal in conflict.refusals if refusal.demand]
    demands += [demand for demand, candidate in unmet if demand.required_by != candidate]
    return [demand_reason(demand) for demand in demands if demand.required_by]


def _refusals(conflict: Conflict, catalog: Catalog) -> list[Reason]:
    if not conflict.refusals:
        return _without_candidates(conflict, catalog)
    groups = grouped(conflict.refusals)
    if len(groups) == 1 and is_version_excluded(groups[0][0]):
        if reasons := _without_variant(conflict, catalog):
            return reasons
        location = groups[0][0].candidate.release.location
        providers = _providers(conflict, catalog, fitting_only=True)
        return [
            Reason(f"the catalogue has {subject_text(groups[0])}", location),
            *(reason for reason in providers if reason.location),
        ]
    # Candidates outside the requested versions explain nothing
    informative = grouped(_requested(conflict)) or groups
    # Next to a known incompatibility, builds for another CUDA or Python explain nothing
    informative = [group for group in informative if group[0].incompatibility] or informative
    named = {requirement.name for requirement in conflict.recipe.components}
    informative.sort(key=lambda group: group[0].name in named and group[0].name != conflict.name)
    reasons = []
    for group in informative[:_MAX_GROUPS]:
        reasons.append(Reason(group_text(group), reason_location(group[0])))
        reasons += [*opposing_reasons(group[0]), *_why_chosen(group[0], conflict, catalog)]
    if rest := [refusal for group in informative[_MAX_GROUPS:] for refusal in group]:
        names = sorted({refusal.name for refusal in rest} - {conflict.name})[:_MAX_GROUPS]
        why = f" because of {', '.join(names)}" if names else ""
        builds = format_count(len(rest), "other build")
        verb = "does" if len(rest) == 1 else "do"
        reasons.append(Reason(f"{builds} of {conflict.name} {verb} not fit either{why}"))
    return reasons


def _requested(conflict: Conflict) -> list[Refusal]:
    """Return the refusals of candidates whose versions the recipe itself allows."""
    recipe = conflict.recipe
    requirements = [
        requirement for requirement in (recipe.base, *recipe.components) if requirement.name == conflict.name
    ]
    return [
        refusal
        for refusal in conflict.refusals
        if all(requirement.allows(refusal.candidate.release.version) for requirement in requirements)
    ]


def _why_chosen(refusal: Refusal, conflict: Conflict, catalog: Catalog) -> list[Reason]:
    """Return the demand that excludes all versions of a component that a candidate needs."""
    component = catalog.components.get(refusal.name)
    if not (refusal.demand and refusal.demand.required_by == refusal.candidate and component):
        return []
    needed = refusal.demand.requirement
    fitting = [release.version for release in component.releases if needed.allows(release.version)]
    others = [
        demand
        for demand in conflict.demands
        if demand.requirement.name == refusal.name and demand.required_by
    ]
    excluding = [demand for demand in others if not any(map(demand.requirement.allows, fitting))]
    return [demand_reason(demand) for demand in excluding[:1]]


def _without_candidates(conflict: Conflict, catalog: Catalog) -> list[Reason]:
    """Return why a name has no candidates."""
    name, recipe = conflict.name, conflict.recipe
    component = catalog.components.get(name)
    if component is None:
        return _providers(conflict, catalog)
    if component.is_base and name != recipe.base.name:
        return [Reason(f"{name} is a base, but the image's base is {recipe.base.name}", component.location)]
    demands = [demand for demand in conflict.demands if demand.requirement.name == name]
    requested = [
        release
        for release in component.releases
        if all(demand.requirement.allows(release.version) for demand in demands)
    ]
    releases = requested or component.releases
    return [_variants_of(releases, name, component.location, recipe.variants.get(name))]


def _variants_of(
    releases: Sequence[Release], subject: str, location: Location, pattern: Scalar | None
) -> Reason:
    """Return the existing variants; of many, the ones most similar to the requested name."""
    names = [
        *dict.fromkeys(variant.name for release in releases for variant in release.variants if variant.name)
    ]
    near = difflib.get_close_matches(pattern.text if pattern else "", names, _MAX_VARIANTS, 0)
    shown = names if len(names) <= _MAX_VARIANTS else near
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return Reason(
        f"{subject} has the variants {', '.join(shown)}{more}" if names else f"{subject} has no variants",
        location,
    )


def _without_variant(conflict: Conflict, catalog: Catalog) -> list[Reason]:
    """Return the variants of the requested release if none has the requested name."""
    component, pattern = catalog.components.get(conflict.name), conflict.recipe.variants.get(conflict.name)
    demands = [demand for demand in conflict.demands if demand.requirement.name == conflict.name]
    for release in component.releases if component and pattern else ():
        if all(demand.requirement.allows(release.version) for demand in demands):
            if pattern and not any(variant.matches(pattern.text) for variant in release.variants):
                subject = f"{conflict.name} {release.version}"
                return [_variants_of([release], subject, release.location, pattern)]
            break
    return []


def _providers(conflict: Conflict, catalog: Catalog, *, fitting_only: bool = False) -> list[Reason]:
    """Return the candidates that provide a name which is not a component: the first of each component."""
    name, base = conflict.name, conflict.recipe.base.name
    demands = [demand for demand in conflict.demands if demand.requirement.name == name]
    providing = [
        (Candidate(component, release, variant), variant.spec.provides[name])
        for component in catalog.components.values()
        for release in component.releases
        for variant in release.variants
        if name in variant.spec.provides
    ]
    fitting = [
        (candidate, version)
        for candidate, version in providing
        if all(demand.requirement.allows(version) for demand in demands)
    ]
    reasons = [Reason(f"nothing in the image provides {name}")] if fitting else []
    shown = fitting if fitting or fitting_only else providing
    for candidate, version in {pair[0].name: pair for pair in reversed(shown)}.values():
        other = ", another base," if candidate.component.is_base and candidate.name != base else ""
        verb = "would provide" if fitting else "provides"
        reasons.append(Reason(f"{candidate}{other} {verb} {name} {version}", candidate.variant.location))
    return reasons[: _MAX_PROVIDERS + 1]
