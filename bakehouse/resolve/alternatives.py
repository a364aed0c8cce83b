"""Search for the pins of an unsatisfiable recipe that conflict, and for the closest combinations that fit.

A change moves one pin to another version or leaves one component out. Each alternative has to change a pin
in every set of pins that conflict with each other. So the search finds one such set, relaxes each of its pins
in turn and, if that is not enough, finds the next set. Combinations with the fewest changes come first. The
number of calls of the resolver is bounded.
"""

import heapq
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count, islice, takewhile

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.component import CUDA_COMPAT, DRIVER, Requirement
from bakehouse.catalog.recipe import Recipe
from bakehouse.resolve.candidate import Conflict
from bakehouse.resolve.phrases import version_range
from bakehouse.resolve.relaxation import Relaxation, Relaxations, Restriction, pins_of, relax
from bakehouse.resolve.resolver import BudgetExceeded, Resolution, SearchBudget, Unsatisfiable, resolve

DECISION_BUDGET = 50_000
"""Candidates that may be tried to decide whether a recipe fits: about 1.5 s."""
BUDGET_OF_A_CALL = 10_000
"""Candidates that one call of the resolver may try while it searches for alternatives."""
BUDGET = 40_000
"""Candidates that a whole search for alternatives may try: about 1.2 s."""
_WITHOUT_VALUE = ("lock", "requirements", "variant")
"""Kinds of pins that change without a new value, or may do so."""
_MAX_NAMED = 3
_MAX_BASES = 6
_MAX_WARNED = 8
_MAX_CHANGES = 3
_MAX_OF_SERIES = 3
_STEPS = 14
"""Calls reserved for each alternative, to move it closer to the pins."""


@dataclass(frozen=True, slots=True)
class Undecided:
    """No answer: a search ended before it was known whether versions fit, or the catalogue lacks a fact."""

    steps: int
    """The number of candidates that were tried."""
    names: tuple[str, ...]
    """The components with the most tried candidates."""
    lacking: tuple[str, ...] = ()
    """The facts that the catalogue lacks."""


Outcome = Resolution | Conflict | Undecided
"""The three answers to the question whether versions fit a recipe."""


@dataclass(frozen=True, slots=True)
class PinChange:
    """A new value for one pin."""

    pin: Restriction
    value: str
    """The new version or variant; empty if the component is left out."""
    distance: int = 0
    """The number of known versions between the old value and the series of the new one."""
    shared: int = 0
    """The number of leading numbers that both values have in common."""
    base: str = ""
    """The name of another base that replaces the recipe's."""
    is_added: bool = False
    """True for a component that the recipe does not name."""

    @property
    def is_dropped(self) -> bool:
        return not self.value and self.pin.kind not in _WITHOUT_VALUE


@dataclass(frozen=True, slots=True)
class Alternative:
    """A few changes that make a recipe satisfiable."""

    changes: tuple[PinChange, ...]
    resolution: Resolution

    @property
    def changes_host(self) -> bool:
        """Return whether it only undoes a question about an instance type or a driver."""
        return any(
            change.pin.is_given_by_command and change.pin.kind in ("instance", "driver")
            for change in self.changes
        )

    @property
    def rank(self) -> tuple[int, int, int, int]:
        """The numbers of changes, of dropped components and of changed assumptions, and the distance."""
        drops = sum(change.is_dropped for change in self.changes)
        commanded = sum(change.pin.is_given_by_command for change in self.changes if not change.is_added)
        return len(self.changes), drops, commanded, sum(change.distance for change in self.changes)


@dataclass(frozen=True, slots=True)
class Alternatives:
    """The result of a search, best alternative first."""

    alternatives: tuple[Alternative, ...]
    is_cut: bool
    """True if the search stopped before it was complete."""
    calls: int


