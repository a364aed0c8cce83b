"""Finds the words for a Conflict: who asks for what, why no candidate fits, and what would."""

import difflib
import re
from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatchcase

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.component import Release
from bakehouse.catalog.recipe import Recipe
from bakehouse.errors import ConflictError, Diagnostic, Location, Reason, Table
from bakehouse.resolve.alternatives import EFFORT, Alternative, Alternatives, AlternativeSearch, PinChange
from bakehouse.resolve.candidate import Candidate, Conflict, Demand, Refusal
from bakehouse.resolve.phrases import (
    demand_reason,
    group_predicate,
    group_text,
    grouped,
    is_version_excluded,
    location_text,
    opposing_reasons,
    reason_location,
    requirement_text,
    subject_text,
)
from bakehouse.util.oci import PLATFORM
from bakehouse.util.yaml_reader import Scalar

CALLS = 80
"""How often the resolver is asked to find a way out for an image that does not fit."""
_EFFORT_OF_A_CALL = 5_000
_MOST_GROUPS = 3
_MOST_HINTS = 3
_MOST_BRINGING = 3
_MOST_ROWS = 10
_MOST_VARIANTS = 5


def conflict_error(conflict: Conflict, catalog: Catalog, calls: int = CALLS) -> ConflictError:
    """What was asked by whom, which candidates there are, why none of them fits, and what would.

    Without calls it is told as the resolver met it, which costs nothing.
    """
    search = AlternativeSearch(conflict.recipe, catalog, calls, effort=min(EFFORT, calls * _EFFORT_OF_A_CALL))
    message = f"no versions satisfy image `{conflict.recipe.name}` on {PLATFORM}"
    nearest = search.nearest(_MOST_HINTS) if calls else None
    return ConflictError(diagnostic(message, minimal_conflict(conflict, search), catalog, nearest))


def minimal_conflict(conflict: Conflict, search: AlternativeSearch) -> Conflict:
    """The same conflict without what has nothing to do with it."""
    found = search.told()
    return _telling(found if isinstance(found, Conflict) else conflict)


def first_reason(conflict: Conflict) -> Reason | None:
    """The first thing that keeps the newest candidate out."""
    told = _telling(conflict)
    refusals = [one for one in told.refusals if not is_version_excluded(one)] or told.refusals
    for group in grouped(refusals)[:1]:
        return Reason(group_text(group), reason_location(group[0]))
    return None


def _telling(conflict: Conflict) -> Conflict:
    """Where nothing fits once a part is chosen, what nothing fits for then tells more."""
    named = {one.name for one in conflict.recipe.components}
    deeper = [one.then for one in conflict.refusals if one.then]
    deeper.sort(key=lambda one: one.name not in named)
    others = [one for one in conflict.refusals if not one.then and not is_version_excluded(one)]
    if not deeper or (others and deeper[0].name not in named and conflict.name != conflict.recipe.base.name):
        return conflict
    return _telling(deeper[0])


def diagnostic(
    message: str, conflict: Conflict, catalog: Catalog, nearest: Alternatives | None
) -> Diagnostic:
    """A conflict's causes in order, each with its place; the hint is the nearest way out."""
    there, label, told = _causes(conflict, _refusals(conflict, catalog))
    hint = alternatives_hint(nearest, conflict.recipe.name) if nearest else ""
    if any(one.packages for one in conflict.refusals) and not (nearest and _moves(nearest)):
        hint = "make the locks again with `./bake lock`, for versions that agree"
    return Diagnostic(message, there, label, told, hint=hint)


