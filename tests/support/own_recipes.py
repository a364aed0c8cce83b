"""Bakehouse's own recipes: their plan and their rendered files."""

from functools import cache

from bakehouse.catalog.cache import Loaded, load
from bakehouse.catalog.catalog import Catalog, load_catalog
from bakehouse.catalog.project import HOME
from bakehouse.catalog.recipe import Recipe, load_recipes
from bakehouse.plan.dockerfile import RenderedFile, render
from bakehouse.plan.model import Plan
from bakehouse.plan.planner import make_plan
from bakehouse.plan.templates import read_templates
from bakehouse.resolve.resolver import Resolution, resolve

RECIPES = HOME / "recipes"


@cache
def _loaded() -> Loaded:
    loaded = load([RECIPES], HOME)
    if loaded.catalog.broken or loaded.recipes.broken:
        # These raise the mistakes
        load_recipes([RECIPES], load_catalog([RECIPES]))
    return loaded


def catalog() -> Catalog:
    return _loaded().catalog


@cache
def recipes() -> dict[str, Recipe]:
    return dict(_loaded().recipes.by_name)


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
