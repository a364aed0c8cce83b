"""A project with its recipes and catalogue read, and the pure half of the pipeline over it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from bakehouse import explain, project, rendering
from bakehouse.catalog import Catalog, load_catalog
from bakehouse.errors import Diagnostic, Problems, UsageError
from bakehouse.files import write_whole
from bakehouse.plan import Plan, make_plan
from bakehouse.project import HOME, Project
from bakehouse.recipe import Recipe, load_recipes
from bakehouse.rendering import RenderedFile
from bakehouse.resolution import NothingFits, Resolution, resolve
from bakehouse.yamlfile import suggestion

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Workspace:
    """A project with its recipes and catalogue read."""

    project: Project
    catalog: Catalog
    recipes: dict[str, Recipe]
    templates: dict[str, str]


def open_workspace(start: Path | None = None) -> Workspace:
    """Read the project that the current folder belongs to."""
    found = project.find((start or Path.cwd()).resolve())
    catalog = load_catalog(found.recipe_roots)
    recipes = load_recipes(found.recipe_roots, catalog)
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
            what = "no image matches" if any(sign in pattern for sign in "*?[") else "there is no image"
            hint = suggestion(pattern, workspace.recipes) or "`./bake list` names the images"
            problems.add(Diagnostic(f"{what} `{pattern}`", hint=hint))
        chosen |= found
    problems.raise_as(UsageError)
    return tuple(workspace.recipes[name] for name in sorted(chosen or workspace.recipes))


def resolve_all(workspace: Workspace, recipes: Iterable[Recipe]) -> tuple[Resolution, ...]:
    """Exact versions for each recipe; every conflict is reported, not the first alone."""
    problems = Problems()
    resolutions = []
    conflict = None
    for recipe in recipes:
        try:
            resolutions.append(resolve(recipe, workspace.catalog))
        except NothingFits as nothing:
            conflict = explain.conflict_error(nothing.conflict, workspace.catalog)
            problems.extend(conflict.diagnostics)
    if conflict:
        problems.raise_as(type(conflict))
    return tuple(resolutions)


def plan_images(workspace: Workspace, patterns: Iterable[str]) -> Plan:
    """Stages and keys of the images that names or globs mean."""
    resolutions = resolve_all(workspace, select(workspace, patterns))
    return make_plan(resolutions, workspace.templates)


def render_images(workspace: Workspace, plan: Plan, say: Say) -> tuple[RenderedFile, ...]:
    """Write what of the images' folders has changed, and remove what nothing renders any more."""
    files = rendering.render(plan, workspace.templates)
    names = [image.name for image in plan.images]
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


def check_rendered(workspace: Workspace, plan: Plan) -> int:
    """The number of rendered files, all up to date; raises StaleError with a diff otherwise."""
    files = rendering.render(plan, workspace.templates)
    rendering.check(files, workspace.project.images, [image.name for image in plan.images])
    return len(files)
