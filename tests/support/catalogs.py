"""Small random catalogues, and what a person with patience would choose from them."""

from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import TypeVar

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.component import (
    BaseSource,
    Component,
    Incompatibility,
    Release,
    Requirement,
    Variant,
    VariantSpec,
)
from bakehouse.catalog.python_lock import Lock, Package
from bakehouse.catalog.recipe import Content, Recipe
from bakehouse.catalog.user_files import File
from bakehouse.errors import Location
from bakehouse.resolve.candidate import Candidate
from bakehouse.util.yaml_reader import Scalar

PARTS = ("ant", "bee", "cow", "dog")
MORE_PARTS = (*PARTS, "elk", "fox")
BASES = ("ground", "floor", "cellar")
VIRTUAL = ("air", "sea")
Option = TypeVar("Option")
NOWHERE = Location(Path("random.yaml"), 1, 1)

RANGES = ("", "", "", "", "", ">=1", ">=1", ">=2", "<2", "==1.*", "==2.*", "!=1", ">9")
SHAPES = ((1,), (1, 1), (2,), (2, 1), (1, 1, 1))
"""Number of variants of each release."""
MORE_SHAPES = ((1, 1), (2, 1), (2, 2), (1, 1, 1), (1, 2, 1), (1, 1, 1, 1), (1, 1, 1, 1, 1))


class ReadLock(Lock):
    """A lock whose packages need no file."""

    def __init__(self, packages: tuple[Package, ...]) -> None:
        super().__init__(Path("random.txt"), NOWHERE)
        self.__dict__["packages"] = packages


class Dice:
    """Draws parts of a catalogue: the same number gives the same ones, far faster than a strategy does."""

    def __init__(
        self,
        seed: int,
        parts: tuple[str, ...] = PARTS,
        bases: tuple[str, ...] = ("ground",),
        shapes: tuple[tuple[int, ...], ...] = SHAPES,
    ) -> None:
        self._random = Random(seed)
        self._parts, self._bases, self._shapes = parts, bases, shapes
        self._names = (*parts, *VIRTUAL)
        self._required = (*self._names, *bases[1:])

    @classmethod
    def with_bases(cls, seed: int) -> "Dice":
        """Return the dice of a catalogue of 3 to 6 components, 1 to 3 of them bases, of 2 to 5 releases."""
        counts = Random(seed)
        bases = BASES[: counts.randint(1, 3)]
        parts = MORE_PARTS[: counts.randint(3, 6) - len(bases) + 1]
        return cls(seed, parts, bases, MORE_SHAPES)

    def catalog(self) -> Catalog:
        components = [self._component(name) for name in self._parts]
        components += [self._component(name, is_base=True) for name in self._bases]
        return Catalog({component.name: component for component in components})

    def recipe(self) -> Recipe:
        requirements = {requirement.name: requirement for requirement in self._requirements(3, least=1)}
        patterns = {name: self._one("v0", "v*", "v1") for name in self._parts if self._is_rare()}
        return Recipe(
            name="random",
            family="random",
            summary="random",
            base=Requirement("ground", self._one("", "==1.*"), NOWHERE),
            components=tuple(requirements.values()),
            variants={name: Scalar(pattern, NOWHERE) for name, pattern in patterns.items()},
            exclude=frozenset([self._one(*self._names)] if self._is_rare() else []),
            content=Content(packages=self._lock()),
            location=NOWHERE,
        )

    def _component(self, name: str, *, is_base: bool = False) -> Component:
        shape = self._one(*self._shapes)
        releases = tuple(
            Release(str(len(shape) - number), self._variants(count, is_base), NOWHERE)
            for number, count in enumerate(shape)
        )
        return Component(name, name, self._one(1, 2), Path(name), (), releases, "", None, {}, NOWHERE)

    def _variants(self, count: int, is_base: bool) -> tuple[Variant, ...]:
        base = BaseSource(suite="stable") if is_base else None
        specs = [replace(self._spec(), base=base) for _ in range(count)]
        return tuple(Variant(f"v{number}", spec, NOWHERE) for number, spec in enumerate(specs))

    def _spec(self) -> VariantSpec:
        return VariantSpec(
            requires=self._requirements(self._one(0, 0, 1, 2)),
            constraints=self._requirements(1),
            recommends=self._requirements(1),
            provides={self._one(*self._names): self._one("1", "1.2", "2", "2.0")} if self._is_even() else {},
            lock=ReadLock(self._lock()),
            conflicts=self._conflicts(),
        )

    def _conflicts(self) -> tuple[Incompatibility, ...]:
        parts = self._requirements(3, least=2)
        incompatibility = Incompatibility(parts, "", "", is_error=self._is_even(), location=NOWHERE)
        return (incompatibility,) if self._is_rare() else ()

    def _requirements(self, most: int, least: int = 0) -> tuple[Requirement, ...]:
        count = self._random.randint(least, most)
        return tuple(
            Requirement(self._one(*self._required), self._one(*RANGES), NOWHERE) for _ in range(count)
        )

    def _lock(self) -> tuple[Package, ...]:
        name, version = self._one("num-py", "Num.Py", "num_py"), self._one("1", "2")
        return (Package(name, version, "0" * 64, "x.whl", 1, NOWHERE),) if self._is_rare() else ()

    def _one(self, *options: Option) -> Option:
        return self._random.choice(options)

    def _is_even(self) -> bool:
        return self._random.random() < 0.5

    def _is_rare(self) -> bool:
        return self._random.random() < 0.2


