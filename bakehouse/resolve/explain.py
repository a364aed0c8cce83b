"""Explanations of a resolution: why each version was chosen, and what excludes or allows newer ones."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from packaging.version import Version

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.component import Release, Requirement
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
"""The same for each component of an overview."""
_WIDEST = 76
_MOST_WAYS = 3
_MOST_REASONS = 2
_MOST_REASONS_IN_DETAIL = 8
_MOST_CHANGES = 2


@dataclass(frozen=True, slots=True)
class _Line:
    text: str
    locations: tuple[Location, ...] = ()


def overview(resolution: Resolution, catalog: Catalog) -> str:
    """Return a few lines for each component: its demands, and the pins that exclude newer versions."""
    recipe = resolution.recipe
    lines = [line for choice in _all(resolution) for line in _block(choice, resolution, catalog)]
    example = (resolution.choices or (resolution.base,))[-1].name
    hint = f"run `bake explain {recipe.name} {example}` for all details of one component"
    return _text([[_Line(recipe.name)], lines, [_Line(hint)]])


def component_report(resolution: Resolution, catalog: Catalog, name: str) -> str:
    """Return all details of one component, or of one name that a component provides."""
    choice = next(chosen for chosen in _all(resolution) if name in chosen.candidate.provided)
    version, candidate = choice.candidate.provided[name], choice.candidate
    newest = catalog.components[choice.name].releases[0].version
    rank = "the newest known" if newest == choice.version else f"the newest known is {newest}"
    lines = [_Line(f"{candidate}, {rank}", (candidate.release.location,))]
    if name != choice.name:
        lines.insert(0, _Line(f"{name} {version}, provided by {candidate}", (candidate.variant.location,)))
    newer = _Newer(choice, resolution, catalog)
    lines += [_demand(demand, choice, newer) for demand in choice.demands]
    lines += newer.lines(_MOST_REASONS_IN_DETAIL)
    return _text([lines, _ways(resolution, catalog, name, version)])


def explainable_names(resolution: Resolution) -> tuple[str, ...]:
    """Return the names that `explain` accepts: the components, and the names that they provide."""
    return tuple(sorted({name for choice in _all(resolution) for name in choice.candidate.provided}))


def describe_changes(alternative: Alternative) -> str:
    """Return the changes of an alternative: `cuda 12.4 → 12.6.3, without smp`."""
    return ", ".join(_change_text(change) for change in alternative.changes)


def _change_text(change: PinChange) -> str:
    pin = change.pin
    if pin.kind == "lock":
        return "an updated lock of the requirements"
    if change.base:
        return f"base {pin.name} → {change.base} {change.value}"
    if not change.value:
        return f"without {pin.name}"
    if pin.kind == "variant":
        return f"variant {pin.value} of {pin.name} → {change.value}"
    return f"{pin.name} {pin.value} → {change.value}"


def _all(resolution: Resolution) -> tuple[Choice, ...]:
    return (resolution.base, *resolution.choices)


class _Newer:
    """The releases of a component newer than the chosen one, by the reason against them."""

    def __init__(self, choice: Choice, resolution: Resolution, catalog: Catalog) -> None:
        self._resolution = resolution
        chosen = Version(choice.version)
        releases = catalog.components[choice.name].releases
        left = [release for release in releases if Version(release.version) > chosen]
        self.exist = bool(left)
        self.by_demand: dict[Requirement, list[Release]] = {}
        for demand in choice.demands:
            if demand.requirement.name == choice.name:
                excluded = [release for release in left if not demand.requirement.allows(release.version)]
                left = [release for release in left if release not in excluded]
                self.by_demand[demand.requirement] = excluded
        self._pattern = resolution.recipe.variants.get(choice.name)
        self._without_variant = [release for release in left if not self._has_variant(release)]
        versions = {release.version for release in left if release not in self._without_variant}
        self._refusals = [
            refusal for refusal in choice.skipped if refusal.candidate.release.version in versions
        ]

    def _has_variant(self, release: Release) -> bool:
        pattern = self._pattern
        return pattern is None or any(fnmatchcase(one.name, pattern.text) for one in release.variants)

    @property
    def excluding(self) -> set[Requirement]:
        """The demands that exclude a newer version."""
        unmet = [(refusal.demand, refusal.candidate) for refusal in self._refusals if refusal.demand]
        others = [demand for demand, candidate in unmet if demand.required_by != candidate]
        return {
            *(requirement for requirement, excluded in self.by_demand.items() if excluded),
            *(demand.requirement for demand in others),
        }

    def lines(self, most: int) -> list[_Line]:
        """Return the other reasons against newer releases: each fact, then the facts that it contradicts."""
        lines = []
        if self._without_variant and self._pattern:
            versions = first_versions(release.version for release in self._without_variant)
            text = f"  not {versions}: no variant {self._pattern.text}"
            lines.append(_Line(text, (self._pattern.location,)))
        groups = grouped(self._refusals)
        for group in groups[:most]:
            opening = f"  not {first_versions(variants_by_version(group))}{_variants(group)}: "
            lines.append(_Line(f"{opening}{group_predicate(group)}", (reason_location(group[0]),)))
            lines += [
                _Line(f"    {reason.text}", (reason.location,) if reason.location else ())
                for reason in (*opposing_reasons(group[0]), *self._reasons_for(group[0]))
            ]
        if rest := [refusal for group in groups[most:] for refusal in group]:
            lines.append(
                _Line(
                    f"  not {first_versions(variants_by_version(rest))}{_variants(rest)}, for other reasons"
                )
            )
        return lines

    def _reasons_for(self, refusal: Refusal) -> Iterator[Reason]:
        """Yield the demand that pins the component which a refused release contradicts."""
        other = refusal.other
        if other and other != refusal.candidate and other.name == refusal.name:
            choices = (choice for choice in _all(self._resolution) if choice.name == other.name)
            demands = [demand for choice in choices for demand in choice.demands]
            pinning = [demand for demand in demands if demand.requirement.specifier]
            yield from map(demand_reason, pinning[:1])


def _variants(group: list[Refusal]) -> str:
    """Return the refused variants of one release, unless all are refused."""
    names = [refusal.candidate.variant.name for refusal in group]
    is_one = len(variants_by_version(group)) == 1 and len(names) < len(group[0].candidate.release.variants)
    return variant_list(names) if is_one else ""


def _block(choice: Choice, resolution: Resolution, catalog: Catalog) -> list[_Line]:
    newer = _Newer(choice, resolution, catalog)
    demands = [_demand(demand, choice, newer) for demand in _relevant_demands(choice, newer)]
    names = ", ".join(f"{name} {version}" for name, version in choice.spec.provides.items())
    provided = [_Line(f"  provides {names}")] if names else []
    if not newer.exist:
        heading = f"{choice.candidate}, the newest known"
        if len(demands) == 1:
            return [_Line(f"{heading}: {demands[0].text.strip()}", demands[0].locations), *provided]
        return [_Line(heading), *provided, *demands]
    lines = [_Line(str(choice.candidate)), *provided, *demands, *newer.lines(_MOST_REASONS)]
    return lines + _single_changes(choice, resolution, catalog)


def _relevant_demands(choice: Choice, newer: _Newer) -> list[Demand]:
    """Return the demand that adds a component to the image, and those that exclude newer versions."""
    own = [demand for demand in choice.demands if demand.requirement.name == choice.name]
    first = [demand for demand in (*own, *choice.demands) if demand.is_required][:1]
    excluding = newer.excluding
    return [demand for demand in choice.demands if demand in first or demand.requirement in excluding]


def _demand(demand: Demand, choice: Choice, newer: _Newer) -> _Line:
    requirement = demand.requirement
    is_own = requirement.name == choice.name
    value = (version_range(requirement) or "it") if is_own else requirement_text(requirement)
    text = f"  {requester_text(demand)} {demand_verb(demand)} {value}"
    if excluded := newer.by_demand.get(requirement):
        text += f", which excludes {first_versions(release.version for release in excluded)}"
    return _Line(text, (requirement.location,))


def _single_changes(choice: Choice, resolution: Resolution, catalog: Catalog) -> list[_Line]:
    """Return the single changes of a related pin that allow a newer version."""
    newer = Requirement(choice.name, f">{choice.version}", choice.candidate.release.location)
    search = AlternativeSearch(
        resolution.recipe, catalog, CALLS_FOR_EACH, (newer,), involved_names(choice, resolution, catalog)
    )
    if isinstance(search.outcome_with_all_moved, Conflict):
        return []
    nearest = search.nearest(_MOST_CHANGES, most_changes=1)
    return [_way(choice.name, alternative) for alternative in nearest.alternatives]


def involved_names(choice: Choice, resolution: Resolution, catalog: Catalog) -> set[str]:
    """Return the names that newer releases need and provide, and the chosen components that provide these."""
    names = {choice.name}
    for release in catalog.components[choice.name].releases:
        if release.version == choice.version:
            break
        for spec in (variant.spec for variant in release.variants):
            requirements = (*spec.requires, *spec.constraints)
            names |= {requirement.name for requirement in requirements} | spec.provides.keys()
    return names | {chosen.name for chosen in _all(resolution) if names & chosen.candidate.provided.keys()}


def _ways(resolution: Resolution, catalog: Catalog, name: str, version: str) -> list[_Line]:
    """Return the fewest changes of the recipe that allow a newer version."""
    recipe = resolution.recipe
    if not _is_newer_known(catalog, name, version):
        return [_Line(f"{version} is the newest {name} in the catalogue")]
    newer = Requirement(name, f">{version}", recipe.location)
    search = AlternativeSearch(recipe, catalog, CALLS, (newer,))
    if isinstance(search.outcome_with_all_moved, Conflict):
        return [_Line(f"no newer {name} is compatible with any versions of the other components")]
    nearest = search.nearest(_MOST_WAYS)
    if nearest.alternatives:
        return [_way(name, alternative) for alternative in nearest.alternatives]
    if nearest.is_cut:
        return [_Line(f"no combination with a newer {name} was found in {CALLS} tries")]
    return [_Line(f"no combination of up to three changes of the recipe allows a newer {name}")]


def _way(name: str, alternative: Alternative) -> _Line:
    locations = tuple(change.pin.location for change in alternative.changes)
    version = alternative.resolution.version_of(name)
    return _Line(f"  {version} is possible with {describe_changes(alternative)}", locations)


def _is_newer_known(catalog: Catalog, name: str, version: str) -> bool:
    versions = (
        provided
        for component in catalog.components.values()
        for release in component.releases
        for variant in release.variants
        for provided in ((release.version,) if component.name == name else ())
        + ((variant.spec.provides[name],) if name in variant.spec.provides else ())
    )
    return any(Version(known) > Version(version) for known in versions)


def _text(blocks: Iterable[list[_Line]]) -> str:
    """Return blocks of lines, separated by empty lines, with the locations in a column of their own."""
    blocks = [*blocks]
    widths = [len(line.text) for lines in blocks for line in lines if line.locations]
    width = max((width for width in widths if width <= _WIDEST), default=0)
    return "\n\n".join("\n".join(_line_text(line, width) for line in lines) for lines in blocks) + "\n"


def _line_text(line: _Line, width: int) -> str:
    locations = ", ".join(dict.fromkeys(map(location_text, line.locations)))
    return f"{line.text.ljust(width)}   {locations}" if locations else line.text
