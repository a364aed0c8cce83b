"""Which parts of images are older than what the catalogue knows, and what the newest would take."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.component import Requirement
from bakehouse.errors import Location, Reason
from bakehouse.resolve import conflict_report
from bakehouse.resolve.alternatives import AlternativeSearch
from bakehouse.resolve.candidate import Conflict
from bakehouse.resolve.explain import describe_changes, involved_names
from bakehouse.resolve.phrases import location_text
from bakehouse.resolve.resolver import Choice, Resolution
from bakehouse.util.format import format_table

CALLS = 30
"""How often the resolver is asked about one part."""
_MOST_CHANGES = 2
_WIDEST = 70


@dataclass(frozen=True, slots=True)
class OutdatedComponent:
    """A part that has a newer release, and whether that would fit."""

    choice: Choice
    newest: str
    verdict: str
    location: Location | None = None


def newer_releases(resolution: Resolution, catalog: Catalog) -> tuple[tuple[Choice, str], ...]:
    """The parts of an image for which the catalogue has a newer release, with the newest one."""
    chosen = (resolution.base, *resolution.choices)
    found = [(choice, catalog.components[choice.name].releases[0].version) for choice in chosen]
    return tuple((choice, newest) for choice, newest in found if newest != choice.version)


def outdated(resolution: Resolution, catalog: Catalog) -> tuple[OutdatedComponent, ...]:
    """The same, with whether the newest release would fit, or what holds it back."""
    found = newer_releases(resolution, catalog)
    return tuple(_judged(choice, newest, resolution, catalog) for choice, newest in found)


def _judged(choice: Choice, newest: str, resolution: Resolution, catalog: Catalog) -> OutdatedComponent:
    wanted = Requirement(choice.name, f"=={newest}", choice.candidate.release.location)
    names = involved_names(choice, resolution, catalog)
    search = AlternativeSearch(resolution.recipe, catalog, CALLS, (wanted,), names)
    best = search.at_best
    if isinstance(best, Conflict):
        told = conflict_report.first_reason(best) or Reason("does not go with the other parts")
        return OutdatedComponent(choice, newest, told.text, told.location)
    found = search.nearest(1, _MOST_CHANGES).combinations
    if not found:
        return OutdatedComponent(choice, newest, "takes more than two changes")
    there = found[0].changes[0].pin.location if found[0].changes else None
    words = f"fits with {describe_changes(found[0])}" if there else "fits, in the place of a newer other part"
    return OutdatedComponent(choice, newest, words, there)


def table(resolution: Resolution, catalog: Catalog) -> str:
    """One image's parts that are not the newest known."""
    found = outdated(resolution, catalog)
    if not found:
        return f"{resolution.recipe.name}: every part is the newest known\n"
    rows = [
        (
            f"{one.choice.name} {one.choice.version}",
            f"newest {one.newest}",
            one.verdict,
            location_text(one.location) if one.location else "",
        )
        for one in found
    ]
    return f"{resolution.recipe.name}\n{format_table(rows, indent='  ', max_width=_WIDEST)}"


def summary(resolutions: Iterable[Resolution], catalog: Catalog) -> str:
    """What many images have that is not the newest known: a line a part."""
    found: dict[tuple[str, str], Counter[str]] = {}
    for resolution in resolutions:
        for choice, newest in newer_releases(resolution, catalog):
            found.setdefault((choice.name, newest), Counter())[choice.version] += 1
    rows = [(name, newest, _counted(versions)) for (name, newest), versions in sorted(found.items())]
    return format_table(rows)


def _counted(versions: Counter[str]) -> str:
    told = [f"{version} in {count}" for version, count in versions.most_common(4)]
    rest = len(versions) - len(told)
    return ", ".join(told) + (f" and {rest} other versions" if rest else "")
