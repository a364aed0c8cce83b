"""Components of images that have newer releases in the catalogue, and what these would need."""

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
"""Calls of the resolver for one component."""
_MOST_CHANGES = 2
_WIDEST = 70


@dataclass(frozen=True, slots=True)
class OutdatedComponent:
    """A component with a newer release, and whether that would fit."""

    choice: Choice
    newest: str
    verdict: str
    location: Location | None = None


def newer_releases(resolution: Resolution, catalog: Catalog) -> tuple[tuple[Choice, str], ...]:
    """Return the components of an image for which the catalogue has a newer release, with its version."""
    chosen = (resolution.base, *resolution.choices)
    newest = ((choice, catalog.components[choice.name].releases[0].version) for choice in chosen)
    return tuple((choice, version) for choice, version in newest if version != choice.version)


def outdated(resolution: Resolution, catalog: Catalog) -> tuple[OutdatedComponent, ...]:
    """Return the same, with whether the newest release would fit, or what excludes it."""
    return tuple(
        _judged(choice, newest, resolution, catalog) for choice, newest in newer_releases(resolution, catalog)
    )


def _judged(choice: Choice, newest: str, resolution: Resolution, catalog: Catalog) -> OutdatedComponent:
    requirement = Requirement(choice.name, f"=={newest}", choice.candidate.release.location)
    names = involved_names(choice, resolution, catalog)
    search = AlternativeSearch(resolution.recipe, catalog, CALLS, (requirement,), names)
    outcome = search.outcome_with_all_moved
    if isinstance(outcome, Conflict):
        reason = conflict_report.first_reason(outcome)
        reason = reason or Reason("is not compatible with the other components")
        return OutdatedComponent(choice, newest, reason.text, reason.location)
    nearest = search.nearest(1, _MOST_CHANGES).alternatives
    if not nearest:
        return OutdatedComponent(choice, newest, "needs more than two changes")
    if not nearest[0].changes:
        return OutdatedComponent(choice, newest, "fits with an older version of another component")
    verdict = f"fits with {describe_changes(nearest[0])}"
    return OutdatedComponent(choice, newest, verdict, nearest[0].changes[0].pin.location)


def table(resolution: Resolution, catalog: Catalog) -> str:
    """Return the outdated components of one image as text."""
    components = outdated(resolution, catalog)
    if not components:
        return f"{resolution.recipe.name}: every component is the newest known\n"
    rows = [
        (
            f"{component.choice.name} {component.choice.version}",
            f"newest {component.newest}",
            component.verdict,
            location_text(component.location) if component.location else "",
        )
        for component in components
    ]
    return f"{resolution.recipe.name}\n{format_table(rows, indent='  ', max_width=_WIDEST)}"


def summary(resolutions: Iterable[Resolution], catalog: Catalog) -> str:
    """Return the outdated components of many images as text: a line for each component."""
    counts: dict[tuple[str, str], Counter[str]] = {}
    for resolution in resolutions:
        for choice, newest in newer_releases(resolution, catalog):
            counts.setdefault((choice.name, newest), Counter())[choice.version] += 1
    return format_table(
        (name, newest, _counted(versions)) for (name, newest), versions in sorted(counts.items())
    )


def _counted(versions: Counter[str]) -> str:
    counts = [f"{version} in {count}" for version, count in versions.most_common(4)]
    rest = len(versions) - len(counts)
    return ", ".join(counts) + (f" and {rest} other versions" if rest else "")
