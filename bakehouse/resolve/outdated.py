"""Components of images that have newer releases in the catalogue, and what these would need."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.component import Requirement
from bakehouse.errors import Location, Reason
from bakehouse.resolve import conflict_report
from bakehouse.resolve.alternatives import Alternative, AlternativeSearch
from bakehouse.resolve.candidate import Conflict
from bakehouse.resolve.explain import describe_changes, involved_names
from bakehouse.resolve.phrases import location_text
from bakehouse.resolve.resolver import Choice, Resolution
from bakehouse.util.format import format_table

CALLS = 30
"""Calls of the resolver for one component."""
_MAX_CHANGES = 2
_MAX_WIDTH = 70


@dataclass(frozen=True, slots=True)
class OutdatedComponent:
    """A component with a newer release, and whether that would fit."""

    choice: Choice
    newest: str
    obstacle: Reason | None = None
    """The reason why no combination contains the newest release."""
    alternative: Alternative | None = None
    """The closest combination with the newest release; without changes, it only moves other components."""

    @property
    def verdict(self) -> str:
        """Return whether the newest release would fit, in words."""
        if self.obstacle:
            return self.obstacle.text
        if self.alternative is None:
            return "needs more than two changes"
        if not self.alternative.changes:
            return "fits with an older version of another component"
        return f"fits with {describe_changes(self.alternative)}"

    @property
    def location(self) -> Location | None:
        """The place of the obstacle or of the first change."""
        if self.alternative and self.alternative.changes:
            return self.alternative.changes[0].pin.location
        return self.obstacle.location if self.obstacle else None


@dataclass(frozen=True, slots=True)
class OutdatedCount:
    """The images that contain older versions of a component."""

    name: str
    newest: str
    versions: Counter[str]
    """The number of images by version."""


def newer_releases(resolution: Resolution, catalog: Catalog) -> tuple[tuple[Choice, str], ...]:
    """Return the components of an image for which the catalogue has a newer release, with its version."""
    chosen = resolution.all_choices
    newest = ((choice, catalog.components[choice.name].releases[0].version) for choice in chosen)
    return tuple((choice, version) for choice, version in newest if version != choice.version)


def find_outdated(resolution: Resolution, catalog: Catalog) -> tuple[OutdatedComponent, ...]:
    """Return the outdated components of an image, and whether their newest releases would fit."""
    return tuple(
        _judged(choice, newest, resolution, catalog) for choice, newest in newer_releases(resolution, catalog)
    )


def _judged(choice: Choice, newest: str, resolution: Resolution, catalog: Catalog) -> OutdatedComponent:
    requirement = Requirement(choice.name, f"=={newest}", choice.candidate.release.location)
    names = involved_names(choice, resolution, catalog)
    search = AlternativeSearch(resolution.recipe, catalog, CALLS, (requirement,), names)
    outcome = search.outcome_with_all_moved
    if isinstance(outcome, Conflict):
        unknown = Reason("is not compatible with the other components")
        return OutdatedComponent(choice, newest, conflict_report.first_reason(outcome) or unknown)
    nearest = search.nearest(1, _MAX_CHANGES).alternatives
    return OutdatedComponent(choice, newest, alternative=nearest[0] if nearest else None)


def count_outdated(resolutions: Iterable[Resolution], catalog: Catalog) -> list[OutdatedCount]:
    """Count the versions of outdated components in many images, without a search for alternatives."""
    versions: dict[tuple[str, str], Counter[str]] = {}
    for resolution in resolutions:
        for choice, newest in newer_releases(resolution, catalog):
            versions.setdefault((choice.name, newest), Counter())[choice.version] += 1
    return [OutdatedCount(*key, counter) for key, counter in sorted(versions.items())]


def table(image: str, components: Sequence[OutdatedComponent]) -> str:
    """Format the outdated components of one image."""
    if not components:
        return f"{image}: every component is the newest known\n"
    rows = [
        (
            f"{component.choice.name} {component.choice.version}",
            f"newest {component.newest}",
            component.verdict,
            location_text(component.location) if component.location else "",
        )
        for component in components
    ]
    return f"{image}\n{format_table(rows, indent='  ', max_width=_MAX_WIDTH)}"


def summary(counts: Iterable[OutdatedCount]) -> str:
    """Format the outdated components of many images: a line for each component."""
    return format_table((count.name, count.newest, _counted(count.versions)) for count in counts)


def _counted(versions: Counter[str]) -> str:
    counts = [f"{version} in {count}" for version, count in versions.most_common(4)]
    rest = len(versions) - len(counts)
    return ", ".join(counts) + (f" and {rest} other versions" if rest else "")
