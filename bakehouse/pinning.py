"""Writes down what a release must not leave open: the sha256 of artifacts, the locks of requirements."""

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from bakehouse import pin, pipconfig, project, pylock, supplies
from bakehouse.catalog import load_catalog
from bakehouse.component import Artifact, Component, Face
from bakehouse.errors import Diagnostic, RecipeError, UsageError
from bakehouse.files import write_whole
from bakehouse.project import Project
from bakehouse.recipe import Recipe, load_recipes, lock_heading
from bakehouse.resolution import Resolution, resolve
from bakehouse.workspace import Say, Workspace

_ONE_PYTHON = re.compile(r"==([0-9]+\.[0-9]+)\.\*")


def run(start: Path, patterns: Sequence[str], say: Say, *, upgrade: bool = False) -> tuple[str, ...]:
    """Lock the requirements and pin the artifacts of the images that names or globs mean; a line for each.

    Of the components they mean, make the locks that are missing or were made from other requirements; with
    `upgrade`, all of them, from what the index has now.
    """
    found = project.find(start)
    catalog = load_catalog(found.recipe_roots)
    recipes = load_recipes(found.recipe_roots, catalog, locked=False)
    workspace = Workspace(found, catalog, recipes, {})
    components = [one for name, one in catalog.components.items() if _is_meant(name, patterns)]
    done = [line for one in components for line in _lock_component(one, found, say, upgrade=upgrade)]
    chosen = [recipe for recipe in recipes.values() if _is_meant(recipe.name, patterns)]
    if not chosen and not components:
        message = f"no image or component matches {', '.join(f'`{one}`' for one in patterns)}"
        hint = "`./bake list` names the images; components are the folders of recipes/components"
        raise UsageError(Diagnostic(message, hint=hint))
    done += [line for recipe in chosen for line in _lock(recipe, workspace, say)]
    open_artifacts = list(_open_artifacts(chosen, workspace))
    index = _index(found, "3.11")
    mirrors = [Path(one) for one in found.mirrors if Path(one).is_dir()]
    pinned = pin.pin(open_artifacts, mirrors=mirrors, state=found.state, index=index, say=say)
    done += [f"{one.artifact.file}: sha256:{one.sha256}, from {one.origin}" for one in pinned]
    return tuple(done) or ("everything is pinned",)


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
    return pylock.Index(pip, supplies.bundle_of(found.ca, pip), python)
