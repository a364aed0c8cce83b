"""Committed files that a newer Bakehouse wrote are neither read as ours nor called damaged."""

from collections.abc import Callable

import pytest

from bakehouse.catalog.base_image_lock import DIRECTORY, file_of, read_locks
from bakehouse.catalog.pins import read_pins
from bakehouse.errors import Problems, RecipeError
from tests.support.trees import Tree

PINNED = f"vendor/image@sha256:{'a' * 64}"


def of_suite(tree: Tree) -> object:
    return read_locks([tree.root]).suites["bookworm"].debs


def of_base(tree: Tree) -> object:
    return read_locks([tree.root]).bases


def of_pins(tree: Tree) -> None:
    problems = Problems()
    read_pins([tree.root], problems)
    problems.raise_as(RecipeError)


@pytest.mark.parametrize(
    ("path", "text", "read"),
    [
        ("apt/bookworm.packages", "", of_suite),
        (f"{DIRECTORY}/{file_of(PINNED)}", f"\nBase: {PINNED}\n", of_base),
        ("pins.yaml", "images:\n", of_pins),
    ],
)
def test_a_file_of_a_newer_format_says_so(
    empty: Tree, path: str, text: str, read: Callable[[Tree], object]
) -> None:
    for heading in ("# made by `bake lock`", "# format 1; made by `bake lock`"):
        empty.write(path, f"{heading}\n{text}")
        read(empty)

    empty.write(path, f"# format 2; made by `bake lock`\n{text}")
    with pytest.raises(RecipeError, match="cannot read ") as raised:
        read(empty)
    [diagnostic] = raised.value.diagnostics
    assert diagnostic.facts[0][1].startswith("a newer Bakehouse wrote it in format 2; ")
    assert diagnostic.hint == "upgrade Bakehouse; nothing was written"
