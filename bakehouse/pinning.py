"""Writes down what a release must not leave open: the sha256 of artifacts, the locks of requirements."""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from bakehouse import pin, pipconfig, project, pylock, supplies
from bakehouse.catalog import load_catalog
from bakehouse.component import Artifact
from bakehouse.errors import Diagnostic, UsageError
from bakehouse.files import write_whole
from bakehouse.project import Project
from bakehouse.recipe import Recipe, load_recipes, lock_heading
from bakehouse.resolution import Resolution, resolve
from bakehouse.workspace import Say, Workspace


def run(start: Path, patterns: Sequence[str], say: Say) -> tuple[str, ...]:
    """Lock the requirements and pin the artifacts of the images that names or globs mean; a line for each."""
    found = project.find(start)
    catalog = load_catalog(found.recipe_roots)
    recipes = load_recipes(found.recipe_roots, catalog, locked=False)
    workspace = Workspace(found, catalog, recipes, {})
    chosen = [recipe for recipe in recipes.values() if any(fnmatchcase(recipe.name, one) for one in patterns)]
    if not chosen:
        message = f"no image matches {', '.join(f'`{one}`' for one in patterns)}"
        raise UsageError(Diagnostic(message, hint="`./bake list` names the images"))
    done = [line for recipe in chosen for line in _lock(recipe, workspace, say)]
    open_artifacts = list(_open_artifacts(chosen, workspace))
    index = _index(found, "3.11")
    mirrors = [Path(one) for one in found.mirrors if Path(one).is_dir()]
    pinned = pin.pin(open_artifacts, mirrors=mirrors, state=found.state, index=index, say=say)
    done += [f"{one.artifact.file}: sha256:{one.sha256}, from {one.origin}" for one in pinned]
    return tuple(done) or ("everything is pinned",)


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
    files = _resolved([line for line in wanted if line], constraints, resolution, workspace, python)
    lock = path.with_name(path.name + ".lock")
    lines = [lock_heading(path.name, data), *(file.line for file in files)]
    write_whole(lock, "".join(f"{line}\n" for line in lines))
    own = sum(file.name not in brought for file in files)
    yield f"{lock.name}: {len(files)} packages, {own} of them not brought by components"


def _resolved(
    wanted: list[str], constraints: list[str], resolution: Resolution, workspace: Workspace, python: str
) -> tuple[pylock.LockedFile, ...]:
    """What requirements come to beside what the base has to keep: that has to fit them, and is left out."""
    base, index = resolution.base.candidate, _index(workspace.project, python)
    kept = {one.pattern: base.given.get(one.known_as) for one in base.component.frozen}
    known = [f"{name}=={version}" for name, version in kept.items() if version and "*" not in name]
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
