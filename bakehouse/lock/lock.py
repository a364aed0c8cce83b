"""Writes down what a release must not leave open: checksums, packages of Python and of Debian."""

import contextlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

from bakehouse.catalog import project
from bakehouse.catalog.catalog import load_catalog
from bakehouse.catalog.component import Artifact, Component, VariantSpec
from bakehouse.catalog.project import Project
from bakehouse.catalog.python_lock import Lock, Package, load_lock, normal_name
from bakehouse.catalog.recipe import Recipe, load_recipes, lock_heading
from bakehouse.engine.buildkit_events import Event
from bakehouse.errors import (
    ConflictError,
    Diagnostic,
    Location,
    Problems,
    RecipeError,
    StaleError,
    UsageError,
)
from bakehouse.fetch import pip_config
from bakehouse.fetch.certificates import bundle_of
from bakehouse.lock import apt_suite, checksums, drift, pulled_locks
from bakehouse.lock import python as pylock
from bakehouse.lock.drift import Drift, DriftKind
from bakehouse.plan.workspace import Workspace, nearest_name, resolve_all
from bakehouse.resolve.resolver import Resolution, Unsatisfiable, resolve
from bakehouse.util.file_lock import exclusive
from bakehouse.util.files import is_file, write_whole
from bakehouse.util.format import format_count
from bakehouse.util.terminal import Reporter

OnEvent = Callable[[Event], None]


def _unheard(event: Event) -> None:
    """Nobody follows the steps of a build."""


def run(
    start: Path,
    patterns: Sequence[str],
    say: Reporter,
    on_event: OnEvent = _unheard,
    *,
    upgrade: bool = False,
) -> tuple[str, ...]:
    """Lock what the images and components need that names or globs mean; a line for each thing that changed.

    Made are the locks that are missing or were made from other requirements, and the checksums and sizes of
    files that nobody has written down. With `upgrade`, names may be packages of Debian too, and all that is
    meant is locked anew, as the newest that fits. `on_event` hears of the steps that ask bases which are
    pulled.
    """
    state = project.find(start).state
    # Of two at once the second would write over what the first has just found
    with exclusive(state / "locks" / "lock", lambda: say("another run is locking: waiting for it")):
        return _run(start, patterns, say, on_event, upgrade=upgrade)


def _run(
    start: Path, patterns: Sequence[str], say: Reporter, on_event: OnEvent, *, upgrade: bool
) -> tuple[str, ...]:
    workspace = unlocked_workspace(start)
    found = workspace.project
    meant = _meant(workspace, patterns, upgrade=upgrade)
    done = [line for one in meant.components for line in _lock_component(one, found, say, upgrade=upgrade)]
    workspace = _fitting(workspace, meant)
    done += [line for recipe in meant.recipes for line in _lock(recipe, workspace, say, upgrade=upgrade)]
    upgraded = meant.packages if upgrade else ()
    needing = workspace.recipes.values() if upgraded is None or upgraded else meant.recipes
    done += apt_suite.lock(workspace, tuple(needing), say, upgrade=upgraded)
    named = meant.recipes if patterns else ()
    done += pulled_locks.lock(workspace, tuple(needing), say, on_event, named=named, upgrade=upgraded)
    open_artifacts = list(_open_artifacts(meant.recipes, workspace))
    index = _index(found, "3.11")
    mirrors = [Path(one) for one in found.mirrors if Path(one).is_dir()]
    pinned = checksums.pin(
        open_artifacts, mirrors=mirrors, cache=found.cache, state=found.state, index=index, say=say
    )
    done += [one.line for one in pinned]
    return tuple(done) or ("everything is locked",)


def check(
    start: Path, patterns: Sequence[str], say: Reporter, on_event: OnEvent = _unheard
) -> tuple[Drift, ...]:
    """How locks of images and components have drifted from what is asked, and what mirrors and index have."""
    workspace = unlocked_workspace(start)
    meant = _meant(workspace, patterns)
    found = [*drift.open_locks(drift.candidates(meant.components))]
    if any(one.kind is DriftKind.NOT_LOCKED for one in found):
        # No image can be resolved with what isn't there
        return tuple(found)
    workspace = _fitting(workspace, meant)
    found += (one for one in drift.open_points(workspace, meant.recipes) if one not in found)
    if not any(one.kind is DriftKind.NOT_LOCKED for one in found):
        found += drift.newer_packages(workspace, meant.recipes, say, on_event)
    parts = (*drift.chosen(workspace, meant.recipes), *drift.candidates(meant.components))
    found += drift.newer_wheels(parts, partial(_resolve_now, workspace.project), say)
    return tuple(found)


