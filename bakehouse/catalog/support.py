"""Ends of support, from `recipes/support.yaml`. A version that is not there is not known."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache

from bakehouse.catalog.project import HOME
from bakehouse.errors import Problems, RecipeError
from bakehouse.util import yaml_reader
from bakehouse.util.yaml_fields import Fields

NOTICE = timedelta(days=30)
"""Interactive commands tell of an end this long before it."""


@dataclass(frozen=True, slots=True, order=True)
class Support:
    """Support of one version of a component, or of something that it provides."""

    until: str
    """The last day or month, such as `2027-10`; empty if it is not known."""
    name: str
    version: str
    source: str = ""

    @property
    def text(self) -> str:
        return f"{self.name} {self.version}: {self.until or 'not known'}"

    def has_ended(self, day: str) -> bool:
        """Return whether the end is before a day, such as `2027-10-31`; a month ends with its last day."""
        return bool(self.until) and self.until < day[: len(self.until)]


def support_of(versions: Mapping[str, str]) -> tuple[Support, ...]:
    """Return the ends of support of versions by name, the first end first and unknown ends last."""
    found = [
        Support(ends.get(_matching(version, ends), ""), name, version, source)
        for name, (source, ends) in _table().items()
        if (version := versions.get(name))
    ]
    return tuple(sorted(found, key=lambda support: (not support.until, support)))


def notice_day(today: date | None = None) -> str:
    """Return the day up to which ends of support concern an interactive command."""
    return ((today or date.today()) + NOTICE).isoformat()


def _matching(version: str, ends: Mapping[str, str]) -> str:
    """Return the longest key that is a version or the beginning of its numbers."""
    keys = (key for key in ends if f"{version}.".startswith(f"{key}."))
    return max(keys, key=len, default="")


@cache
def _table() -> Mapping[str, tuple[str, Mapping[str, str]]]:
    path = HOME / "recipes/support.yaml"
    problems = Problems()
    fields = Fields(yaml_reader.load(path), f"`{path.name}`", problems)
    table = {}
    for name in fields.names:
        if child := fields.child(name, f"`{name}`"):
            ends = {version.text: end.text for version, end in child.text_pairs("until")}
            table[name] = child.text("source", required=True), ends
            child.finish()
    problems.raise_as(RecipeError)
    return table
