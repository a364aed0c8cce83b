"""The images of a catalogue as a table and as JSON."""

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from bakehouse.catalog.project import HOME, ProjectSettings
from bakehouse.catalog.purpose import Concession
from bakehouse.catalog.recipe import Recipe
from bakehouse.catalog.support import support_of
from bakehouse.cli import listed_images
from bakehouse.errors import StaleError
from bakehouse.evidence import step_layers
from bakehouse.evidence.image_state import ImageState, Level
from bakehouse.pipeline import image_docs, image_table
from bakehouse.plan.planner import make_plan
from bakehouse.plan.workspace import Workspace
from bakehouse.resolve.resolver import resolve
from bakehouse.util.files import write_whole
from tests.support.errors import raised
from tests.support.known_layers import made
from tests.support.trees import IMAGE, Tree, templates

FAMILY = """\
summary: PyTorch with Python ${python}
name: small-py${python|tag}
base: {debian: "12"}
components: {python: "${python}", torch: "*"}
matrix: {python: ["3.11", "3.12"]}
"""


@pytest.fixture
def workspace(tree: Tree) -> Workspace:
    tree.component("pytorch", 'summary: PyTorch\nreleases: [{version: "2.9.1", provides: {cuda: "12.8"}}]\n')
    tree.image(FAMILY.replace("torch", "pytorch"), "family")
    tree.image(IMAGE)
    return Workspace(ProjectSettings(tree.root, (tree.root,)), tree.catalog(), tree.recipes(), templates())


def rows(workspace: Workspace) -> tuple[image_table.ImageRow, ...]:
    return image_docs.collect_rows(workspace, workspace.recipes.values())


def write(workspace: Workspace, table: str) -> Path:
    path = workspace.project.root / "images/README.md"
    write_whole(path, table)
    return path


def test_an_image_is_listed_with_family_versions_and_run_level(workspace: Workspace) -> None:
    [row] = listed_images.report(workspace, [workspace.recipes["small-py311"]])

    assert row == {
        "image": "small-py311",
        "family": "family",
        "purpose": None,
        "archived": False,
        "summary": "PyTorch with Python 3.11",
        "base": "debian 12",
        "components": ["debian 12", "python 3.11", "pytorch 2.9.1"],
        "versions": {"cuda": "12.8", "debian": "12", "glibc": "2.36", "python": "3.11", "pytorch": "2.9.1"},
        "warnings": [],
        "not_pinned": [],
        "support": [asdict(item) for item in ENDS],
        "committed": True,
        "run": "rendered",
        "tested": None,
        "reproducible": True,
    }


def test_an_image_that_does_not_resolve_has_no_versions(workspace: Workspace) -> None:
    recipe = workspace.recipes["small"]
    broken = replace(recipe, base=replace(recipe.base, specifier="==13"))
    [entry] = image_docs.collect_rows(workspace, [broken])

    assert (entry.resolution, entry.state) == (None, ImageState(0))


TORCH = "pytorch 2.9.1, cuda 12.8, python"
END = "yes | 2026-06-10 (debian 12)"
ENDS = support_of({"debian": "12", "python": "3.11", "cuda": "12.8"})
HEAD = (
    f"| image | versions | layers | tested | known problem | publishable | supported until |\n|{' --- |' * 7}"
)


def test_own_images_are_one_table(workspace: Workspace) -> None:
    table = image_table.table(rows(workspace)).replace("rendered; not pinned", "rendered")

    expected = f"""\
3 images: 0 tested here, 3 publishable as they are, 0 for GPUs on which they never ran.

## Images

{HEAD}
| [small](small/README.md) | python 3.11 | rendered | - | - | {END} |
| [small-py312](small-py312/README.md) | {TORCH} 3.12 | rendered | - | - | {END}; not known: cuda 12.8 |
| [small-py311](small-py311/README.md) | {TORCH} 3.11 | rendered | - | - | {END}; not known: cuda 12.8 |
"""
    assert table.partition("# Images\n\n")[2] == expected


