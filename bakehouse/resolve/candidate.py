"""One version of one part, what it asks of the others, and why it can't be among them."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from hashlib import sha256

from bakehouse.catalog.component import Component, Incompatibility, Release, Requirement, Variant, VariantSpec
from bakehouse.catalog.python_lock import Package, normal_name
from bakehouse.catalog.recipe import Recipe
from bakehouse.util.hashing import Json, json_of


@dataclass(frozen=True)
class Candidate:
    component: Component
    release: Release
    variant: Variant
    provided: Mapping[str, str] = field(init=False, repr=False, compare=False)
    """Every name this candidate answers for, with its version."""

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "provided", {self.component.name: self.release.version, **self.spec.provides}
        )

    def __str__(self) -> str:
        variant = f" ({self.variant.name})" if self.variant.name else ""
        return f"{self.component.name} {self.release.version}{variant}"

    @property
    def name(self) -> str:
        return self.component.name

    @property
    def spec(self) -> VariantSpec:
        return self.variant.spec

    @cached_property
    def key_inputs(self) -> tuple[Json, Json, Json]:
        """What it puts into the key of its stage: before its packages, behind them, and last."""
        artifacts = {one.name: (one.kind, one.source, one.file, one.sha256) for one in self.spec.artifacts}
        files = {name: sha256(data).hexdigest() for name, data in self.component.files.items()}
        what = self.name, self.release.version, self.variant.name, self.component.template, artifacts
        return json_of(*what), json_of(self.spec.build_apt), json_of(self.spec.facts, files)


@dataclass(frozen=True, slots=True)
class Demand:
    """Somebody's requirement on a name."""

    requirement: Requirement
    required_by: Candidate | None
    """None is the recipe itself."""
    brings: bool = True
    """Whether the name has to be in the image, or only fits if it is."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why one candidate can't be in the image."""

    candidate: Candidate
    name: str
    """What it is about: a part, what one provides, or a Python package."""
    demand: Demand | None = None
    """The demand that does not hold."""
    other: Candidate | None = None
    """The chosen part that it does not go with."""
    known: Incompatibility | None = None
    """What is known not to work, if that is it; `others` are the chosen parts that have to do with it."""
    others: tuple[Candidate, ...] = ()
    packages: tuple[Package, Package] | None = None
    """The two locks' lines that disagree, its own first; without `other` the second is the recipe's."""
    then: "Conflict | None" = None
    """What nothing fits for once it is chosen."""

    @property
    def culprits(self) -> frozenset[str]:
        """The chosen parts without which it might be taken."""
        required_by = self.demand.required_by if self.demand else None
        return frozenset(one.name for one in (self.other, required_by, *self.others) if one)


@dataclass(frozen=True)
class Conflict:
    """No candidate of `name` fits."""

    recipe: Recipe
    name: str
    demands: tuple[Demand, ...]
    """All that were on the table."""
    _reasons: Callable[[], tuple[Refusal, ...]]

    @cached_property
    def refusals(self) -> tuple[Refusal, ...]:
        """Why each candidate does not: worked out when somebody reads it, since most are never read."""
        return self._reasons()


@dataclass(frozen=True, slots=True)
class Selection:
    """What is chosen so far, and what that asks for."""

    chosen: tuple[Candidate, ...]
    demands: tuple[Demand, ...]
    own: Mapping[str, Package]
    """The Python packages of the recipe's own lock, by their normal names."""
    locked: Mapping[str, Package]
    """Those of all locks; of two with one name the first."""
    targets: tuple[Candidate, ...]
    """What the image has to run on; parts ask of them what they ask of other parts."""
    excluded: frozenset[str]
    """Names that another part has to provide: their own components were tried in vain."""
    provided: frozenset[str]
    """The names that the chosen parts and the targets answer for."""
    missing: frozenset[str]
    """The names that have to be in the image and are not yet."""
    known: tuple[tuple[Candidate, Incompatibility], ...] = ()
    """What the chosen parts are known not to work with for certain."""

    @classmethod
    def first(
        cls, demands: tuple[Demand, ...], packages: Iterable[Package], targets: tuple[Candidate, ...]
    ) -> "Selection":
        """What a recipe asks for, before any part is chosen."""
        own = {normal_name(one.name): one for one in packages}
        provided = frozenset(name for one in targets for name in one.provided)
        missing = frozenset(one.requirement.name for one in demands if one.brings) - provided
        return cls((), demands, own, own, targets, frozenset(), provided, missing)

    def plus(self, candidate: Candidate, demands: tuple[Demand, ...]) -> "Selection":
        provided = self.provided.union(candidate.provided)
        packages = candidate.spec.packages_by_name
        return Selection(
            (*self.chosen, candidate),
            (*self.demands, *demands),
            self.own,
            {**packages, **self.locked} if packages else self.locked,
            self.targets,
            self.excluded,
            provided,
            self.missing.union(one.requirement.name for one in demands if one.brings) - provided,
            (*self.known, *_known(candidate)),
        )

    def unmet(self, candidate: Candidate) -> Demand | None:
        """The first demand on the table that a candidate does not meet."""
        for demand in self.demands:
            version = candidate.provided.get(demand.requirement.name)
            if version is not None and not demand.requirement.allows(version):
                return demand
        return None

    def disagreeing(self, candidate: Candidate) -> tuple[str, Candidate] | None:
        """The first name that a chosen part gives another version, and that part."""
        for other in self.chosen:
            for name, version in other.provided.items():
                if name in candidate.provided and not _agree(version, candidate.provided[name]):
                    return name, other
        return None

    def with_name(self, name: str) -> Iterator[Candidate]:
        """The chosen parts that answer for a name, then what the image has to run on."""
        return (one for one in (*self.chosen, *self.targets) if name in one.provided)


