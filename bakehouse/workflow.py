"""The pipeline spelled out: one function for each task, each step taking the step before's result."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from bakehouse import explain, project, rendering
from bakehouse.catalog import Catalog, load_catalog
from bakehouse.errors import Diagnostic, Problems, UsageError
from bakehouse.files import write_whole
from bakehouse.plan import Image, Plan, make_plan
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
    """The recipes that names or globs mean, each once, in the order of their names; none means all."""
    problems = Problems()
    chosen = set()
    for pattern in patterns:
        found = {name for name in workspace.recipes if fnmatchcase(name, pattern)}
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


def listing(workspace: Workspace, *, as_json: bool) -> str:
    """One line, or one object, for each image."""
    rows = [_row(recipe, workspace) for recipe in select(workspace, ())]
    if as_json:
        return json.dumps(rows, indent=2) + "\n"
    name_width = max(len(str(row["image"])) for row in rows)
    status_width = max(len(str(row["status"])) for row in rows)
    lines = [
        f"{str(row['image']).ljust(name_width)}  {str(row['status']).ljust(status_width)}  {row['summary']}"
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def _row(recipe: Recipe, workspace: Workspace) -> dict[str, object]:
    try:
        resolution = resolve(recipe, workspace.catalog)
    except NothingFits:
        versions = None
    else:
        versions = {choice.name: choice.version for choice in (resolution.base, *resolution.choices)}
    return {
        "image": recipe.name, "status": recipe.status, "summary": recipe.summary, "versions": versions,
    }


def resolution_table(resolutions: Iterable[Resolution]) -> str:
    """Each image's parts with their versions, and what they bring."""
    blocks = []
    for resolution in resolutions:
        lines = [resolution.recipe.name]
        for choice in (resolution.base, *resolution.choices):
            brings = ", ".join(f"{name} {version}" for name, version in choice.face.provides.items())
            lines.append(f"  {choice.candidate}" + (f"  brings {brings}" if brings else ""))
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


def explanation(workspace: Workspace, image: str, part: str | None) -> str:
    """Why each version of an image was chosen, or one part's."""
    (recipe,) = select(workspace, [image])[:1]
    (resolution,) = resolve_all(workspace, [recipe])
    names = explain.known_names(resolution)
    if part and part not in names:
        message = f"`{recipe.name}` has no `{part}`"
        raise UsageError(Diagnostic(message, hint=suggestion(part, names)))
    return explain.explanation(resolution, part)


def plan_table(plan: Plan) -> str:
    """Each stage once, with its key and the images that share it."""
    users: dict[str, list[str]] = {}
    for image in plan.images:
        for stage in image.stages:
            users.setdefault(stage.key, []).append(image.name)
    lines = [
        f"{key[:8]}  {plan.stages[key].name.ljust(28)}  {', '.join(users[key])}" for key in plan.stages
    ]
    lines += [f"{image.key[:8]}  image {image.name.ljust(22)}  {_weight(image)}" for image in plan.images]
    return "\n".join(lines) + "\n"


def _weight(image: Image) -> str:
    return f"{len(image.stages)} stages, {image.wheel_bytes / 1e6:,.0f} MB of Python packages to fetch"