def diagnostic_with_candidates(message: str, conflict: Conflict, catalog: Catalog) -> Diagnostic:
    """The same with all candidates in a table, each with what keeps it out, and no hint."""
    if not conflict.refusals:
        return Diagnostic(message, *_causes(conflict, _refusals(conflict, catalog)))
    wanted = _wanted(conflict)
    found = grouped(wanted or conflict.refusals)
    # Versions that bring something else than what is asked for, each another version of it, share a row.
    others = [group for group in found if _brings_another(group[0])]
    is_much = _MOST_GROUPS < len(others) < len(found)
    several = Counter(group[0].name for group in others if is_much for _ in group)
    found = [group for group in found if not several or group not in others]
    facts = [
        fact
        for group in found[:_MOST_GROUPS]
        for fact in (*opposing_reasons(group[0]), *_why_chosen(group[0], conflict, catalog))
    ]
    rows = [
        (
            subject_text(group),
            group_predicate(group),
            location_text(reason_location(group[0])),
        )
        for group in found[:_MOST_ROWS]
    ]
    if rest := sum(map(len, found[_MOST_ROWS:])):
        rows.append((f"and {rest} more", "", ""))
    for name, count in several.items():
        rows.append((f"{count} others", f"bring another {name}", ""))
    if left := {one.candidate.release.version for one in conflict.refusals if wanted and one not in wanted}:
        rows.append((f"{len(left)} other releases", "are not asked for", ""))
    tables = (Table(f"candidates for {conflict.name}", tuple(rows)),)
    return Diagnostic(message, *_causes(conflict, facts), tables=tables)


def _brings_another(refusal: Refusal) -> bool:
    """Whether a candidate brings a version that the recipe itself does not want."""
    demand = refusal.demand
    return demand is not None and demand.required_by is None and refusal.name != refusal.candidate.name


def _causes(conflict: Conflict, facts: list[Reason]) -> tuple[Location, str, tuple[Reason, ...]]:
    """The place, its label, and the reasons, each once; what the caret says is not said again."""
    there, label, chain = _head(conflict)
    facts = [*chain, *_demands(conflict), *facts]
    base = conflict.recipe.base
    mentions = re.compile(rf"\b{re.escape(base.name)} [0-9]")
    glob = conflict.recipe.variants.get(base.name)
    of_base = (base.location, glob.location if glob else None)
    is_mentioned = any(mentions.search(fact.text) for fact in facts)
    pinned = [one for one in _asked_by_image(conflict.recipe) if is_mentioned or one.location not in of_base]
    return there, label, tuple(dict.fromkeys(one for one in (*pinned, *facts) if one.location != there))


def alternatives_hint(nearest: Alternatives, image: str) -> str:
    """What to ask for instead: of the ways with the fewest changes, those that leave least out."""
    fewest = min((one.rank[:2] for one in nearest.combinations), default=(0, 0))
    found = [_told(one, image) for one in nearest.combinations if one.rank[:2] == fewest][:_MOST_HINTS]
    found.sort(key=lambda one: not one.startswith("ask "))
    later = (
        [one.removeprefix("ask ") for one in found[1:]]
        if found and found[0].startswith("ask ")
        else found[1:]
    )
    return ", or ".join([*found[:1], *later])


def _moves(nearest: Alternatives) -> bool:
    """Whether there is a way out that leaves nothing out."""
    return any(one.rank[1] == 0 for one in nearest.combinations)


def _told(combination: Alternative, image: str) -> str:
    asks = [_ask(one) for one in combination.changes if one.now]
    drops = [f"`{one.pin.name}`" for one in combination.changes if one.is_left_out]
    told = [f"ask for {' and '.join(asks)}"] if asks else []
    told += [f"leave {' and '.join(drops)} out"] if drops else []
    if any(one.pin.kind == "lock" for one in combination.changes):
        told.append(f"make the requirements' lock again with `./bake lock {image}`")
    return ", and ".join(told)


def _ask(change: PinChange) -> str:
    pin = change.pin
    if change.base:
        return f'`base: {{{change.base}: "{change.now}"}}`'
    if pin.is_given_by_command:
        return f"`--assume {pin.name}={change.now}`"
    if pin.kind == "driver":
        return f"a host with driver {change.now}"
    if pin.kind == "variant":
        return f"variant `{change.now}` of {pin.name}"
    wanted = f'{pin.name}: "{change.now}"'
    return f"`base: {{{wanted}}}`" if pin.kind == "base" else f"`{wanted}`"


