"""Chooses versions for a recipe: newest first, depth first, keeping who asked for what.

A component, its release and its variant are one candidate. A candidate is refused by a demand that is
already on the table, or because a demand of its own does not hold; what was refused, and by whom, is what
`explain` tells when nothing fits.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from bakehouse.catalog import Catalog, Component, Face, Package, Release, Requirement, Variant
from bakehouse.errors import Location
from bakehouse.recipe import Recipe


@dataclass(frozen=True, slots=True)
class Demand:
    """Somebody's requirement on a name."""

    requirement: Requirement
    by: str
    """`image x`, or the candidate that asks, such as `mpi4py 4.1.2`."""
    brings: bool = True
    """Whether the name has to be in the image, or only fits if it is."""


@dataclass(frozen=True, slots=True)
class Candidate:
    component: Component
    release: Release
    variant: Variant

    def __str__(self) -> str:
        variant = f" ({self.variant.name})" if self.variant.name else ""
        return f"{self.component.name} {self.release.version}{variant}"

    @property
    def face(self) -> Face:
        return self.variant.face

    @property
    def given(self) -> dict[str, str]:
        """Every name this candidate answers for, with its version."""
        return {self.component.name: self.release.version, **self.face.provides}


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why one candidate can't be in the image."""

    candidate: Candidate
    demand: Demand | None
    """The demand that does not hold; None where `text` says it all."""
    text: str
    location: Location


@dataclass(frozen=True, slots=True)
class Choice:
    """One component as chosen, with who asked for it and what made older or newer ones unfit."""

    candidate: Candidate
    demands: tuple[Demand, ...]
    passed_over: tuple[Refusal, ...]

    @property
    def name(self) -> str:
        return self.candidate.component.name

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

    def version_of(self, name: str) -> str | None:
        """The version of a component or of what one provides."""
        for choice in (self.base, *self.choices):
            if name in choice.candidate.given:
                return choice.candidate.given[name]
        return None


@dataclass(frozen=True, slots=True)
class Conflict:
    """No candidate of `name` fits."""

    recipe: Recipe
    name: str
    demands: tuple[Demand, ...]
    refusals: tuple[Refusal, ...]


class NothingFits(Exception):
    """Carries a Conflict to `explain`, which has the words."""

    def __init__(self, conflict: Conflict) -> None:
        super().__init__(conflict.name)
        self.conflict = conflict


def resolve(recipe: Recipe, catalog: Catalog) -> Resolution:
    """The newest versions that satisfy a recipe. Raises NothingFits with the causes."""
    return _Search(recipe, catalog).run()


@dataclass(frozen=True, slots=True)
class _State:
    chosen: tuple[Candidate, ...]
    demands: tuple[Demand, ...]
    pending: tuple[str, ...]
    """Names asked for by the recipe itself and not chosen yet; the base comes first."""


