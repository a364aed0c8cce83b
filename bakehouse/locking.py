"""Writes down what a release must not leave open: checksums, packages of Python and of Debian."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

from bakehouse import drift, pin, pipconfig, project, pylock, system_locks
from bakehouse.catalog import load_catalog
from bakehouse.certificates import bundle_of
from bakehouse.component import Artifact, Component, Face
from bakehouse.drift import Drift, Kind
from bakehouse.errors import Diagnostic, RecipeError, StaleError, UsageError
from bakehouse.files import write_whole
from bakehouse.lockfile import Lock
from bakehouse.project import Project
from bakehouse.recipe import Recipe, load_recipes, lock_heading
from bakehouse.resolution import Resolution, resolve
from bakehouse.workspace import Say, Workspace

_ONE_PYTHON = re.compile(r"==([0-9]+\.[0-9]+)\.\*")


def run(start: Path, patterns: Sequence[str], say: Say, *, upgrade: bool = False) -> tuple[str, ...]:
    """Lock what the images and components need that names or globs mean; a line for each thing that changed.

    Made are the locks that are missing or were made from other requirements, and the checksums that nobody
    has written down. With `upgrade`, names may be packages of Debian too, and all that is meant is locked
    anew, as the newest that fits.
    """
    workspace = unlocked_workspace(start)
    found = workspace.project
    meant = _meant(workspace, patterns)
    done = [line for one in meant.components for line in _lock_component(one, found, say, upgrade=upgrade)]
    done += [line for recipe in meant.recipes for line in _lock(recipe, workspace, say)]
    upgraded = meant.packages if upgrade else ()
    needing = workspace.recipes.values() if upgraded is None or upgraded else meant.recipes
    done += system_locks.lock(workspace, tuple(needing), say, upgrade=upgraded)
    open_artifacts = list(_open_artifacts(meant.recipes, workspace))
    index = _index(found, "3.11")
    mirrors = [Path(one) for one in found.mirrors if Path(one).is_dir()]
    pinned = pin.pin(open_artifacts, mirrors=mirrors, state=found.state, index=index, say=say)
    done += [f"{one.artifact.file}: sha256:{one.sha256}, from {one.origin}" for one in pinned]
    return tuple(done) or ("everything is locked",)


def check(start: Path, patterns: Sequence[str], say: Say) -> tuple[Drift, ...]:
    """How the locks of images have drifted from what the recipes ask, the mirrors and the index have."""
    workspace = unlocked_workspace(start)
    chosen = _meant(workspace, patterns).recipes
    found = [*drift.open_points(workspace, chosen)]
    if not any(one.kind is Kind.NOT_LOCKED for one in found):
        found += drift.newer_packages(workspace, chosen, say)
    found += drift.newer_wheels(workspace, chosen, partial(_resolve_now, workspace.project), say)
    return tuple(found)


def require_locked(found: Iterable[Drift]) -> None:
    """Raise StaleError where something is left open that a release must not leave open."""
    if left := sum(one.kind.is_open for one in found):
        message = f"{left} {'thing is' if left == 1 else 'things are'} left open by the locks"
        raise StaleError(
            Diagnostic(message, hint="`./bake lock` locks what is told above; commit the result")
        )


def _resolve_now(found: Project, lock: Lock, face: Face) -> tuple[pylock.LockedFile, ...]:
    own = [one.file.split("-")[0] for one in face.artifacts if one.file.endswith(".whl")]
    return pylock.resolve(lock.requirements, (), _index(found, python_of(face) or "3.11"), without=own)


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


def _meant(workspace: Workspace, patterns: Sequence[str]) -> _Meant:
    """What names or globs mean; no pattern means all."""
    recipes, components = workspace.recipes, workspace.catalog.components
    chosen = tuple(one for name, one in recipes.items() if not patterns or _is_meant(name, patterns))
    parts = tuple(one for name, one in components.items() if not patterns or _is_meant(name, patterns))
    locked = sorted({deb.name for lock in workspace.apt_locks.values() for deb in lock.debs})
    packages = tuple(name for name in locked if _is_meant(name, patterns))
    if not chosen and not parts and not packages:
        message = f"no image, component or locked package matches {', '.join(f'`{one}`' for one in patterns)}"
        hint = "`./bake list` names the images; components are the folders of recipes/components"
        raise UsageError(Diagnostic(message, hint=hint))
    is_all = bool(chosen) or any(map(_is_bootstrapped, parts))
    return _Meant(chosen, parts, None if is_all else packages)


def _is_bootstrapped(component: Component) -> bool:
    """Whether a component is a base that is made of a distribution's packages."""
    faces = [variant.face for release in component.releases for variant in release.variants]
    return any(one.base and one.base.suite for one in faces)


