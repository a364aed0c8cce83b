"""Bakehouse's own recipes: their plan and their rendered files."""

from functools import cache
from pathlib import Path

from bakehouse.catalog import project
from bakehouse.catalog.cache import Loaded, load
from bakehouse.catalog.catalog import Catalog, load_catalog, read_directory
from bakehouse.catalog.component import Component
from bakehouse.catalog.project import HOME
from bakehouse.catalog.recipe import Recipe, Recipes, load_recipes, read_recipes
from bakehouse.errors import Problems, RecipeError
from bakehouse.plan.dockerfile import RenderedFile, render
from bakehouse.plan.model import Plan
from bakehouse.plan.planner import make_plan
from bakehouse.plan.workspace import Workspace, conflict_text, read_templates, without_affected
from bakehouse.resolve.resolver import Resolution, resolve

RECIPES = HOME / "recipes"


@cache
def _loaded() -> Loaded:
    loaded = load([RECIPES], HOME, conflict_text)
    if loaded.catalog.broken or loaded.recipes.broken:
        # These raise the mistakes
        load_recipes([RECIPES], load_catalog([RECIPES]), refusal_of=conflict_text)
    return loaded


def catalog() -> Catalog:
    return _loaded().catalog


@cache
def recipes() -> dict[str, Recipe]:
    return dict(_loaded().recipes.by_name)


def opened(start: Path | None = None) -> Workspace:
    """Open the project of a directory as `open_workspace` does, but read Bakehouse's own recipes only once.

    Tests that are not about reading take it: `open_workspace` unpickles 290 recipes in each new project.
    """
    location = project.find((start or Path.cwd()).resolve())
    catalog = load_catalog(location.recipe_roots, Problems(), _read)
    mine = read_recipes(location.recipe_roots[1:], catalog, project=location.root, refusal_of=conflict_text)
    families = {recipe.family for recipe in mine.by_name.values()} | {broken.family for broken in mine.broken}
    others = {name: recipe for name, recipe in recipes().items() if recipe.family not in families}
    known = Recipes({**others, **mine.by_name}, mine.broken)
    if catalog.broken:
        known = without_affected(known, catalog)
    return Workspace(location, catalog, known.by_name, read_templates(HOME / "templates"), known.broken)


def _read(directory: Path, problems: Problems) -> Component:
    return _own(directory) if directory.is_relative_to(RECIPES) else read_directory(directory, problems)


@cache
def _own(directory: Path) -> Component:
    problems = Problems()
    component = read_directory(directory, problems)
    problems.raise_as(RecipeError)
    return component


IMAGES = sorted(recipes())


@cache
def resolved(name: str) -> Resolution:
    return resolve(recipes()[name], catalog())


@cache
def plan() -> Plan:
    return make_plan([resolved(name) for name in IMAGES], read_templates(HOME / "templates"))


@cache
def rendered() -> tuple[RenderedFile, ...]:
    return render(plan(), read_templates(HOME / "templates"))


@cache
def _contents() -> dict[str, bytes]:
    return {file.path: file.content for file in rendered()}


def dockerfile(name: str) -> str:
    return _contents()[f"{name}/Dockerfile"].decode()
