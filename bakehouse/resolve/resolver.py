"""Resolution of a recipe to exact versions: newest first, depth first.

A candidate is one variant of one release of a component. It is excluded by a demand of the recipe or of a
chosen component, or because one of its own demands is not met. The search records each exclusion, so that
`explain` and error messages can give the reasons. The order of keys in a recipe does not matter.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property, partial
from pathlib import Path

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.component import (
    CUDA_COMPAT,
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
    PartialResolution,
    Refusal,
    find_conflict,
    find_joint_conflict,
    frozen_package,
    incompatible_candidates,
)
from bakehouse.resolve.compatibility import Compatibility, CompatibilityCache, Option, bits
from bakehouse.resolve.unknown_facts import unknown_facts


def companions(chosen: Iterable[Candidate], catalog: Catalog) -> Iterator[str]:
    """Yield the package and version, such as `torchvision==0.28.0+cpu`, of each absent component.

    Only wheels with a local version, such as `torch==2.13.0+cpu`, have them. An index without a companion for
    that build has one for another build of the same release, which cannot be loaded next to it.
    """
    chosen = tuple(chosen)
    present = {name for candidate in chosen for name in candidate.provided}
    for candidate in chosen:
        locals_ = {wheel.version.partition("+")[2] for wheel in candidate.wheels.values()} - {""}
        for name in sorted(catalog.links.recommended(candidate.name) - present if locals_ else ()):
            component = catalog.components.get(name)
            if component and component.upstream and name in component.upstream.projects:
                release = _release_for(candidate, component)
                yield from (f"{name}=={release.version}+{local}" for local in sorted(locals_) if release)


def _release_for(candidate: Candidate, component: Component) -> Release | None:
    """Return the newest release of a component that requires the candidate's release."""
    for release in component.releases:
        for variant in release.variants:
            for requirement in variant.spec.requires:
                if requirement.name == candidate.name and requirement.allows(candidate.release.version):
                    return release
    return None


@dataclass(frozen=True)
class Choice:
    """A chosen component, with the demands on it and the reasons against the candidates before it."""

    candidate: Candidate
    _all_demands: tuple[Demand, ...]
    """All demands in the image."""
    _reasons: Callable[[], tuple[Refusal, ...]]

    @cached_property
    def demands(self) -> tuple[Demand, ...]:
        """The demands on it and on the names that it provides."""
        return tuple(
            demand for demand in self._all_demands if demand.requirement.name in self.candidate.provided
        )

    @cached_property
    def skipped(self) -> tuple[Refusal, ...]:
        """The candidates before it in the catalogue, with the reasons against them."""
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
    """A recipe with exact versions, lowest layers first."""

    recipe: Recipe
    base: Choice
    choices: tuple[Choice, ...]
    """All components but the base, by layer order, then name."""
    owners: dict[str, tuple[Package, ...]]
    """The Python packages that each component installs; a shared package belongs to the lowest component."""
    user_packages: tuple[Package, ...]
    targets: tuple[Candidate, ...] = ()
    """The instance types and the driver that the image targets."""
    warnings: tuple[tuple[Candidate, Incompatibility], ...] = ()
    """Incompatibilities that exclude no candidate."""
    companions: tuple[str, ...] = ()
    """Packages and versions of absent components that are made for the builds in the image."""
    unknown: tuple[str, ...] = ()
    """Facts without which it is not known whether the components fit."""

    @property
    def all_choices(self) -> tuple[Choice, ...]:
        """The base and the components on it."""
        return (self.base, *self.choices)

    @property
    def compatibility_libraries(self) -> Choice | None:
        """The cuda-compat that makes up for a driver that is too old; None if no component needs it."""
        drivers = [target.release.version for target in self.targets if target.name == DRIVER]
        specs = [choice.spec for choice in self.all_choices]
        requirements = [requirement for spec in specs for requirement in (*spec.requires, *spec.constraints)]
        ranges = [requirement for requirement in requirements if requirement.name == DRIVER]
        if all(requirement.allows(driver) for driver in drivers for requirement in ranges):
            return None
        return next((choice for choice in self.choices if choice.name == CUDA_COMPAT), None)

    @property
    def missing_packages(self) -> tuple[Package, ...]:
        """Packages that the recipe's lock expects of a component, but no component installs."""
        installed = {name for choice in self.all_choices for name in choice.candidate.packages}
        return tuple(
            package
            for package in self.recipe.content.packages
            if not package.file and normal_name(package.name) not in installed
        )

    @property
    def versions(self) -> dict[str, str]:
        """Versions of all components and of what they provide, by name."""
        choices = reversed(self.all_choices)
        return {name: version for choice in choices for name, version in choice.candidate.provided.items()}

    def version_of(self, name: str) -> str | None:
        """Return the version of a component or of a provided name, or None."""
        for choice in self.all_choices:
            if name in choice.candidate.provided:
                return choice.candidate.provided[name]
        return None


