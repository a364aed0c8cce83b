"""Finds which pins of an unsatisfiable recipe disagree, and the nearest combinations that do fit.

A change moves one pin to another version or leaves one part out. Any way out has to change something in
every set of pins that can't stand together: so one such set is found, each of its pins is given up in turn,
and where that is not enough, the next set is found. Fewest changes come first. The resolver is called a
bounded number of times.
"""

import heapq
from collections.abc import Container, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.component import DRIVER, Requirement
from bakehouse.catalog.recipe import Recipe
from bakehouse.resolve.candidate import Conflict
from bakehouse.resolve.phrases import version_range
from bakehouse.resolve.relaxation import Pin, Relaxation, Relaxations, pins_of, relax
from bakehouse.resolve.resolver import BudgetExceeded, Resolution, SearchBudget, Unsatisfiable, resolve

MOST_EFFORT = 40_000
"""The candidates that one call may look at: a third of a second."""
EFFORT = 120_000
"""Those that a whole search may look at."""
_MOST_BASES = 6
_MOST_CHANGES = 3
_STEPS = 8
"""Calls kept for each way out, to come nearer to what was asked."""


@dataclass(frozen=True, slots=True)
class PinChange:
    pin: Pin
    now: str
    """The version or the variant instead; empty where the part is left out."""
    distance: int = 0
    """How many known versions lie between."""
    base: str = ""
    """Another base, which takes the place of the recipe's."""

    @property
    def is_left_out(self) -> bool:
        return not self.now and self.pin.kind != "lock"


@dataclass(frozen=True, slots=True)
class Alternative:
    """A few changes with which a recipe fits."""

    changes: tuple[PinChange, ...]
    resolution: Resolution

    @property
    def rank(self) -> tuple[int, int, int, int]:
        drops = sum(one.is_left_out for one in self.changes)
        commanded = sum(one.pin.is_given_by_command for one in self.changes)
        return len(self.changes), drops, commanded, sum(one.distance for one in self.changes)


@dataclass(frozen=True, slots=True)
class Alternatives:
    combinations: tuple[Alternative, ...]
    is_cut: bool
    """Whether the search ended before it was through."""
    calls: int


