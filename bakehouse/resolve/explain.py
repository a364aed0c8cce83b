"""Tells why each version of an image was chosen, what kept newer ones out, and what would let them in."""

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
"""How often the resolver is asked what a newer version of one part would take."""
CALLS_FOR_EACH = 15
"""The same, where all parts are told."""
_WIDEST = 76
_MOST_WAYS = 3
_MOST_REASONS = 2
_MOST_REASONS_OF_ONE = 8
_MOST_CHANGES = 2


@dataclass(frozen=True, slots=True)
class _Line:
    text: str
    spots: tuple[Location, ...] = ()


def overview(resolution: Resolution, catalog: Catalog) -> str:
    """Every part in a few lines: who brought it, what keeps newer ones out, which pin holds them back."""
    recipe = resolution.recipe
    lines = [line for choice in _all(resolution) for line in _block(choice, resolution, catalog)]
    example = (resolution.choices or (resolution.base,))[-1].name
    hint = f"`./bake explain {recipe.name} {example}` tells all of one part"
    return _text([[_Line(recipe.name)], lines, [_Line(hint)]])


def component_report(resolution: Resolution, catalog: Catalog, name: str) -> str:
    """All about one part, or about one thing that a part brings."""
    choice = next(one for one in _all(resolution) if name in one.candidate.provided)
    version, candidate = choice.candidate.provided[name], choice.candidate
    newest = catalog.components[choice.name].releases[0].version
    known = "the newest known" if newest == choice.version else f"the newest known is {newest}"
    lines = [_Line(f"{candidate}, {known}", (candidate.release.location,))]
    if name != choice.name:
        lines.insert(0, _Line(f"{name} {version}, which {candidate} brings", (candidate.variant.location,)))
    newer = _Newer(choice, resolution, catalog)
    lines += [_demand(one, choice, newer) for one in choice.demands]
    lines += newer.lines(_MOST_REASONS_OF_ONE)
    return _text([lines, _ways(resolution, catalog, name, version)])


def explainable_names(resolution: Resolution) -> tuple[str, ...]:
    """What can be asked about: the parts, and what they bring."""
    return tuple(sorted({name for choice in _all(resolution) for name in choice.candidate.provided}))


def describe_changes(combination: Alternative) -> str:
    """The changes of a combination, shortly: `cuda 12.4 → 12.6.3, without smp`."""
    return ", ".join(_change(one) for one in combination.changes)


def _change(change: PinChange) -> str:
    pin = change.pin
    if pin.kind == "lock":
        return "the requirements' lock made again"
    if change.base:
        return f"base {pin.name} → {change.base} {change.now}"
    if not change.now:
        return f"without {pin.name}"
    if pin.kind == "variant":
        return f"variant {pin.asked} of {pin.name} → {change.now}"
    return f"{pin.name} {pin.asked} → {change.now}"


def _all(resolution: Resolution) -> tuple[Choice, ...]:
    return (resolution.base, *resolution.choices)


class _Newer:
    """The releases of a part that are newer than the chosen one, by what keeps them out."""

    def __init__(self, choice: Choice, resolution: Resolution, catalog: Catalog) -> None:
        self._resolution = resolution
        here = Version(choice.version)
        left = [one for one in catalog.components[choice.name].releases if Version(one.version) > here]
        self.is_there = bool(left)
        self.by_demand: dict[Requirement, list[Release]] = {}
        for demand in choice.demands:
            if demand.requirement.name == choice.name:
                out = [one for one in left if not demand.requirement.allows(one.version)]
                left = [one for one in left if one not in out]
                self.by_demand[demand.requirement] = out
        self._pattern = resolution.recipe.variants.get(choice.name)
        self._by_name = [one for one in left if not self._is_called_so(one)]
        versions = {one.version for one in left if one not in self._by_name}
        self._refusals = [one for one in choice.skipped if one.candidate.release.version in versions]

    def _is_called_so(self, release: Release) -> bool:
        pattern = self._pattern
        return pattern is None or any(fnmatchcase(one.name, pattern.text) for one in release.variants)

    @property
    def keeping(self) -> set[Requirement]:
        """The demands that keep some newer version out."""
        theirs = [
            one.demand for one in self._refusals if one.demand and one.demand.required_by != one.candidate
        ]
        return {
            *(requirement for requirement, out in self.by_demand.items() if out),
            *(demand.requirement for demand in theirs),
        }

    def lines(self, most: int) -> list[_Line]:
        """What else keeps newer ones out: each fact with its place, then what it does not go with."""
        lines = []
        if self._by_name and self._pattern:
            told = first_versions(one.version for one in self._by_name)
            lines.append(_Line(f"  not {told}: no variant {self._pattern.text}", (self._pattern.location,)))
        found = grouped(self._refusals)
        for group in found[:most]:
            opening = f"  not {first_versions(variants_by_version(group))}{_variants(group)}: "
            lines.append(_Line(f"{opening}{group_predicate(group)}", (reason_location(group[0]),)))
            lines += [
                _Line(f"    {one.text}", (one.location,) if one.location else ())
                for one in (*opposing_reasons(group[0]), *self._reasons_for(group[0]))
            ]
        if rest := [one for group in found[most:] for one in group]:
            lines.append(
                _Line(
                    f"  not {first_versions(variants_by_version(rest))}{_variants(rest)}, for other reasons"
                )
            )
        return lines

    def _reasons_for(self, refusal: Refusal) -> Iterator[Reason]:
        """Why the part that a refused release does not go with is of its version."""
        other = refusal.other
        if other and other != refusal.candidate and other.name == refusal.name:
            found = next((one for one in _all(self._resolution) if one.name == other.name), None)
            pinned = [one for one in found.demands if one.requirement.specifier] if found else []
            yield from (demand_reason(one) for one in pinned[:1])


