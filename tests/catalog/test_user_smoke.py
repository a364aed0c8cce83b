"""The user's own smoke test, as a recipe describes it."""

import pytest

from bakehouse.catalog.user_smoke import UserSmoke
from bakehouse.errors import RecipeError
from tests.support.errors import raised
from tests.support.trees import Tree

HEAD = 'summary: A small image\nbase: {debian: "12"}\n'
CODE = "code: {directory: src, entry_point: train.py}\n"


def read(tree: Tree, text: str) -> UserSmoke:
    tree.write("images/src/train.py", "")
    tree.write("images/src/check.py", "")
    tree.image(HEAD + text)
    smoke = tree.recipes()["small"].smoke
    assert smoke is not None
    return smoke


def test_a_test_without_settings_runs_the_entry_point_once(tree: Tree) -> None:
    smoke = read(tree, f"{CODE}smoke: {{}}\n")

    assert (smoke.entry_point, smoke.hosts, smoke.processes, smoke.launcher) == ("train.py", 1, 1, "")
    assert (smoke.hyperparameters, smoke.channels, smoke.expect, smoke.timeout) == ((), (), "", 600)


def test_every_setting_is_read(tree: Tree) -> None:
    smoke = read(
        tree,
        f"{CODE}smoke:\n  entry_point: check.py\n  hosts: 2\n  processes: 4\n  launcher: mpirun\n"
        "  hyperparameters: {epochs: 1}\n  channels: {training: ../data}\n"
        "  expect: accuracy\n  timeout: 60\n",
    )

    assert (smoke.entry_point, smoke.hosts, smoke.processes, smoke.launcher) == ("check.py", 2, 4, "mpirun")
    assert smoke.hyperparameters == (("epochs", "1"),)
    assert smoke.channels == (("training", tree.root / "images" / "../data"),)
    assert (smoke.expect, smoke.timeout) == ("accuracy", 60)


def test_a_recipe_without_smoke_has_no_test(tree: Tree) -> None:
    tree.image(HEAD)

    assert tree.recipes()["small"].smoke is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("smoke: {}\n", "`smoke` has no `entry_point`"),
        (f"{CODE}smoke: {{entry_point: nowhere.py}}\n", "the image contains no `/opt/ml/code/nowhere.py`"),
        (f"{CODE}smoke: {{hosts: 0}}\n", "`hosts` must be from 1 to 8"),
        (f"{CODE}smoke: {{processes: 65}}\n", "`processes` must be from 1 to 64"),
        (f"{CODE}smoke: {{timeout: 0}}\n", "`timeout` must be from 1 to 86,400"),
        (f"{CODE}smoke: {{launcher: mpi}}\n", "`mpi` is not a valid `launcher`"),
        (
            f"{CODE}smoke: {{launcher: script, processes: 2}}\n",
            "launcher `script` starts one process on each host",
        ),
        (f'{CODE}smoke: {{channels: {{"a/b": data}}}}\n', "`a/b` is not a valid channel name"),
        (
            f"{CODE}smoke: {{channels: {{training: /data}}}}\n",
            "channel `training` must be a directory relative to the recipe's directory",
        ),
        ("required: [user_code]\n", "`user_code` needs `smoke` in the recipe"),
    ],
)
def test_mistakes_of_a_test_are_reported(tree: Tree, text: str, message: str) -> None:
    assert raised(RecipeError, read, tree, text).diagnostics[0].message == message


def test_a_step_or_the_base_may_add_the_script(tree: Tree) -> None:
    assert read(tree, "smoke: {entry_point: from_base.py}\n")
    assert read(tree, f"{CODE}run: [touch /opt/ml/code/made.py]\nsmoke: {{entry_point: made.py}}\n")


def test_code_needs_no_entry_point(tree: Tree) -> None:
    tree.write("images/src/train.py", "")
    tree.image(f"{HEAD}code: {{directory: src}}\n")
    content = tree.recipes()["small"].content

    assert [file.target for file in content.code] == ["/opt/ml/code/train.py"]
    assert content.entry_point is None
