"""Which images a name means, and which rendered files are kept."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from bakehouse.catalog.catalog import load_catalog
from bakehouse.catalog.project import ProjectSettings, find
from bakehouse.catalog.recipe import read_recipes
from bakehouse.errors import BuildError, ConflictError, RecipeError, StaleError, UsageError
from bakehouse.plan.workspace import (
    Workspace,
    check_rendered,
    orphans,
    raise_failures,
    render_images,
    select,
    select_kept,
)
from tests.support.errors import error_text, raised
from tests.support.trees import IMAGE, Tree, templates

MATRIX = """\
summary: For ${part}
name: small-${part}
matrix: {part: [torch, toolkit]}
base: {debian: "12"}
components: {python: "3.11", "toolkit": "*"}
"""


@pytest.fixture
def workspace(tree: Tree, tmp_path: Path) -> Workspace:
    tree.image(MATRIX, "family")
    tree.write("pyproject.toml", '[tool.bakehouse]\ncommit = ["small", "*-toolkit"]\n')
    project = find(tmp_path)
    return Workspace(project, tree.catalog(), tree.recipes(), templates())


def names(workspace: Workspace, *patterns: str) -> list[str]:
    return [recipe.name for recipe in select(workspace, patterns).recipes]


def kept_names(workspace: Workspace, *patterns: str) -> list[str]:
    return [recipe.name for recipe in select_kept(workspace, patterns).recipes]


def rendered(workspace: Workspace, *patterns: str) -> None:
    render_images(workspace, select(workspace, patterns).plan, lambda _: None)


@pytest.fixture
def own(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A user's project with the recipe `churn`, of which `small` and `family` are Bakehouse's."""
    tree.image(MATRIX, "family")
    home = tree.root / "home"
    (home / "recipes").mkdir(parents=True)
    for name in ("components", "images"):
        (tree.root / name).rename(home / "recipes" / name)
    tree.write("mine/images/churn.yaml", IMAGE)
    monkeypatch.setattr("bakehouse.plan.workspace.HOME", home)
    return opened(tree.root, home / "recipes", tree.root / "mine")


def opened(root: Path, *roots: Path) -> Workspace:
    catalog = load_catalog(roots)
    recipes = read_recipes(roots, catalog)
    return Workspace(ProjectSettings(root, roots), catalog, recipes.by_name, templates(), recipes.broken)


def test_a_family_means_all_its_images(workspace: Workspace) -> None:
    assert names(workspace, "family") == ["small-toolkit", "small-torch"]


def test_a_glob_means_what_it_matches(workspace: Workspace) -> None:
    assert names(workspace, "*-torch") == ["small-torch"]


def test_what_is_not_committed_is_rendered_on_demand(workspace: Workspace) -> None:
    assert kept_names(workspace) == ["small", "small-toolkit"]
    assert kept_names(workspace, "small-torch") == ["small-torch"]


def test_rendered_files_are_one_line_for_each_image(workspace: Workspace) -> None:
    plan = select(workspace, ["small"]).plan
    lines: list[str] = []

    files = render_images(workspace, plan, lines.append)
    (workspace.project.images / "small/Dockerfile").unlink()
    render_images(workspace, plan, lines.append)

    assert lines == [f"rendered {len(files)} files of images/small", "rendered images/small/Dockerfile"]


def test_files_that_stay_out_are_reported_once_for_all_images(tree: Tree, tmp_path: Path) -> None:
    tree.write("images/src/train.py", "")
    tree.write("images/src/.git/HEAD", "")
    code = "code: {directory: src, entry_point: train.py}\n"
    tree.image(IMAGE + code, "a")
    tree.image(IMAGE + code, "b")
    tree.write("pyproject.toml", "[tool.bakehouse]\n")
    own = Workspace(find(tmp_path), tree.catalog(), tree.recipes(), templates())
    lines: list[str] = []
    render_images(own, select(own, ["a", "b"]).plan, lines.append)

    assert lines[0] == "left out of a and 1 more: version control (.git): 1 directory"
    assert len([line for line in lines if "left out" in line]) == 1