def selections(recipe: Recipe, catalog: Catalog) -> Iterator[tuple[Candidate, ...]]:
    """Every set of candidates that answers a recipe and holds no part twice, found without cleverness."""
    return (chosen for chosen in compatible_sets(recipe, catalog) if not is_given_twice(chosen))


def compatible_sets(recipe: Recipe, catalog: Catalog) -> Iterator[tuple[Candidate, ...]]:
    """Yield every set of candidates that answers a recipe, one that holds a part twice included."""
    parts = [component.name for component in catalog.components.values() if not component.is_base]
    options = [candidates(recipe, catalog, name) for name in parts]
    for base in candidates(recipe, catalog, recipe.base.name):
        for chosen in _sets(recipe, (base,), options):
            if is_asked_for(recipe, chosen):
                yield chosen


def _sets(
    recipe: Recipe, chosen: tuple[Candidate, ...], options: list[list[Candidate]]
) -> Iterator[tuple[Candidate, ...]]:
    """Yield every set with at most one candidate of each list; what does not hold never does with more."""
    if not holds(recipe, chosen):
        return
    yield chosen
    for number, option in enumerate(options, 1):
        for candidate in option:
            yield from _sets(recipe, (*chosen, candidate), options[number:])


def is_answer(recipe: Recipe, chosen: tuple[Candidate, ...]) -> bool:
    return not is_given_twice(chosen) and holds(recipe, chosen) and is_asked_for(recipe, chosen)


def candidates(recipe: Recipe, catalog: Catalog, name: str) -> list[Candidate]:
    component = catalog.components[name]
    pattern = recipe.variants[name].text.rstrip("*") if name in recipe.variants else ""
    return [
        Candidate(component, release, variant)
        for release in component.releases
        for variant in release.variants
        if variant.name.startswith(pattern)
    ]


def requirements_of(recipe: Recipe, candidate: Candidate) -> list[Requirement]:
    return [
        *candidate.spec.requires,
        *(other for other in candidate.spec.recommends if other.name not in recipe.exclude),
    ]


def holds(recipe: Recipe, chosen: tuple[Candidate, ...]) -> bool:
    """Return whether all requirements are met and no conflict applies."""
    demands = [recipe.base, *recipe.components]
    for candidate in chosen:
        demands += [*requirements_of(recipe, candidate), *candidate.spec.constraints]
    versions: dict[str, list[str]] = {}
    for candidate in chosen:
        for name, version in candidate.provided.items():
            versions.setdefault(name, []).append(version)
    if not all(
        requirement.allows(version)
        for requirement in demands
        for version in versions.get(requirement.name, ())
    ):
        return False
    for several in versions.values():
        if not all(agree(first, second) for first in several for second in several):
            return False
    certain = [other for candidate in chosen for other in candidate.spec.conflicts if other.is_error]
    if any(
        all(any(map(requirement.allows, versions.get(requirement.name, ()))) for requirement in other.parts)
        for other in certain
    ):
        return False
    locked = [
        *recipe.content.packages,
        *(package for candidate in chosen for package in candidate.spec.packages),
    ]
    return len({package.version for package in locked}) < 2


def agree(first: str, second: str) -> bool:
    components, others = first.split("."), second.split(".")
    return all(left == right for left, right in zip(components, others, strict=False))


def is_asked_for(recipe: Recipe, chosen: tuple[Candidate, ...]) -> bool:
    """Return whether every requested name is provided, and every candidate was requested by name."""
    by_name = {candidate.name: candidate for candidate in chosen}
    provided = {name for candidate in chosen for name in candidate.provided}
    visited, left = set(), [recipe.base, *recipe.components]
    while left:
        name = left.pop().name
        if name not in visited:
            visited.add(name)
            left += requirements_of(recipe, by_name[name]) if name in by_name else []
    return visited <= provided and by_name.keys() <= visited


def is_given_twice(chosen: tuple[Candidate, ...]) -> bool:
    """Return whether a candidate is present although another one provides it."""
    return any(
        candidate.name in other.spec.provides
        for candidate in chosen
        for other in chosen
        if other is not candidate
    )


def own_file(target: str) -> File:
    """Return an empty file of a recipe."""
    return File(target, sha256(b"").hexdigest(), 0, is_executable=False, source=Path("/dev/null"))
