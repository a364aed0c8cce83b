"""Which images a name means, and which rendered files are kept."""

from pathlib import Path

import pytest

from bakehouse.errors import StaleError
from bakehouse.project import find
from bakehouse.workspace import (
    Workspace,
    check_rendered,
    orphans,
    plan_recipes,
    render_images,
    select,
    select_kept,
)
from tests.conftest import Tree, templates

MATRIX = """\
summary: For ${part}
name: small-${part}
commit: ["*-toolkit"]
matrix: {part: [torch, toolkit]}
base: {debian: "12"}
components: {python: "3.11", "toolkit": "*"}
"""


@pytest.fixture
def workspace(tree: Tree, tmp_path: Path) -> Workspace:
    tree.image(MATRIX, "family")
    tree.write("pyproject.toml", "[tool.bakehouse]\n")
    found = find(tmp_path)
    return Workspace(found, tree.catalog(), tree.recipes(), templates())


def names(workspace: Workspace, *patterns: str) -> list[str]:
    return [one.name for one in select(workspace, patterns)]


def kept(workspace: Workspace, *patterns: str) -> list[str]:
    return [one.name for one in select_kept(workspace, patterns)]


def test_a_family_means_all_its_images(workspace: Workspace) -> None:
    assert names(workspace, "family") == ["small-toolkit", "small-torch"]


def test_a_glob_means_what_it_matches(workspace: Workspace) -> None:
    assert names(workspace, "*-torch") == ["small-torch"]


def test_what_is_not_committed_is_rendered_on_demand(workspace: Workspace) -> None:
    assert kept(workspace) == ["small", "small-toolkit"]
    assert kept(workspace, "small-torch") == ["small-torch"]


def test_what_was_rendered_on_demand_is_kept_true(workspace: Workspace) -> None:
    (workspace.project.images / "small-torch").mkdir(parents=True)
    (workspace.project.images / "small-torch/Dockerfile").write_text("")

    assert "small-torch" in kept(workspace)


def test_a_folder_that_no_recipe_gives_is_stale_and_removed_without_its_ledger(workspace: Workspace) -> None:
    folder = workspace.project.images / "gone"
    folder.mkdir(parents=True)
    (folder / "Dockerfile").write_text("")
    (folder / "releases.json").write_text("{}")
    plan = plan_recipes(workspace, select_kept(workspace, ()))
    render_images(workspace, plan, lambda _: None)

    with pytest.raises(StaleError, match="`images/gone/Dockerfile` is rendered by no recipe"):
        check_rendered(workspace, plan, orphans(workspace))
    render_images(workspace, plan, lambda _: None, orphans(workspace))

    assert [path.name for path in folder.iterdir()] == ["releases.json"]
    assert check_rendered(workspace, plan, orphans(workspace)) == 6