def require_locked(found: Sequence[Drift]) -> None:
    """Raise StaleError where something is left open that a release must not leave open."""
    if left := sum(one.kind.is_open for one in found):
        message = f"{left} {'thing is' if left == 1 else 'things are'} left open by the locks"
        hint = "`./bake lock` locks what is told above; commit the result"
        if any(one.kind is DriftKind.NO_DIGEST for one in found):
            hint += "; a base's digest is written into its component"
        raise StaleError(Diagnostic(message, hint=hint))


def _fitting(workspace: Workspace, meant: "_Meant") -> Workspace:
    """The project without images that nothing fits for; raises what `resolve` tells where one is meant."""
    resolve_all(workspace, meant.recipes)
    fitting = {}
    for name, recipe in workspace.recipes.items():
        with contextlib.suppress(Unsatisfiable):
            resolve(recipe, workspace.catalog)
            fitting[name] = recipe
    return replace(workspace, recipes=fitting)


def _resolve_now(found: Project, lock: Lock, spec: VariantSpec) -> tuple[pylock.LockedFile, ...]:
    own = [one.file.split("-")[0] for one in spec.artifacts if one.file.endswith(".whl")]
    return pylock.resolve(lock.requirements, (), _index(found, drift.python_of(spec) or "3.11"), without=own)


def unlocked_workspace(start: Path) -> Workspace:
    """A project whose requirements may have no lock yet, or an old one."""
    found = project.find(start)
    catalog = load_catalog(found.recipe_roots)
    return Workspace(found, catalog, load_recipes(found.recipe_roots, catalog, locked=False), {})


@dataclass(frozen=True, slots=True)
class _Meant:
    recipes: tuple[Recipe, ...]
    components: tuple[Component, ...]
    packages: tuple[str, ...] | None
    """Packages of a distribution that an upgrade is about; None is all of them."""


def _meant(workspace: Workspace, patterns: Sequence[str], *, upgrade: bool = False) -> _Meant:
    """What names or globs mean; no pattern means all. Raises UsageError where one means nothing."""
    locked = sorted({deb.name for deb in workspace.apt_locks.debs})
    known = (*workspace.recipes, *(one.family for one in workspace.recipes.values()))
    problems = Problems()
    for pattern in patterns:
        if any(fnmatchcase(name, pattern) for name in (*known, *workspace.catalog.components)):
            continue
        if not any(fnmatchcase(name, pattern) for name in locked):
            message = f"no image, component or locked package matches `{pattern}`"
            hint = nearest_name(pattern, (*workspace.recipes, *workspace.catalog.components, *locked))
            hint = hint or "`./bake list` names the images; components are the folders of recipes/components"
            problems.add(Diagnostic(message, hint=hint))
        elif not upgrade:
            message = f"`{pattern}` is locked, and no image or component"
            problems.add(Diagnostic(message, hint=f"`./bake lock --upgrade {pattern}` locks it anew"))
    problems.raise_as(UsageError)
    recipes, components = workspace.recipes.values(), workspace.catalog.components
    chosen = tuple(
        one for one in recipes if not patterns or _is_meant(one.name, patterns) or one.family in patterns
    )
    parts = tuple(one for name, one in components.items() if not patterns or _is_meant(name, patterns))
    packages = tuple(name for name in locked if _is_meant(name, patterns))
    is_all = bool(chosen) or any(map(_is_bootstrapped, parts))
    return _Meant(chosen, parts, None if is_all else packages)


def _is_bootstrapped(component: Component) -> bool:
    """Whether a component is a base that is made of a distribution's packages."""
    specs = [variant.spec for release in component.releases for variant in release.variants]
    return any(one.base and one.base.suite for one in specs)


def _is_meant(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, one) for one in patterns)


def _lock_component(component: Component, found: Project, say: Reporter, *, upgrade: bool) -> Iterable[str]:
    """Make the locks of its variants that are not what their requirements ask for."""
    for release in component.releases:
        for variant in release.variants:
            lock, python = variant.spec.lock, drift.python_of(variant.spec)
            if lock is None or not lock.requirements:
                continue
            if python is None:
                message = f"{component.name} {release.version} has requirements and no one Python"
                hint = 'a lock is for one: `requires: {python: "3.12"}`'
                raise RecipeError(Diagnostic(message, lock.named_at, hint=hint))
            heading = lock.heading(python)
            if upgrade or lock.first_line != heading or not lock.is_readable:
                say(f"{component.name}: locking {lock.path.name} for Python {python}")
                own = [one.file.split("-")[0] for one in variant.spec.artifacts if one.file.endswith(".whl")]
                index = _index(found, python)
                files = pylock.lock(lock.requirements, (), index, lock.path, heading=heading, without=own)
                yield f"{lock.path.name}: {len(files)} packages"