def _head(conflict: Conflict) -> tuple[Location, str, list[Reason]]:
    """The recipe's line that the conflict starts from, and how one leads to the other."""
    pattern = conflict.recipe.variants.get(conflict.name)
    if pattern and not conflict.refusals:
        return pattern.location, f"no variant of {conflict.name} is called so", []
    name, seen = conflict.name, set()
    chain: list[Reason] = []
    while name not in seen:
        seen.add(name)
        asking = [one for one in conflict.demands if one.requirement.name == name and one.brings]
        for demand in asking:
            if demand.required_by is None:
                there = demand.requirement.location
                what = requirement_text(demand.requirement) if demand.requirement.specifier else name
                label = f"asks for {what}" if there.line else ""
                return there, label, chain[::-1]
        if not asking:
            break
        chain.append(demand_reason(asking[0]))
        name = asking[0].required_by.name if asking[0].required_by else name
    return conflict.recipe.location, "", chain[::-1]


def _asked_by_image(recipe: Recipe) -> list[Reason]:
    pinned = [one for one in (recipe.base, *recipe.components) if one.specifier]
    targets = recipe.targets
    return [
        *(demand_reason(Demand(one, None)) for one in pinned),
        *(Reason(f"it is for {one.text}", one.location) for one in targets.instances),
        *(Reason(f"the host has driver {one.text}", one.location) for one in [targets.driver] if one),
        *(
            Reason(f"{_asks(glob.location)} for variant `{glob.text}` of {name}", glob.location)
            for name, glob in recipe.variants.items()
        ),
    ]


def _asks(there: Location) -> str:
    return "the image asks" if there.line else "you ask"


def _demands(conflict: Conflict) -> list[Reason]:
    """What chosen parts need of the name that nothing fits for, and of what its candidates bring."""
    needed = [one for one in conflict.demands if one.requirement.name == conflict.name]
    needed += [
        one.demand for one in conflict.refusals if one.demand and one.demand.required_by != one.candidate
    ]
    return [demand_reason(one) for one in needed if one.required_by]


def _refusals(conflict: Conflict, catalog: Catalog) -> list[Reason]:
    if not conflict.refusals:
        return _nothing_there(conflict, catalog)
    found = grouped(conflict.refusals)
    if len(found) == 1 and is_version_excluded(found[0][0]):
        if lacking := _without_variant(conflict, catalog):
            return lacking
        there = Reason(f"the catalogue has {subject_text(found[0])}", found[0][0].candidate.release.location)
        return [there, *(one for one in _providers(conflict, catalog, fitting_only=True) if one.location)]
    # That other versions are other versions is no news; that other builds are for another Python is little.
    telling = grouped(_wanted(conflict)) or found
    # Where something is known not to work, builds for another CUDA or Python say nothing.
    telling = [group for group in telling if group[0].known] or telling
    named = {one.name for one in conflict.recipe.components}
    telling.sort(key=lambda group: group[0].name in named and group[0].name != conflict.name)
    reasons = []
    for group in telling[:_MOST_GROUPS]:
        first = group[0]
        reasons.append(Reason(group_text(group), reason_location(first)))
        reasons += [*opposing_reasons(first), *_why_chosen(first, conflict, catalog)]
    if rest := [one for group in telling[_MOST_GROUPS:] for one in group]:
        names = sorted({one.name for one in rest} - {conflict.name})[:_MOST_GROUPS]
        why = f", because of {', '.join(names)}" if names else ""
        reasons.append(Reason(f"{len(rest)} other builds of {conflict.name} don't fit either{why}"))
    return reasons


