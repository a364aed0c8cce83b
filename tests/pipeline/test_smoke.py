"""The checks of a smoke test before an image is built."""

import pytest

from bakehouse.errors import RecipeError
from bakehouse.pipeline.smoke import require_channels, smoke
from bakehouse.plan.workspace import open_workspace, select
from tests.support.errors import refusal
from tests.support.trees import IMAGE, Tree

ERROR = """\
error: channel `training` of `coded`: `dta` is not a directory
  --> images/coded.yaml:6:8
   |
 6 | smoke: {channels: {training: ../dta, other: ../data}}
   |        ^

hint: correct `channels`, or create the directory
"""


@pytest.fixture
def project(tree: Tree) -> Tree:
    tree.write("pyproject.toml", '[tool.bakehouse]\nrecipes = ["."]\n')
    tree.write("src/train.py", "pass\n")
    (tree.root / "data").mkdir()
    lines = "code: {directory: ../src, entry_point: train.py}\n"
    tree.image(f"{IMAGE}{lines}smoke: {{channels: {{training: ../dta, other: ../data}}}}\n", "coded")
    return tree


def test_a_channel_without_a_directory_is_an_error_before_the_build(project: Tree) -> None:
    selection = select(open_workspace(project.root), ["coded"])

    assert refusal(RecipeError, smoke, selection, print) == ERROR


def test_other_checks_need_no_channel(project: Tree) -> None:
    images = select(open_workspace(project.root), ["coded"]).plan.images
    require_channels(images, ["train_success"])

    (project.root / "dta").mkdir()
    require_channels(images, [])