class AlternativeSearch:
    """One recipe's ways out, by a bounded number of calls of the resolver."""

    def __init__(
        self,
        recipe: Recipe,
        catalog: Catalog,
        calls: int,
        extra: tuple[Requirement, ...] = (),
        names: Container[str] | None = None,
        effort: int = EFFORT,
    ) -> None:
        """`extra` has to hold too, and is never given up; with `names`, nothing else is given up."""
        self._recipe = replace(recipe, components=(*recipe.components, *extra)) if extra else recipe
        self._catalog = catalog
        self._calls = self._left = calls
        self._pins = tuple(one for one in pins_of(recipe) if names is None or one.name in names)
        self._tried: dict[frozenset[tuple[Pin, Relaxation]], Resolution | Conflict | None] = {}
        self._is_cut = False
        self._effort = self._granted = effort

    @property
    def is_spent(self) -> bool:
        return self._left <= 0 or self._effort <= 0

    def attempt(self, giving: Relaxations) -> Resolution | Conflict | None:
        """The recipe's answer with some things given up; None where the effort did not do to find one."""
        key = frozenset(giving.items())
        if key not in self._tried:
            found = self._resolve(relax(self._recipe, giving))
            if found is None and any(pin.kind == "base" for pin in giving):
                found = self._on_near_base(giving)
            self._tried[key] = found
        return self._tried[key]

    def _on_near_base(self, giving: Relaxations) -> Resolution | None:
        """With the nearest version of the base that does, of a few: there are hundreds of some bases."""
        recipe = relax(self._recipe, giving)
        pin = next(one for one in giving if one.kind == "base")
        known = sorted(self._versions(pin.name), key=lambda version: self._distance(pin, version))
        for version in known[1 : _MOST_BASES + 1]:
            found = self._resolve(_asking(recipe, pin, f"=={version}"))
            if isinstance(found, Resolution):
                return found
        return None

    def core(self, giving: Relaxations) -> dict[Pin, Relaxation]:
        """All but the pins that can't stand together, given up; the fewest, as far as the calls last.

        Versions are given up first. Only a part with none left is left out then: it may be the one that
        brings what is missing, in another version. The base stays as it is.
        """
        found = dict(giving)
        base = self._recipe.base.name
        moved = [
            one
            for one in self._pins
            if one.least is Relaxation.MOVE and one not in found and one.name != base
        ]
        self._give(found, [(one, Relaxation.MOVE) for one in moved])
        held = {one.name for one in moved if one not in found}
        dropped = [
            one for one in self._pins if one.most is Relaxation.DROP and found.get(one) is not Relaxation.DROP
        ]
        self._give(found, [(one, Relaxation.DROP) for one in dropped if one.name not in held])
        return found

    def _give(self, found: dict[Pin, Relaxation], wanted: list[tuple[Pin, Relaxation]]) -> None:
        """Give pins up for good as far as nothing fits without them either; many at a time at first."""
        if not wanted:
            return
        if isinstance(self.attempt({**found, **dict(wanted)}), Conflict):
            found.update(wanted)
        elif len(wanted) > 1:
            middle = len(wanted) // 2
            self._give(found, wanted[:middle])
            self._give(found, wanted[middle:])

    def told(self) -> Resolution | Conflict | None:
        """The recipe without what has nothing to do with its conflict."""
        core = self.core({})
        out = {pin.name for pin, how in core.items() if pin.kind == "part" and how is Relaxation.DROP}
        # Of a part that has to do with it, all is told that the recipe says.
        kept = {pin: how for pin, how in core.items() if how is Relaxation.DROP or pin.name in out}
        return self.attempt(kept)

    @property
    def at_best(self) -> Resolution | Conflict | None:
        """What there is with all versions given up; where nothing is, only leaving parts out can help."""
        return self.attempt({pin: Relaxation.MOVE for pin in self._pins if pin.least is Relaxation.MOVE})

    def nearest(self, wanted: int, most: int = _MOST_CHANGES) -> Alternatives:
        """Ways out, the ones with the fewest changes first."""
        fitting: list[Relaxations] = []
        for giving in self._in_order(most):
            if any(_is_within(one, giving) for one in fitting):
                continue
            if isinstance(self.attempt(giving), Resolution):
                fitting.append(giving)
                if len(fitting) == wanted:
                    break
        is_cut = self.is_spent or self._is_cut
        self._left = max(self._left, _STEPS * (len(fitting) + 1))
        self._effort = max(self._effort, min(MOST_EFFORT, self._granted))
        found = [self._polished(giving) for giving in fitting]
        if all(one.rank[1] for one in found):
            found += self._on_other_bases()
        found.sort(key=lambda one: one.rank)
        return Alternatives(tuple(found), is_cut, self._calls)

    def _on_other_bases(self) -> list[Alternative]:
        """What fits if the recipe had another base."""
        base = self._recipe.base
        pin = Pin("base", base.name, version_range(base), base.location)
        found = []
        for other in sorted(one.name for one in self._catalog.components.values() if one.is_base):
            variants = {name: glob for name, glob in self._recipe.variants.items() if name != base.name}
            swapped = replace(self._recipe, base=Requirement(other, "", base.location), variants=variants)
            if other != base.name and isinstance(resolution := self._resolve(swapped), Resolution):
                change = PinChange(pin, resolution.base.version, base=other)
                found.append(Alternative((change,), resolution))
        return found

    def _in_order(self, most: int) -> Iterator[Relaxations]:
        """What to give up, fewest things first; an element's successors follow where it did not fit."""
        ticket = count()
        heap: list[tuple[tuple[int, int, int], int, Relaxations]] = [((0, 0, 0), next(ticket), {})]
        seen: set[frozenset[tuple[Pin, Relaxation]]] = set()
        while heap and not self.is_spent:
            giving = heapq.heappop(heap)[2]
            yield giving
            found = self.attempt(giving)
            if len(giving) == most or isinstance(found, Resolution):
                continue
            # Of what took too long nobody knows which pins have to do with it.
            core = self.core(giving) if found else dict(giving)
            for pin in self._pins:
                if core.get(pin) is pin.most:
                    continue
                child = {**giving, pin: Relaxation.DROP if pin in giving else pin.least}
                key = frozenset(child.items())
                if key not in seen:
                    seen.add(key)
                    heapq.heappush(heap, (_cost(child), next(ticket), child))

    def _polished(self, giving: Relaxations) -> Alternative:
        """The same pins given up, each by as little as will do."""
        found = self._tried[frozenset(giving.items())]
        assert isinstance(found, Resolution)
        recipe = relax(self._recipe, giving)
        changes = []
        for pin, how in giving.items():
            if how is Relaxation.DROP:
                changes.append(PinChange(pin, ""))
            elif pin.kind == "driver":
                changes.append(PinChange(pin, _driver(found)))
            elif pin.kind == "variant":
                changes.append(PinChange(pin, _variant(found, pin.name)))
            else:
                recipe, found = self._nearer(pin, recipe, found)
                now = found.version_of(pin.name) or ""
                changes.append(PinChange(pin, now, self._distance(pin, now)))
        return Alternative(tuple(changes), found)

    def _nearer(self, pin: Pin, recipe: Recipe, found: Resolution) -> tuple[Recipe, Resolution]:
        """The nearest version to what a pin asked for, that fits; the recipe then asks for that one."""
        version = found.version_of(pin.name)
        if version is None:
            return recipe, found
        least, most = 1, self._distance(pin, version)
        while least < most and not self.is_spent:
            middle = (least + most) // 2
            near = [one for one in self._versions(pin.name) if self._distance(pin, one) <= middle]
            closer = self._resolve(_asking(recipe, pin, f">={near[0]},<={near[-1]}")) if near else None
            if isinstance(closer, Resolution):
                found, version = closer, closer.version_of(pin.name) or version
                most = min(middle, self._distance(pin, version))
            else:
                least = middle + 1
        return _asking(recipe, pin, f"=={version}"), found

    def _resolve(self, recipe: Recipe) -> Resolution | Conflict | None:
        if self.is_spent:
            return None
        self._left -= 1
        most = min(MOST_EFFORT, self._effort)
        granted = SearchBudget(most)
        try:
            return resolve(recipe, self._catalog, granted)
        except Unsatisfiable as nothing:
            return nothing.conflict
        except BudgetExceeded:
            self._is_cut = True
            return None
        finally:
            self._effort -= most - granted.left

    def _distance(self, pin: Pin, version: str) -> int:
        """How many steps a version is away from what a pin asks for, along the known versions."""
        known = self._versions(pin.name)
        asked = [one for one in _requirements(self._recipe, pin) if one.specifier]
        allowed = [number for number, one in enumerate(known) if all(two.allows(one) for two in asked)]
        here = known.index(version) if version in known else len(known)
        if not allowed:
            middle = _gap(known, asked)
            return 0 if middle is None else abs(here - middle) + (here >= middle)
        return min(abs(here - one) for one in allowed)

    def _versions(self, name: str) -> tuple[str, ...]:
        return self._known.get(name, ())

    @cached_property
    def _known(self) -> dict[str, tuple[str, ...]]:
        """Every version of every name that the catalogue has, oldest first."""
        found: dict[str, set[str]] = {}
        for component in self._catalog.components.values():
            for release in component.releases:
                found.setdefault(component.name, set()).add(release.version)
                for variant in release.variants:
                    for name, version in variant.spec.provides.items():
                        found.setdefault(name, set()).add(version)
        return {
            name: tuple(sorted(versions, key=lambda one: (Version(one), one)))
            for name, versions in found.items()
        }


