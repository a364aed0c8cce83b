"""Explanations of a resolution: why each version was chosen, and what excludes or allows newer ones.

`explain_all` and `explain_name` search and return values. `overview` and `name_report` format these.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from packaging.version import Version

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.component import Requirement
from bakehouse.errors import Location, Reason
from bakehouse.resolve.alternatives import Alternative, AlternativeSearch, PinChange
from bakehouse.resolve.candidate import Conflict, Demand, Refusal
from bakehouse.resolve.phrases import (
    demand_reason,
    demand_verb,
    first_versions,
    group_predicate,
    grouped,
    location_text,
    opposing_reasons,
    reason_location,
    requester_text,
    requirement_text,
    variant_list,
    variants_by_version,
    version_range,
)
from bakehouse.resolve.resolver import Choice, Resolution

CALLS = 100
"""Calls of the resolver that look for newer versions of one component."""
CALLS_FOR_EACH = 15
"""Calls of the resolver for each component of an overview."""
_MAX_WIDTH = 76
_MAX_WAYS = 3
_MAX_REASONS = 2
_MAX_REASONS_IN_DETAIL = 8
_MAX_CHANGES = 2


@dataclass(frozen=True, slots=True)
class _Line:
    text: str
    locations: tuple[Location, ...] = ()


@dataclass(frozen=True, slots=True)
class NewerReleases:
    """The releases of a component newer than the chosen one, by the reason against them."""

    excluded: Mapping[Requirement, tuple[str, ...]]
    """The versions that each demand on the component excludes."""
    without_variant: tuple[str, ...]
    """Versions that have no variant of the requested name."""
    refusals: tuple[Refusal, ...]

    @property
    def excluding(self) -> set[Requirement]:
        """The demands that exclude a newer version."""
        unmet = [(refusal.demand, refusal.candidate) for refusal in self.refusals if refusal.demand]
        others = [demand for demand, candidate in unmet if demand.required_by != candidate]
        return {
            *(requirement for requirement, versions in self.excluded.items() if versions),
            *(demand.requirement for demand in others),
        }


Obstacle = Literal["", "newest", "incompatible", "cut", "too many changes"]
"""Reason why there is no alternative. `cut` means that the search ended before it found one."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The reasons for the version of a name in an image."""

    name: str
    """The component, or a name that it provides."""
    choice: Choice
    newest: str
    """The newest known version of the component."""
    newer: NewerReleases
    alternatives: tuple[Alternative, ...]
    """Changes of the recipe that allow a newer version."""
    obstacle: Obstacle = ""

    @property
    def version(self) -> str:
        return self.choice.candidate.provided[self.name]


def explain_all(resolution: Resolution, catalog: Catalog) -> tuple[Explanation, ...]:
    """Explain all components of an image; alternatives are single changes of a related pin."""
    return tuple(
        Explanation(
            choice.name,
            choice,
            catalog.components[choice.name].releases[0].version,
            newer_releases(choice, resolution, catalog),
            _single_changes(choice, resolution, catalog),
        )
        for choice in resolution.all_choices
    )


def explain_name(resolution: Resolution, catalog: Catalog, name: str) -> Explanation:
    """Explain one component, or one name that a component provides; alternatives need the fewest changes."""
    choice = next(chosen for chosen in resolution.all_choices if name in chosen.candidate.provided)
    newest = catalog.components[choice.name].releases[0].version
    newer = newer_releases(choice, resolution, catalog)
    alternatives, obstacle = _fewest_changes(resolution, catalog, name, choice.candidate.provided[name])
    return Explanation(name, choice, newest, newer, alternatives, obstacle)


def explainable_names(resolution: Resolution) -> tuple[str, ...]:
    """Return the names that `explain` accepts: the components, and the names that they provide."""
    return tuple(sorted({name for choice in resolution.all_choices for name in choice.candidate.provided}))


def describe_changes(alternative: Alternative) -> str:
    """Return the changes of an alternative: `cuda 12.4 → 12.6.3, without smp`."""
    return ", ".join(_change_text(change) for change in alternative.changes)


def _change_text(change: PinChange) -> str:
    pin = change.pin
    if pin.kind == "lock":
        return "an updated lock of the requirements"
    if change.is_added:
        return f"with {pin.name} {change.value}"
    if change.base:
        return f"base {pin.name} → {change.base} {change.value}"
    if not change.value:
        return f"without {pin.name}"
    if pin.kind == "variant":
        return f"variant {pin.value} of {pin.name} → {change.value}"
    return f"{pin.name} {pin.value} → {change.value}"


