"""A project with its recipes and catalogue read, and the pure half of the pipeline over it."""

import gc
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

from bakehouse import explain, project, rendering
from bakehouse.baselock import AptLocks, read_locks
from bakehouse.catalog import Catalog
from bakehouse.catalogcache import cached_catalog
from bakehouse.errors import Diagnostic, Problems, RecipeError, UsageError
from bakehouse.files import is_file, write_whole
from bakehouse.plan import Plan
from bakehouse.planning import make_plan
from bakehouse.project import HOME, Project
from bakehouse.recipe import Recipe, load_recipes
from bakehouse.rendering import RenderedFile
from bakehouse.resolution import NothingFits, Resolution, resolve
from bakehouse.yamlfile import suggestion

Say = Callable[[str], None]
_MOST_WITH_WAYS_OUT = 3
"""A mistake in a component can break hundreds of images: for the first ones a way out is searched."""


@dataclass(frozen=True)
class Workspace:
    """A project with its recipes and catalogue read."""

    project: Project
    catalog: Catalog
    recipes: dict[str, Recipe]
    templates: dict[str, str]

    @cached_property
    def apt_locks(self) -> AptLocks:
        """The locks of the packages of distributions."""
        return read_locks(self.project.recipe_roots)


def open_workspace(start: Path | None = None) -> Workspace:
    """Read the project that the current folder belongs to."""
    found = project.find((start or Path.cwd()).resolve())
    problems = Problems()
    catalog = cached_catalog(found.recipe_roots, problems)
    recipes = load_recipes(found.recipe_roots, catalog, problems)
    problems.raise_as(RecipeError)
    # It lasts as long as the process: Python's collector need not look through it again and again
    gc.freeze()
    return Workspace(found, catalog, recipes, rendering.read_templates(HOME / "templates"))


def select(workspace: Workspace, patterns: Iterable[str]) -> tuple[Recipe, ...]:
    """The recipes that names, families or globs mean, each once, by name; no pattern means all."""
    problems = Problems()
    chosen = set()
    for pattern in patterns:
        found = {
            recipe.name
            for recipe in workspace.recipes.values()
            if fnmatchcase(recipe.name, pattern) or recipe.family == pattern
        }
        if not found:
            if pattern.startswith("rehearsal/"):
                message = f"`{pattern}` is rehearsed, not built: there are stand-ins in it"
                problems.add(Diagnostic(message, hint=f"`{pattern.removeprefix('rehearsal/')}` is the image"))
                continue
            what = "no image matches" if any(sign in pattern for sign in "*?[") else "there is no image"
            hint = nearest_name(pattern, workspace.recipes) or "`./bake list` names the images"
            problems.add(Diagnostic(f"{what} `{pattern}`", hint=hint))
        chosen |= found
    problems.raise_as(UsageError)
    return tuple(workspace.recipes[name] for name in sorted(chosen or workspace.recipes))


def nearest_name(pattern: str, known: Iterable[str]) -> str:
    """`did you mean …?`, also where a file or an address stands for what is called by its name."""
    names = [*known]
    name = Path(pattern).name.removesuffix(".yaml").partition(":")[0]
    return suggestion(name if name in names else pattern, names)


def select_own(workspace: Workspace) -> tuple[Recipe, ...]:
    """The images of the project's own recipes, and those of Bakehouse's that it has rendered."""
    found, brought = workspace.project, HOME / "recipes"
    return tuple(
        one
        for one in select(workspace, ())
        if found.root == HOME
        or not one.location.path.is_relative_to(brought)
        or _is_rendered(workspace, one.name)
    )


def select_kept(workspace: Workspace, patterns: Sequence[str]) -> tuple[Recipe, ...]:
    """As `select`, but no pattern means the own images whose rendered files are kept: committed, or there."""
    if patterns:
        return select(workspace, patterns)
    return tuple(
        one for one in select_own(workspace) if one.is_committed or _is_rendered(workspace, one.name)
    )


def _is_rendered(workspace: Workspace, name: str) -> bool:
    return is_file(workspace.project.images / name / "Dockerfile")


def resolve_all(workspace: Workspace, recipes: Iterable[Recipe]) -> tuple[Resolution, ...]:
    """Exact versions for each recipe; every conflict is reported, not the first alone."""
    problems = Problems()
    resolutions = []
    conflict, told = None, 0
    for recipe in recipes:
        try:
            resolutions.append(resolve(recipe, workspace.catalog))
        except NothingFits as nothing:
            calls = explain.CALLS if told < _MOST_WITH_WAYS_OUT else 0
            conflict = explain.conflict_error(nothing.conflict, workspace.catalog, calls)
            told += 1
            problems.extend(conflict.diagnostics)
    if conflict:
        problems.raise_as(type(conflict))
    return tuple(resolutions)


def plan_images(workspace: Workspace, patterns: Iterable[str]) -> Plan:
    """Stages and keys of the images that names or globs mean."""
    return plan_recipes(workspace, select(workspace, patterns))


def plan_recipes(workspace: Workspace, recipes: Iterable[Recipe]) -> Plan:
    """Stages and keys of the images of recipes."""
    resolutions = resolve_all(workspace, recipes)
    return make_plan(resolutions, workspace.templates, workspace.project.region, workspace.apt_locks)


def orphans(workspace: Workspace) -> tuple[str, ...]:
    """The folders of rendered images that no recipe gives any more."""
    found = (path.parent.name for path in workspace.project.images.glob("*/Dockerfile"))
    return tuple(sorted(name for name in found if name not in workspace.recipes))


def render_images(
    workspace: Workspace, plan: Plan, say: Say, gone: Sequence[str] = ()
) -> tuple[RenderedFile, ...]:
    """Write what of the images' folders has changed, and remove what nothing renders any more.

    `gone` names folders of images that are no more; their ledgers stay.
    """
    files = rendering.render(plan, workspace.templates)
    names = [*(image.name for image in plan.images), *gone]
    folder = workspace.project.images
    for file in files:
        path = folder / file.path
        mode = 0o755 if file.is_executable else 0o644
        if not path.is_file() or path.read_bytes() != file.content:
            write_whole(path, file.content)
            say(f"rendered images/{file.path}")
        if path.stat().st_mode & 0o777 != mode:
            path.chmod(mode)
    for path in rendering.leftovers(files, folder, names):
        path.unlink()
        say(f"removed {path.relative_to(folder.parent)}, which no recipe renders any more")
    return files


def check_rendered(workspace: Workspace, plan: Plan, gone: Sequence[str] = ()) -> int:
    """The number of rendered files, all up to date; raises StaleError with a diff otherwise."""
    files = rendering.render(plan, workspace.templates)
    rendering.check(files, workspace.project.images, [*(image.name for image in plan.images), *gone])
    return len(files)
