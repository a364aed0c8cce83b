"""Tells by kind how locks have drifted: what is not locked, what is stale, what is newer now."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from bakehouse.catalog.apt_lock import NotLocked
from bakehouse.catalog.base_image_lock import step_of
from bakehouse.catalog.component import Component, VariantSpec
from bakehouse.catalog.python_lock import Lock
from bakehouse.catalog.recipe import Recipe, lock_heading
from bakehouse.engine.buildkit_events import Event
from bakehouse.lock import apt_suite, pulled_locks
from bakehouse.lock.python import LockedFile
from bakehouse.plan.apt_packages import are_locked, pulled_lists
from bakehouse.plan.workspace import Workspace
from bakehouse.resolve.candidate import Candidate
from bakehouse.resolve.resolver import Resolution, resolve
from bakehouse.util.terminal import Reporter

_ONE_PYTHON = re.compile(r"==([0-9]+\.[0-9]+)\.\*")


class DriftKind(Enum):
    """How a lock and the world can differ; of the first ones a build would not be what its recipe says."""

    NOT_LOCKED = "not locked"
    OLDER = "older than its requirements"
    UNKNOWN = "checksum unknown"
    NO_DIGEST = "base without a digest"
    MIRRORS = "taken as the distribution's mirrors have it when it is built"
    NEWER_SYSTEM = "newer in the distribution"
    NEWER_PYTHON = "newer in the package index"

    @property
    def is_open(self) -> bool:
        """Whether something is left open that a release must not leave open."""
        return self in (DriftKind.NOT_LOCKED, DriftKind.OLDER, DriftKind.UNKNOWN, DriftKind.NO_DIGEST)


@dataclass(frozen=True, slots=True)
class Drift:
    kind: DriftKind
    where: str
    """The suite, the component or the image."""
    text: str


class Resolve(Protocol):
    """What requirements come to now, for one Python."""

    def __call__(self, lock: Lock, spec: VariantSpec) -> tuple[LockedFile, ...]: ...


def python_of(spec: VariantSpec) -> str | None:
    """The one Python, such as `3.12`, that a part is for."""
    asked = (one.specifier for one in spec.requires if one.name == "python")
    ones = [match[1] for specifier in asked if (match := _ONE_PYTHON.fullmatch(specifier))]
    return ones[-1] if ones else None


def candidates(components: Iterable[Component]) -> Iterator[Candidate]:
    """Each variant of components, whether an image has it or not."""
    for component in components:
        for release in component.releases:
            yield from (Candidate(component, release, variant) for variant in release.variants)


def chosen(workspace: Workspace, recipes: Iterable[Recipe]) -> Iterator[Candidate]:
    """The variants that images have."""
    for recipe in recipes:
        yield from (choice.candidate for choice in resolve(recipe, workspace.catalog).choices)


def open_locks(parts: Iterable[Candidate]) -> Iterator[Drift]:
    """Locks that are missing, or were made from other requirements than a part has now."""
    for part in parts:
        lock, python = part.spec.lock, python_of(part.spec)
        if lock is None or not lock.requirements or python is None:
            continue
        if not lock.first_line:
            yield Drift(DriftKind.NOT_LOCKED, str(part), lock.path.name)
        elif lock.first_line != lock.heading(python):
            yield Drift(DriftKind.OLDER, str(part), lock.path.name)


def open_points(workspace: Workspace, recipes: Iterable[Recipe]) -> Iterator[Drift]:
    """What is not locked of images, or not as their recipes have it; each once."""
    seen = set()
    for recipe in recipes:
        for one in _open_points_of(resolve(recipe, workspace.catalog), workspace):
            if one not in seen:
                seen.add(one)
                yield one


def _open_points_of(resolution: Resolution, workspace: Workspace) -> Iterator[Drift]:
    recipe = resolution.recipe
    if recipe.requirements is not None:
        data = recipe.requirements.read_bytes()
        lock = recipe.requirements.with_name(f"{recipe.requirements.name}.lock")
        heading = lock_heading(recipe.requirements.name, data)
        if not lock.is_file():
            yield Drift(DriftKind.NOT_LOCKED, recipe.name, recipe.requirements.name)
        elif lock.read_text().partition("\n")[0] != heading:
            yield Drift(DriftKind.OLDER, recipe.name, lock.name)
    yield from open_locks(choice.candidate for choice in resolution.choices)
    for choice in (resolution.base, *resolution.choices):
        for artifact in choice.spec.artifacts:
            if artifact.sha256 is None:
                yield Drift(DriftKind.UNKNOWN, str(choice.candidate), artifact.file)
    source = resolution.base.spec.base
    base = resolution.base.candidate
    if source and not source.suite and source.digest is None:
        yield Drift(DriftKind.NO_DIGEST, str(base), source.reference)
    yield from _open_on_pulled(resolution, workspace)
    if source and source.suite:
        yield from _open_packages(resolution, source.suite, workspace)


def _open_on_pulled(resolution: Resolution, workspace: Workspace) -> Iterator[Drift]:
    locks, asked = workspace.apt_locks, [one for one in pulled_lists(resolution) if one.lists]
    for lists in asked:
        locked, other = locks.bases.get(lists.pinned), locks.of_reference(lists.reference)
        if not are_locked(asked, locks):
            if not other:
                yield Drift(DriftKind.MIRRORS, lists.reference, "packages of apt")
        elif locked is None and other:
            yield Drift(
                DriftKind.OLDER, lists.reference, f"{other.path.name}, of {other.pinned.rpartition('@')[2]}"
            )
        elif locked:
            left = (step for step in map(step_of, lists.lists) if step not in locked.steps)
            yield from (Drift(DriftKind.NOT_LOCKED, lists.reference, " ".join(step)) for step in left)


def _open_packages(resolution: Resolution, suite: str, workspace: Workspace) -> Iterator[Drift]:
    locked = workspace.apt_locks.suites.get(suite)
    if locked is None:
        yield Drift(DriftKind.NOT_LOCKED, suite, "none of its packages")
        return
    for names in apt_suite.wanted_of(resolution):
        try:
            locked.base(names)
        except NotLocked as missing:
            text = f"{missing.asked} ({missing.locked} is)" if missing.locked else missing.asked
            yield Drift(DriftKind.NOT_LOCKED, suite, text)


def newer_packages(
    workspace: Workspace, recipes: Sequence[Recipe], say: Reporter, on_event: Callable[[Event], None]
) -> Iterator[Drift]:
    """Packages of distributions that mirrors have in another version than is locked."""
    found = apt_suite.drift(workspace, recipes, say)
    for suite, changes in (found | pulled_locks.drift(workspace, recipes, say, on_event)).items():
        yield from (Drift(DriftKind.NEWER_SYSTEM, suite, one.text) for one in changes if one.before)


def newer_wheels(parts: Iterable[Candidate], resolve_now: Resolve, say: Reporter) -> Iterator[Drift]:
    """Packages of Python for which the index has another version than the parts' locks."""
    seen = set()
    for part in parts:
        lock = part.spec.lock
        if lock is None or not lock.requirements or lock.path in seen:
            continue
        seen.add(lock.path)
        say(f"asking the package index for {part}")
        before = {one.name: one.version for one in lock.packages}
        for file in resolve_now(lock, part.spec):
            old = before.get(file.name)
            if old != file.version:
                yield Drift(
                    DriftKind.NEWER_PYTHON, str(part), f"{file.name} {old or 'not locked'} -> {file.version}"
                )


def table(drifts: Iterable[Drift]) -> str:
    """Each kind with what is of it, for people."""
    found: dict[DriftKind, list[Drift]] = {}
    for one in drifts:
        found.setdefault(one.kind, []).append(one)
    lines = []
    for kind in (kind for kind in DriftKind if kind in found):
        lines.append(f"{kind.value}:\n")
        width = max(len(one.where) for one in found[kind])
        lines += [f"  {one.where:{width}}  {one.text}\n" for one in found[kind]]
    return "".join(lines) or "everything is locked, and nothing is newer\n"
