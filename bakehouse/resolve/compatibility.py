"""Which candidates are left beside what is chosen: sets of them are the bits of one number.

What is found out holds for every recipe of a catalogue, so each pair of candidates is looked at once.
"""

import re
from collections.abc import Iterator
from fnmatch import translate

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.component import Component
from bakehouse.catalog.recipe import Recipe
from bakehouse.resolve.candidate import Candidate, Demand, are_compatible, fits_targets

Option = tuple[Candidate, tuple[Demand, ...]]
"""A candidate and what it asks for."""


class Options:
    """The candidates of one name in order, and which of them go with what: a set's bit n is the nth."""

    def __init__(self, listed: tuple[Option, ...]) -> None:
        self.listed = listed
        self.gives = frozenset(name for candidate, _ in listed for name in candidate.provided)
        self._beside: dict[int, tuple[int, int]] = {}
        """By the identity of another candidate: those that were looked at, and those that go with it."""
        self._suiting: dict[tuple[str, ...], int] = {}
        self._allowing: dict[tuple[str, str], int] = {}

    def beside(self, other: Candidate, demands: tuple[Demand, ...], wanted: int) -> int:
        """Those of `wanted` that can be in one image with another part, which has to outlive this."""
        looked_at, good = self._beside.get(id(other), (0, 0))
        if new := wanted & ~looked_at:
            for place in _places(new):
                candidate, own = self.listed[place]
                if are_compatible(candidate, own, other, demands):
                    good |= 1 << place
            self._beside[id(other)] = looked_at | new, good
        return good & wanted

    def suiting(self, targets: tuple[Candidate, ...]) -> int:
        """Those that contradict neither themselves nor what an image has to run on."""
        key = tuple(map(str, targets))
        if key not in self._suiting:
            self._suiting[key] = sum(
                1 << place
                for place, (candidate, own) in enumerate(self.listed)
                if fits_targets(candidate, own, targets)
            )
        return self._suiting[key]

    def allowing(self, asked: Demand) -> int:
        """Those that are what a recipe asks for, or say nothing of it."""
        wanted = asked.requirement
        key = wanted.name, wanted.specifier
        if key not in self._allowing:
            provided = (candidate.provided.get(wanted.name) for candidate, _ in self.listed)
            self._allowing[key] = sum(
                1 << place
                for place, version in enumerate(provided)
                if version is None or wanted.allows(version)
            )
        return self._allowing[key]


class CompatibilityCache:
    """What the recipes of a catalogue have in common."""

    def __init__(self) -> None:
        self._options: dict[tuple[str, str], Options] = {}
        """By a component's name, and the glob that its variants' names match."""

    @classmethod
    def of(cls, catalog: Catalog) -> "CompatibilityCache":
        found: CompatibilityCache = catalog.cache.setdefault("fitting", cls())
        return found

    def options(self, component: Component, pattern: str = "*") -> Options:
        """A component's candidates, each with all that it may ask for."""
        key = component.name, pattern
        if key not in self._options:
            is_called_so = re.compile(translate(pattern)).match
            every = [
                Candidate(component, release, variant)
                for release in component.releases
                for variant in release.variants
                if pattern == "*" or is_called_so(variant.name)
            ]
            self._options[key] = Options(tuple((one, _demands(one, frozenset())) for one in every))
        return self._options[key]


class Compatibility:
    """The candidates of one recipe, and which are left beside what is chosen."""

    def __init__(
        self,
        recipe: Recipe,
        shared: CompatibilityCache,
        asked: tuple[Demand, ...],
        targets: tuple[Candidate, ...],
    ) -> None:
        self._recipe, self._shared, self._asked, self._targets = recipe, shared, asked, targets
        self.options: dict[str, Options] = {}
        """By name: the same ones at every step."""
        self._open: dict[str, int] = {}
        self._altered: set[int] = set()
        """Candidates that ask for less here than they do elsewhere."""
        self._beside_altered: dict[str, Options] = {}
        self._demands: dict[int, tuple[Demand, ...]] = {}

    def list(self, name: str, component: Component | None) -> Options:
        """Put down the candidates of a name, newest first; none excluded a component."""
        self.options[name] = found = self._listed(component) if component else Options(())
        left = found.suiting(self._targets)
        for one in self._asked:
            if one.requirement.name in found.gives:
                left &= found.allowing(one)
        self._open[name] = left
        return found

    def choose(self, option: Option) -> None:
        """Note what a candidate that is taken asks for."""
        candidate, demands = option
        self._demands[id(candidate)] = demands

    def left(self, name: str, chosen: tuple[Candidate, ...], before: int | None) -> int:
        """Those of a name that go with all that is chosen; `before` went with all but the last one."""
        others = chosen if before is None else chosen[-1:]
        left = self._open[name] if before is None else before
        for other in others:
            if left:
                left = self._beside(name, other, left)
        return left

    def against(self, name: str, place: int, chosen: tuple[Candidate, ...]) -> frozenset[str] | None:
        """The first of the chosen parts that a candidate can't be beside; empty where it never fits.

        The first one takes a search back furthest. Locks are left to when a candidate is taken.
        """
        if not self._open[name] >> place & 1:
            return frozenset()
        for other in chosen:
            if not self._beside(name, other, 1 << place):
                return frozenset({other.name})
        return None

    def _beside(self, name: str, other: Candidate, wanted: int) -> int:
        options = self.options[name]
        if id(other) in self._altered:
            # What is found out of it holds in this search alone
            options = self._beside_altered.setdefault(name, Options(options.listed))
        return options.beside(other, self._demands[id(other)], wanted)

    def _listed(self, component: Component) -> Options:
        pattern, excluded = self._recipe.variants.get(component.name), self._recipe.exclude
        found = self._shared.options(component, pattern.text) if pattern else self._shared.options(component)
        if not excluded:
            return found
        altered = {
            id(one) for one, _ in found.listed if any(asked.name in excluded for asked in one.spec.recommends)
        }
        if not altered:
            return found
        self._altered |= altered
        return Options(
            tuple((one, _demands(one, excluded) if id(one) in altered else own) for one, own in found.listed)
        )


def _demands(candidate: Candidate, excluded: frozenset[str]) -> tuple[Demand, ...]:
    spec = candidate.spec
    found = [Demand(one, candidate) for one in spec.requires]
    found += [Demand(one, candidate) for one in spec.recommends if one.name not in excluded]
    found += [Demand(one, candidate, brings=False) for one in spec.constraints]
    return tuple(found)


def _places(some: int) -> Iterator[int]:
    """The numbers of the bits that are set."""
    while some:
        lowest = some & -some
        yield lowest.bit_length() - 1
        some ^= lowest