class Unsatisfiable(Exception):
    """No combination of versions satisfies a recipe; `conflict` holds the causes."""

    def __init__(self, conflict: Conflict) -> None:
        super().__init__(conflict.name)
        self.conflict = conflict


class BudgetExceeded(Exception):
    """The search budget is used up before an answer is known."""


@dataclass(slots=True)
class SearchBudget:
    """The number of candidates that a search may still try."""

    left: int
    tried: Counter[str] = field(default_factory=Counter)
    """The number of tried candidates of each component."""

    def spend(self, name: str) -> None:
        """Count a candidate of a component that is tried. Raises BudgetExceeded."""
        if self.left <= 0:
            raise BudgetExceeded
        self.left -= 1
        self.tried[name] += 1


def resolve(recipe: Recipe, catalog: Catalog, budget: SearchBudget | None = None) -> Resolution:
    """Return the newest versions that satisfy a recipe.

    Raises Unsatisfiable with the causes, and BudgetExceeded once `budget` is used up.
    """
    try:
        return _Search(recipe, catalog, budget).run()
    except Unsatisfiable:
        if resolution := _with_compatibility_libraries(recipe, catalog, budget):
            return resolution
        raise


def _with_compatibility_libraries(
    recipe: Recipe, catalog: Catalog, budget: SearchBudget | None
) -> Resolution | None:
    """Return the newest versions for a host with an old driver that a cuda-compat supports."""
    driver, component = recipe.targets.driver, catalog.components.get(CUDA_COMPAT)
    requirement = next((item for item in recipe.components if item.name == CUDA_COMPAT), None)
    if driver is None or component is None or requirement is None:
        return None
    branch = driver.text.partition(".")[0]
    for release in component.releases:
        branches = {name for variant in release.variants for name in _branches(variant.spec)}
        if branch not in branches or not requirement.allows(release.version):
            continue
        exact = replace(requirement, specifier=f"=={release.version}")
        without_driver = replace(
            recipe,
            components=tuple(exact if item is requirement else item for item in recipe.components),
            targets=replace(recipe.targets, driver=None),
        )
        try:
            resolution = _Search(without_driver, catalog, budget).run()
        except Unsatisfiable:
            continue
        return replace(resolution, recipe=recipe, targets=_targets(recipe, catalog))
    return None


def _branches(spec: VariantSpec) -> list[str]:
    return str(spec.facts.get("branches", "")).split()


_Left = Mapping[str, int]
"""By name still to be chosen: the candidates that fit each chosen component; bit n is the nth candidate."""


@dataclass(frozen=True, slots=True)
class _DeadEnd:
    """A name for which no candidate fits; its reasons are computed only when they are printed."""

    recipe: Recipe
    name: str
    selection: PartialResolution
    options: tuple[Option, ...]
    """The candidates of the name."""
    later: Mapping[int, "_DeadEnd"]
    """The dead ends that choosing a candidate led to, by its position."""
    culprits: frozenset[str]
    """Chosen components; at least one of them has to change."""
    is_learnable: bool
    """True if it follows from the culprits alone, whatever else is chosen."""

    @property
    def conflict(self) -> Conflict:
        reasons = partial(_reasons, self.selection, self.options, self.later)
        return Conflict(self.recipe, self.name, self.selection.demands, reasons)


def _reasons(
    selection: PartialResolution, options: Sequence[Option], later: Mapping[int, _DeadEnd]
) -> tuple[Refusal, ...]:
    """Return the reason against each candidate."""
    refusals = []
    for position, (candidate, demands) in enumerate(options):
        if dead_end := later.get(position):
            refusals.append(Refusal(candidate, dead_end.name, then=dead_end.conflict))
        elif refusal := find_conflict(candidate, demands, selection):
            refusals.append(refusal)
    return tuple(refusals)


@dataclass(frozen=True, slots=True)
class _Refused:
    """A candidate that cannot be added to a selection, because of chosen components."""

    culprits: frozenset[str]
    is_learnable: bool


