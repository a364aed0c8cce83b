"""Finds the words for a Resolution and for a Conflict; the facts come from `resolution`."""

from collections.abc import Iterable
from dataclasses import replace

from bakehouse.candidates import Candidate, Conflict, Demand, Refusal
from bakehouse.catalog import Catalog
from bakehouse.component import Requirement
from bakehouse.errors import ConflictError, Diagnostic, Location, Reason
from bakehouse.plan import PLATFORM
from bakehouse.recipe import Recipe
from bakehouse.resolution import Choice, NothingFits, Resolution, resolve

_MOST_VERSIONS = 7
_MOST_PASSED_OVER = 3
_MOST_HINTS = 3
_LOCK = "requirements"
_PLURALS = {"is": "are", "needs": "need", "brings": "bring", "locks": "lock", "leaves": "leave"}


def conflict_error(conflict: Conflict, catalog: Catalog) -> ConflictError:
    """What was asked by whom, which candidates there are, why none of them fits, and what would."""
    recipe, core = conflict.recipe, conflict.recipe
    pins = _pins(recipe)
    for pin in pins:
        # What fails without a pin too is not this pin's fault.
        without = _attempt(_relaxed(core, pin), catalog)
        if isinstance(without, Conflict):
            core, conflict = without.recipe, without
    spot, label, chain = _head(conflict)
    reasons = [*_asked_by_image(core), *chain, *_demands(conflict), *_refusals(conflict, catalog)]
    told = tuple(dict.fromkeys(one for one in reasons if one.location != spot))
    message = f"no versions satisfy image `{recipe.name}` on {PLATFORM}"
    hint = _hint(recipe, pins, catalog)
    if not hint and any(one.packages for one in conflict.refusals):
        hint = "make the locks again with `./bake pin`, for versions that agree"
    return ConflictError(Diagnostic(message, spot, label, told, hint=hint))


def explanation(resolution: Resolution, name: str | None = None) -> str:
    """Why each version was chosen: who asked, and what stood in the way of newer ones."""
    lines: list[str] = []
    for choice in (resolution.base, *resolution.choices):
        if name is None or name in choice.candidate.given:
            lines += _choice_lines(choice)
    return "\n".join(lines) + "\n"


def known_names(resolution: Resolution) -> tuple[str, ...]:
    """What `explanation` can be asked about."""
    chosen = (resolution.base, *resolution.choices)
    return tuple(sorted({name for choice in chosen for name in choice.candidate.given}))


def _choice_lines(choice: Choice) -> list[str]:
    lines = [f"{choice.candidate}"]
    provided = ", ".join(f"{name} {version}" for name, version in choice.face.provides.items())
    if provided:
        lines.append(f"  brings {provided}")
    for demand in choice.demands:
        held = "asked for by" if demand.brings else "limited by"
        lines.append(f"  {held} {_by(demand)}: {_asked(demand.requirement)}   {_place(demand)}")
    passed_over = _groups(choice.passed_over)[:_MOST_PASSED_OVER]
    return lines + [f"  not {_subject(group)}: {_predicate(group[0])}" for group in passed_over]


def _place(demand: Demand) -> str:
    spot = demand.requirement.location
    return f"{spot.path.parent.name}/{spot.path.name}:{spot.line}"


def _pins(recipe: Recipe) -> tuple[str, ...]:
    """What the recipe could give up, one at a time: versions, variants, its Python lock."""
    ranges = [one.name for one in (recipe.base, *recipe.components) if one.specifier]
    lock = [_LOCK] if recipe.content.packages else []
    return tuple(dict.fromkeys([*ranges, *recipe.variants, *lock]))


def _relaxed(recipe: Recipe, pin: str) -> Recipe:
    """The recipe with one thing given up."""
    if pin == _LOCK:
        return replace(recipe, content=replace(recipe.content, packages=()))

    def relaxed(one: Requirement) -> Requirement:
        return replace(one, specifier="") if one.name == pin else one

    return replace(
        recipe,
        base=relaxed(recipe.base),
        components=tuple(relaxed(one) for one in recipe.components),
        variants={name: pattern for name, pattern in recipe.variants.items() if name != pin},
    )


