"""Candidates of a resolution: their demands on each other, and the reasons that exclude them."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property

from bakehouse.catalog.component import (
    Artifact,
    Component,
    Frozen,
    Incompatibility,
    Release,
    Requirement,
    Variant,
    VariantSpec,
)
from bakehouse.catalog.python_lock import ANY_VERSION, Package, normal_name
from bakehouse.catalog.recipe import Recipe

_WHEEL = re.compile(r"(?P<name>[^-]+)-(?P<version>[^-]+)(-[^-]+){3,4}\.whl")


@dataclass(frozen=True)
class Candidate:
    """One variant of one release of a component."""

    component: Component
    release: Release
    variant: Variant
    name: str = field(init=False, repr=False, compare=False)
    spec: VariantSpec = field(init=False, repr=False, compare=False)
    provided: Mapping[str, str] = field(init=False, repr=False, compare=False)
    """The version of every name that this candidate provides, its own included."""

    def __post_init__(self) -> None:
        # Attributes instead of properties, because a search reads them often
        object.__setattr__(self, "name", self.component.name)
        object.__setattr__(self, "spec", self.variant.spec)
        object.__setattr__(self, "provided", {self.name: self.release.version, **self.spec.provides})

    def __str__(self) -> str:
        variant = f" ({self.variant.name})" if self.variant.name else ""
        return f"{self.component.name} {self.release.version}{variant}"

    @cached_property
    def packages(self) -> Mapping[str, Package]:
        """The Python packages that it installs, from its lock and its own wheels, by all their names."""
        own = self.supplied
        return {**own, **self.spec.packages_by_name} if own else self.spec.packages_by_name

    @cached_property
    def wheels(self) -> Mapping[str, Package]:
        """The Python packages that it installs from its own wheels, by normal name."""
        packages = map(_package_of, self.spec.artifacts)
        return {normal_name(package.name): package for package in packages if package}

    @cached_property
    def supplied(self) -> Mapping[str, Package]:
        """Its own wheels, and its library under its other names: `tensorflow` for `tensorflow-cpu`."""
        upstream = self.component.upstream
        names = [*map(normal_name, upstream.projects)] if upstream else []
        own = {**self.wheels, **self.spec.packages_by_name}
        library = next((own[name] for name in names if name in own), None)
        others = {name: replace(library, name=name) for name in names if name not in own} if library else {}
        return {**others, **self.wheels}

    @cached_property
    def _frozen_entries(self) -> dict[str, Frozen | None]:
        """Results of `frozen_entry`, because a search asks for the same packages often."""
        return {}

    def frozen_entry(self, package: str) -> Frozen | None:
        """Return the entry of a base for a Python package that must not be replaced."""
        if package not in self._frozen_entries:
            name = normal_name(package)
            entries = (entry for entry in self.component.frozen if fnmatchcase(name, entry.pattern))
            self._frozen_entries[package] = next(entries, None)
        return self._frozen_entries[package]


@dataclass(frozen=True, slots=True)
class Demand:
    """A requirement of a component or of the recipe."""

    requirement: Requirement
    required_by: Candidate | None
    """None for the recipe itself."""
    is_required: bool = True
    """False for a constraint, which applies only if the name is in the image."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why one candidate cannot be in the image."""

    candidate: Candidate
    name: str
    """The component, provided name or Python package in question."""
    demand: Demand | None = None
    """The unmet demand."""
    other: Candidate | None = None
    """The chosen component that the candidate contradicts."""
    incompatibility: Incompatibility | None = None
    """The declared incompatibility that applies; `others` are the chosen components involved."""
    others: tuple[Candidate, ...] = ()
    platform: str = ""
    """The platform of the image, if the candidate is a build for another one."""
    packages: tuple[Package, Package] | None = None
    """The two conflicting lock lines, the candidate's first; without `other` the second is the recipe's."""
    then: "Conflict | None" = None
    """The conflict that choosing the candidate leads to."""

    @property
    def culprits(self) -> frozenset[str]:
        """The chosen components without which the candidate might fit."""
        required_by = self.demand.required_by if self.demand else None
        involved = (self.other, required_by, *self.others)
        return frozenset(candidate.name for candidate in involved if candidate)


@dataclass(frozen=True)
class Conflict:
    """A name for which no candidate fits."""

    recipe: Recipe
    name: str
    demands: tuple[Demand, ...]
    """All demands at that point."""
    _reasons: Callable[[], tuple[Refusal, ...]]

    @cached_property
    def refusals(self) -> tuple[Refusal, ...]:
        """The reason against each candidate; computed on first use, because few conflicts are printed."""
        return self._reasons()