class _Search:
    def __init__(self, recipe: Recipe, catalog: Catalog) -> None:
        self._recipe = recipe
        self._catalog = catalog
        self._deepest: tuple[int, Conflict] | None = None
        self._passed_over: dict[str, tuple[Refusal, ...]] = {}

    def run(self) -> Resolution:
        own = (self._recipe.base, *self._recipe.components)
        by = f"image {self._recipe.name}"
        demands = tuple(Demand(one, by) for one in own)
        state = self._extend(_State((), demands, tuple(dict.fromkeys(one.name for one in own))))
        if state is None:
            assert self._deepest is not None
            raise NothingFits(self._deepest[1])
        return self._result(state)

    def _extend(self, state: _State) -> _State | None:
        name = self._next_name(state)
        if name is None:
            return state
        refusals: list[Refusal] = []
        for candidate in self._candidates(name):
            refusal = self._refuse(candidate, state)
            if refusal:
                refusals.append(refusal)
                continue
            self._passed_over[name] = tuple(refusals)
            found = self._extend(self._with(state, candidate))
            if found:
                return found
            depth_first = self._deepest[1] if self._deepest else None
            if depth_first and depth_first.refusals:
                refusals.append(replace(depth_first.refusals[0], candidate=candidate))
        self._note(state, name, tuple(refusals))
        return None

    def _next_name(self, state: _State) -> str | None:
        """What the recipe names comes first, so that what its parts provide is known before more is brought in."""
        given = {name for candidate in state.chosen for name in candidate.given}
        for name in state.pending:
            if name not in given:
                return name
        for demand in state.demands:
            if demand.brings and demand.requirement.name not in given:
                return demand.requirement.name
        return None

    def _candidates(self, name: str) -> Iterator[Candidate]:
        component = self._catalog.components.get(name)
        if component is None:
            return
        pattern = self._recipe.variants.get(name)
        for release in component.releases:
            for variant in release.variants:
                if pattern is None or fnmatchcase(variant.name, pattern.text):
                    yield Candidate(component, release, variant)

    def _refuse(self, candidate: Candidate, state: _State) -> Refusal | None:
        given = candidate.given
        for demand in state.demands:
            version = given.get(demand.requirement.name)
            if version is not None and not demand.requirement.allows(version):
                return Refusal(candidate, demand, _found(candidate, demand, version), candidate.release.location)
        for other in state.chosen:
            for name, version in other.given.items():
                if name in given and not _agree(version, given[name]):
                    text = f"{candidate} brings {name} {given[name]}, {other} brings {name} {version}"
                    return Refusal(candidate, None, text, candidate.variant.location)
        for demand in self._demands_of(candidate):
            for other in (candidate, *state.chosen):
                found = other.given.get(demand.requirement.name)
                if found is not None and not demand.requirement.allows(found):
                    return Refusal(candidate, demand, _found(other, demand, found), demand.requirement.location)
        return None

    def _demands_of(self, candidate: Candidate) -> tuple[Demand, ...]:
        face, by = candidate.face, str(candidate)
        wanted = (one for one in face.recommends if one.name not in self._recipe.without)
        return (
            *(Demand(one, by) for one in face.requires),
            *(Demand(one, by) for one in wanted),
            *(Demand(one, by, brings=False) for one in face.constraints),
        )

    def _with(self, state: _State, candidate: Candidate) -> _State:
        demands = (*state.demands, *self._demands_of(candidate))
        return _State((*state.chosen, candidate), demands, state.pending)

    def _note(self, state: _State, name: str, refusals: tuple[Refusal, ...]) -> None:
        demands = tuple(demand for demand in state.demands if demand.requirement.name == name)
        conflict = Conflict(self._recipe, name, demands, refusals)
        depth = len(state.chosen)
        if self._deepest is None or depth > self._deepest[0]:
            self._deepest = (depth, conflict)

    def _result(self, state: _State) -> Resolution:
        choices = [
            Choice(
                candidate,
                tuple(one for one in state.demands if one.requirement.name in candidate.given),
                self._passed_over.get(candidate.component.name, ()),
            )
            for candidate in state.chosen
        ]
        base, *others = choices
        ordered = sorted(others, key=lambda choice: (choice.candidate.component.order, choice.name))
        owners, user_packages = self._share_packages(ordered)
        return Resolution(self._recipe, base, tuple(ordered), owners, user_packages)

    def _share_packages(
        self, choices: list[Choice]
    ) -> tuple[dict[str, tuple[Package, ...]], tuple[Package, ...]]:
        """Give each Python package to the lowest component that needs it; two versions of one are a conflict."""
        taken: dict[str, tuple[Package, str]] = {}

        def take(packages: tuple[Package, ...], by: str, candidate: Candidate) -> tuple[Package, ...]:
            own = []
            for package in packages:
                first = taken.setdefault(package.name, (package, by))
                if first[1] == by:
                    own.append(package)
                elif first[0].version != package.version:
                    text = f"{first[1]} locks {package.name} {first[0].version}"
                    there = Requirement(package.name, f"=={first[0].version}", first[0].location)
                    refusal = Refusal(candidate, Demand(there, first[1]), text, first[0].location)
                    here = Requirement(package.name, f"=={package.version}", package.location)
                    raise NothingFits(Conflict(self._recipe, package.name, (Demand(here, by),), (refusal,)))
            return tuple(own)

        owners = {choice.name: take(choice.face.packages, choice.name, choice.candidate) for choice in choices}
        last = choices[-1].candidate if choices else None
        mine = self._recipe.content.packages
        if last is None:
            return owners, mine
        return owners, take(mine, f"image {self._recipe.name}", last)


def _found(candidate: Candidate, demand: Demand, version: str) -> str:
    name = demand.requirement.name
    if name == candidate.component.name:
        return f"{name} {version} is not {_words(demand)}"
    return f"{candidate} brings {name} {version}, not {_words(demand)}"


def _words(demand: Demand) -> str:
    return demand.requirement.specifier or "any version"


def _agree(first: str, second: str) -> bool:
    """Whether two parts that provide one name mean the same: `12.8` and `12.8.1` do."""
    one, two = first.split("."), second.split(".")
    length = min(len(one), len(two))
    return one[:length] == two[:length]