def _attempt(recipe: Recipe, catalog: Catalog) -> Resolution | Conflict:
    try:
        return resolve(recipe, catalog)
    except NothingFits as nothing:
        return nothing.conflict


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
            if demand.asker is None:
                return demand.requirement.location, f"asks for {_asked(demand.requirement)}", chain[::-1]
        chain.append(_need(asking[0]))
        name = asking[0].asker.name if asking[0].asker else name
    return conflict.recipe.location, "", chain[::-1]


def _asked_by_image(recipe: Recipe) -> list[Reason]:
    pinned = [one for one in (recipe.base, *recipe.components) if one.specifier]
    return [
        *(Reason(f"the image asks for {_asked(one)}", one.location) for one in pinned),
        *(
            Reason(f"the image asks for variant `{pattern.text}` of {name}", pattern.location)
            for name, pattern in recipe.variants.items()
        ),
    ]


def _demands(conflict: Conflict) -> list[Reason]:
    """What chosen parts need of the name that nothing fits for, and of what its candidates bring."""
    needed = [one for one in conflict.demands if one.requirement.name == conflict.name]
    needed += [one.demand for one in conflict.refusals if one.demand and one.demand.asker != one.candidate]
    return [_need(one) for one in needed if one.asker]


def _refusals(conflict: Conflict, catalog: Catalog) -> list[Reason]:
    if not conflict.refusals:
        return _nothing_there(conflict, catalog)
    groups = _groups(conflict.refusals)
    if len(groups) == 1 and _is_about_itself(groups[0][0]):
        return [Reason(f"the catalogue has {_subject(groups[0])}", groups[0][0].candidate.release.location)]
    reasons = []
    for group in groups:
        first = group[0]
        predicate = _predicate(first, is_plural=len(_versions(group)) > 1)
        reasons.append(Reason(f"{_subject(group)} {predicate}", _spot(first)))
        if first.packages:
            there = first.packages[1]
            owner = first.other or "the image"
            reasons.append(Reason(f"{owner} locks {there.name} {there.version}", there.location))
        elif first.other and not first.demand:
            version = first.other.given[first.name]
            text = f"{first.other} brings {first.name} {version}"
            reasons.append(Reason(text, first.other.variant.location))
    return reasons


def _groups(refusals: Iterable[Refusal]) -> list[list[Refusal]]:
    """Refusals that say the same of several candidates, together."""
    groups: dict[str, list[Refusal]] = {}
    for refusal in refusals:
        groups.setdefault(_predicate(refusal), []).append(refusal)
    return list(groups.values())


def _versions(group: list[Refusal]) -> dict[str, list[str]]:
    """The variants of each version."""
    versions: dict[str, list[str]] = {}
    for refusal in group:
        versions.setdefault(refusal.candidate.release.version, []).append(refusal.candidate.variant.name)
    return versions


def _subject(group: list[Refusal]) -> str:
    versions = _versions(group)
    if len(versions) == 1:
        [(version, variants)] = versions.items()
        names = f" ({', '.join(variants)})" if any(variants) else ""
        return f"{group[0].candidate.name} {version}{names}"
    shown = list(versions)[:_MOST_VERSIONS]
    more = f" and {len(versions) - len(shown)} older" if len(versions) > len(shown) else ""
    return f"{group[0].candidate.name} {', '.join(shown)}{more}"


def _predicate(refusal: Refusal, *, is_plural: bool = False) -> str:
    verb, rest = _verb_and_rest(refusal)
    return f"{_PLURALS[verb] if is_plural else verb} {rest}"


def _verb_and_rest(refusal: Refusal) -> tuple[str, str]:
    name, candidate, other, demand = refusal.name, refusal.candidate, refusal.other, refusal.demand
    if refusal.then:
        return "leaves", f"no {name} that fits"
    if refusal.packages:
        return "locks", f"{name} {refusal.packages[0].version}"
    if demand is None:
        return "brings", f"{name} {candidate.given[name]}"
    if demand.asker != candidate:
        if name == candidate.name:
            return "is", f"not {_range(demand.requirement)}"
        return "brings", f"{name} {candidate.given[name]}, not {_range(demand.requirement)}"
    if other and other.name == name:
        return "needs", f"{_asked(demand.requirement)}, not {other.given[name]}"
    bringer = other if other and other != candidate else "itself"
    version = (other or candidate).given[name]
    return "needs", f"{_asked(demand.requirement)}, and {bringer} brings {name} {version}"