def _is_within(first: Relaxations, second: Relaxations) -> bool:
    return all(second.get(pin, 0) >= how for pin, how in first.items())


def _cost(giving: Relaxations) -> tuple[int, int, int]:
    drops = sum(how is Relaxation.DROP and pin.kind != "lock" for pin, how in giving.items())
    return len(giving), drops, sum(pin.is_given_by_command for pin in giving)


def _variant(resolution: Resolution, name: str) -> str:
    for choice in (resolution.base, *resolution.choices):
        if choice.name == name:
            return choice.candidate.variant.name
    return ""


def _driver(resolution: Resolution) -> str:
    """What the chosen parts ask of the host's driver."""
    chosen = [choice.spec for choice in (resolution.base, *resolution.choices)]
    asked = [one for spec in chosen for one in (*spec.requires, *spec.constraints) if one.name == DRIVER]
    return ",".join(dict.fromkeys(one.specifier for one in asked)) or "any"


def _requirements(recipe: Recipe, pin: Pin) -> list[Requirement]:
    here = (recipe.base,) if pin.kind == "base" else recipe.components
    return [one for one in here if (one.name, one.location) == (pin.name, pin.location)]


def _asking(recipe: Recipe, pin: Pin, specifier: str) -> Recipe:
    """The recipe with a pin on other versions."""

    def asking(one: Requirement) -> Requirement:
        is_pin = (one.name, one.location) == (pin.name, pin.location)
        return replace(one, specifier=specifier) if is_pin else one

    if pin.kind == "base":
        return replace(recipe, base=asking(recipe.base))
    return replace(recipe, components=tuple(asking(one) for one in recipe.components))


def _gap(known: tuple[str, ...], asked: list[Requirement]) -> int | None:
    """Where among the known versions a range lies that allows none of them."""
    for one in asked:
        for specifier in SpecifierSet(one.specifier):
            try:
                wanted = Version(specifier.version.removesuffix(".*"))
            except InvalidVersion:  # `===` takes any text
                continue
            return sum(Version(version) < wanted for version in known)
    return None