class AlternativeSearch:
    """A search for alternatives of one recipe, within a bounded number of calls of the resolver."""

    def __init__(
        self,
        recipe: Recipe,
        catalog: Catalog,
        calls: int,
        upgrade: Requirement | None = None,
        budget: int = BUDGET,
    ) -> None:
        """An `upgrade` is added and never relaxed.

        Then the lock of the recipe is not a fixed fact, because `bake lock` makes it again, and no component
        is left out. The pin of that component moves as far as possible, all others as little as possible.
        """
        self._content = recipe.content
        if upgrade:
            locks = [pin for pin in pins_of(recipe) if pin.kind == "lock"]
            recipe = relax(recipe, dict.fromkeys(locks, Relaxation.DROP))
        added = (upgrade,) if upgrade else ()
        self._recipe = replace(recipe, components=(*recipe.components, *added))
        self._catalog = catalog
        self._calls = self._left = calls
        self.pins = tuple(pin for pin in pins_of(recipe) if not (upgrade and _keeps_off_gpus(pin, catalog)))
        self._outcomes: dict[frozenset[tuple[Restriction, Relaxation]], Outcome] = {}
        self._sorted: dict[str, tuple[str, ...]] = {}
        self._allowed: dict[Restriction, tuple[tuple[int, ...], int | None]] = {}
        self._is_cut = False
        self._budget = self._granted = budget
        self._upgraded = upgrade.name if upgrade else ""

    @property
    def base(self) -> str:
        return self._recipe.base.name

    @property
    def is_spent(self) -> bool:
        return self._left <= 0 or self._budget <= 0

    def attempt(self, relaxations: Relaxations) -> Outcome:
        """Resolve the recipe with some pins relaxed."""
        key = frozenset(relaxations.items())
        if key not in self._outcomes:
            if relaxations:
                outcome = self._resolve(relax(self._recipe, relaxations))
            else:
                # The question itself: its answer does not depend on the budget for alternatives
                outcome = self._search(self._recipe, SearchBudget(DECISION_BUDGET))
            if isinstance(outcome, Undecided) and any(pin.kind == "base" for pin in relaxations):
                outcome = self._on_near_base(relaxations) or outcome
            self._outcomes[key] = outcome
        return self._outcomes[key]

    def _on_near_base(self, relaxations: Relaxations) -> Resolution | None:
        """Try the nearest few versions of the base, because some bases have hundreds."""
        recipe = relax(self._recipe, relaxations)
        pin = next(pin for pin in relaxations if pin.kind == "base")
        versions = sorted(self._versions(pin.name), key=lambda version: self._distance(pin, version))
        for version in versions[1 : _MAX_BASES + 1]:
            outcome = self._resolve(_with_range(recipe, pin, f"=={version}"))
            if isinstance(outcome, Resolution):
                return outcome
        return None

    def core(self, relaxations: Relaxations) -> dict[Restriction, Relaxation]:
        """Relax all pins except a minimal set of conflicting ones, until the calls are used up.

        Versions are relaxed first. A component is left out only if none of its versions is pinned any more,
        because another version may provide a missing name. The base stays.
        """
        core = dict(relaxations)
        base = self._recipe.base.name
        movable = [pin for pin in self.pins if pin.least is Relaxation.MOVE and pin.name != base]
        droppable = [pin for pin in self.pins if pin.most is Relaxation.DROP]
        while True:
            moved = [pin for pin in movable if pin not in core]
            self._relax_more(core, [(pin, Relaxation.MOVE) for pin in moved])
            kept = {pin.name for pin in moved if pin not in core}
            dropped = [pin for pin in droppable if core.get(pin) is not Relaxation.DROP]
            dropped = [pin for pin in dropped if pin.name not in kept]
            self._relax_more(core, [(pin, Relaxation.DROP) for pin in dropped])
            # Without the dropped components, fewer pins may conflict
            if all(core.get(pin) is not Relaxation.DROP for pin in dropped):
                return core

    def _relax_more(
        self, core: dict[Restriction, Relaxation], more: list[tuple[Restriction, Relaxation]]
    ) -> None:
        """Add relaxations to `core` that do not resolve the conflict: all at once, or else by halves."""
        if not more:
            return
        if isinstance(self.attempt({**core, **dict(more)}), Conflict):
            core.update(more)
        elif len(more) > 1:
            middle = len(more) // 2
            self._relax_more(core, more[:middle])
            self._relax_more(core, more[middle:])

    def minimal_conflict(self) -> Conflict | None:
        """Return the conflict of the recipe without pins that do not contribute to it."""
        core = self.core({})
        dropped = {
            pin.name for pin, how in core.items() if pin.kind == "component" and how is Relaxation.DROP
        }
        # Show all pins of a component that contributes
        shown = {pin: how for pin, how in core.items() if how is Relaxation.DROP or pin.name in dropped}
        outcome = self.attempt(shown)
        return outcome if isinstance(outcome, Conflict) else None

    @property
    def outcome_with_all_moved(self) -> Outcome:
        """The outcome with all versions relaxed; if that is a conflict, only dropping components can help."""
        return self.attempt({pin: Relaxation.MOVE for pin in self.pins if pin.least is Relaxation.MOVE})

    def nearest(
        self, limit: int, most_changes: int = _MAX_CHANGES, *, other_bases: bool = True
    ) -> Alternatives:
        """Return up to `limit` alternatives with a minimal set of changes, and those that add a component.

        If each changes several pins or drops a component, alternatives on other bases are added.
        """
        fitting: list[Relaxations] = []
        for relaxations in self._in_order(most_changes):
            if any(_is_within(smaller, relaxations) for smaller in fitting):
                continue
            if isinstance(self.attempt(relaxations), Resolution):
                fitting.append(relaxations)
                if len(fitting) == limit:
                    break
        is_cut = self.is_spent or self._is_cut
        self._left = max(self._left, _STEPS * (len(fitting) + 1))
        self._budget = max(self._budget, min(BUDGET_OF_A_CALL, self._granted))
        alternatives = [self._refined(relaxations) for relaxations in fitting]
        alternatives += self._with_compatibility_libraries()
        if other_bases and not any(alternative.rank[:2] <= (1, 0) for alternative in alternatives):
            alternatives += self._on_other_bases()
        alternatives = [self._with_lock(alternative) for alternative in alternatives]
        alternatives.sort(key=lambda alternative: alternative.rank)
        return Alternatives(tuple(alternatives), is_cut, self._calls)

    def _with_lock(self, alternative: Alternative) -> Alternative:
        """Add a new lock of the requirements to an upgrade that the present lock excludes."""
        recipe = replace(alternative.resolution.recipe, content=self._content)
        if self._content == self._recipe.content or isinstance(
            self._search(recipe, SearchBudget(BUDGET_OF_A_CALL)), Resolution
        ):
            return alternative
        pin = Restriction("lock", "lock", "lock", recipe.location)
        return replace(alternative, changes=(*alternative.changes, PinChange(pin, "")))

    def _with_compatibility_libraries(self) -> list[Alternative]:
        """Return the alternative that adds cuda-compat for the host's driver, if that fits."""
        driver = next((pin for pin in self.pins if pin.kind == "driver"), None)
        is_named = any(requirement.name == CUDA_COMPAT for requirement in self._recipe.components)
        if driver is None or is_named or self._upgraded:
            return []
        added = Requirement(CUDA_COMPAT, "", driver.location)
        recipe = replace(self._recipe, components=(*self._recipe.components, added))
        outcome = self._search(recipe, SearchBudget(BUDGET_OF_A_CALL))
        version = outcome.version_of(CUDA_COMPAT) if isinstance(outcome, Resolution) else None
        if not isinstance(outcome, Resolution) or version is None:
            return []
        pin = Restriction("component", CUDA_COMPAT, "", driver.location)
        return [Alternative((PinChange(pin, version, is_added=True),), outcome)]

    def _on_other_bases(self) -> list[Alternative]:
        """Return the alternatives that only replace the base."""
        base = self._recipe.base
        pin = Restriction("base", base.name, version_range(base), base.location)
        return [
            Alternative((PinChange(pin, outcome.base.version, base=name),), outcome)
            for name, outcome in self.on_other_bases({}).items()
            if isinstance(outcome, Resolution)
        ]

    def on_other_bases(self, relaxations: Relaxations) -> dict[str, Outcome]:
        """Resolve the recipe with some pins relaxed on each other base."""
        recipe = relax(self._recipe, relaxations)
        base = recipe.base
        variants = {name: glob for name, glob in recipe.variants.items() if name != base.name}
        # Each base has a budget of its own, so that the answer does not depend on their order
        return {
            name: self._search(
                replace(recipe, base=Requirement(name, "", base.location), variants=variants),
                SearchBudget(BUDGET_OF_A_CALL),
            )
            for name in self._catalog.links.bases
            if name != base.name
        }

    def _in_order(self, most_changes: int) -> Iterator[Relaxations]:
        """Yield sets of relaxations, smallest first; the successors of a set follow if it does not fit."""
        ticket = count()
        heap: list[tuple[tuple[int, int, int], int, Relaxations]] = [((0, 0, 0), next(ticket), {})]
        seen: set[frozenset[tuple[Restriction, Relaxation]]] = set()
        while heap and not self.is_spent:
            relaxations = heapq.heappop(heap)[2]
            yield relaxations
            outcome = self.attempt(relaxations)
            if len(relaxations) == most_changes or isinstance(outcome, Resolution):
                continue
            # Without an answer the conflicting pins are unknown
            core = self.core(relaxations) if isinstance(outcome, Conflict) else dict(relaxations)
            for pin in self.pins:
                if core.get(pin) is pin.most or not self._may_relax(pin, relaxations):
                    continue
                child = {**relaxations, pin: Relaxation.DROP if pin in relaxations else pin.least}
                key = frozenset(child.items())
                if key not in seen:
                    seen.add(key)
                    heapq.heappush(heap, (_cost(child), next(ticket), child))

    def _may_relax(self, pin: Restriction, relaxations: Relaxations) -> bool:
        """Return whether one more relaxation of a pin still answers the question.

        An upgrade leaves out neither a component nor a target.
        """
        is_kept = pin.kind == "requirements" or (pin.least is Relaxation.MOVE and pin not in relaxations)
        return is_kept or not self._upgraded

    def _refined(self, relaxations: Relaxations) -> Alternative:
        """Return an alternative with the same pins relaxed; only the upgraded one moves far."""
        resolution = self._outcomes[frozenset(relaxations.items())]
        assert isinstance(resolution, Resolution)
        recipe = relax(self._recipe, relaxations)
        changes = []
        for pin, how in relaxations.items():
            if how is Relaxation.DROP:
                changes.append(PinChange(pin, ""))
            elif pin.kind == "driver":
                changes.append(PinChange(pin, _driver(resolution)))
            elif pin.kind == "variant":
                changes.append(PinChange(pin, _variant(resolution, pin.name)))
            else:
                if pin.name == self._upgraded:
                    recipe, resolution = self._newest(pin, recipe, resolution)
                else:
                    near = self._nearer(pin, recipe, resolution)
                    recipe, resolution = self._newest_of_series(pin, *near)
                version = resolution.version_of(pin.name) or ""
                shared, series = self._series(pin, version)
                distance = min(self._distance(pin, other) for other in (version, *series))
                changes.append(PinChange(pin, version, distance, shared))
        return Alternative(tuple(changes), resolution)

    def _nearer(self, pin: Restriction, recipe: Recipe, resolution: Resolution) -> tuple[Recipe, Resolution]:
        """Return the recipe with the nearest version to a pin that fits, and its resolution."""
        version = resolution.version_of(pin.name)
        if version is None:
            return recipe, resolution
        least, most = 1, self._distance(pin, version)
        while least < most and not self.is_spent:
            middle = (least + most) // 2
            near = [
                candidate
                for candidate in self._versions(pin.name)
                if self._distance(pin, candidate) <= middle
            ]
            closer = self._resolve(_with_range(recipe, pin, f">={near[0]},<={near[-1]}")) if near else None
            if isinstance(closer, Resolution):
                resolution, version = closer, closer.version_of(pin.name) or version
                most = min(middle, self._distance(pin, version))
            else:
                least = middle + 1
        if is_warned_of(pin.name, resolution):
            recipe, resolution, version = self._without_warning(pin, recipe, resolution, version)
        return _with_range(recipe, pin, f"=={version}"), resolution

    def _newest_of_series(
        self, pin: Restriction, recipe: Recipe, resolution: Resolution
    ) -> tuple[Recipe, Resolution]:
        """Return the recipe with the newest version that differs from a pin in the latest place, if it fits.

        Between 4.0 and 4.1.8 that is the second number, so 4.1.8 is as near to 4.0 as 4.1.1, and 5.0 is not.
        """
        version = resolution.version_of(pin.name) or ""
        shared, series = self._series(pin, version)
        newer = series[series.index(version) + 1 :] if version in series else ()
        closer = [
            other
            for other in self._versions(pin.name)
            if self._shared(pin, other) > shared and self._distance(pin, other)
        ]
        for other in (*closer[: -_MAX_OF_SERIES - 1 : -1], *newer[: -_MAX_OF_SERIES - 1 : -1]):
            narrowed = _with_range(recipe, pin, f"=={other}")
            outcome = self._resolve(narrowed)
            if isinstance(outcome, Resolution) and not is_warned_of(pin.name, outcome):
                return narrowed, outcome
        return recipe, resolution

    def _series(self, pin: Restriction, version: str) -> tuple[int, tuple[str, ...]]:
        """Return the count of leading numbers that a version shares with a pin, and the versions like it."""
        if not version or not self._ranges(pin):
            return 0, ()
        shared = self._shared(pin, version)
        numbers = Version(version).release[: shared + 1]
        alike = (
            other for other in self._versions(pin.name) if Version(other).release[: shared + 1] == numbers
        )
        return shared, tuple(alike)

    def _shared(self, pin: Restriction, version: str) -> int:
        """Return how many leading numbers a version has in common with the range of a pin."""
        release = Version(version).release
        bounds = (bound for requirement in self._ranges(pin)[:1] for bound in _bounds(requirement))
        return max((_common(bound.release, release) for bound in bounds), default=0)

    def _ranges(self, pin: Restriction) -> list[Requirement]:
        return [requirement for requirement in _requirements(self._recipe, pin) if requirement.specifier]

    def _newest(self, pin: Restriction, recipe: Recipe, resolution: Resolution) -> tuple[Recipe, Resolution]:
        """Return the recipe with the newest version of a pin that fits, one without a warning if possible."""
        version = resolution.version_of(pin.name)
        for other in islice(reversed(self._versions(pin.name)), _MAX_WARNED):
            narrowed = _with_range(recipe, pin, f"=={other}")
            outcome = resolution if other == version else self._resolve(narrowed)
            if isinstance(outcome, Resolution) and not is_warned_of(pin.name, outcome):
                return narrowed, outcome
        return recipe, resolution

    def _without_warning(
        self, pin: Restriction, recipe: Recipe, resolution: Resolution, version: str
    ) -> tuple[Recipe, Resolution, str]:
        """Return the nearest version that fits and that the catalogue does not warn of; else the nearest."""
        near = sorted(self._versions(pin.name), key=lambda other: self._distance(pin, other))
        for other in near[:_MAX_WARNED]:
            outcome = self._resolve(_with_range(recipe, pin, f"=={other}")) if other != version else None
            if isinstance(outcome, Resolution) and not is_warned_of(pin.name, outcome):
                return recipe, outcome, other
        return recipe, resolution, version

    def _resolve(self, recipe: Recipe) -> Outcome:
        if self.is_spent:
            return Undecided(0, ())
        self._left -= 1
        budget = SearchBudget(min(BUDGET_OF_A_CALL, self._budget))
        outcome = self._search(recipe, budget)
        self._budget -= budget.tried.total()
        return outcome

    def _search(self, recipe: Recipe, budget: SearchBudget) -> Outcome:
        try:
            resolution = resolve(recipe, self._catalog, budget)
            return Undecided(0, (), resolution.unknown) if resolution.unknown else resolution
        except Unsatisfiable as error:
            return error.conflict
        except BudgetExceeded:
            self._is_cut = True
            names = tuple(name for name, _ in budget.tried.most_common(_MAX_NAMED))
            return Undecided(budget.tried.total(), names)

    def _distance(self, pin: Restriction, version: str) -> int:
        """Return the number of known versions from a version to the range of a pin."""
        versions = self._versions(pin.name)
        if pin not in self._allowed:
            self._allowed[pin] = self._allowed_versions(pin)
        allowed, middle = self._allowed[pin]
        position = versions.index(version) if version in versions else len(versions)
        if not allowed:
            return 0 if middle is None else abs(position - middle) + (position >= middle)
        return min(abs(position - index) for index in allowed)

    def _allowed_versions(self, pin: Restriction) -> tuple[tuple[int, ...], int | None]:
        """Return the positions of known versions in the range of a pin, or that of a range without any."""
        versions = self._versions(pin.name)
        requirements = [
            requirement for requirement in _requirements(self._recipe, pin) if requirement.specifier
        ]
        allowed = tuple(
            index
            for index, candidate in enumerate(versions)
            if all(requirement.allows(candidate) for requirement in requirements)
        )
        return allowed, None if allowed else _gap(versions, requirements)

    def _versions(self, name: str) -> tuple[str, ...]:
        """Return every version of a name in the catalogue, oldest first."""
        if name not in self._sorted:
            versions = self._catalog.links.versions(name)
            self._sorted[name] = tuple(sorted(versions, key=lambda version: (Version(version), version)))
        return self._sorted[name]