def newer_releases(choice: Choice, resolution: Resolution, catalog: Catalog) -> NewerReleases:
    """Return the releases newer than a choice, by the reason against them."""
    chosen = Version(choice.version)
    releases = catalog.components[choice.name].releases
    left = [release for release in releases if Version(release.version) > chosen]
    excluded = {}
    for demand in choice.demands:
        requirement = demand.requirement
        if requirement.name == choice.name:
            refused = [release for release in left if not requirement.allows(release.version)]
            excluded[requirement] = tuple(release.version for release in refused)
            left = [release for release in left if release not in refused]
    pattern = resolution.recipe.variants.get(choice.name)
    without_variant = tuple(
        release.version
        for release in left
        if pattern and not any(variant.matches(pattern.text) for variant in release.variants)
    )
    versions = {release.version for release in left}.difference(without_variant)
    refusals = (refusal for refusal in choice.skipped if refusal.candidate.release.version in versions)
    return NewerReleases(excluded, without_variant, tuple(refusals))


def _single_changes(choice: Choice, resolution: Resolution, catalog: Catalog) -> tuple[Alternative, ...]:
    """Return the single changes of a related pin that allow a newer version."""
    if choice.version == catalog.components[choice.name].releases[0].version:
        return ()
    newer = Requirement(choice.name, f">{choice.version}", choice.candidate.release.location)
    names = involved_names(choice, resolution, catalog)
    search = AlternativeSearch(
        resolution.recipe, catalog, CALLS_FOR_EACH, (newer,), names, upgraded=choice.name
    )
    if isinstance(search.outcome_with_all_moved, Conflict):
        return ()
    return search.nearest(_MAX_CHANGES, most_changes=1).alternatives


def _fewest_changes(
    resolution: Resolution, catalog: Catalog, name: str, version: str
) -> tuple[tuple[Alternative, ...], Obstacle]:
    """Return the fewest changes of the recipe that allow a newer version, or why there are none."""
    recipe = resolution.recipe
    if not _is_newer_known(catalog, name, version):
        return (), "newest"
    newer = Requirement(name, f">{version}", recipe.location)
    search = AlternativeSearch(recipe, catalog, CALLS, (newer,), upgraded=name)
    if isinstance(search.outcome_with_all_moved, Conflict):
        return (), "incompatible"
    nearest = search.nearest(_MAX_WAYS)
    if nearest.alternatives:
        return nearest.alternatives, ""
    return (), "cut" if nearest.is_cut else "too many changes"


def involved_names(choice: Choice, resolution: Resolution, catalog: Catalog) -> set[str]:
    """Return the names that newer releases need and provide, and the chosen components that provide these."""
    names = {choice.name}
    for release in catalog.components[choice.name].releases:
        if release.version == choice.version:
            break
        for spec in (variant.spec for variant in release.variants):
            requirements = (*spec.requires, *spec.constraints)
            names |= {requirement.name for requirement in requirements} | spec.provides.keys()
    return names | {
        chosen.name for chosen in resolution.all_choices if names & chosen.candidate.provided.keys()
    }


def _is_newer_known(catalog: Catalog, name: str, version: str) -> bool:
    return any(Version(newer) > Version(version) for newer in catalog.links.versions(name))


def overview(resolution: Resolution, explanations: Iterable[Explanation]) -> str:
    """Format a few lines for each component: its demands, and the pins that exclude newer versions."""
    recipe = resolution.recipe
    lines = [line for explanation in explanations for line in _block(explanation, resolution)]
    example = (resolution.choices or (resolution.base,))[-1].name
    hint = f"run `bake explain {recipe.name} {example}` for all details of one component"
    return _text([[_Line(recipe.name)], lines, [_Line(hint)]])


def name_report(resolution: Resolution, explanation: Explanation) -> str:
    """Format all details of one component, or of one name that a component provides."""
    name, version, choice = explanation.name, explanation.version, explanation.choice
    candidate, newest = choice.candidate, explanation.newest
    rank = "the newest known" if newest == choice.version else f"the newest known is {newest}"
    lines = [_Line(f"{candidate}, {rank}", (candidate.release.location,))]
    if name != choice.name:
        lines.insert(0, _Line(f"{name} {version}, provided by {candidate}", (candidate.variant.location,)))
    lines += [_demand(demand, explanation) for demand in choice.demands]
    lines += _other_reasons(explanation, resolution, _MAX_REASONS_IN_DETAIL)
    obstacles: dict[Obstacle, str] = {
        "newest": f"{version} is the newest {name} in the catalogue",
        "incompatible": f"no newer {name} is compatible with any versions of the other components",
        "cut": f"it is not known whether a newer {name} fits: {CALLS} tries found no combination",
        "too many changes": f"no combination of up to three changes of the recipe allows a newer {name}",
    }
    obstacle = explanation.obstacle
    return _text([lines, [_Line(obstacles[obstacle])] if obstacle else _alternatives(explanation)])


