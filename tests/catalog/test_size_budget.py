"""Size budgets of the components of a recipe."""

import pytest

from tests.support.trees import IMAGE, Tree


def test_a_budget_is_read_with_its_place(tree: Tree) -> None:
    tree.image(IMAGE + "budget: {torch: 700 MB, image: 1.25 GB, packages: 90kB, debian: 60.5 MB}\n")

    budgets = tree.planned_image().budgets

    assert [(budget.name, budget.bytes, budget.written) for budget in budgets] == [
        ("torch", 700_000_000, "700 MB"),
        ("image", 1_250_000_000, "1.25 GB"),
        ("packages", 90_000, "90kB"),
        ("debian", 60_500_000, "60.5 MB"),
    ]
    assert (budgets[1].location.line, budgets[1].location.column) == (5, 32)


@pytest.mark.parametrize("budget", ["", "budget: {torch: 700 MB}\n", "budget: {torch: 1 kB, image: 2 kB}\n"])
def test_a_budget_changes_neither_the_key_nor_the_dockerfile(tree: Tree, budget: str) -> None:
    tree.image(IMAGE)
    key, dockerfile = tree.planned_image().key, tree.dockerfile()

    tree.image(IMAGE + budget)

    assert (tree.planned_image().key, tree.dockerfile()) == (key, dockerfile)