def _keeps_off_gpus(pin: Restriction, catalog: Catalog) -> bool:
    """Return whether a pin selects builds for CPUs of a component that has others: no upgrade needs GPUs."""
    component = catalog.components.get(pin.name) if pin.kind == "variant" else None
    builds = [build for release in component.releases for build in release.variants] if component else []
    kinds = {build.spec.gpu for build in builds if build.matches(pin.value)}
    return kinds == {False} and any(build.spec.gpu for build in builds)


def is_warned_of(name: str, resolution: Resolution) -> bool:
    """Return whether a warning of the catalogue involves a component, or the content of a base."""
    return any(
        name in (candidate.name, problem.content.partition(" ")[0])
        for candidate, problem in resolution.warnings
    )


def _is_within(first: Relaxations, second: Relaxations) -> bool:
    return all(second.get(pin, 0) >= how for pin, how in first.items())


def _cost(relaxations: Relaxations) -> tuple[int, int, int]:
    drops = sum(how is Relaxation.DROP and pin.kind not in _WITHOUT_VALUE for pin, how in relaxations.items())
    return len(relaxations), drops, sum(pin.is_given_by_command for pin in relaxations)


def _variant(resolution: Resolution, name: str) -> str:
    for choice in resolution.all_choices:
        if choice.name == name:
            return choice.candidate.variant.name
    return ""