@dataclass(frozen=True, slots=True)
class PartialResolution:
    """The components chosen so far, and their demands."""

    chosen: tuple[Candidate, ...]
    demands: tuple[Demand, ...]
    own: Mapping[str, Package]
    """The Python packages of the recipe's own lock, by normalized name."""
    locked: Mapping[str, Package]
    """The Python packages of all locks; of two with the same name, the one that is installed."""
    targets: tuple[Candidate, ...]
    """The instance types and driver that the image targets; components have demands on them too."""
    excluded: frozenset[str]
    """Names that another component has to provide, because no component of that name fits."""
    provided: frozenset[str]
    """The names that the chosen components and the targets provide."""
    missing: frozenset[str]
    """The required names that are not provided yet."""
    platform: str
    incompatibilities: tuple[tuple[Candidate, Incompatibility], ...] = ()
    """The incompatibilities of the chosen components that exclude candidates."""

    @classmethod
    def first(
        cls,
        demands: tuple[Demand, ...],
        packages: Iterable[Package],
        targets: tuple[Candidate, ...],
        platform: str,
    ) -> "PartialResolution":
        """Return the selection of a recipe before any component is chosen."""
        own = {normal_name(package.name): package for package in packages}
        provided = frozenset(name for target in targets for name in target.provided)
        missing = frozenset(demand.requirement.name for demand in demands if demand.is_required) - provided
        return cls((), demands, own, own, targets, frozenset(), provided, missing, platform)

    def plus(self, candidate: Candidate, demands: tuple[Demand, ...]) -> "PartialResolution":
        """Return the selection with one more candidate."""
        provided = self.provided.union(candidate.provided)
        return PartialResolution(
            (*self.chosen, candidate),
            (*self.demands, *demands),
            self.own,
            self._locked_with(candidate),
            self.targets,
            self.excluded,
            provided,
            self.missing.union(demand.requirement.name for demand in demands if demand.is_required)
            - provided,
            self.platform,
            (*self.incompatibilities, *_excluding_incompatibilities(candidate)),
        )

    def _locked_with(self, candidate: Candidate) -> Mapping[str, Package]:
        """Return the packages of all locks with those of one more candidate."""
        packages, replacing = candidate.packages, candidate.spec.replacing
        if not packages:
            return self.locked
        locked = {**packages, **self.locked}
        # The lock of the recipe has the package that components install in the end
        return {**locked, **replacing, **self.own} if replacing else locked

    def unmet(self, candidate: Candidate) -> Demand | None:
        """Return the first demand that a candidate does not meet."""
        for demand in self.demands:
            version = candidate.provided.get(demand.requirement.name)
            if version is not None and not demand.requirement.allows(version):
                return demand
        return None

    def contradicting(self, candidate: Candidate) -> tuple[str, Candidate] | None:
        """Return the first name that a chosen component provides in another version, and that component."""
        for other in self.chosen:
            for name, version in other.provided.items():
                if name in candidate.provided and not _agree(version, candidate.provided[name]):
                    return name, other
        return None

    def providers_of(self, name: str) -> Iterator[Candidate]:
        """Yield the chosen components that provide a name, then the targets."""
        return (candidate for candidate in (*self.chosen, *self.targets) if name in candidate.provided)


def find_conflict(
    candidate: Candidate, own: tuple[Demand, ...], selection: PartialResolution
) -> Refusal | None:
    """Return the first reason against adding a candidate with its own demands to a selection."""
    if candidate.variant.platform != selection.platform:
        return Refusal(candidate, candidate.name, platform=selection.platform)
    if unmet := selection.unmet(candidate):
        return Refusal(candidate, unmet.requirement.name, unmet)
    if contradicting := selection.contradicting(candidate):
        name, other = contradicting
        return Refusal(candidate, name, other=other)
    for demand in own:
        name = demand.requirement.name
        for other in (candidate, *selection.providers_of(name)):
            if name in other.provided and not demand.requirement.allows(other.provided[name]):
                return Refusal(candidate, name, demand, other)
    return find_joint_conflict(candidate, selection)


def find_joint_conflict(candidate: Candidate, selection: PartialResolution) -> Refusal | None:
    """Return the first reason that involves several chosen components, or locked Python packages."""
    pool = (candidate, *selection.chosen, *selection.targets)
    for owner, incompatibility in (*_excluding_incompatibilities(candidate), *selection.incompatibilities):
        # Incompatibilities among chosen components alone were checked when these were chosen
        is_new = owner is candidate or any(part.name in candidate.provided for part in incompatibility.parts)
        if is_new and (involved := incompatible_candidates(incompatibility, pool)):
            others = {str(other): other for other in (owner, *involved) if other is not candidate}
            return Refusal(
                candidate, candidate.name, incompatibility=incompatibility, others=tuple(others.values())
            )
    return _base_conflict(candidate, selection) or _lock_conflict(candidate, selection)


def _excluding_incompatibilities(candidate: Candidate) -> list[tuple[Candidate, Incompatibility]]:
    return [
        (candidate, incompatibility)
        for incompatibility in candidate.spec.conflicts
        if incompatibility.is_error
    ]