def find_conflict(candidate: Candidate, own: tuple[Demand, ...], selection: Selection) -> Refusal | None:
    """The first thing that keeps a candidate with demands of its own out of a selection."""
    if unmet := selection.unmet(candidate):
        return Refusal(candidate, unmet.requirement.name, unmet)
    if disagreeing := selection.disagreeing(candidate):
        return Refusal(candidate, disagreeing[0], other=disagreeing[1])
    for demand in own:
        name = demand.requirement.name
        for other in (candidate, *selection.with_name(name)):
            if name in other.provided and not demand.requirement.allows(other.provided[name]):
                return Refusal(candidate, name, demand, other)
    return find_joint_conflict(candidate, selection)


def find_joint_conflict(candidate: Candidate, selection: Selection) -> Refusal | None:
    """What keeps a candidate out of a selection that may go with each of its parts by itself."""
    pool = (candidate, *selection.chosen, *selection.targets)
    for owner, known in (*_known(candidate), *selection.known):
        # What the chosen parts alone have to do with was looked at when they were chosen
        is_new = owner is candidate or any(one.name in candidate.provided for one in known.parts)
        if is_new and (parties := incompatible_candidates(known, pool)):
            involved = {str(one): one for one in (owner, *parties) if one is not candidate}
            return Refusal(candidate, candidate.name, known=known, others=tuple(involved.values()))
    return _replaced(candidate, selection) or _locked_otherwise(candidate, selection)


def _known(candidate: Candidate) -> list[tuple[Candidate, Incompatibility]]:
    return [(candidate, one) for one in candidate.spec.conflicts if one.is_certain]


def fits_targets(candidate: Candidate, own: tuple[Demand, ...], targets: tuple[Candidate, ...]) -> bool:
    """Whether a part suits what it has to run on: a part of what `find_conflict` looks at."""
    pool = (candidate, *targets)
    for demand in own:
        for other in pool:
            provided = other.provided.get(demand.requirement.name)
            if provided is not None and not demand.requirement.allows(provided):
                return False
    return not any(
        known.is_certain and incompatible_candidates(known, pool) for known in candidate.spec.conflicts
    )


def are_compatible(
    one: Candidate, ones: tuple[Demand, ...], other: Candidate, others: tuple[Demand, ...]
) -> bool:
    """Return whether two candidates and their demands fit together: part of what `find_conflict` checks."""
    mine, theirs = one.provided, other.provided
    if any(name in theirs and not _agree(theirs[name], version) for name, version in mine.items()):
        return False
    for demands, provided in ((ones, theirs), (others, mine)):
        for demand in demands:
            version = provided.get(demand.requirement.name)
            if version is not None and not demand.requirement.allows(version):
                return False
    return not any(
        known.is_certain and incompatible_candidates(known, (one, other))
        for known in (*one.spec.conflicts, *other.spec.conflicts)
    )


def frozen_package(base: Candidate, package: Package) -> Package | None:
    """What a base has in a package's place and has to keep; its version is empty where nobody knows it."""
    for one in base.component.frozen:
        if fnmatchcase(normal_name(package.name), one.pattern):
            return Package(package.name, base.provided.get(one.known_as, ""), "", "", 0, one.location)
    return None


def _replaced(candidate: Candidate, selection: Selection) -> Refusal | None:
    """Why a candidate's lock, or the recipe's own, can't go with what a base has to keep."""
    if candidate.component.frozen:
        for package in selection.own.values():
            kept = frozen_package(candidate, package)
            if kept and kept.version != _public(package.version):
                return Refusal(candidate, package.name, packages=(kept, package))
    for base in (one for one in selection.chosen if one.component.frozen):
        for package in candidate.spec.packages:
            kept = frozen_package(base, package)
            if kept and kept.version != _public(package.version):
                return Refusal(candidate, package.name, other=base, packages=(package, kept))
    return None


def _locked_otherwise(candidate: Candidate, selection: Selection) -> Refusal | None:
    """The first package of a candidate's lock that another one has in another version."""
    mine, theirs = candidate.spec.packages_by_name, selection.locked
    differing = {name for name in mine.keys() & theirs.keys() if theirs[name].version != mine[name].version}
    for name in (one for one in mine if one in differing):
        lockers = (one for one in selection.chosen if one.spec.packages_by_name.get(name) is theirs[name])
        return Refusal(
            candidate, mine[name].name, other=next(lockers, None), packages=(mine[name], theirs[name])
        )
    return None


def _public(version: str) -> str:
    """A version without what tells one build of it from another: `2.5.1+cu124` is `2.5.1`."""
    return version.partition("+")[0]


def incompatible_candidates(known: Incompatibility, pool: Collection[Candidate]) -> tuple[Candidate, ...]:
    """The parts of a pool for which an incompatibility holds; none where it doesn't."""
    parties = []
    for part in known.parts:
        party = next(
            (one for one in pool if part.name in one.provided and part.allows(one.provided[part.name])), None
        )
        if party is None:
            return ()
        parties.append(party)
    return tuple(parties)


def _agree(first: str, second: str) -> bool:
    """Whether two parts that provide one name mean the same: `12.8` and `12.8.1` do."""
    one, two = first.split("."), second.split(".")
    length = min(len(one), len(two))
    return one[:length] == two[:length]
