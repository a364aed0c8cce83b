"""Chooses versions for a recipe: newest first, depth first, keeping who asked for what.

A component, its release and its variant are one candidate. A candidate is refused by a demand that is
already on the table, or because a demand of its own does not hold; what was refused, and by whom, is what
`explain` tells when nothing fits. The order of keys in a file never matters.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from packaging.utils import canonicalize_name

from bakehouse.candidates import Candidate, Conflict, Demand, Refusal, Selection, clash, held, refuse
from bakehouse.catalog import Catalog
from bakehouse.component import DRIVER, INSTANCE, Component, Face, Incompatibility, Release, Variant
from bakehouse.lockfile import Package
from bakehouse.recipe import Recipe


@dataclass(frozen=True, slots=True)
class Choice:
    """One component as chosen, with who asked for it and what made older or newer ones unfit."""

    candidate: Candidate
    demands: tuple[Demand, ...]
    passed_over: tuple[Refusal, ...]

    @property
    def name(self) -> str:
        return self.candidate.name

    @property
    def version(self) -> str:
        return self.candidate.release.version

    @property
    def face(self) -> Face:
        return self.candidate.face


@dataclass(frozen=True, slots=True)
class Resolution:
    """A recipe with exact versions, lower layers first."""

    recipe: Recipe
    base: Choice
    choices: tuple[Choice, ...]
    """Without the base; by layer order, then name."""
    owners: dict[str, tuple[Package, ...]]
    """The Python packages each component installs: of two that need one, the lower owns it."""
    user_packages: tuple[Package, ...]
    targets: tuple[Candidate, ...] = ()
    """The instance types and the driver that it is for."""
    warnings: tuple[tuple[Candidate, Incompatibility], ...] = ()
    """What is reported not to work together, on evidence too thin to refuse it."""

    def version_of(self, name: str) -> str | None:
        """The version of a component or of what one provides."""
        for choice in (self.base, *self.choices):
            if name in choice.candidate.given:
                return choice.candidate.given[name]
        return None


class NothingFits(Exception):
    """Carries a Conflict to `explain`, which has the words."""

    def __init__(self, conflict: Conflict) -> None:
        super().__init__(conflict.name)
        self.conflict = conflict


def resolve(recipe: Recipe, catalog: Catalog) -> Resolution:
    """The newest versions that satisfy a recipe. Raises NothingFits with the causes."""
    return _Search(recipe, catalog).run()


@dataclass(frozen=True, slots=True)
class _DeadEnd:
    conflict: Conflict
    culprits: frozenset[str]
    """The chosen parts of which at least one has to change."""


class _Search:
    """Steps back to a choice that has to do with the failure, not to the latest: others can't mend it."""

    def __init__(self, recipe: Recipe, catalog: Catalog) -> None:
        self._recipe = recipe
        self._components = catalog.components
        self._links = catalog.links
        self._targets = _targets(recipe, catalog)
        self._named = {one.name for one in recipe.components}
        self._passed_over: dict[str, tuple[Refusal, ...]] = {}
        self._known: dict[str, list[tuple[Candidate, tuple[Demand, ...]]]] = {}

    def run(self) -> Resolution:
        demands = tuple(Demand(one, None) for one in (self._recipe.base, *self._recipe.components))
        locked: dict[str, tuple[Package, Candidate | None]] = {
            canonicalize_name(one.name): (one, None) for one in self._recipe.content.packages
        }
        found = self._extend(Selection((), demands, locked, targets=self._targets))
        if isinstance(found, Selection):
            return self._result(found)
        raise NothingFits(found.conflict)

    def _extend(self, selection: Selection) -> Selection | _DeadEnd:
        name = self._next_name(selection)
        if name is None:
            missing = min(selection.missing, default=None)
            return self._dead_end(selection, missing, (), frozenset()) if missing else selection
        refusals: list[Refusal] = []
        culprits: frozenset[str] = frozenset()
        for candidate, demands in self._candidates(name):
            refusal = refuse(candidate, demands, selection)
            if refusal is None:
                found = self._extend(selection.plus(candidate, demands))
                if isinstance(found, Selection):
                    self._passed_over[name] = tuple(refusals)
                    return found
                if name not in found.culprits:
                    return found
                culprits |= found.culprits
                refusal = Refusal(candidate, found.conflict.name, then=found.conflict)
            culprits |= refusal.culprits
            refusals.append(refusal)
        dead_end = self._dead_end(selection, name, tuple(refusals), culprits - {name})
        later = replace(selection, put_off=selection.put_off | {name})
        if not self._links.is_shared(name) or self._next_name(later) is None:
            return dead_end
        found = self._extend(later)
        if isinstance(found, Selection):
            return found
        return _DeadEnd(dead_end.conflict, dead_end.culprits | found.culprits)

    def _next_name(self, selection: Selection) -> str | None:
        """The base, then the recipe's own names, then others; last what parts yet to come may provide."""
        if not selection.chosen:
            return None if self._recipe.base.name in selection.put_off else self._recipe.base.name
        return min(selection.missing - selection.put_off, key=self._rank, default=None)

    def _rank(self, name: str) -> tuple[bool, bool, int, str]:
        component = self._components.get(name)
        order = component.order if component else 0
        return self._links.is_shared(name), name not in self._named, order, name

    def _candidates(self, name: str) -> list[tuple[Candidate, tuple[Demand, ...]]]:
        """The candidates of a name, each with what it asks for: the same ones at every step."""
        if name not in self._known:
            self._known[name] = [(one, self._demands_of(one)) for one in self._newest_first(name)]
        return self._known[name]

    def _newest_first(self, name: str) -> Iterator[Candidate]:
        component = self._components.get(name)
        is_elsewhere = component and component.is_base and name != self._recipe.base.name
        if component is None or is_elsewhere or name == INSTANCE:
            return
        pattern = self._recipe.variants.get(name)
        for release in component.releases:
            for variant in release.variants:
                if pattern is None or fnmatchcase(variant.name, pattern.text):
                    yield Candidate(component, release, variant)

    def _demands_of(self, candidate: Candidate) -> tuple[Demand, ...]:
        face = candidate.face
        wanted = (one for one in face.recommends if one.name not in self._recipe.without)
        return (
            *(Demand(one, candidate) for one in (*face.requires, *wanted)),
            *(Demand(one, candidate, brings=False) for one in face.constraints),
        )

    def _dead_end(
        self, selection: Selection, name: str, refusals: tuple[Refusal, ...], culprits: frozenset[str]
    ) -> _DeadEnd:
        """Who brought the name is a culprit too, and who might bring, or keeps out, what provides it."""
        askers = [one.asker for one in selection.demands if one.requirement.name == name and one.brings]
        if None not in askers:
            culprits |= {asker.name for asker in askers[:1] if asker}
        for one in selection.chosen:
            if any(self._links.leads_to(given, name) for given in one.given):
                culprits |= {one.name}
        return _DeadEnd(Conflict(self._recipe, name, selection.demands, refusals), culprits)

    def _result(self, selection: Selection) -> Resolution:
        base, *others = (
            Choice(
                candidate,
                tuple(one for one in selection.demands if one.requirement.name in candidate.given),
                self._passed_over.get(candidate.name, ()),
            )
            for candidate in selection.chosen
        )
        choices = sorted(others, key=lambda choice: (choice.candidate.component.order, choice.name))
        owners, mine = _share_packages(base.candidate, choices, self._recipe.content.packages)
        pool = (*selection.chosen, *self._targets)
        warnings = [
            (one, known)
            for one in selection.chosen
            for known in one.face.conflicts
            if not known.is_certain and clash(known, pool)
        ]
        return Resolution(
            self._recipe, base, tuple(choices), owners, mine, targets=self._targets, warnings=tuple(warnings)
        )