def _other_reasons(explanation: Explanation, resolution: Resolution, most: int) -> list[_Line]:
    """Return the other reasons against newer releases: each fact, then the facts that it contradicts."""
    lines, newer = [], explanation.newer
    if newer.without_variant:
        pattern = resolution.recipe.variants[explanation.choice.name]
        text = f"  not {first_versions(newer.without_variant)}: no variant {pattern.text}"
        lines.append(_Line(text, (pattern.location,)))
    groups = grouped(newer.refusals)
    for group in groups[:most]:
        opening = f"  not {first_versions(variants_by_version(group))}{_variants(group)}: "
        lines.append(_Line(f"{opening}{group_predicate(group)}", (reason_location(group[0]),)))
        lines += [
            _Line(f"    {reason.text}", (reason.location,) if reason.location else ())
            for reason in (*opposing_reasons(group[0]), *_pinning_demand(group[0], resolution))
        ]
    if rest := [refusal for group in groups[most:] for refusal in group]:
        versions = first_versions(variants_by_version(rest))
        lines.append(_Line(f"  not {versions}{_variants(rest)}, for other reasons"))
    return lines


def _pinning_demand(refusal: Refusal, resolution: Resolution) -> list[Reason]:
    """Return the demand that pins the component which a refused release contradicts."""
    other = refusal.other
    if not other or other == refusal.candidate or other.name != refusal.name:
        return []
    choices = (choice for choice in resolution.all_choices if choice.name == other.name)
    demands = (demand for choice in choices for demand in choice.demands)
    return [demand_reason(demand) for demand in demands if demand.requirement.specifier][:1]


def _variants(group: list[Refusal]) -> str:
    """Return the refused variants of one release, unless all are refused."""
    names = [refusal.candidate.variant.name for refusal in group]
    is_one = len(variants_by_version(group)) == 1 and len(names) < len(group[0].candidate.release.variants)
    return variant_list(names) if is_one else ""


def _block(explanation: Explanation, resolution: Resolution) -> list[_Line]:
    choice = explanation.choice
    demands = [_demand(demand, explanation) for demand in _relevant_demands(explanation)]
    names = ", ".join(f"{name} {version}" for name, version in choice.spec.provides.items())
    provided = [_Line(f"  provides {names}")] if names else []
    if choice.version == explanation.newest:
        heading = f"{choice.candidate}, the newest known"
        if len(demands) == 1:
            return [_Line(f"{heading}: {demands[0].text.strip()}", demands[0].locations), *provided]
        return [_Line(heading), *provided, *demands]
    reasons = _other_reasons(explanation, resolution, _MAX_REASONS)
    return [_Line(str(choice.candidate)), *provided, *demands, *reasons, *_alternatives(explanation)]


def _relevant_demands(explanation: Explanation) -> list[Demand]:
    """Return the demand that adds a component to the image, and those that exclude newer versions."""
    choice, excluding = explanation.choice, explanation.newer.excluding
    own = [demand for demand in choice.demands if demand.requirement.name == choice.name]
    first = [demand for demand in (*own, *choice.demands) if demand.is_required][:1]
    return [demand for demand in choice.demands if demand in first or demand.requirement in excluding]


def _demand(demand: Demand, explanation: Explanation) -> _Line:
    requirement = demand.requirement
    is_own = requirement.name == explanation.choice.name
    value = (version_range(requirement) or "it") if is_own else requirement_text(requirement)
    text = f"  {requester_text(demand)} {demand_verb(demand)} {value}"
    if excluded := explanation.newer.excluded.get(requirement):
        text += f", which excludes {first_versions(excluded)}"
    return _Line(text, (requirement.location,))


def _alternatives(explanation: Explanation) -> list[_Line]:
    lines = []
    for alternative in explanation.alternatives:
        version = alternative.resolution.version_of(explanation.name)
        locations = tuple(change.pin.location for change in alternative.changes)
        changes = describe_changes(alternative)
        names = [
            change.pin.name for change in alternative.changes if change.pin.kind in ("base", "component")
        ]
        is_own = names == [explanation.name] and len(alternative.changes) == 1
        way = "fits if the image requests it" if is_own else f"is possible with {changes}"
        lines.append(_Line(f"  {version} {way}", locations))
    return lines


def lines_text(lines: Iterable[tuple[str, Location | None]]) -> str:
    """Format lines with their locations in a column of their own."""
    return _text([[_Line(text, (location,) if location else ()) for text, location in lines]])


def _text(blocks: Iterable[list[_Line]]) -> str:
    """Return blocks of lines, separated by empty lines, with the locations in a column of their own."""
    blocks = [*blocks]
    widths = [len(line.text) for lines in blocks for line in lines if line.locations]
    width = max((width for width in widths if width <= _MAX_WIDTH), default=0)
    return "\n\n".join("\n".join(_line_text(line, width) for line in lines) for lines in blocks) + "\n"


def _line_text(line: _Line, width: int) -> str:
    locations = ", ".join(dict.fromkeys(map(location_text, line.locations)))
    return f"{line.text.ljust(width)}   {locations}" if locations else line.text