def _variants(group: list[Refusal]) -> str:
    """Which variants of one release, unless it is all of them."""
    names = [one.candidate.variant.name for one in group]
    is_one = len(variants_by_version(group)) == 1 and len(names) < len(group[0].candidate.release.variants)
    return variant_list(names) if is_one else ""


def _block(choice: Choice, resolution: Resolution, catalog: Catalog) -> list[_Line]:
    newer = _Newer(choice, resolution, catalog)
    telling = [_demand(one, choice, newer) for one in _telling(choice, newer)]
    provided = ", ".join(f"{name} {version}" for name, version in choice.spec.provides.items())
    brought = [_Line(f"  brings {provided}")] if provided else []
    if not newer.is_there:
        heading = f"{choice.candidate}, the newest known"
        if len(telling) == 1:
            return [_Line(f"{heading}: {telling[0].text.strip()}", telling[0].spots), *brought]
        return [_Line(heading), *brought, *telling]
    lines = [_Line(str(choice.candidate)), *brought, *telling, *newer.lines(_MOST_REASONS)]
    return lines + _one_change(choice, resolution, catalog)


def _telling(choice: Choice, newer: _Newer) -> list[Demand]:
    """Who brought a part in, and whose demands keep newer versions out."""
    own = [one for one in choice.demands if one.requirement.name == choice.name]
    first = [one for one in (*own, *choice.demands) if one.brings][:1]
    return [one for one in choice.demands if one in first or one.requirement in newer.keeping]


def _demand(demand: Demand, choice: Choice, newer: _Newer) -> _Line:
    one = demand.requirement
    what = requirement_text(one) if one.name != choice.name else version_range(one) or "it"
    out = newer.by_demand.get(one, [])
    kept = f", which keeps {first_versions(release.version for release in out)} out" if out else ""
    return _Line(f"  {requester_text(demand)} {demand_verb(demand)} {what}{kept}", (one.location,))


def _one_change(choice: Choice, resolution: Resolution, catalog: Catalog) -> list[_Line]:
    """Newer versions that one change of the recipe would give, of a pin that has to do with it."""
    wanted = Requirement(choice.name, f">{choice.version}", choice.candidate.release.location)
    search = AlternativeSearch(
        resolution.recipe, catalog, CALLS_FOR_EACH, (wanted,), involved_names(choice, resolution, catalog)
    )
    if isinstance(search.at_best, Conflict):
        return []
    return [_way(choice.name, one) for one in search.nearest(_MOST_CHANGES, most=1).combinations]


def involved_names(choice: Choice, resolution: Resolution, catalog: Catalog) -> set[str]:
    """The names that have to do with newer releases: what they ask for and bring, and who has that."""
    names = {choice.name}
    for release in catalog.components[choice.name].releases:
        if release.version == choice.version:
            break
        for spec in (variant.spec for variant in release.variants):
            names |= {one.name for one in (*spec.requires, *spec.constraints)} | spec.provides.keys()
    return names | {one.name for one in _all(resolution) if names & one.candidate.provided.keys()}


def _ways(resolution: Resolution, catalog: Catalog, name: str, version: str) -> list[_Line]:
    """The fewest changes of the recipe that give a newer version."""
    recipe = resolution.recipe
    if not _is_newer_known(catalog, name, version):
        return [_Line(f"{version} is the newest {name} that the catalogue knows")]
    wanted = Requirement(name, f">{version}", recipe.location)
    search = AlternativeSearch(recipe, catalog, CALLS, (wanted,))
    if isinstance(search.at_best, Conflict):
        return [_Line(f"a newer {name} does not go with the other parts, in any of their versions")]
    nearest = search.nearest(_MOST_WAYS)
    if nearest.combinations:
        return [_way(name, one) for one in nearest.combinations]
    if nearest.is_cut:
        return [_Line(f"no way to a newer {name} was found in {CALLS} tries")]
    return [_Line(f"no way to a newer {name} with up to three changes of the recipe")]


def _way(name: str, combination: Alternative) -> _Line:
    spots = tuple(change.pin.location for change in combination.changes)
    version = combination.resolution.version_of(name)
    return _Line(f"  {version} would take {describe_changes(combination)}", spots)


def _is_newer_known(catalog: Catalog, name: str, version: str) -> bool:
    known = (
        provided
        for component in catalog.components.values()
        for release in component.releases
        for variant in release.variants
        for provided in ((release.version,) if component.name == name else ())
        + ((variant.spec.provides[name],) if name in variant.spec.provides else ())
    )
    return any(Version(one) > Version(version) for one in known)


def _text(blocks: Iterable[list[_Line]]) -> str:
    """Blocks of lines with an empty one between, the places in a column of their own."""
    found = [*blocks]
    widths = [len(one.text) for lines in found for one in lines if one.spots]
    width = max((one for one in widths if one <= _WIDEST), default=0)
    return "\n\n".join("\n".join(_told(one, width) for one in lines) for lines in found) + "\n"


def _told(line: _Line, width: int) -> str:
    places = ", ".join(dict.fromkeys(location_text(one) for one in line.spots))
    return f"{line.text.ljust(width)}   {places}" if places else line.text