def test_what_was_rendered_on_demand_is_kept_true(workspace: Workspace) -> None:
    rendered(workspace, "small-torch")

    assert "small-torch" in kept_names(workspace)


def test_bakehouses_images_are_not_those_of_a_users_project(own: Workspace) -> None:
    assert kept_names(own) == ["churn"]
    assert kept_names(own, "small") == ["small"]


def test_what_a_user_rendered_of_bakehouses_images_is_kept_true(own: Workspace) -> None:
    rendered(own, "small", "small-torch")

    assert kept_names(own) == ["churn", "small", "small-torch"]


def test_a_recipe_that_takes_the_place_of_one_of_bakehouses_is_the_users(own: Workspace) -> None:
    Tree(own.project.root).write("mine/images/small.yaml", IMAGE)

    assert kept_names(opened(own.project.root, *own.project.recipe_roots)) == ["churn", "small"]


def test_an_own_recipe_that_was_never_rendered_is_stale(own: Workspace) -> None:
    with pytest.raises(StaleError, match="`images/churn/Dockerfile` is missing"):
        check_rendered(own, select_kept(own, ()).plan)


def test_without_recipes_of_its_own_a_project_keeps_nothing(own: Workspace) -> None:
    assert kept_names(opened(own.project.root, own.project.recipe_roots[0])) == []


def test_a_project_keeps_what_its_settings_say(own: Workspace) -> None:
    recipes = own.project.recipe_roots[0]
    every = opened(recipes.parent, recipes)

    assert kept_names(every) == ["small", "small-toolkit", "small-torch"]
    settings = replace(every.project, commit=("small", "*-toolkit"))
    assert kept_names(replace(every, project=settings)) == ["small", "small-toolkit"]


def test_a_changed_file_is_stale_until_it_is_rendered_but_its_copy_is_not_committed(
    tree: Tree, workspace: Workspace
) -> None:
    source = tree.write("images/src/conf.py", "pass\n")
    tree.image(IMAGE + "files: [{from: src, to: /opt/}]\n")
    workspace = replace(workspace, recipes=tree.recipes())
    rendered(workspace, "small")
    copy = workspace.project.images / "small/files/opt/conf.py"
    copy.unlink()
    check_rendered(workspace, select(workspace, ["small"]).plan)

    source.write_text("print()\n")
    changed = replace(workspace, recipes=tree.recipes())
    plan = select(changed, ["small"]).plan
    error = raised(StaleError, check_rendered, changed, plan)
    render_images(changed, plan, lambda _: None)

    assert "`images/small/lock.json` is out of date" in [
        diagnostic.message for diagnostic in error.diagnostics
    ]
    assert copy.read_text() == "print()\n"
    ignored = ["git", "-C", str(tree.root), "status", "--short", "--untracked-files=all", "images/small"]
    subprocess.run(["git", "init", "-q", str(tree.root)], check=True)
    listed = subprocess.run(ignored, capture_output=True, text=True, check=True).stdout
    assert "images/small/lock.json" in listed
    assert "files" not in listed


def test_a_dockerfile_of_the_user_is_kept(own: Workspace) -> None:
    for name in ("web", "small"):
        Tree(own.project.images).write(f"{name}/Dockerfile", "FROM scratch\n")

    assert orphans(own) == ()
    assert kept_names(own) == ["churn"]


def test_a_directory_without_a_recipe_is_removed_without_its_ledger(workspace: Workspace) -> None:
    rendered(workspace, "small")
    directory = (workspace.project.images / "small").rename(workspace.project.images / "gone")
    for name in ("docker-bake.json", "lock.json"):
        (directory / name).unlink()
    (directory / "releases.json").write_text("{}")
    plan = select_kept(workspace, ()).plan
    render_images(workspace, plan, lambda _: None)

    with pytest.raises(StaleError, match="no recipe renders `images/gone/Dockerfile`"):
        check_rendered(workspace, plan, orphans(workspace))
    render_images(workspace, plan, lambda _: None, orphans(workspace))

    assert [path.name for path in directory.iterdir()] == ["releases.json"]
    assert check_rendered(workspace, plan, orphans(workspace)) == 10


