"""Explanations of a resolution: why each version was chosen, and what excludes or allows newer ones.

`explain_all` and `explain_name` search and return values. `overview` and `name_report` format these.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.version import Version

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.component import Requirement
from bakehouse.errors import Location, Reason
from bakehouse.resolve.alternatives import Alternative, AlternativeSearch, PinChange, Undecided, is_warned_of
from bakehouse.resolve.candidate import Conflict, Demand, Refusal
from bakehouse.resolve.conflict_report import first_reason
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
from bakehouse.resolve.relaxation import COMMAND, Relaxation, Restriction
from bakehouse.resolve.resolver import Choice, Resolution

CALLS = 100
"""Calls of the resolver that look for newer versions of one component."""
_MAX_WIDTH = 76
_MAX_WAYS = 3
_MAX_REASONS = 2
_MAX_REASONS_IN_DETAIL = 8


@dataclass(frozen=True, slots=True)
class Line:
    """A line with the places that it is about."""

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


@dataclass(frozen=True, slots=True)
class Obstacle:
    """The reason why no close combination has the newest version."""

    text: str
    """The end of a sentence that begins with the version."""
    locations: tuple[Location, ...] = ()
    causes: tuple[Restriction, ...] = ()
    """Requirements that exclude it whatever their versions. Without any one of them, it fits."""


_NOT_KNOWN = Obstacle("is not known to fit: the search ended first, or the catalogue lacks a fact")


@dataclass(frozen=True, slots=True)
class Explanation:
    """The reasons for the version of a name in an image, and what would allow newer ones."""

    name: str
    """The component, or a name that it provides."""
    choice: Choice
    newest: str
    """The newest known version of the name."""
    newer: NewerReleases
    alternatives: tuple[Alternative, ...]
    """Changes of the recipe that allow a newer version."""
    obstacle: Obstacle | None = None
    """Why none of them allows the newest version; None if one does."""

    @property
    def version(self) -> str:
        return self.choice.candidate.provided[self.name]

    @property
    def is_newest(self) -> bool:
        return self.version == self.newest

    @property
    def answer(self) -> list[Line]:
        """Return which changes allow a newer version, and why none allows the newest one."""
        lines = [_way(alternative, self.name) for alternative in self.alternatives]
        if self.obstacle:
            lines.append(Line(f"{self.newest} {self.obstacle.text}", self.obstacle.locations))
        return lines


def explain_all(resolution: Resolution, catalog: Catalog) -> tuple[Explanation, ...]:
    """Explain all components of an image."""
    return tuple(explain_name(resolution, catalog, choice.name) for choice in resolution.all_choices)


def explain_choice(resolution: Resolution, catalog: Catalog, name: str) -> Explanation:
    """Explain a component, or a name that it provides, without a search for what would allow newer ones."""
    choice = next(chosen for chosen in resolution.all_choices if name in chosen.candidate.provided)
    known = max((choice.candidate.provided[name], *catalog.links.versions(name)), key=Version)
    newest = newest_version(choice) if name == choice.name else known
    return Explanation(name, choice, newest, newer_releases(choice, resolution, catalog), ())


def explain_name(resolution: Resolution, catalog: Catalog, name: str) -> Explanation:
    """Explain one component, or one name that a component provides. Every command answers with this."""
    explanation = explain_choice(resolution, catalog, name)
    version, newest = explanation.version, explanation.newest
    if explanation.is_newest:
        return explanation

    def search(specifier: str) -> AlternativeSearch:
        upgrade = Requirement(name, specifier, Location(Path("explain"), COMMAND, COMMAND))
        return AlternativeSearch(resolution.recipe, catalog, CALLS, upgrade)

    newer, latest = search(f">{version}"), search(f"=={newest}")
    is_excluded = isinstance(latest.outcome_with_all_moved, Conflict)
    ways: tuple[Alternative, ...] = ()
    if not (is_excluded and isinstance(newer.outcome_with_all_moved, Conflict)):
        ways = newer.nearest(_MAX_WAYS).alternatives
    if any(way.resolution.version_of(name) == newest for way in ways):
        return replace(explanation, alternatives=ways)
    if not is_excluded and (more := latest.nearest(1).alternatives):
        return replace(explanation, alternatives=(*ways, *more))
    return replace(explanation, alternatives=ways, obstacle=_obstacle(latest))


def _obstacle(search: AlternativeSearch) -> Obstacle:
    """Return why no versions of the other components fit."""
    outcome = search.outcome_with_all_moved
    if isinstance(outcome, Resolution):
        return Obstacle("needs more than three changes")
    core = search.core({}) if isinstance(outcome, Conflict) else {}
    kept = [
        pin for pin in search.pins if core.get(pin) is not Relaxation.DROP and pin.most is Relaxation.DROP
    ]
    conflict = search.attempt(core)
    is_checked = all(isinstance(search.attempt({**core, pin: Relaxation.DROP}), Resolution) for pin in kept)
    if not isinstance(conflict, Conflict) or not is_checked:
        return _NOT_KNOWN
    reason = first_reason(conflict)
    why = f": {reason.text}" if reason else ""
    places = (reason.location,) if reason and reason.location else ()
    if kept:
        text = f"does not fit {' and '.join(map(_in_any_version, kept))}{why}"
        return Obstacle(text, places or tuple(pin.location for pin in kept), tuple(kept))
    others = search.on_other_bases(core)
    if fitting := [name for name, outcome in others.items() if isinstance(outcome, Resolution)]:
        return Obstacle(f"needs another base, such as {fitting[0]}", places)
    if any(isinstance(outcome, Undecided) for outcome in others.values()):
        return _NOT_KNOWN
    return Obstacle(f"fits no base in the catalogue{why}", places)


def _in_any_version(pin: Restriction) -> str:
    if pin.kind == "component":
        return f"any version of {pin.name}"
    return "the requirements" if pin.kind == "requirements" else f"{pin.kind} {pin.value}"


def newest_version(choice: Choice) -> str:
    """Return the newest known version of a component."""
    return choice.candidate.component.releases[0].version


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
    if pin.kind == "requirements":
        return "other limits in the requirements"
    if change.is_added:
        return f"with {pin.name} {change.value}"
    if change.base:
        return f"base {pin.name} → {change.base} {change.value}"
    if not change.value:
        return f"without {'variant ' + pin.value + ' of ' if pin.kind == 'variant' else ''}{pin.name}"
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


def overview(resolution: Resolution, explanations: Iterable[Explanation]) -> str:
    """Format a few lines for each component: its demands, and the pins that exclude newer versions."""
    recipe = resolution.recipe
    lines = [line for explanation in explanations for line in _block(explanation, resolution)]
    example = (resolution.choices or (resolution.base,))[-1].name
    hint = f"run `bake explain {recipe.name} {example}` for all details of one component"
    return _text([[Line(recipe.name)], lines, [Line(hint)]])


def name_report(resolution: Resolution, explanation: Explanation) -> str:
    """Format all details of one component, or of one name that a component provides."""
    name, version, choice = explanation.name, explanation.version, explanation.choice
    candidate, newest = choice.candidate, newest_version(choice)
    rank = "the newest known" if newest == choice.version else f"the newest known is {newest}"
    lines = [Line(f"{candidate}, {rank}", (candidate.release.location,))]
    if name != choice.name:
        lines.insert(0, Line(f"{name} {version}, provided by {candidate}", (candidate.variant.location,)))
    lines += [_demand(demand, explanation) for demand in choice.demands]
    lines += _other_reasons(explanation, resolution, _MAX_REASONS_IN_DETAIL)
    if explanation.is_newest:
        return _text([lines, [Line(f"{version} is the newest {name} in the catalogue")]])
    return _text([lines, _indented(explanation.answer)])


def _indented(lines: Iterable[Line]) -> list[Line]:
    return [Line(f"  {line.text}", line.locations) for line in lines]


def why_not_newer(explanation: Explanation, resolution: Resolution) -> list[Line]:
    """Return the reasons against newer releases, and which changes allow one."""
    excluded = [
        Line(f"not {first_versions(versions)}: outside the requested range", (requirement.location,))
        for requirement, versions in explanation.newer.excluded.items()
        if versions
    ]
    reasons = _other_reasons(explanation, resolution, _MAX_REASONS_IN_DETAIL)
    lines = [*excluded, *reasons, *explanation.answer]
    place = explanation.choice.candidate.release.location
    return [Line(line.text.strip(), line.locations or (place,)) for line in lines]


def _other_reasons(explanation: Explanation, resolution: Resolution, most: int) -> list[Line]:
    """Return the other reasons against newer releases: each fact, then the facts that it contradicts."""
    lines, newer = [], explanation.newer
    if newer.without_variant:
        pattern = resolution.recipe.variants[explanation.choice.name]
        text = f"  not {first_versions(newer.without_variant)}: no variant {pattern.text}"
        lines.append(Line(text, (pattern.location,)))
    groups = grouped(newer.refusals)
    for group in groups[:most]:
        opening = f"  not {first_versions(variants_by_version(group))}{_variants(group)}: "
        lines.append(Line(f"{opening}{group_predicate(group)}", (reason_location(group[0]),)))
        lines += [
            Line(f"    {reason.text}", (reason.location,) if reason.location else ())
            for reason in (*opposing_reasons(group[0]), *_pinning_demand(group[0], resolution))
        ]
    if rest := [refusal for group in groups[most:] for refusal in group]:
        versions = first_versions(variants_by_version(rest))
        lines.append(Line(f"  not {versions}{_variants(rest)}, for other reasons"))
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


def _block(explanation: Explanation, resolution: Resolution) -> list[Line]:
    choice = explanation.choice
    demands = [_demand(demand, explanation) for demand in _relevant_demands(explanation)]
    names = ", ".join(f"{name} {version}" for name, version in choice.spec.provides.items())
    provided = [Line(f"  provides {names}")] if names else []
    if choice.version == explanation.newest:
        heading = f"{choice.candidate}, the newest known"
        if len(demands) == 1:
            return [Line(f"{heading}: {demands[0].text.strip()}", demands[0].locations), *provided]
        return [Line(heading), *provided, *demands]
    reasons = _other_reasons(explanation, resolution, _MAX_REASONS)
    return [Line(str(choice.candidate)), *provided, *demands, *reasons, *_indented(explanation.answer)]


def _relevant_demands(explanation: Explanation) -> list[Demand]:
    """Return the demand that adds a component to the image, and those that exclude newer versions."""
    choice, excluding = explanation.choice, explanation.newer.excluding
    own = [demand for demand in choice.demands if demand.requirement.name == choice.name]
    first = [demand for demand in (*own, *choice.demands) if demand.is_required][:1]
    return [demand for demand in choice.demands if demand in first or demand.requirement in excluding]


def _demand(demand: Demand, explanation: Explanation) -> Line:
    requirement = demand.requirement
    is_own = requirement.name == explanation.choice.name
    value = (version_range(requirement) or "it") if is_own else requirement_text(requirement)
    text = f"  {requester_text(demand)} {demand_verb(demand)} {value}"
    if excluded := explanation.newer.excluded.get(requirement):
        text += f", which excludes {first_versions(excluded)}"
    return Line(text, (requirement.location,))


def _way(alternative: Alternative, name: str) -> Line:
    """Return the newer version of a name that an alternative allows, and its changes."""
    version = alternative.resolution.version_of(name)
    locations = tuple(change.pin.location for change in alternative.changes)
    names = [change.pin.name for change in alternative.changes if change.pin.kind in ("base", "component")]
    warning = ", but has a known problem" if is_warned_of(name, alternative.resolution) else ""
    if names == [name] and len(alternative.changes) == 1:
        return Line(f"{version} fits if the image requests it{warning}", locations)
    if not alternative.changes:
        return Line(f"{version} fits with an older version of another component{warning}")
    return Line(f"{version} is possible with {describe_changes(alternative)}{warning}", locations)


def lines_text(lines: Iterable[tuple[str, Location | None]]) -> str:
    """Format lines with their locations in a column of their own."""
    return _text([[Line(text, (location,) if location else ()) for text, location in lines]])


def _text(blocks: Iterable[list[Line]]) -> str:
    """Return blocks of lines, separated by empty lines, with the locations in a column of their own."""
    blocks = [*blocks]
    widths = [len(line.text) for lines in blocks for line in lines if line.locations]
    width = max((width for width in widths if width <= _MAX_WIDTH), default=0)
    return "\n\n".join("\n".join(_line_text(line, width) for line in lines) for lines in blocks) + "\n"


def _line_text(line: Line, width: int) -> str:
    locations = ", ".join(dict.fromkeys(map(location_text, line.locations)))
    return f"{line.text.ljust(width)}   {locations}" if locations else line.text
