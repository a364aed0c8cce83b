"""The recipes of a project as they were at a commit."""

import subprocess
from pathlib import Path

import pytest

from bakehouse import revisions
from bakehouse.errors import UsageError
from bakehouse.project import Project
from tests.conftest import COMPONENTS, IMAGE, Tree


def git(folder: Path, *words: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(folder), *who, *words], check=True, capture_output=True)


@pytest.fixture
def repository(empty: Tree) -> Tree:
    """Recipes below `mine`, committed, then changed."""
    for name, text in COMPONENTS.items():
        empty.write(f"mine/components/{name}/component.yaml", text)
    empty.write("mine/images/small.yaml", IMAGE)
    git(empty.root, "init", "--quiet")
    git(empty.root, "add", ".")
    git(empty.root, "commit", "--quiet", "-m", "first")
    empty.write("mine/images/small.yaml", IMAGE.replace("A small image", "Another"))
    return empty


def project(tree: Tree) -> Project:
    return Project(tree.root, (tree.root / "mine",))


def test_the_recipes_are_those_of_the_commit(repository: Tree) -> None:
    with revisions.past(project(repository), "HEAD") as then:
        assert then.recipes["small"].summary == "A small image"
        assert sorted(then.catalog.components) == sorted(COMPONENTS)


def asked(tree: Tree, revision: str) -> str:
    with pytest.raises(UsageError) as caught, revisions.past(project(tree), revision):
        pass
    return caught.value.diagnostics[0].message


def test_folders_outside_the_repository_are_taken_as_they_are(
    repository: Tree, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "images").mkdir()
    (outside / "images" / "large.yaml").write_text(IMAGE)
    both = Project(repository.root, (outside, repository.root / "mine"))

    with revisions.past(both, "HEAD") as then:
        assert sorted(then.recipes) == ["large", "small"]


@pytest.mark.parametrize("revision", ["nope", "--all"])
def test_a_commit_that_does_not_exist_is_told(repository: Tree, revision: str) -> None:
    assert asked(repository, revision) == f"there is no commit `{revision}`"


def test_recipes_that_can_not_be_read_are_told_with_the_commit(repository: Tree) -> None:
    repository.write("mine/images/small.yaml", "summary: [")
    git(repository.root, "commit", "--quiet", "-am", "broken")

    assert asked(repository, "HEAD") == "the recipes of `HEAD` can't be read: this is not YAML"


def test_a_folder_without_git_is_told(tree: Tree) -> None:
    assert asked(tree, "HEAD").startswith("git can't tell")
