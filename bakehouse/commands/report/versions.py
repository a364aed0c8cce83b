"""Components of an image with the reasons for their versions, each with the line that it comes from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.project import HOME, ProjectSettings
from bakehouse.errors import Location
from bakehouse.resolve.explain import Explanation, explain_choice, explain_name, why_not_newer
from bakehouse.resolve.phrases import demand_reason
from bakehouse.resolve.resolver import Resolution

_MAX_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Why:
    """A reason for a version, or against newer ones."""

    text: str
    place: int
    """Index in `Places`."""


@dataclass(frozen=True, slots=True)
class Part:
    """A component of an image."""

    name: str
    version: str
    variant: str
    provides: Mapping[str, str]
    newest: str
    """The newest version in the catalogue."""
    source: str
    """URL of the publisher's page about the version; empty if the catalogue has none."""
    place: int
    why: tuple[Why, ...]
    """The demands on it."""
    newer: tuple[Why, ...]
    """The reasons against newer versions."""


@dataclass(slots=True)
class Places:
    """Lines of files, each once, as (path, line, text)."""

    project: ProjectSettings
    rows: list[tuple[str, int, str]] = field(default_factory=list)
    _indices: dict[tuple[Path, int], int] = field(default_factory=dict)

    def index(self, location: Location) -> int:
        key = (location.path, location.line)
        if key not in self._indices:
            self._indices[key] = len(self.rows)
            text = location.text.strip()[:_MAX_CHARACTERS]
            self.rows.append((relative(location.path, self.project), location.line, text))
        return self._indices[key]


def relative(path: Path, project: ProjectSettings) -> str:
    """Return a path below the project or Bakehouse's catalogue relative to it, so that machines agree."""
    if not path.is_absolute():
        return path.as_posix()
    for root in (project.root, HOME):
        if path.is_relative_to(root):
            return path.relative_to(root).as_posix()
    return path.name


def parts(
    resolution: Resolution, catalog: Catalog, places: Places, *, is_searched: bool = True
) -> tuple[Part, ...]:
    """Return the components of an image, base first; with `is_searched` also what allows newer versions."""
    explain = explain_name if is_searched else explain_choice
    return tuple(
        _part(explain(resolution, catalog, choice.name), resolution, places)
        for choice in resolution.all_choices
    )


def _part(explanation: Explanation, resolution: Resolution, places: Places) -> Part:
    choice = explanation.choice
    candidate = choice.candidate
    reasons = [demand_reason(demand) for demand in choice.demands]
    newer = () if explanation.is_newest else why_not_newer(explanation, resolution)
    return Part(
        name=choice.name,
        version=choice.version,
        variant=candidate.variant.name,
        provides=dict(choice.spec.provides),
        newest=explanation.newest,
        source=candidate.release.source,
        place=places.index(candidate.release.location),
        why=tuple(Why(reason.text, places.index(reason.location)) for reason in reasons if reason.location),
        newer=tuple(Why(line.text, places.index(line.locations[0])) for line in newer),
    )