def test_recommended_images_come_by_purpose_and_the_archive_as_a_grid(workspace: Workspace) -> None:
    first, second, small = (workspace.recipes[name] for name in ("small-py311", "small-py312", "small"))
    accepted = Concession("support", "no user needs it", "2027-01-31")
    recipes = {
        "small": replace(small, purpose="several-hosts", concessions=(accepted,)),
        first.name: archived(first),
        second.name: archived(second),
    }
    table = image_table.table(rows(replace(workspace, recipes=recipes)))

    assert "\n## Several GPU hosts over EFA\n" in table
    assert "\n- small: support, accepted until 2027-01-31: no user needs it\n" in table
    assert table.endswith("| `small-…` | builds |\n| --- | --- |\n| py311 | - |\n| py312 | - |\n")


def archived(recipe: Recipe) -> Recipe:
    return replace(recipe, location=replace(recipe.location, path=HOME / "recipes/images/old.yaml"))


def test_the_table_is_kept_where_there_is_one(workspace: Workspace) -> None:
    path = workspace.project.root / "images" / "README.md"
    assert not image_docs.write_table(workspace)
    image_docs.check_table(workspace)

    write_whole(path, b"")
    error = raised(StaleError, image_docs.check_table, workspace)
    assert error.diagnostics[0].message == "`images/README.md` is out of date"
    assert image_docs.write_table(workspace)
    assert not image_docs.write_table(workspace)
    image_docs.check_table(workspace)


def test_a_file_of_the_user_with_the_name_of_the_table_is_kept(workspace: Workspace) -> None:
    path = write(workspace, "# Our photographs\n")

    assert not image_docs.write_table(workspace)
    image_docs.check_table(workspace)
    assert path.read_text() == "# Our photographs\n"


def test_bakehouses_images_are_in_no_table_of_a_users_project(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(workspace, "")
    monkeypatch.setattr("bakehouse.plan.workspace.HOME", workspace.project.root / "home")
    small = workspace.recipes["small"]
    brought = replace(small.location, path=workspace.project.root / "home/recipes/images/small.yaml")
    recipes = {**workspace.recipes, "small": replace(small, location=brought)}

    image_docs.write_table(replace(workspace, recipes=recipes))

    assert "\n2 images: " in path.read_text()


def test_what_is_known_here_is_copied_by_the_next_writing_only(workspace: Workspace) -> None:
    project = workspace.project
    write_whole(project.root / "images/README.md", "")
    image_docs.write_table(workspace)
    [image] = make_plan([resolve(workspace.recipes["small"], workspace.catalog)], workspace.templates).images
    step_layers.record(project.state, made(image, "torch"), project.state / "locks")

    image_docs.check_table(workspace)
    levels = {entry.recipe.name: entry.state.level for entry in rows(workspace)}
    assert levels["small"] is Level.REHEARSED
    lines: list[str] = []
    image_docs.write_results(workspace, [image], lines.append)
    assert image_docs.write_table(workspace)
    assert "| rehearsed; not pinned |" in (project.images / "README.md").read_text()
    assert step_layers.read(project.images) == made(image, "torch")
    image_docs.write_results(workspace, [image], lines.append)
    assert lines == ["wrote images/layers.txt"]
    assert (project.images / ".gitattributes").read_text() == "layers.txt merge=union\n"


def test_the_table_and_the_list_name_images_that_are_not_reproducible(workspace: Workspace) -> None:
    state = replace(workspace.project, root=workspace.project.root).state
    [image] = make_plan([resolve(workspace.recipes["small"], workspace.catalog)], workspace.templates).images
    step_layers.record(state, made(image) | made(image, run="2"), state / "locks")

    assert "| rehearsed; not pinned; not reproducible |" in image_table.table(rows(workspace))
    [row] = listed_images.report(workspace, [workspace.recipes["small"]])
    assert (row["run"], row["reproducible"]) == ("rehearsed", False)
    listed = listed_images.listing(workspace, [workspace.recipes["small"]], {"small"}, archive=False)
    assert "A small image (debian 12 supported until 2026-06-10; not reproducible)\n" in listed