def _targets(recipe: Recipe, catalog: Catalog) -> tuple[Candidate, ...]:
    """What an image has to run on, as parts that are there before any is chosen."""
    found = []
    component = catalog.components.get(INSTANCE)
    for release in component.releases if component else ():
        for variant in release.variants:
            if any(fnmatchcase(variant.name, pattern.text) for pattern in recipe.targets.instances):
                assert component
                found.append(Candidate(component, release, variant))
    if driver := recipe.targets.driver:
        variant = Variant("", Face(), driver.location)
        release = Release(driver.text, (variant,), driver.location)
        host = Component(
            DRIVER, "The host's driver", 0, Path(), (), (release,), "", None, {}, driver.location
        )
        found.append(Candidate(host, release, variant))
    return tuple(found)


def _share_packages(
    base: Candidate, choices: list[Choice], mine: tuple[Package, ...]
) -> tuple[dict[str, tuple[Package, ...]], tuple[Package, ...]]:
    """Give each Python package to the lowest part that needs it, and to the recipe what none does.

    What the base has and keeps is given to nobody.
    """
    taken: set[str] = set()

    def take(packages: tuple[Package, ...]) -> tuple[Package, ...]:
        own = tuple(
            one for one in packages if canonicalize_name(one.name) not in taken and not held(base, one)
        )
        taken.update(canonicalize_name(one.name) for one in own)
        return own

    owners = {choice.name: take(choice.face.packages) for choice in choices}
    return owners, take(mine)
