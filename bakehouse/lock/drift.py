"""Differences between locks and their sources: unlocked, outdated and newer versions."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from packaging.version import Version

from bakehouse.catalog.apt_lock import NotLocked
from bakehouse.catalog.base_image_lock import step_of
from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.component import Component, VariantSpec
from bakehouse.catalog.python_lock import Lock, Package
from bakehouse.catalog.recipe import Recipe
from bakehouse.catalog.requirements_lock import LockState, state_of
from bakehouse.engine.buildkit_events import Event
from bakehouse.errors import Diagnostic
from bakehouse.lock import apt_base_image, apt_suite
from bakehouse.plan.apt_packages import are_locked, installs_with_dnf, pulled_lists, suite_lists
from bakehouse.plan.workspace import Workspace
from bakehouse.resolve.candidate import Candidate
from bakehouse.resolve.resolver import Resolution, resolve
from bakehouse.util.format import format_table
from bakehouse.util.terminal import Reporter

_ONE_PYTHON = re.compile(r"==([0-9]+\.[0-9]+)\.\*")


class DriftKind(Enum):
    """Kinds of differences between a lock and its sources."""

    NOT_LOCKED = "not locked"
    OLDER = "older than its requirements"
    EDITED = "changed after `bake lock` wrote it"
    CONFLICTED = "contains conflict markers"
    FORMAT = "has an unknown format"
    NEWER = "was written by a newer Bakehouse"
    UNKNOWN = "checksum unknown"
    NO_DIGEST = "base without a digest"
    MOVED = "tag has moved"
    UNREAD = "tag not compared"
    FOREIGN = "not the file of the package index or the mirrors"
    YANKED = "withdrawn from the package index"
    NOT_COMPARED = "not compared with the package index"
    MIRRORS = "not locked: installed from the mirrors at build time"
    QUESTIONABLE = "locked, but probably not needed"
    NEWER_SYSTEM = "newer on the mirrors"
    NEWER_PYTHON = "newer in the package index"

    @property
    def is_open(self) -> bool:
        """Return whether this difference blocks a release."""
        return self in (
            self.NOT_LOCKED,
            self.OLDER,
            self.EDITED,
            self.CONFLICTED,
            self.FORMAT,
            self.NEWER,
            self.UNKNOWN,
            self.NO_DIGEST,
        )


@dataclass(frozen=True, slots=True)
class Drift:
    """One difference between a lock and its sources."""

    kind: DriftKind
    where: str
    """The suite, the component or the image."""
    text: str
    error: Diagnostic | None = None
    """The failure of `lock --check`, if it has a location."""


_LOCK_DRIFTS = {
    LockState.MISSING: DriftKind.NOT_LOCKED,
    LockState.OLDER: DriftKind.OLDER,
    LockState.EDITED: DriftKind.EDITED,
    LockState.CONFLICTED: DriftKind.CONFLICTED,
    LockState.UNKNOWN: DriftKind.FORMAT,
    LockState.NEWER: DriftKind.NEWER,
}

Resolve = Callable[[Lock, VariantSpec], tuple[Package, ...]]
"""Resolves the requirements of a lock with the current package index."""


def python_of(spec: VariantSpec) -> str | None:
    """Return the Python version, such as `3.12`, that a component requires; None if it allows several."""
    ranges = (requirement.specifier for requirement in spec.requires if requirement.name == "python")
    versions = [match[1] for text in ranges if (match := _ONE_PYTHON.fullmatch(text))]
    return versions[-1] if versions else None


def candidates(components: Iterable[Component]) -> Iterator[Candidate]:
    """Yield all variants of components."""
    for component in components:
        for release in component.releases:
            yield from (Candidate(component, release, variant) for variant in release.variants)


def locked_packages(catalog: Catalog, python: str) -> tuple[Package, ...]:
    """Return each package that components lock for a Python version, in its most frequent version.

    Images cannot have two components that lock different versions of a package.
    """
    packages: dict[str, list[Package]] = {}
    for candidate in candidates(catalog.components.values()):
        lock = candidate.spec.lock
        if lock and python_of(candidate.spec) == python and lock.is_readable:
            for package in lock.packages:
                # A component that replaces a package works with no other version; others may
                if not package.replaces:
                    packages.setdefault(package.name, []).append(package)
    return tuple(map(_most_frequent, packages.values()))


def _most_frequent(packages: Sequence[Package]) -> Package:
    """Return a package with the most frequent version; of equally frequent versions, the newest one."""
    counts = Counter(package.version for package in packages)
    version = max(counts, key=lambda version: (counts[version], Version(version)))
    return next(package for package in packages if package.version == version)


def chosen(workspace: Workspace, recipes: Iterable[Recipe]) -> Iterator[Candidate]:
    """Yield the variants that images contain."""
    for recipe in recipes:
        yield from (choice.candidate for choice in resolve(recipe, workspace.catalog).choices)


def open_locks(candidates: Iterable[Candidate]) -> Iterator[Drift]:
    """Yield locks that are missing, or were made from other requirements than a component has now."""
    for candidate in candidates:
        lock, python = candidate.spec.lock, python_of(candidate.spec)
        if lock is None or not lock.requirements or python is None:
            continue
        if not lock.first_line:
            yield Drift(DriftKind.NOT_LOCKED, str(candidate), lock.path.name)
        elif lock.first_line != lock.heading(python):
            yield Drift(DriftKind.OLDER, str(candidate), lock.path.name)


def unknown_checksums(candidates: Iterable[Candidate]) -> Iterator[Drift]:
    """Yield the files of variants that have no checksum."""
    for candidate in candidates:
        for artifact in candidate.spec.artifacts:
            if artifact.sha256 is None:
                yield Drift(DriftKind.UNKNOWN, str(candidate), artifact.file)


def open_points(workspace: Workspace, recipes: Iterable[Recipe]) -> Iterator[Drift]:
    """Yield once each item that images need and that is not locked, or is locked for other requirements."""
    seen = set()
    for recipe in recipes:
        for point in _open_points_of(resolve(recipe, workspace.catalog), workspace):
            if point not in seen:
                seen.add(point)
                yield point


def _open_points_of(resolution: Resolution, workspace: Workspace) -> Iterator[Drift]:
    recipe = resolution.recipe
    if recipe.requirements is not None:
        lock = recipe.requirements.lock
        kind = _LOCK_DRIFTS.get(state_of(lock, recipe.name, *recipe.requirements.read().digests))
        if kind:
            name = recipe.requirements.path.name if kind is DriftKind.NOT_LOCKED else lock.name
            yield Drift(kind, recipe.name, name)
    yield from open_locks(choice.candidate for choice in resolution.choices)
    yield from unknown_checksums(choice.candidate for choice in resolution.all_choices)
    source = resolution.base.spec.base
    base = resolution.base.candidate
    if source and not source.suite and source.digest is None:
        yield Drift(DriftKind.NO_DIGEST, str(base), source.reference)
    if source and source.build_reference and "@" not in source.build_reference:
        yield Drift(DriftKind.NO_DIGEST, str(base), source.build_reference)
    if source and installs_with_dnf(resolution):
        yield Drift(DriftKind.MIRRORS, source.reference, "packages of dnf")
    yield from _open_on_pulled(resolution, workspace)
    if source and source.suite:
        yield from _open_packages(resolution, source.lock_name, workspace)


def _open_on_pulled(resolution: Resolution, workspace: Workspace) -> Iterator[Drift]:
    locks, lists_of_bases = workspace.apt_locks, [lists for lists in pulled_lists(resolution) if lists.lists]
    for lists in lists_of_bases:
        locked, other = locks.bases.get(lists.pinned), locks.of_reference(lists.reference)
        if not are_locked(lists_of_bases, locks):
            if not other:
                yield Drift(DriftKind.MIRRORS, lists.reference, "packages of apt")
        elif locked is None and other:
            yield Drift(
                DriftKind.OLDER, lists.reference, f"{other.path.name}, of {other.pinned.rpartition('@')[2]}"
            )
        elif locked:
            missing = (step for step in map(step_of, lists.lists) if step not in locked.steps)
            yield from (Drift(DriftKind.NOT_LOCKED, lists.reference, " ".join(step)) for step in missing)


def _open_packages(resolution: Resolution, suite: str, workspace: Workspace) -> Iterator[Drift]:
    locked = workspace.apt_locks.suites.get(suite)
    if locked is None:
        yield Drift(DriftKind.NOT_LOCKED, suite, "none of its packages")
        return
    for names in suite_lists(resolution):
        try:
            locked.base(names)
        except NotLocked as missing:
            text = f"{missing.asked} ({missing.locked} is)" if missing.locked else missing.asked
            yield Drift(DriftKind.NOT_LOCKED, suite, text)


def newer_packages(
    workspace: Workspace, recipes: Sequence[Recipe], report: Reporter, on_event: Callable[[Event], None]
) -> Iterator[Drift]:
    """Yield locked Debian packages that have another version on the mirrors."""
    changes = apt_suite.drift(workspace, recipes, report)
    changes |= apt_base_image.drift(workspace, recipes, report, on_event)
    for base, differing in changes.items():
        for change in (change for change in differing if change.before):
            if change.is_other_file:
                message = f"`{change.name}` in the lock of `{base}` is not the package of the mirrors"
                hint = "restore the lock, or run `bake lock` and review the change"
                error = Diagnostic(message, facts=(("locked version", change.before),), hint=hint)
                yield Drift(DriftKind.FOREIGN, base, change.text, error)
            else:
                yield Drift(DriftKind.NEWER_SYSTEM, base, change.text)


def newer_wheels(candidates: Iterable[Candidate], resolve_now: Resolve, report: Reporter) -> Iterator[Drift]:
    """Yield locked Python packages that have another version in the package index."""
    seen = set()
    for candidate in candidates:
        lock = candidate.spec.lock
        if lock is None or not lock.requirements or lock.path in seen:
            continue
        seen.add(lock.path)
        report(f"resolving the Python packages of {candidate}")
        before = {package.name: package.version for package in lock.packages}
        for file in resolve_now(lock, candidate.spec):
            old = before.get(file.name)
            if old != file.version:
                change = f"{file.name} {old or 'not locked'} -> {file.version}"
                yield Drift(DriftKind.NEWER_PYTHON, str(candidate), change)


def table(drifts: Iterable[Drift]) -> str:
    """Return the differences as text, grouped by kind."""
    by_kind: dict[DriftKind, list[Drift]] = {}
    for drift in drifts:
        by_kind.setdefault(drift.kind, []).append(drift)
    blocks = [
        f"{kind.value}:\n" + format_table(((item.where, item.text) for item in by_kind[kind]), indent="  ")
        for kind in DriftKind
        if kind in by_kind
    ]
    return "".join(blocks) or "everything is locked, and nothing is newer\n"
