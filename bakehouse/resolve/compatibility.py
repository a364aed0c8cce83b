"""Pairwise compatibility of candidates, as bit sets: bit n stands for the nth candidate of a name.

Compatibility of a pair holds for every recipe of a catalogue, so each pair is checked once.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, reduce
from itertools import groupby
from operator import or_

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.component import Component
from bakehouse.catalog.names import FRAMEWORKS
from bakehouse.catalog.recipe import Recipe
from bakehouse.resolve.candidate import Candidate, Demand, are_compatible, fits_targets

Option = tuple[Candidate, tuple[Demand, ...]]
"""A candidate and its demands."""


class Options:
    """The candidates of one name in order, and the sets of them that fit a candidate, targets or a demand."""

    def __init__(self, listed: tuple[Option, ...]) -> None:
        self.listed = listed
        self.provided = frozenset(name for candidate, _ in listed for name in candidate.provided)
        required = [_required(option) for option in listed]
        self.frameworks = frozenset(FRAMEWORKS) & set().union(*required)
        """The frameworks that candidates require."""
        self.always_required = frozenset(required[0].intersection(*required[1:]) if required else ())
        """The names that all candidates require."""
        self._least_additions_first: dict[frozenset[str], Options] = {}
        self._compatible: dict[int, tuple[int, int]] = {}
        """By the identity of another candidate: the checked candidates, and the compatible ones."""
        self._fitting: dict[tuple[str, ...], int] = {}
        self._meeting: dict[tuple[str, str], int] = {}
        self._providing: dict[str, int] = {}
        self._built_for: dict[str, int] = {}

    def least_additions_first(self, missing: frozenset[str]) -> "Options":
        """Sort the variants of each release by the number of missing frameworks that they would add."""
        if not missing:
            return self
        if missing not in self._least_additions_first:
            releases = [list(group) for _, group in groupby(self.listed, lambda option: option[0].release)]
            listed = tuple(
                option
                for release in releases
                for option in sorted(release, key=lambda option: len(_required(option) & missing))
            )
            self._least_additions_first[missing] = self if listed == self.listed else Options(listed)
        return self._least_additions_first[missing]

    def compatible_with(self, other: Candidate, demands: tuple[Demand, ...], subset: int) -> int:
        """Return the candidates of `subset` that fit another candidate, which has to outlive this object."""
        checked, compatible = self._compatible.get(id(other), (0, 0))
        if new := subset & ~checked:
            for bit in bits(new):
                candidate, own = self.listed[bit]
                if are_compatible(candidate, own, other, demands):
                    compatible |= 1 << bit
            self._compatible[id(other)] = checked | new, compatible
        return compatible & subset

    def fitting(self, targets: tuple[Candidate, ...]) -> int:
        """Return the candidates that contradict neither themselves nor the targets."""
        key = tuple(map(str, targets))
        if key not in self._fitting:
            self._fitting[key] = sum(
                1 << bit
                for bit, (candidate, own) in enumerate(self.listed)
                if fits_targets(candidate, own, targets)
            )
        return self._fitting[key]

    def built_for(self, platform: str) -> int:
        """Return the candidates that are builds for a platform."""
        if platform not in self._built_for:
            self._built_for[platform] = sum(
                1 << bit
                for bit, (candidate, _) in enumerate(self.listed)
                if candidate.variant.platform == platform
            )
        return self._built_for[platform]

    def providing(self, name: str) -> int:
        """Return the candidates that provide a name."""
        if name not in self._providing:
            self._providing[name] = sum(
                1 << bit for bit, (candidate, _) in enumerate(self.listed) if name in candidate.provided
            )
        return self._providing[name]

    def meeting(self, demand: Demand) -> int:
        """Return the candidates that meet a demand of the recipe, or do not provide its name."""
        requirement = demand.requirement
        key = requirement.name, requirement.specifier
        if key not in self._meeting:
            versions = (candidate.provided.get(requirement.name) for candidate, _ in self.listed)
            self._meeting[key] = sum(
                1 << bit
                for bit, version in enumerate(versions)
                if version is None or requirement.allows(version)
            )
        return self._meeting[key]


class CompatibilityCache:
    """The candidates that all recipes of a catalogue share."""

    def __init__(self) -> None:
        self._options: dict[tuple[str, str, str], Options] = {}
        """By the name of a component, the platform and the glob of its variants."""

    @classmethod
    def of(cls, catalog: Catalog) -> "CompatibilityCache":
        """Return the cache of a catalogue."""
        cache: CompatibilityCache = catalog.cache.setdefault("compatibility", cls())
        return cache

    def options(self, component: Component, platform: str, pattern: str = "*") -> Options:
        """Return the candidates of a component, each with all its possible demands.

        A release without a build for the platform keeps its other builds as candidates, so that errors can
        explain this.
        """
        key = component.name, platform, pattern
        if key not in self._options:
            candidates = []
            for release in component.releases:
                builds = [build for build in release.variants if pattern == "*" or build.matches(pattern)]
                own = [build for build in builds if build.platform == platform]
                candidates += [Candidate(component, release, build) for build in own or builds]
            self._options[key] = Options(
                tuple((candidate, _demands(candidate, frozenset())) for candidate in candidates)
            )
        return self._options[key]


class Compatibility:
    """The candidates of one recipe, and the sets of them that fit the components chosen so far."""

    def __init__(
        self,
        recipe: Recipe,
        shared: CompatibilityCache,
        demands: tuple[Demand, ...],
        targets: tuple[Candidate, ...],
        components: Mapping[str, Component],
        base: Component | None,
    ) -> None:
        """`demands` are those of the recipe itself."""
        self._components, self._base = components, base
        self._recipe, self._shared, self._recipe_demands, self._targets = recipe, shared, demands, targets
        self.options: dict[str, Options] = {}
        """By name: the same ones at every step."""
        self._open: dict[str, int] = {}
        """By name: the candidates that fit the recipe itself."""
        self._altered: set[int] = set()
        """Identities of candidates that have fewer demands in this recipe than elsewhere."""
        self._compatible_with_altered: dict[str, Options] = {}
        self._demands: dict[int, tuple[Demand, ...]] = {}

    @cached_property
    def _present(self) -> set[str]:
        """The names that the image contains whatever is chosen."""
        platform = self._recipe.platform
        present = {*(self._shared.options(self._base, platform).provided if self._base else ())}
        names = [demand.requirement.name for demand in self._recipe_demands]
        while names:
            name = names.pop()
            if name not in present:
                present.add(name)
                if component := self._components.get(name):
                    names += self._shared.options(component, platform).always_required
        return present

    def list(self, name: str, component: Component | None) -> Options:
        """Record and return the candidates of a name, newest first; none without a component."""
        self.options[name] = options = self._listed(component) if component else Options(())
        left = options.fitting(self._targets) & options.built_for(self._recipe.platform)
        for demand in self._recipe_demands:
            if demand.requirement.name in options.provided:
                left &= options.meeting(demand)
        self._open[name] = left
        return options

    def choose(self, option: Option) -> None:
        """Record the demands of a candidate that is being chosen."""
        candidate, demands = option
        self._demands[id(candidate)] = demands

    def drop(self, name: str, position: int) -> None:
        """Leave out a candidate that fits nothing."""
        self._open[name] &= ~(1 << position)

    def left(self, name: str, chosen: tuple[Candidate, ...], before: int | None) -> int:
        """Return the candidates that fit all chosen ones; `before` fitted all but the last of them."""
        if before is not None:
            return self._compatible(name, chosen[-1], before)
        left = self._open[name]
        for other in chosen:
            if left:
                left = self._compatible(name, other, left)
        return left

    def culprits(self, name: str, chosen: tuple[Candidate, ...]) -> frozenset[str]:
        """Return a minimal set of chosen components that excludes the same candidates as all of them.

        Locks are checked when a candidate is chosen.
        """
        return self._narrowed(name, self._open[name], chosen)[1]

    def providing(
        self, component: str, name: str, chosen: tuple[Candidate, ...]
    ) -> tuple[int, frozenset[str]]:
        """Return the fitting candidates of a component that provide a name, and what excludes the others."""
        candidates = self._open[component] & self.options[component].providing(name)
        return self._narrowed(component, candidates, chosen)

    def _narrowed(
        self, name: str, candidates: int, chosen: tuple[Candidate, ...]
    ) -> tuple[int, frozenset[str]]:
        excluded = {other.name: candidates & ~self._compatible(name, other, candidates) for other in chosen}
        every = _union(excluded.values())
        # Without a later choice, the search can go back further
        for other in reversed(chosen):
            rest = {name: mask for name, mask in excluded.items() if name != other.name}
            if _union(rest.values()) == every:
                excluded = rest
        return candidates & ~every, frozenset(excluded)

    def _compatible(self, name: str, other: Candidate, subset: int) -> int:
        options = self.options[name]
        if id(other) in self._altered:
            # Results for an altered candidate hold in this search only
            options = self._compatible_with_altered.setdefault(name, Options(options.listed))
        return options.compatible_with(other, self._demands[id(other)], subset)

    def _listed(self, component: Component) -> Options:
        pattern, excluded = self._recipe.variants.get(component.name), self._recipe.exclude
        glob = pattern.text if pattern else "*"
        options = self._shared.options(component, self._recipe.platform, glob)
        if options.frameworks:
            options = options.least_additions_first(options.frameworks - self._present)
        if not excluded:
            return options
        altered = {
            id(candidate)
            for candidate, _ in options.listed
            if any(requirement.name in excluded for requirement in candidate.spec.recommends)
        }
        if not altered:
            return options
        self._altered |= altered
        return Options(
            tuple(
                (candidate, _demands(candidate, excluded) if id(candidate) in altered else own)
                for candidate, own in options.listed
            )
        )


def _required(option: Option) -> set[str]:
    return {requirement.name for requirement in option[0].spec.requires}


def _demands(candidate: Candidate, excluded: frozenset[str]) -> tuple[Demand, ...]:
    """Return the demands of a candidate; recommended components in `excluded` are left out."""
    spec = candidate.spec
    recommended = (requirement for requirement in spec.recommends if requirement.name not in excluded)
    return (
        *(Demand(requirement, candidate) for requirement in (*spec.requires, *recommended)),
        *(Demand(requirement, candidate, is_required=False) for requirement in spec.constraints),
    )


def _union(masks: Iterable[int]) -> int:
    return reduce(or_, masks, 0)


def bits(number: int) -> Iterator[int]:
    """Yield the positions of the bits that are set, lowest first."""
    while number:
        lowest = number & -number
        yield lowest.bit_length() - 1
        number ^= lowest
