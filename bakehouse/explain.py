"""Finds the words for a Resolution and for a Conflict; the facts come from `resolution`."""

from bakehouse.catalog import Catalog
from bakehouse.errors import ConflictError, Diagnostic, Reason
from bakehouse.plan import PLATFORM
from bakehouse.resolution import Choice, Conflict, Demand, Refusal, Resolution
from bakehouse.yamlfile import suggestion

_MOST_REASONS = 7


def conflict_error(conflict: Conflict, catalog: Catalog) -> ConflictError:
    """What was asked by whom, which candidates there are, and why none of them fits."""
    spot = conflict.demands[0].requirement.location if conflict.demands else conflict.recipe.location
    label = f"asks for {_asked(conflict.demands[0])}" if conflict.demands else ""
    reasons = [Reason(f"{_by(demand)} asks for {_asked(demand)}", demand.requirement.location)
               for demand in conflict.demands[1:]]
    refusals = _distinct(conflict.refusals)
    for refusal in refusals[:_MOST_REASONS]:
        reasons.append(_reason(refusal))
    if len(refusals) > _MOST_REASONS:
        reasons.append(Reason(f"{len(refusals) - _MOST_REASONS} more candidates do not fit either"))
    if not conflict.refusals:
        reasons.append(Reason(_nothing_there(conflict, catalog)))
    message = f"no versions satisfy image `{conflict.recipe.name}` on {PLATFORM}"
    return ConflictError(Diagnostic(message, spot, label, tuple(reasons), hint=_hint(conflict, catalog)))


def explanation(resolution: Resolution, name: str | None = None) -> str:
    """Why each version was chosen: who asked, and what stood in the way of newer ones."""
    chosen = (resolution.base, *resolution.choices)
    lines: list[str] = []
    for choice in chosen:
        if name is None or name in choice.candidate.given:
            lines += _choice_lines(choice)
    return "\n".join(lines) + "\n"


def known_names(resolution: Resolution) -> tuple[str, ...]:
    """What `explanation` can be asked about."""
    return tuple(sorted({name for one in (resolution.base, *resolution.choices) for name in one.candidate.given}))


def _choice_lines(choice: Choice) -> list[str]:
    lines = [f"{choice.candidate}"]
    provided = ", ".join(f"{name} {version}" for name, version in choice.face.provides.items())
    if provided:
        lines.append(f"  brings {provided}")
    for demand in choice.demands:
        held = "asked for by" if demand.brings else "limited by"
        lines.append(f"  {held} {demand.by}: {_asked(demand)}   {_place(demand)}")
    for refusal in _distinct(choice.passed_over)[:3]:
        lines.append(f"  not {refusal.candidate}: {refusal.text}")
    return lines


def _place(demand: Demand) -> str:
    spot = demand.requirement.location
    return f"{spot.path.parent.name}/{spot.path.name}:{spot.line}"


def _reason(refusal: Refusal) -> Reason:
    demand = refusal.demand
    if demand and demand.by != str(refusal.candidate):
        return Reason(f"{_by(demand)} needs {_asked(demand)}, and {refusal.text}", demand.requirement.location)
    if demand:
        return Reason(f"{refusal.candidate} needs {_asked(demand)}, and {refusal.text}", refusal.location)
    return Reason(refusal.text, refusal.location)


def _by(demand: Demand) -> str:
    return "the image" if demand.by.startswith("image ") else demand.by


def _asked(demand: Demand) -> str:
    specifier = demand.requirement.specifier
    return f"{demand.requirement.name} {specifier}" if specifier else f"any {demand.requirement.name}"


def _distinct(refusals: tuple[Refusal, ...]) -> list[Refusal]:
    seen: dict[tuple[str, str], Refusal] = {}
    for refusal in refusals:
        seen.setdefault((str(refusal.candidate), refusal.text), refusal)
    return list(seen.values())


def _nothing_there(conflict: Conflict, catalog: Catalog) -> str:
    component = catalog.components.get(conflict.name)
    if component is None:
        providers = sorted(
            one.name
            for one in catalog.components.values()
            if any(conflict.name in v.face.provides for release in one.releases for v in release.variants)
        )
        return f"nothing in the image brings {conflict.name}; these would: {', '.join(providers)}"
    pattern = conflict.recipe.variants.get(conflict.name)
    return f"no variant of {conflict.name} is called `{pattern.text if pattern else ''}`"


def _hint(conflict: Conflict, catalog: Catalog) -> str:
    component = catalog.components.get(conflict.name)
    if component is None:
        return ""
    pattern = conflict.recipe.variants.get(conflict.name)
    if pattern and not conflict.refusals:
        return suggestion(pattern.text, (v.name for release in component.releases for v in release.variants))
    own = [one for one in conflict.refusals if one.demand and one.demand.requirement.name == conflict.name]
    if own and len(own) == len(conflict.refusals):
        versions = ", ".join(release.version for release in component.releases[:7])
        return f"the catalogue has {conflict.name} {versions}"
    blockers = {one.demand.requirement.name for one in conflict.refusals if one.demand} - {conflict.name}
    if blockers:
        return f"relax {_list(sorted(blockers))}, or ask for another {conflict.name}"
    return ""


def _list(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