class _Search:
    """A search that returns to a choice that contributed to a failure, and does not repeat failures."""

    def __init__(self, recipe: Recipe, catalog: Catalog, budget: SearchBudget | None) -> None:
        self._recipe = recipe
        self._budget = budget
        self._providers_by_name: dict[str, frozenset[str]] = {}
        self._ranks: dict[str, tuple[bool, bool, int, str]] = {}
        self._catalog = catalog
        self._components = catalog.components
        self._links = catalog.links
        self._reachable = self._links.needed((recipe.base.name, *(item.name for item in recipe.components)))
        self._targets = _targets(recipe, catalog)
        requirements = (recipe.base, *recipe.components)
        self._named = {requirement.name for requirement in recipe.components}
        self._demands = (
            *(Demand(requirement, None) for requirement in requirements),
            *(Demand(needed, target) for target in self._targets for needed in target.spec.requires),
        )
        self._replaceable = frozenset(
            normal_name(package) for name in self._reachable for package in self._links.replaced(name)
        )
        shared = CompatibilityCache.of(catalog)
        self._compatibility = Compatibility(
            recipe,
            shared,
            self._demands,
            self._targets,
            self._components,
            self._components.get(recipe.base.name),
        )
        self._skipped: dict[str, Callable[[], tuple[Refusal, ...]]] = {}
        self._learned: dict[int, list[tuple[frozenset[int], _DeadEnd]]] = {}
        """By the identity of a candidate: others that it cannot be chosen with, and the dead end."""
        self._learned_bits: Counter[str] = Counter()
        """By name: the candidates with entries in `_learned`."""
        self._hopeless: defaultdict[str, dict[int, _DeadEnd]] = defaultdict(dict)
        """By name and position: the candidates that lead to a dead end whatever else is chosen."""
        self._positions: dict[int, tuple[str, int]] = {}
        """By the identity of a candidate."""

    def run(self) -> Resolution:
        start = PartialResolution.first(
            self._demands, self._recipe.content.packages, self._targets, self._recipe.platform
        )
        outcome = self._extend(start, {})
        if isinstance(outcome, PartialResolution):
            return self._result(outcome)
        raise Unsatisfiable(outcome.conflict)

    def _extend(self, selection: PartialResolution, left: _Left) -> PartialResolution | _DeadEnd:
        """Complete a selection; `left` has the remaining candidates of names still to be chosen."""
        name = self._next_name(selection)
        if name is None:
            missing = min(selection.missing, default=None)
            if missing is None:
                return selection
            dead_end = self._dead_end(selection, missing, {}, frozenset(), is_learnable=False)
            return replace(dead_end, options=())
        options = self._candidates(name)
        dead_ends: dict[int, _DeadEnd] = {}
        culprits: frozenset[str] = frozenset()
        is_learnable = True
        fitting = left.get(name) or self._compatibility.left(name, selection.chosen, None)
        for position in bits(fitting):
            option = options[position]
            tried = self._known_dead_end(option, selection) or self._try(option, selection, left)
            if isinstance(tried, PartialResolution):
                self._skipped[name] = partial(_reasons, selection, options[:position], dead_ends)
                return tried
            if isinstance(tried, _DeadEnd):
                if name not in tried.culprits:
                    return tried
                dead_ends[position] = tried
            culprits |= tried.culprits
            is_learnable &= tried.is_learnable
        culprits |= self._excluding(name, selection)
        without: _DeadEnd | None = None
        if (other_culprits := self._excluding_providers(name, selection)) is not None:
            # Nothing else can provide a shared name either
            culprits |= other_culprits
        else:
            is_learnable = False
            outcome = self._exclude(name, selection, left)
            if isinstance(outcome, PartialResolution):
                return outcome
            without = outcome
        dead_end = self._dead_end(selection, name, dead_ends, culprits - {name}, is_learnable=is_learnable)
        if without:
            return replace(dead_end, culprits=dead_end.culprits | without.culprits)
        return self._learn(dead_end)

    def _learn(self, dead_end: _DeadEnd) -> _DeadEnd:
        """Remember the chosen candidates that lead to a dead end, so that they are not combined again."""
        if dead_end.is_learnable:
            chosen = [
                candidate for candidate in dead_end.selection.chosen if candidate.name in dead_end.culprits
            ]
            ids = frozenset(map(id, chosen))
            for candidate in chosen:
                self._learned.setdefault(id(candidate), []).append((ids, dead_end))
                name, position = self._positions[id(candidate)]
                self._learned_bits[name] |= 1 << position
                if len(ids) == 1:
                    self._hopeless[name][position] = dead_end
                    self._compatibility.drop(name, position)
        return dead_end

    def _known_dead_end(self, option: Option, selection: PartialResolution) -> _DeadEnd | None:
        """Return a dead end that a candidate and chosen ones led to before."""
        if learned := self._learned.get(id(option[0])):
            chosen = {id(option[0]), *map(id, selection.chosen)}
            return next((dead_end for ids, dead_end in learned if ids <= chosen), None)
        return None

    def _exclude(
        self, name: str, selection: PartialResolution, left: _Left
    ) -> PartialResolution | _DeadEnd | None:
        """Complete a selection in which another component provides a name; None if none can."""
        later = replace(selection, excluded=selection.excluded | {name})
        return None if self._next_name(later) is None else self._extend(later, left)

    def _try(
        self, option: Option, selection: PartialResolution, left: _Left
    ) -> PartialResolution | _DeadEnd | _Refused:
        """Add a candidate and go on: a complete selection, a dead end, or the components that exclude it."""
        candidate, demands = option
        if self._budget:
            self._budget.spend(candidate.name)
        # Pairs of it and a chosen component are known to be compatible
        if refusal := find_joint_conflict(candidate, selection):
            return _Refused(refusal.culprits, is_learnable=self._follows_from_culprits(refusal))
        self._compatibility.choose(option)
        longer = selection.plus(candidate, demands)
        remaining = self._look_ahead(longer, left)
        return remaining if isinstance(remaining, _DeadEnd) else self._extend(longer, remaining)

    def _follows_from_culprits(self, refusal: Refusal) -> bool:
        """Return whether a refusal stays whatever else is chosen: no component replaces the package."""
        return refusal.packages is None or normal_name(refusal.name) not in self._replaceable

    def _look_ahead(self, selection: PartialResolution, left: _Left) -> _Left | _DeadEnd:
        """Return the candidates that the newest choice leaves; a dead end if it leaves none for a name.

        Without this check, the search would fail only after trying all combinations of the names in between.
        """
        remaining: dict[str, int] = {}
        for name in sorted(selection.missing - selection.excluded, key=self._rank):
            self._candidates(name)
            remaining[name] = fitting = self._compatibility.left(name, selection.chosen, left.get(name))
            known = self._known_dead_ends(name, fitting, selection)
            if len(known) < fitting.bit_count():
                continue
            culprits = self._excluding_providers(name, selection)
            if culprits is not None:
                culprits |= self._excluding(name, selection)
                culprits = culprits.union(*(dead_end.culprits for dead_end in known.values())) - {name}
                return self._learn(self._dead_end(selection, name, known, culprits, is_learnable=True))
        return remaining

    def _known_dead_ends(self, name: str, fitting: int, selection: PartialResolution) -> dict[int, _DeadEnd]:
        """Return the known dead ends of the candidates of a name, up to the first without one."""
        known: dict[int, _DeadEnd] = {}
        if fitting & ~self._learned_bits[name]:
            return known
        options = self._candidates(name)
        for position in bits(fitting):
            dead_end = self._known_dead_end(options[position], selection)
            if dead_end is None:
                break
            known[position] = dead_end
        return known

    def _excluding_providers(self, name: str, selection: PartialResolution) -> frozenset[str] | None:
        """Return the chosen components that keep others from providing a name; None if one may provide it."""
        culprits: frozenset[str] = frozenset()
        chosen = {candidate.name for candidate in selection.chosen}
        for provider in sorted(self._providers(name) & self._reachable):
            others = tuple(candidate for candidate in selection.chosen if candidate.name != provider)
            self._candidates(provider)
            fitting, excluding = self._compatibility.providing(provider, name, others)
            if not fitting:
                culprits |= excluding
            elif provider in chosen:
                culprits |= {provider}
            else:
                return None
        return culprits

    def _excluding(self, name: str, selection: PartialResolution) -> frozenset[str]:
        """Return the chosen components that exclude candidates of a name."""
        self._candidates(name)
        return self._compatibility.culprits(name, selection.chosen)

    def _next_name(self, selection: PartialResolution) -> str | None:
        """Return the next name: base, names in the recipe, others; shared names come last."""
        if not selection.chosen:
            return None if self._recipe.base.name in selection.excluded else self._recipe.base.name
        return min(selection.missing - selection.excluded, key=self._rank, default=None)

    def _rank(self, name: str) -> tuple[bool, bool, int, str]:
        if name not in self._ranks:
            component = self._components.get(name)
            order = component.stage_order if component else 0
            self._ranks[name] = self._links.is_shared(name), name not in self._named, order, name
        return self._ranks[name]

    def _candidates(self, name: str) -> tuple[Option, ...]:
        """Return the candidates of a name with their demands: the same objects at every step."""
        options = self._compatibility.options.get(name)
        if options is None:
            component = self._components.get(name)
            is_other_base = self._links.is_base(name) and name != self._recipe.base.name
            options = self._compatibility.list(name, None if is_other_base or name == INSTANCE else component)
            for position, (candidate, _) in enumerate(options.listed):
                self._positions[id(candidate)] = name, position
        return options.listed

    def _dead_end(
        self,
        selection: PartialResolution,
        name: str,
        later: Mapping[int, _DeadEnd],
        culprits: frozenset[str],
        *,
        is_learnable: bool,
    ) -> _DeadEnd:
        """Add the component that needs the name to the culprits.

        Unless these are known to be complete, all components that affect its providers are added too.
        """
        needing = [
            demand.required_by
            for demand in selection.demands
            if demand.requirement.name == name and demand.is_required
        ]
        if None not in needing:
            culprits |= {candidate.name for candidate in needing[:1] if candidate}
        if not is_learnable:
            providers = self._providers(name)
            for candidate in selection.chosen:
                if any(self._links.can_provide(provided, providers) for provided in candidate.provided):
                    culprits |= {candidate.name}
        options, hopeless = self._candidates(name), self._hopeless[name]
        later = {**hopeless, **later}
        return _DeadEnd(self._recipe, name, selection, options, later, culprits, is_learnable)

    def _providers(self, name: str) -> frozenset[str]:
        """Return the possible providers of a name, given the recipe's own requirements on it."""
        if name not in self._providers_by_name:
            requirements = [
                requirement
                for requirement in (self._recipe.base, *self._recipe.components)
                if requirement.name == name
            ]
            self._providers_by_name[name] = self._links.providers(name, requirements)
        return self._providers_by_name[name]

    def _result(self, selection: PartialResolution) -> Resolution:
        base, *others = (
            Choice(candidate, selection.demands, self._skipped.get(candidate.name, tuple))
            for candidate in selection.chosen
        )
        choices = sorted(others, key=lambda choice: (choice.candidate.component.stage_order, choice.name))
        owners, user_packages = _share_packages(base.candidate, choices, self._recipe.content.packages)
        pool = (*selection.chosen, *self._targets)
        warnings = [
            (candidate, incompatibility)
            for candidate in selection.chosen
            for incompatibility in candidate.spec.conflicts
            if not incompatibility.is_error and incompatible_candidates(incompatibility, pool)
        ]
        return Resolution(
            recipe=self._recipe,
            base=base,
            choices=tuple(choices),
            owners=owners,
            user_packages=user_packages,
            targets=self._targets,
            warnings=tuple(warnings),
            companions=tuple(companions(selection.chosen, self._catalog)),
            unknown=unknown_facts(selection.chosen, self._targets, self._catalog),
        )