def _wanted(conflict: Conflict) -> list[Refusal]:
    """The candidates that are of the versions which the recipe itself asks for."""
    recipe = conflict.recipe
    asked_for = [one for one in (recipe.base, *recipe.components) if one.name == conflict.name]
    return [
        one
        for one in conflict.refusals
        if all(each.allows(one.candidate.release.version) for each in asked_for)
    ]


def _why_chosen(refusal: Refusal, conflict: Conflict, catalog: Catalog) -> list[Reason]:
    """Whose demands keep the part from the version that a candidate needs."""
    component = catalog.components.get(refusal.name)
    if not (refusal.demand and refusal.demand.required_by == refusal.candidate and component):
        return []
    fitting = [one.version for one in component.releases if refusal.demand.requirement.allows(one.version)]
    theirs = [one for one in conflict.demands if one.requirement.name == refusal.name and one.required_by]
    return [demand_reason(one) for one in theirs if not any(map(one.requirement.allows, fitting))][:1]


def _nothing_there(conflict: Conflict, catalog: Catalog) -> list[Reason]:
    """What there is where no candidate could even be tried."""
    name, recipe = conflict.name, conflict.recipe
    component = catalog.components.get(name)
    if component is None:
        return _providers(conflict, catalog)
    if component.is_base and name != recipe.base.name:
        return [Reason(f"{name} is a base, and the image's base is {recipe.base.name}", component.location)]
    return [_variants_of(component.releases, name, component.location, recipe.variants.get(name))]


def _variants_of(releases: Sequence[Release], what: str, there: Location, pattern: Scalar | None) -> Reason:
    """The variants there are; of many, those that are called most like what was asked for."""
    found = [*dict.fromkeys(one.name for release in releases for one in release.variants if one.name)]
    near = difflib.get_close_matches(pattern.text if pattern else "", found, _MOST_VARIANTS, 0)
    shown = found if len(found) <= _MOST_VARIANTS else near
    more = f" and {len(found) - len(shown)} more" if len(found) > len(shown) else ""
    told = f"the variants {', '.join(shown)}{more}" if found else "no variants"
    return Reason(f"{what} has {told}", there)


def _without_variant(conflict: Conflict, catalog: Catalog) -> list[Reason]:
    """The release that is asked for, where it has no variant of the name that is asked for."""
    component, pattern = catalog.components.get(conflict.name), conflict.recipe.variants.get(conflict.name)
    demands = [one for one in conflict.demands if one.requirement.name == conflict.name]
    for release in component.releases if component and pattern else ():
        if all(one.requirement.allows(release.version) for one in demands):
            if pattern and not any(fnmatchcase(one.name, pattern.text) for one in release.variants):
                what = f"{conflict.name} {release.version}"
                return [_variants_of([release], what, release.location, pattern)]
            break
    return []


def _providers(conflict: Conflict, catalog: Catalog, *, fitting_only: bool = False) -> list[Reason]:
    """Who could bring a name that is no component's: of each component, the first that would."""
    name, base = conflict.name, conflict.recipe.base.name
    demands = [one for one in conflict.demands if one.requirement.name == name]
    found = [
        (Candidate(component, release, variant), variant.spec.provides[name])
        for component in catalog.components.values()
        for release in component.releases
        for variant in release.variants
        if name in variant.spec.provides
    ]
    fitting = [one for one in found if all(demand.requirement.allows(one[1]) for demand in demands)]
    reasons = [Reason(f"nothing in the image brings {name}")] if fitting else []
    shown = fitting if fitting or fitting_only else found
    for candidate, version in {one[0].name: one for one in reversed(shown)}.values():
        other = ", another base," if candidate.component.is_base and candidate.name != base else ""
        verb = "would bring" if fitting else "brings"
        reasons.append(Reason(f"{candidate}{other} {verb} {name} {version}", candidate.variant.location))
    return reasons[: _MOST_BRINGING + 1]
