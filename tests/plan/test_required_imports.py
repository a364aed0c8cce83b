"""Packages of a recipe that a smoke check imports."""

import pytest

from bakehouse.errors import RecipeError
from bakehouse.plan.required_imports import RequiredImport
from tests.support.requirements_locks import locked_heading
from tests.support.trees import IMAGE, SHA, Tree

REQUIREMENTS = """\
Pandas[excel]>=2
six
winsound; sys_platform == "win32"
"""


@pytest.fixture
def required(tree: Tree) -> Tree:
    """A project whose image has requirements."""
    tree.write("images/own.txt", REQUIREMENTS)
    heading = locked_heading(REQUIREMENTS.encode(), "small", name="own.txt")
    names = ("pandas", "six")
    packages = (f"{name}==1 --hash=sha256:{SHA}  # {name}-1-py3-none-any.whl 5\n" for name in names)
    tree.write("images/own.txt.lock", f"{heading}\n{''.join(packages)}")
    return tree


def messages(tree: Tree) -> list[tuple[str, str, str]]:
    """Return message, marked text and hint of each mistake."""
    with pytest.raises(RecipeError) as raised:
        tree.plan()
    return [
        (item.message, item.location.text[item.location.column - 1 :][: item.location.length], item.hint)
        for item in raised.value.diagnostics
        if item.location
    ]


def test_each_requirement_is_imported(required: Tree) -> None:
    required.image(IMAGE + "requirements: own.txt\nuntested_imports: {SIX: needs a GPU}\n")

    path = required.root / "images/own.txt"
    assert required.planned_image().requirements == (
        RequiredImport("pandas", "", f"{path}:1", ""),
        RequiredImport("six", "", f"{path}:2", "needs a GPU"),
        RequiredImport("winsound", 'sys_platform == "win32"', f"{path}:3", ""),
    )


def test_each_package_of_a_lock_is_imported(required: Tree) -> None:
    required.image(IMAGE + "requirements: own.txt.lock\n")

    path = required.root / "images/own.txt.lock"
    assert required.planned_image().requirements == (
        RequiredImport("pandas", "", f"{path}:2", ""),
        RequiredImport("six", "", f"{path}:3", ""),
    )


def test_an_exemption_does_not_change_the_key(required: Tree) -> None:
    required.image(IMAGE + "requirements: own.txt\n")
    before = required.planned_image().key
    required.image(IMAGE + "requirements: own.txt\nuntested_imports: {six: needs a GPU}\n")

    assert required.planned_image().key == before


def test_an_exemption_must_name_a_requirement(required: Tree) -> None:
    required.image(
        IMAGE + "requirements: own.txt\nuntested_imports: {sixx: needs a GPU, torch: needs a GPU}\n"
    )

    assert messages(required) == [
        ("`untested_imports` names `sixx`, which the requirements do not", "sixx", "did you mean `six`?"),
        (
            "`untested_imports` names `torch`, which the requirements do not",
            "torch",
            "use one of `pandas`, `six`, `winsound`",
        ),
    ]


def test_an_exemption_needs_a_reason(required: Tree) -> None:
    required.image(IMAGE + 'requirements: own.txt\nuntested_imports: {six: ""}\n')

    hint = "write it: `untested_imports: {six: needs a GPU}`"
    assert messages(required) == [("`six` in `untested_imports` has no reason", "six", hint)]


def test_an_exemption_without_requirements_is_a_mistake(required: Tree) -> None:
    required.image(IMAGE + "untested_imports: {six: needs a GPU}\n")

    message = "`untested_imports` names `six`, which the requirements do not"
    assert messages(required) == [(message, "six", "remove it")]