def _targets(recipe: Recipe, catalog: Catalog) -> tuple[Candidate, ...]:
    """Return the targets of a recipe as candidates that are present from the start."""
    targets = []
    component = catalog.components.get(INSTANCE)
    globs = [pattern.text for pattern in recipe.targets.instances]
    for release in component.releases if component and globs else ():
        for variant in release.variants:
            is_named = any(fnmatchcase(variant.name, glob) for glob in globs)
            if is_named and variant.platform == recipe.platform:
                assert component
                targets.append(Candidate(component, release, variant))
    if driver := recipe.targets.driver:
        variant = Variant("", VariantSpec(), driver.location)
        release = Release(driver.text, (variant,), driver.location)
        host = Component(
            DRIVER, "The host's driver", 0, Path(), (), (release,), "", None, {}, driver.location
        )
        targets.append(Candidate(host, release, variant))
    return tuple(targets)


def _share_packages(
    base: Candidate, choices: list[Choice], user_packages: tuple[Package, ...]
) -> tuple[dict[str, tuple[Package, ...]], tuple[Package, ...]]:
    """Assign each Python package to the lowest component that needs it, and the rest to the recipe.

    Packages that the base keeps are not assigned, and a component's own wheels are not assigned to the
    recipe. If a lock replaces a package of a component, the component installs the replacement.
    """
    taken: set[str] = set()
    users = {normal_name(package.name): package for package in user_packages if package.file}
    replacing = {name: package for choice in choices for name, package in choice.spec.replacing.items()}
    replacing |= {name: package for name, package in users.items() if package.replaces}

    def take(packages: Mapping[str, Package]) -> tuple[Package, ...]:
        left = {name: package for name, package in packages.items() if name not in taken}
        own = {
            name: replacing.get(name, package)
            for name, package in left.items()
            if not frozen_package(base, package)
        }
        taken.update(own)
        return tuple(own.values())

    owners = {choice.name: take(choice.spec.packages_by_name) for choice in choices}
    taken.update(name for choice in choices for name in choice.candidate.packages)
    return owners, take(users)
