"""Each known conflict of the catalogue, over the resolver: images are refused or warned of as the entry says.

Each entry is tried in a catalogue of its own: the component that has it, and its other parts in versions that
the real catalogue has, without any other requirement.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.component import (
    INSTANCE,
    BaseSource,
    Component,
    Incompatibility,
    Release,
    Requirement,
    Variant,
    VariantSpec,
)
from bakehouse.catalog.recipe import Content, Recipe, Targets
from bakehouse.errors import Location
from bakehouse.plan.workspace import open_workspace
from bakehouse.resolve.candidate import Candidate
from bakehouse.resolve.conflict_report import conflict_error
from bakehouse.resolve.phrases import warnings_text
from bakehouse.resolve.resolver import Unsatisfiable, resolve
from bakehouse.util.yaml_reader import Scalar
from tests.support.errors import error_text

CATALOG = open_workspace().catalog
NOWHERE = Location(Path("breakage.yaml"), 1, 1)
BASE = "ground"


@dataclass(frozen=True)
class Breakage:
    """A known conflict, and the first component that has it."""

    owner: Candidate
    entry: Incompatibility

    def __str__(self) -> str:
        return f"{self.owner.name}:{self.entry.location.line}"


def breakages() -> Iterator[Breakage]:
    """Yield each entry of the catalogue once; what a base contains has the entries of its components."""
    seen: set[tuple[Path, int, int]] = set()
    for component in CATALOG.components.values():
        for release in component.releases:
            for variant in release.variants:
                for entry in variant.spec.conflicts:
                    place = (entry.location.path, entry.location.line, entry.location.column)
                    if not entry.content and place not in seen:
                        seen.add(place)
                        yield Breakage(Candidate(component, release, variant), entry)


BREAKAGES = [*breakages()]


@cache
def provided(name: str) -> tuple[Candidate, ...]:
    """Return the candidates of the catalogue that provide a name."""
    return tuple(
        Candidate(component, release, variant)
        for component in CATALOG.components.values()
        for release in component.releases
        for variant in release.variants
        if name in {component.name, *variant.spec.provides}
    )


def answer(breakage: Breakage, partners: list[Candidate]) -> tuple[bool, str]:
    """Return whether an image of the owner and of providers of the parts fits, and the report or warnings."""
    owner, parts = breakage.owner, breakage.entry.parts
    components = {BASE: only(BASE, "1", VariantSpec(base=BaseSource(suite="stable")))}
    spec = VariantSpec(provides=owner.spec.provides, conflicts=(breakage.entry,))
    if owner.component.is_base:
        spec = replace(spec, base=BaseSource(suite="stable"))
    components[owner.name] = only(owner.name, owner.release.version, spec)
    instances = []
    for part, partner in zip(parts, partners, strict=True):
        if partner.name == INSTANCE:
            instances.append(Scalar(partner.variant.name, NOWHERE))
            components[INSTANCE] = CATALOG.components[INSTANCE]
        elif part.name not in owner.provided:
            components[part.name] = only(part.name, partner.provided[part.name], VariantSpec())
    base = owner.name if owner.component.is_base else BASE
    recipe = Recipe(
        name="mine",
        family="mine",
        summary="mine",
        base=Requirement(base, "", NOWHERE),
        components=tuple(
            Requirement(name, "", NOWHERE) for name in components if name not in (base, BASE, INSTANCE)
        ),
        variants={},
        exclude=frozenset(),
        content=Content(),
        location=NOWHERE,
        targets=Targets(instances=tuple(instances)),
    )
    catalog = Catalog(components)
    try:
        return True, warnings_text([resolve(recipe, catalog)])
    except Unsatisfiable as error:
        return False, error_text(conflict_error(error.conflict, catalog, calls=0))


def only(name: str, version: str, spec: VariantSpec) -> Component:
    release = Release(version, (Variant("", spec, NOWHERE),), NOWHERE)
    return Component(name, name, 1, Path(name), (), (release,), "", None, {}, NOWHERE)


def partners(breakage: Breakage, *, matching: bool) -> list[Candidate] | None:
    """Return candidates that match all parts, or all but the last.

    None if the catalogue has none, or if the component itself provides the last part.
    """
    if not matching and breakage.entry.parts[-1].name in breakage.owner.provided:
        return None
    expected = {part.name: matching for part in breakage.entry.parts[-1:]}

    def is_wanted(candidate: Candidate) -> bool:
        return all(
            part.allows(candidate.provided[part.name]) == expected.get(part.name, True)
            for part in breakage.entry.parts
            if part.name in candidate.provided
        )

    found = []
    for part in breakage.entry.parts:
        # An instance type provides several names
        candidate = next(filter(is_wanted, provided(part.name)), None)
        if candidate is None:
            return None
        found.append(candidate)
    return found


@pytest.mark.parametrize("component", sorted({breakage.owner.name for breakage in BREAKAGES}))
def test_known_conflicts_are_refused_or_warned_of_as_their_entries_say(component: str) -> None:
    for breakage in (breakage for breakage in BREAKAGES if breakage.owner.name == component):
        entry = breakage.entry
        matching = partners(breakage, matching=True)
        assert matching, f"nothing in the catalogue matches {breakage}"
        fits, text = answer(breakage, matching)
        assert fits != entry.is_error, breakage
        assert entry.reason in text, breakage
        assert entry.source in text, breakage
        if others := partners(breakage, matching=False):
            fits, text = answer(breakage, others)
            assert fits, breakage
            assert entry.reason not in text, breakage


def test_each_severity_has_entries() -> None:
    assert {breakage.entry.is_error for breakage in BREAKAGES} == {True, False}