def _driver(resolution: Resolution) -> str:
    """Return the range of host drivers that the chosen components need."""
    specs = [choice.spec for choice in resolution.all_choices]
    requirements = [requirement for spec in specs for requirement in (*spec.requires, *spec.constraints)]
    ranges = [requirement.specifier for requirement in requirements if requirement.name == DRIVER]
    return ",".join(dict.fromkeys(ranges)) or "any"


def _requirements(recipe: Recipe, pin: Restriction) -> list[Requirement]:
    requirements = (recipe.base,) if pin.kind == "base" else recipe.components
    return [requirement for requirement in requirements if _is_of(requirement, pin)]


def _is_of(requirement: Requirement, pin: Restriction) -> bool:
    return (requirement.name, requirement.location) == (pin.name, pin.location)


def _with_range(recipe: Recipe, pin: Restriction, specifier: str) -> Recipe:
    """Return the recipe with another version range for a pin."""

    def changed(requirement: Requirement) -> Requirement:
        return replace(requirement, specifier=specifier) if _is_of(requirement, pin) else requirement

    if pin.kind == "base":
        return replace(recipe, base=changed(recipe.base))
    return replace(recipe, components=tuple(map(changed, recipe.components)))


def _bounds(requirement: Requirement) -> Iterator[Version]:
    for specifier in SpecifierSet(requirement.specifier):
        # `===` takes any text
        with suppress(InvalidVersion):
            yield Version(specifier.version.removesuffix(".*"))


def _common(first: tuple[int, ...], second: tuple[int, ...]) -> int:
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False))
    return sum(1 for _ in pairs)


def _gap(versions: tuple[str, ...], requirements: list[Requirement]) -> int | None:
    """Return the position among sorted versions of a range that allows none of them."""
    bound = next((bound for requirement in requirements for bound in _bounds(requirement)), None)
    return None if bound is None else sum(Version(version) < bound for version in versions)