def test_without_names_a_project_means_the_images_of_its_own_recipes(own: Workspace) -> None:
    rendered(own, "small")

    assert names(own) == ["churn"]
    assert names(own, "*") == ["churn", "small", "small-toolkit", "small-torch"]


def test_a_project_without_recipes_means_the_images_that_it_rendered(own: Workspace) -> None:
    bare = opened(own.project.root, own.project.recipe_roots[0])
    with pytest.raises(UsageError, match="this project has no recipes of its own"):
        select(bare, ())
    rendered(bare, "small")

    assert names(bare) == ["small"]


def test_a_command_for_one_image_refuses_several(own: Workspace) -> None:
    assert select(own, ["churn"]).image.name == "churn"
    for patterns, fact in (
        (["small*"], "`small*` matches 3 images"),
        (["churn", "small"], "`churn small` matches 2 images"),
    ):
        with pytest.raises(UsageError) as caught:
            _ = select(own, patterns).image
        assert error_text(caught.value) == (
            f"error: {fact}\n\nhint: name one of them; `bake list` lists them\n"
        )

    recipes = own.project.recipe_roots[0]
    with pytest.raises(UsageError, match=r"^the project has 3 images$"):
        _ = select(opened(recipes.parent, recipes), ()).image


def test_a_selection_resolves_and_plans_once(own: Workspace) -> None:
    selection = select(own, ["churn", "small"])

    assert selection.resolutions is selection.resolutions
    assert selection.plan is selection.plan
    assert [resolution.recipe for resolution in selection.resolutions] == [*selection.recipes]
    assert [image.name for image in selection.plan.images] == ["churn", "small"]
    assert selection.patterns == ("churn", "small")


def test_in_bakehouses_checkout_no_names_mean_all_images(own: Workspace) -> None:
    recipes = own.project.recipe_roots[0]

    assert names(opened(recipes.parent, recipes)) == ["small", "small-toolkit", "small-torch"]


def test_a_recipe_with_mistakes_matters_only_where_it_is_selected(own: Workspace) -> None:
    Tree(own.project.root).write("mine/images/broken.yaml", "sumary: x\n")
    project = opened(own.project.root, *own.project.recipe_roots)

    assert [broken.family for broken in project.broken] == ["broken"]
    assert names(project, "churn", "small-*") == ["churn", "small-toolkit", "small-torch"]
    for patterns in (("broken",), ("b*",), ("broken", "churn")):
        with pytest.raises(RecipeError, match="unknown key `sumary`"):
            select(project, patterns)
    assert project.failures == []
    assert names(project) == names(project, "*r*n") == ["churn"]
    assert [recipe.name for recipe in select_kept(project, ()).recipes] == ["churn"]
    assert [str(failure) for failure in project.failures] == [
        "image `broken` has no `summary`; image `broken` has no `base`; "
        "unknown key `sumary` in image `broken`"
    ]
    assert [recipe.name for recipe in select(project, ("*r*",), skip_broken=True).recipes] == [
        "churn",
        "small-torch",
    ]
    with pytest.raises(RecipeError, match="unknown key `sumary`"):
        select(project, ("broken",), skip_broken=True)


def test_a_recipe_with_mistakes_hides_the_one_that_it_replaces(own: Workspace) -> None:
    Tree(own.project.root).write("mine/images/small.yaml", "sumary: x\n")
    project = opened(own.project.root, *own.project.recipe_roots)

    with pytest.raises(RecipeError, match="unknown key `sumary`"):
        select(project, ("small",))


def test_rendered_files_of_a_recipe_with_mistakes_are_kept(own: Workspace) -> None:
    rendered(own, "churn")
    Tree(own.project.root).write("mine/images/churn.yaml", "sumary: x\n")

    assert orphans(opened(own.project.root, *own.project.recipe_roots)) == ()


def test_failures_of_several_images_have_the_lowest_exit_code(own: Workspace) -> None:
    own.failures.extend([BuildError("not built"), ConflictError("no version fits"), BuildError("not built")])

    error = raised(ConflictError, raise_failures, own)

    assert [diagnostic.message for diagnostic in error.diagnostics] == ["not built", "no version fits"]
    raise_failures(own)
