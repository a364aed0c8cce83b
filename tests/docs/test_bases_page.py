"""The bases that the page *Choose a base* shows can be written in a recipe."""

import re

import pytest

from bakehouse.catalog.project import HOME
from bakehouse.catalog.recipe import load_recipes
from bakehouse.resolve.resolver import resolve
from tests.support.own_recipes import catalog
from tests.support.trees import Tree

PAGE = (HOME / "docs/how-to/choose-a-base.md").read_text()
[ROW] = [line for line in PAGE.splitlines() if line.startswith("| in the recipe |")]


@pytest.mark.parametrize("base", re.findall(r"`([^`]+)`", ROW))
def test_a_base_of_the_table_is_in_the_catalogue(empty: Tree, base: str) -> None:
    empty.image(f"summary: x\nbase: {base}\n")

    [recipe] = load_recipes([empty.root], catalog()).values()

    assert resolve(recipe, catalog()).base.name == recipe.base.name