def _lock(recipe: Recipe, workspace: Workspace, say: Reporter, *, upgrade: bool) -> Iterable[str]:
    """Lock a recipe's requirements to versions that fit the packages its components bring.

    What is locked for the same requirements stays, but where that fits no more.
    """
    path = recipe.requirements
    if path is None:
        return
    resolution = resolve(recipe, workspace.catalog)
    python = resolution.version_of("python")
    if python is None:
        message = f"image `{recipe.name}` has requirements and no Python"
        raise UsageError(Diagnostic(message, recipe.location, hint="add `python` to its components"))
    brought = {
        normal_name(package.name): package for owned in resolution.owners.values() for package in owned
    }
    constraints = [f"{package.name}=={package.version}" for package in brought.values()]
    say(f"{recipe.name}: locking {path.name} for Python {python}")
    data = path.read_bytes()
    wanted = asked(path, data)
    lock = path.with_name(path.name + ".lock")
    kept = () if upgrade else _kept(lock, lock_heading(path.name, data), recipe)
    try:
        pins = [f"{one.name}=={one.version}" for one in kept if normal_name(one.name) not in brought]
        files = _resolved(wanted, [*constraints, *pins], resolution, workspace, python, say)
    except ConflictError:
        if not kept:
            raise
        files = _resolved(wanted, constraints, resolution, workspace, python, say)
    lines = [lock_heading(path.name, data), *(file.line for file in files)]
    text = "".join(f"{line}\n" for line in lines)
    if not is_file(lock) or lock.read_bytes() != text.encode():
        write_whole(lock, text)
        own = sum(file.name not in brought for file in files)
        count = format_count(len(files), "package")
        yield f"{lock.name}: {count}, {own} of them not brought by components"


def asked(path: Path, data: bytes) -> list[str]:
    """The packages that a file of requirements names. Raises RecipeError where it says something else."""
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError as error:
        spot = Location(path, data.count(b"\n", 0, error.start) + 1, 1)
        raise RecipeError(Diagnostic(f"`{path.name}` is not UTF-8 text", spot)) from error
    problems = Problems()
    found = []
    for number, line in enumerate(lines, 1):
        if wanted := re.split(r"(?:^|\s)#", line)[0].strip():
            found.append(wanted)
        if wanted.startswith("-"):
            spot = Location(path, number, line.index("-") + 1, len(wanted), line)
            hint = "name the packages themselves; indexes and proxies are those of this machine's pip"
            problems.add(Diagnostic("an option of pip is no requirement", spot, hint=hint))
    problems.raise_as(RecipeError)
    return found


def _kept(lock: Path, heading: str, recipe: Recipe) -> tuple[Package, ...]:
    """What is locked for the same requirements; nothing where that can't be read."""
    if Lock(lock, recipe.location).first_line != heading:
        return ()
    problems = Problems()
    found = load_lock(lock, recipe.location, problems)
    return () if problems else found


def _resolved(
    wanted: list[str],
    constraints: list[str],
    resolution: Resolution,
    workspace: Workspace,
    python: str,
    say: Reporter,
) -> tuple[pylock.LockedFile, ...]:
    """What requirements come to beside what the base has to keep: that has to fit them, and is left out."""
    base, index = resolution.base.candidate, _index(workspace.project, python)
    kept = {one.pattern: base.provided.get(one.known_as) for one in base.component.frozen}
    known = [f"{name}=={version}" for name, version in kept.items() if version and "*" not in name]
    if known:
        say(f"{resolution.recipe.name}: {base} keeps {', '.join(known)}")
    files = pylock.resolve(wanted, [*constraints, *known], index)
    there = [file.name for file in files if any(fnmatchcase(file.name, name) for name in kept)]
    return pylock.resolve(wanted, constraints, index, without=there) if there else files


def _open_artifacts(recipes: Iterable[Recipe], workspace: Workspace) -> Iterable[Artifact]:
    seen = set()
    for recipe in recipes:
        resolution = resolve(recipe, workspace.catalog)
        for choice in (resolution.base, *resolution.choices):
            for artifact in choice.spec.artifacts:
                is_open = artifact.sha256 is None or artifact.bytes is None
                if is_open and artifact.location not in seen:
                    seen.add(artifact.location)
                    yield artifact


def _index(found: Project, python: str) -> pylock.Index:
    pip = pip_config.read()
    return pylock.Index(pip, bundle_of(found.ca, pip), python)