def fits_targets(candidate: Candidate, own: tuple[Demand, ...], targets: tuple[Candidate, ...]) -> bool:
    """Return whether a candidate fits the targets by itself: part of what `find_conflict` checks."""
    pool = (candidate, *targets)
    for demand in own:
        for other in pool:
            version = other.provided.get(demand.requirement.name)
            if version is not None and not demand.requirement.allows(version):
                return False
    return not any(
        incompatibility.is_error and incompatible_candidates(incompatibility, pool)
        for incompatibility in candidate.spec.conflicts
    )


def are_compatible(
    first: Candidate, first_demands: tuple[Demand, ...], second: Candidate, second_demands: tuple[Demand, ...]
) -> bool:
    """Return whether two candidates and their demands fit together: part of what `find_conflict` checks."""
    theirs = second.provided
    if any(name in theirs and not _agree(theirs[name], version) for name, version in first.provided.items()):
        return False
    for demands, provided in ((first_demands, second.provided), (second_demands, first.provided)):
        for demand in demands:
            version = provided.get(demand.requirement.name)
            if version is not None and not demand.requirement.allows(version):
                return False
    return not any(
        incompatibility.is_error and incompatible_candidates(incompatibility, (first, second))
        for incompatibility in (*first.spec.conflicts, *second.spec.conflicts)
    )


def frozen_package(base: Candidate, package: Package) -> Package | None:
    """Return the package that a base keeps instead of another; its version is empty if unknown."""
    frozen = base.frozen_entry(package.name) if base.component.frozen else None
    if frozen is None:
        return None
    return Package(package.name, base.provided.get(frozen.known_as, ""), "", "", 0, frozen.location)


def _base_conflict(candidate: Candidate, selection: PartialResolution) -> Refusal | None:
    """Return the first locked package that would replace one that the base keeps."""
    if candidate.component.frozen:
        for package in selection.own.values():
            kept = frozen_package(candidate, package)
            if kept and kept.version != _public(package.version):
                return Refusal(candidate, package.name, packages=(kept, package))
    for base in (chosen for chosen in selection.chosen if chosen.component.frozen):
        for package in candidate.spec.packages:
            kept = frozen_package(base, package)
            if kept and kept.version != _public(package.version):
                return Refusal(candidate, package.name, other=base, packages=(package, kept))
    return None


def _lock_conflict(candidate: Candidate, selection: PartialResolution) -> Refusal | None:
    """Return the first package of a candidate's lock that is locked elsewhere in another version."""
    own, locked = candidate.packages, selection.locked
    if not own:
        return None
    differing = {
        name
        for name in own.keys() & locked.keys()
        if locked[name].version != own[name].version and not _accepts(candidate, name, locked[name])
    }
    for name in (name for name in own if name in differing):
        packages = own[name], locked[name]
        others = [other for other in selection.chosen if name in other.packages]
        refusing = tuple(other for other in others if not _accepts(other, name, packages[0]))
        if name not in selection.own and not refusing:
            continue
        owners = (other for other in others if other.packages[name] is packages[1])
        owner = next(owners, None)
        return Refusal(candidate, packages[0].name, other=owner, others=refusing, packages=packages)
    return None


def _accepts(candidate: Candidate, name: str, package: Package) -> bool:
    """Return whether a candidate works with a package of another lock in place of its own.

    It does not if it replaces packages itself, installs its own wheel, or has a lock without requirements,
    which is needed as it is.
    """
    own, lock = candidate.packages[name], candidate.spec.lock
    if own.version == package.version:
        return True
    if lock is None or name not in lock.by_name:
        return False
    if package.replaces == ANY_VERSION:
        return bool(lock.requirements) and not own.replaces
    return package.replaces == own.version


def _package_of(artifact: Artifact) -> Package | None:
    """Return the package that a component installs from its file `wheel`; other wheels are build tools."""
    match = _WHEEL.match(artifact.file)
    if artifact.name != "wheel" or match is None:
        return None
    size = artifact.bytes or 0
    sha256 = artifact.sha256 or ""
    return Package(match["name"], match["version"], sha256, artifact.file, size, artifact.location)


def _public(version: str) -> str:
    """Return a version without its local label: `2.5.1` for `2.5.1+cu124`."""
    return version.partition("+")[0]


def incompatible_candidates(
    incompatibility: Incompatibility, pool: Collection[Candidate]
) -> tuple[Candidate, ...]:
    """Return the members of a pool to which an incompatibility applies; none if it does not apply."""
    involved = []
    for part in incompatibility.parts:
        for candidate in pool:
            if part.name in candidate.provided and part.allows(candidate.provided[part.name]):
                involved.append(candidate)
                break
        else:
            return ()
    return tuple(involved)


def _agree(first: str, second: str) -> bool:
    """Return whether one version extends the other: `12.8` and `12.8.1` agree."""
    first_parts, second_parts = first.split("."), second.split(".")
    length = min(len(first_parts), len(second_parts))
    return first_parts[:length] == second_parts[:length]