def _is_meant(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, one) for one in patterns)


def _lock_component(component: Component, found: Project, say: Say, *, upgrade: bool) -> Iterable[str]:
    """Make the locks of its variants that are not what their requirements ask for."""
    for release in component.releases:
        for variant in release.variants:
            lock, python = variant.face.lock, python_of(variant.face)
            if lock is None or not lock.requirements:
                continue
            if python is None:
                message = f"{component.name} {release.version} has requirements and no one Python"
                hint = 'a lock is for one: `requires: {python: "3.12"}`'
                raise RecipeError(Diagnostic(message, lock.named_at, hint=hint))
            heading = lock.heading(python)
            if upgrade or lock.first_line != heading:
                say(f"{component.name}: locking {lock.path.name} for Python {python}")
                own = [one.file.split("-")[0] for one in variant.face.artifacts if one.file.endswith(".whl")]
                index = _index(found, python)
                files = pylock.lock(lock.requirements, (), index, lock.path, heading=heading, without=own)
                yield f"{lock.path.name}: {len(files)} packages"


def python_of(face: Face) -> str | None:
    """The one Python, such as `3.12`, that a part is for."""
    asked = (one.specifier for one in face.requires if one.name == "python")
    ones = [match[1] for specifier in asked if (match := _ONE_PYTHON.fullmatch(specifier))]
    return ones[-1] if ones else None


def _lock(recipe: Recipe, workspace: Workspace, say: Say) -> Iterable[str]:
    """Lock a recipe's requirements to versions that fit the packages its components bring."""
    path = recipe.requirements
    if path is None:
        return
    resolution = resolve(recipe, workspace.catalog)
    python = resolution.version_of("python")
    if python is None:
        message = f"image `{recipe.name}` has requirements and no Python"
        raise UsageError(Diagnostic(message, recipe.location, hint="add `python` to its components"))
    brought = {package.name: package for owned in resolution.owners.values() for package in owned}
    constraints = [f"{package.name}=={package.version}" for package in brought.values()]
    say(f"{recipe.name}: locking {path.name} for Python {python}")
    data = path.read_bytes()
    wanted = [line.split("#")[0].strip() for line in data.decode().splitlines()]
    files = _resolved([line for line in wanted if line], constraints, resolution, workspace, python, say)
    lock = path.with_name(path.name + ".lock")
    lines = [lock_heading(path.name, data), *(file.line for file in files)]
    write_whole(lock, "".join(f"{line}\n" for line in lines))
    own = sum(file.name not in brought for file in files)
    yield f"{lock.name}: {len(files)} packages, {own} of them not brought by components"


def _resolved(
    wanted: list[str],
    constraints: list[str],
    resolution: Resolution,
    workspace: Workspace,
    python: str,
    say: Say,
) -> tuple[pylock.LockedFile, ...]:
    """What requirements come to beside what the base has to keep: that has to fit them, and is left out."""
    base, index = resolution.base.candidate, _index(workspace.project, python)
    kept = {one.pattern: base.given.get(one.known_as) for one in base.component.frozen}
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
            for artifact in choice.face.artifacts:
                if artifact.sha256 is None and artifact.location not in seen:
                    seen.add(artifact.location)
                    yield artifact


def _index(found: Project, python: str) -> pylock.Index:
    pip = pipconfig.read()
    return pylock.Index(pip, bundle_of(found.ca, pip), python)