def _spot(refusal: Refusal) -> Location:
    if refusal.packages:
        return refusal.packages[0].location
    if refusal.demand and refusal.demand.asker == refusal.candidate:
        return refusal.demand.requirement.location
    return refusal.candidate.variant.location


def _is_about_itself(refusal: Refusal) -> bool:
    """Whether the version itself is out of a demanded range."""
    is_own_demand = refusal.demand and refusal.demand.asker == refusal.candidate
    return refusal.demand is not None and not is_own_demand and refusal.name == refusal.candidate.name


def _need(demand: Demand) -> Reason:
    return Reason(f"{_by(demand)} needs {_asked(demand.requirement)}", demand.requirement.location)


def _by(demand: Demand) -> str:
    return str(demand.asker) if demand.asker else "the image"


def _asked(requirement: Requirement) -> str:
    return f"{requirement.name} {_range(requirement)}" if requirement.specifier else f"any {requirement.name}"


def _range(requirement: Requirement) -> str:
    """A range as one writes it: `==3.11.*` is what a bare `3.11` became."""
    text = requirement.specifier
    return text[2:].removesuffix(".*") if text.startswith("==") and "," not in text else text


def _nothing_there(conflict: Conflict, catalog: Catalog) -> list[Reason]:
    """What there is where no candidate could even be tried."""
    name, recipe = conflict.name, conflict.recipe
    component = catalog.components.get(name)
    if component is None:
        return _providers(conflict, catalog)
    if component.is_base and name != recipe.base.name:
        return [Reason(f"{name} is a base, and the image's base is {recipe.base.name}", component.location)]
    found = dict.fromkeys(one.name for release in component.releases for one in release.variants if one.name)
    variants = f"the variants {', '.join(found)}" if found else "no variants"
    return [Reason(f"{name} has {variants}", component.location)]


def _providers(conflict: Conflict, catalog: Catalog) -> list[Reason]:
    """Who could bring a name that is no component's."""
    name = conflict.name
    demands = [one for one in conflict.demands if one.requirement.name == name]
    found = [
        (Candidate(component, release, variant), variant.face.provides[name])
        for component in catalog.components.values()
        for release in component.releases
        for variant in release.variants
        if name in variant.face.provides
    ]
    fitting = [one for one in found if all(demand.requirement.allows(one[1]) for demand in demands)]
    verb = "would bring" if fitting else "brings"
    reasons = [Reason(f"nothing in the image brings {name}")] if fitting else []
    reasons += [
        Reason(f"{candidate} {verb} {name} {version}", candidate.variant.location)
        for candidate, version in (fitting or found)[:_MOST_VERSIONS]
    ]
    return reasons


def _hint(recipe: Recipe, pins: tuple[str, ...], catalog: Catalog) -> str:
    """What the image could ask for instead, as far as giving up one thing helps."""
    found = []
    for pin in pins:
        resolution = _attempt(_relaxed(recipe, pin), catalog)
        if isinstance(resolution, Resolution):
            found.append(_advice(recipe, pin, resolution))
    return ", or ".join([*found[:1], *(one.removeprefix("ask ") for one in found[1:_MOST_HINTS])])


def _advice(recipe: Recipe, pin: str, resolution: Resolution) -> str:
    if pin == _LOCK:
        return f"make the requirements' lock again with `./bake pin {recipe.name}`"
    chosen = {choice.name: choice for choice in (resolution.base, *resolution.choices)}
    version = resolution.version_of(pin) or ""
    asked = [one for one in (recipe.base, *recipe.components) if one.name == pin]
    if all(one.allows(version) for one in asked) and pin in chosen:
        return f"ask for variant `{chosen[pin].candidate.variant.name}` of {pin}"
    wanted = f'{pin}: "{version}"'
    return f"ask for `base: {{{wanted}}}`" if pin == recipe.base.name else f"ask for `{wanted}`"
