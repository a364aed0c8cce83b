"""Components of images that have newer releases in the catalogue, and what these would need."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bakehouse.catalog.catalog import Catalog
from bakehouse.resolve.explain import Explanation, explain_name, newest_version
from bakehouse.resolve.phrases import location_text
from bakehouse.resolve.resolver import Choice, Resolution
from bakehouse.util.format import format_table

_MAX_WIDTH = 70


@dataclass(frozen=True, slots=True)
class OutdatedCount:
    """The images that contain older versions of a component."""

    name: str
    newest: str
    versions: Counter[str]
    """The number of images by version."""


def newer_releases(resolution: Resolution, catalog: Catalog) -> tuple[tuple[Choice, str], ...]:
    """Return the components of an image for which the catalogue has a newer release, with its version."""
    newest = ((choice, newest_version(choice)) for choice in resolution.all_choices)
    return tuple((choice, version) for choice, version in newest if version != choice.version)


def find_outdated(resolution: Resolution, catalog: Catalog) -> tuple[Explanation, ...]:
    """Return the outdated components of an image, and what would allow newer releases."""
    outdated = newer_releases(resolution, catalog)
    return tuple(explain_name(resolution, catalog, choice.name) for choice, _ in outdated)


def count_outdated(resolutions: Iterable[Resolution], catalog: Catalog) -> list[OutdatedCount]:
    """Count the versions of outdated components in many images, without a search for alternatives."""
    versions: dict[tuple[str, str], Counter[str]] = {}
    for resolution in resolutions:
        for choice, newest in newer_releases(resolution, catalog):
            versions.setdefault((choice.name, newest), Counter())[choice.version] += 1
    return [OutdatedCount(*key, counter) for key, counter in sorted(versions.items())]


def table(image: str, components: Sequence[Explanation]) -> str:
    """Format the outdated components of one image."""
    if not components:
        return f"{image}: every component is the newest known\n"
    rows = []
    for component in components:
        cells = f"{component.name} {component.version}", f"newest {component.newest}"
        for line in component.answer:
            rows.append((*cells, line.text, location_text(line.locations[0]) if line.locations else ""))
            cells = "", ""
    return f"{image}\n{format_table(rows, indent='  ', max_width=_MAX_WIDTH)}"


def summary(counts: Iterable[OutdatedCount]) -> str:
    """Format the outdated components of many images: a line for each component."""
    return format_table((count.name, count.newest, _counted(count.versions)) for count in counts)


def _counted(versions: Counter[str]) -> str:
    counts = [f"{version} in {count}" for version, count in versions.most_common(4)]
    rest = len(versions) - len(counts)
    return ", ".join(counts) + (f" and {rest} other versions" if rest else "")
