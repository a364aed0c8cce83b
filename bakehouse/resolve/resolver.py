"""Chooses versions for a recipe: newest first, depth first, keeping who asked for what.

A component, its release and its variant are one candidate. A candidate is refused by a demand that is
already on the table, or because a demand of its own does not hold; what was refused, and by whom, is what
`explain` tells when nothing fits. The order of keys in a file never matters.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property, partial
from pathlib import Path

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.component import (
    DRIVER,
    INSTANCE,
    Component,
    Incompatibility,
    Release,
    Variant,
    VariantSpec,
)
from bakehouse.catalog.python_lock import Package, normal_name
from bakehouse.catalog.recipe import Recipe
from bakehouse.resolve.candidate import (
    Candidate,
    Conflict,
    Demand,
    Refusal,
    Selection,
    find_conflict,
    find_joint_conflict,
    frozen_package,
    incompatible_candidates,
)
from bakehouse.resolve.compatibility import Compatibility, CompatibilityCache, Option


@dataclass(frozen=True)
class Choice:
    """One component as chosen, with who asked for it and what made older or newer ones unfit."""

    candidate: Candidate
    _asked: tuple[Demand, ...]
    """All that is asked for in the image."""
    _reasons: Callable[[], tuple[Refusal, ...]]

    @cached_property
    def demands(self) -> tuple[Demand, ...]:
        """What is asked of it, and of what it provides."""
        return tuple(one for one in self._asked if one.requirement.name in self.candidate.provided)

    @cached_property
    def skipped(self) -> tuple[Refusal, ...]:
        """What stands before it in the catalogue, and why it is not chosen."""
        return self._reasons()

    @property
    def name(self) -> str:
        return self.candidate.name

    @property
    def version(self) -> str:
        return self.candidate.release.version

    @property
    def spec(self) -> VariantSpec:
        return self.candidate.spec


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
    """What is reported not to work together, on evidence too thin to find_conflict it."""

    def version_of(self, name: str) -> str | None:
        """The version of a component or of what one provides."""
        for choice in (self.base, *self.choices):
            if name in choice.candidate.provided:
                return choice.candidate.provided[name]
        return None


class Unsatisfiable(Exception):
    """Carries a Conflict to `explain`, which has the words."""

    def __init__(self, conflict: Conflict) -> None:
        super().__init__(conflict.name)
        self.conflict = conflict


class BudgetExceeded(Exception):
    """The effort that was granted is used up, and nothing is known yet."""


@dataclass(slots=True)
class SearchBudget:
    """How many candidates may still be looked at."""

    left: int


def resolve(recipe: Recipe, catalog: Catalog, effort: SearchBudget | None = None) -> Resolution:
    """The newest versions that satisfy a recipe. Raises Unsatisfiable with the causes.

    An effort is used up by what is looked at; with none left it raises BudgetExceeded.
    """
    return _Search(recipe, catalog, effort).run()


_Left = Mapping[str, int]
"""Candidates of names that have to be chosen, which go with each part that is chosen: the nth is bit n."""


@dataclass(frozen=True, slots=True)
class _DeadEnd:
    """That nothing fits for a name: cheap to find, and told in words only where a person reads them."""

    recipe: Recipe
    name: str
    selection: Selection
    tried: tuple[tuple[Option, "_DeadEnd | None"], ...]
    """Each candidate, with the dead end that its choice led to."""
    culprits: frozenset[str]
    """The chosen parts of which at least one has to change."""

    @property
    def conflict(self) -> Conflict:
        reasons = partial(_reasons, self.selection, self.tried)
        return Conflict(self.recipe, self.name, self.selection.demands, reasons)


def _reasons(selection: Selection, tried: Iterable[tuple[Option, _DeadEnd | None]]) -> tuple[Refusal, ...]:
    """Why each candidate that was tried is not in the image."""
    found = []
    for (candidate, demands), dead_end in tried:
        if dead_end:
            found.append(Refusal(candidate, dead_end.name, then=dead_end.conflict))
        elif refusal := find_conflict(candidate, demands, selection):
            found.append(refusal)
    return tuple(found)


class _Search:
    """Steps back to a choice that has to do with the failure, not to the latest: others can't mend it."""

    def __init__(self, recipe: Recipe, catalog: Catalog, effort: SearchBudget | None) -> None:
        self._recipe = recipe
        self._effort = effort
        self._known_providers: dict[str, frozenset[str]] = {}
        self._components = catalog.components
        self._links = catalog.links
        self._targets = _targets(recipe, catalog)
        self._named = {one.name for one in recipe.components}
        self._asked = tuple(Demand(one, None) for one in (recipe.base, *recipe.components))
        self._fitting = Compatibility(recipe, CompatibilityCache.of(catalog), self._asked, self._targets)
        self._skipped: dict[str, Callable[[], tuple[Refusal, ...]]] = {}

    def run(self) -> Resolution:
        start = Selection.first(self._asked, self._recipe.content.packages, self._targets)
        found = self._extend(start, {})
        if isinstance(found, Selection):
            return self._result(found)
        raise Unsatisfiable(found.conflict)

    def _extend(self, selection: Selection, left: _Left) -> Selection | _DeadEnd:
        """A selection with all that it asks for; `left` has what is left for names that are to be chosen."""
        name = self._next_name(selection)
        if name is None:
            missing = min(selection.missing, default=None)
            return self._dead_end(selection, missing, (), frozenset()) if missing else selection
        options = self._candidates(name)
        tried: list[tuple[Option, _DeadEnd | None]] = []
        culprits: frozenset[str] = frozenset()
        fitting = left.get(name) or self._fitting.left(name, selection.chosen, None)
        for place, option in enumerate(options):
            if self._effort:
                if self._effort.left <= 0:
                    raise BudgetExceeded
                self._effort.left -= 1
            if not fitting >> place & 1:
                tried.append((option, None))
                continue
            found = self._try(option, selection, left)
            if isinstance(found, Selection):
                self._skipped[name] = partial(_reasons, selection, tuple(tried))
                return found
            if isinstance(found, _DeadEnd):
                if name not in found.culprits:
                    return found
                culprits |= found.culprits
                tried.append((option, found))
            else:
                culprits |= found
                tried.append((option, None))
        later = self._put_off(name, selection, left)
        if isinstance(later, Selection):
            return later
        culprits |= self._keeping_out(name, selection)
        dead_end = self._dead_end(selection, name, tuple(tried), culprits - {name})
        return replace(dead_end, culprits=dead_end.culprits | later.culprits) if later else dead_end

    def _put_off(self, name: str, selection: Selection, left: _Left) -> Selection | _DeadEnd | None:
        """What comes of leaving a name to parts that are yet to be chosen; None where it can't be left."""
        if not self._links.is_shared(name):
            return None
        later = replace(selection, excluded=selection.excluded | {name})
        return None if self._next_name(later) is None else self._extend(later, left)

    def _try(
        self, option: Option, selection: Selection, left: _Left
    ) -> Selection | _DeadEnd | frozenset[str]:
        """What comes of a candidate: a whole selection, a dead end, or who keeps it out at once."""
        candidate, demands = option
        # It goes with each of the chosen parts by itself
        if refusal := find_joint_conflict(candidate, selection):
            return refusal.culprits
        self._fitting.choose(option)
        longer = selection.plus(candidate, demands)
        ahead = self._look_ahead(longer, left)
        return ahead if isinstance(ahead, _DeadEnd) else self._extend(longer, ahead)

    def _look_ahead(self, selection: Selection, left: _Left) -> _Left | _DeadEnd:
        """What the newest choice leaves for names yet to be chosen; a dead end where that is nothing for one.

        Without it a search would find that out only after it has tried everything between.
        """
        narrowed: dict[str, int] = {}
        for name in sorted(selection.missing - selection.excluded):
            if self._links.is_shared(name) or name not in self._components:
                continue
            options = self._candidates(name)
            narrowed[name] = self._fitting.left(name, selection.chosen, left.get(name))
            if not narrowed[name]:
                tried = tuple((one, None) for one in options)
                return self._dead_end(selection, name, tried, self._keeping_out(name, selection))
        return narrowed

    def _keeping_out(self, name: str, selection: Selection) -> frozenset[str]:
        """The chosen parts beside which candidates of a name can't be."""
        places = range(len(self._candidates(name)))
        against = (self._fitting.against(name, place, selection.chosen) for place in places)
        return frozenset(culprit for one in against for culprit in one or ())

    def _next_name(self, selection: Selection) -> str | None:
        """The base, then the recipe's own names, then others; last what parts yet to come may provide."""
        if not selection.chosen:
            return None if self._recipe.base.name in selection.excluded else self._recipe.base.name
        return min(selection.missing - selection.excluded, key=self._rank, default=None)

    def _rank(self, name: str) -> tuple[bool, bool, int, str]:
        component = self._components.get(name)
        order = component.stage_order if component else 0
        return self._links.is_shared(name), name not in self._named, order, name

    def _candidates(self, name: str) -> tuple[Option, ...]:
        """The candidates of a name, each with what it asks for: the same ones at every step."""
        found = self._fitting.options.get(name)
        if found is None:
            component = self._components.get(name)
            is_elsewhere = self._links.is_base(name) and name != self._recipe.base.name
            found = self._fitting.list(name, None if is_elsewhere or name == INSTANCE else component)
        return found.listed

    def _dead_end(
        self,
        selection: Selection,
        name: str,
        tried: tuple[tuple[Option, _DeadEnd | None], ...],
        culprits: frozenset[str],
    ) -> _DeadEnd:
        """Who brought the name is a culprit too, and who might bring, or keeps out, what provides it."""
        askers = [one.required_by for one in selection.demands if one.requirement.name == name and one.brings]
        if None not in askers:
            culprits |= {required_by.name for required_by in askers[:1] if required_by}
        providers = self._providers(name)
        for one in selection.chosen:
            if any(self._links.can_provide(provided, providers) for provided in one.provided):
                culprits |= {one.name}
        return _DeadEnd(self._recipe, name, selection, tried, culprits)

    def _providers(self, name: str) -> frozenset[str]:
        """Who may provide a name: what the recipe itself asks of it holds whatever is chosen."""
        if name not in self._known_providers:
            lasting = [one for one in (self._recipe.base, *self._recipe.components) if one.name == name]
            self._known_providers[name] = self._links.providers(name, lasting)
        return self._known_providers[name]

    def _result(self, selection: Selection) -> Resolution:
        base, *others = (
            Choice(candidate, selection.demands, self._skipped.get(candidate.name, tuple))
            for candidate in selection.chosen
        )
        choices = sorted(others, key=lambda choice: (choice.candidate.component.stage_order, choice.name))
        owners, mine = _share_packages(base.candidate, choices, self._recipe.content.packages)
        pool = (*selection.chosen, *self._targets)
        warnings = [
            (one, known)
            for one in selection.chosen
            for known in one.spec.conflicts
            if not known.is_certain and incompatible_candidates(known, pool)
        ]
        return Resolution(
            self._recipe, base, tuple(choices), owners, mine, targets=self._targets, warnings=tuple(warnings)
        )


def _targets(recipe: Recipe, catalog: Catalog) -> tuple[Candidate, ...]:
    """What an image has to run on, as parts that are there before any is chosen."""
    found = []
    component = catalog.components.get(INSTANCE)
    globs = [pattern.text for pattern in recipe.targets.instances]
    for release in component.releases if component and globs else ():
        for variant in release.variants:
            if any(fnmatchcase(variant.name, glob) for glob in globs):
                assert component
                found.append(Candidate(component, release, variant))
    if driver := recipe.targets.driver:
        variant = Variant("", VariantSpec(), driver.location)
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

    def take(packages: Mapping[str, Package]) -> tuple[Package, ...]:
        own = {
            name: one for name, one in packages.items() if name not in taken and not frozen_package(base, one)
        }
        taken.update(own)
        return tuple(own.values())

    owners = {choice.name: take(choice.spec.packages_by_name) for choice in choices}
    return owners, take({normal_name(one.name): one for one in mine})
