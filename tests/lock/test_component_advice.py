"""Components of the catalogue that the lock proposes instead of requirements."""

import pytest

from bakehouse.catalog.requirements_file import read_requirements
from bakehouse.lock.recipe_lock import component_advice
from tests.support import own_recipes
from tests.support.trees import IMAGE, Tree


def lines(tree: Tree, *requirements: str) -> list[str]:
    path = tree.write("images/own.txt", "".join(f"{line}\n" for line in requirements))
    tree.image(IMAGE)
    catalog = own_recipes.catalog()
    return [*component_advice(tree.resolve(), read_requirements(path).packages, catalog)]


@pytest.mark.parametrize(
    "package", ["flash-attn", "transformer_engine[pytorch]==2.9.0", "apex", "xformers", "mpi4py"]
)
def test_a_component_is_proposed(tree: Tree, package: str) -> None:
    name = package.partition("[")[0].replace("_", "-")

    assert lines(tree, "six", package) == [
        f"small: the catalogue has a component for `{name}` (own.txt:2): component `{name}`; "
        "add one to `components` and remove the line"
    ]


@pytest.mark.parametrize(
    ("package", "components"),
    [
        ("horovod", "`horovod`, `horovod-nccl`"),
        ("deepspeed", "`deepspeed`, `deepspeed-cpu`, `deepspeed-gpu`"),
    ],
)
def test_all_components_of_a_package_are_proposed(tree: Tree, package: str, components: str) -> None:
    assert lines(tree, package) == [
        f"small: the catalogue has components for `{package}` (own.txt:1): component {components}; "
        "add one to `components` and remove the line"
    ]


def test_other_packages_are_not_mentioned(tree: Tree) -> None:
    assert lines(tree, "pandas", "transformers", "numpy") == []
