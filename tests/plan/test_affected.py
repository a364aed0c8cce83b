"""Images that a change affects, and their shards."""

from dataclasses import replace
from pathlib import Path

import pytest

from bakehouse.catalog.project import HOME, Project
from bakehouse.errors import UsageError
from bakehouse.plan import affected, dockerfile, image_keys, image_lock
from bakehouse.plan.model import Image, ImageKey
from bakehouse.plan.workspace import open_workspace, select
from tests.support.fake_engine import image
from tests.support.git_repository import commit
from tests.support.trees import Tree


def test_images_with_another_key_than_at_a_commit_are_affected(tmp_path: Path) -> None:
    same, changed, added, damaged = (image(name) for name in ("same", "changed", "added", "damaged"))
    old = replace(changed, recipe_key=ImageKey("0" * 64))
    locks = {f"images/{each.name}/lock.json": image_lock.text(each) for each in (same, old)}
    # The project may be below the top of its repository.
    first = commit(
        tmp_path,
        {f"team/{path}": text for path, text in {**locks, "images/damaged/lock.json": "<<<"}.items()},
    )
    commit(tmp_path, {"team/images/changed/lock.json": image_lock.text(changed)})

    project = Project(tmp_path / "team", ())
    images = affected.changed_since(project, (same, changed, added, damaged), first)

    assert [each.name for each in images] == ["changed", "added", "damaged"]


def test_an_edit_of_training_code_affects_its_image(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.write("mine/images/src/train.py", "pass\n")
    plain = 'summary: x\nbase: {debian: "12"}\ncomponents: {python: "3.11"}\n'
    tree.write("mine/images/churn.yaml", plain + "code: {directory: src, entry_point: train.py}\n")
    tree.write("mine/images/plain.yaml", plain)
    tree.write("pyproject.toml", '[tool.bakehouse]\nrecipes = ["mine"]\n')
    names = ["churn", "plain"]
    workspace = open_workspace(tmp_path)
    for file in dockerfile.render(select(workspace, names).plan, workspace.templates):
        file.write(workspace.project.images)
    first = commit(tmp_path, {})

    def affected_names() -> list[str]:
        workspace = open_workspace(tmp_path)
        images = select(workspace, names).plan.images
        return [image.name for image in affected.changed_since(workspace.project, images, first)]

    assert affected_names() == []
    tree.write("mine/images/src/train.py", "print()\n")
    assert affected_names() == ["churn"]


def test_the_keys_of_images_without_files_are_those_of_the_file_of_all_keys(tmp_path: Path) -> None:
    same, changed, both, merged, added = (
        image(name) for name in ("same", "changed", "both", "merged", "added")
    )
    old = [replace(each, recipe_key=ImageKey("0" * 64)) for each in (changed, both)]
    keys = image_keys.text([same, *old, merged], {}, {})
    conflict = f"<<<<<<< ours\nmerged {merged.recipe_key}\n=======\nmerged {'1' * 64}\n>>>>>>> theirs\n"
    files = {
        "images/keys.txt": keys.replace(f"merged {merged.recipe_key}\n", conflict),
        "images/both/lock.json": image_lock.text(both),
    }
    first = commit(tmp_path, files)
    project = Project(tmp_path, ())

    images = affected.changed_since(project, (same, changed, both, merged, added), first)
    second = commit(tmp_path, {"images/keys.txt": keys.replace("# Generated", "# Written")})

    assert [each.name for each in images] == ["changed", "merged", "added"]
    assert affected.keys_at(project, first) == {
        "same": same.key,
        "changed": "0" * 64,
        "both": both.key,
        "merged": None,
    }
    # Another file of the user with this name
    assert affected.keys_at(project, second) == {"both": both.key}


def test_an_unknown_commit_is_a_mistake(tmp_path: Path) -> None:
    commit(tmp_path, {"a": "b"})

    with pytest.raises(UsageError, match=r"^commit `gone` does not exist$"):
        affected.changed_since(Project(tmp_path, ()), (), "gone")


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "a/b", "1/1000"])
def test_an_invalid_shard_is_a_mistake(text: str) -> None:
    with pytest.raises(UsageError, match=rf"^invalid shard `{text}`$"):
        affected.parse_shard(text)


def catalogue_images() -> tuple[Image, ...]:
    return select(
        open_workspace(HOME), ["mpi-cpu", "pytorch-cpu", "pytorch-d*-cpu", "tensorflow-cpu"]
    ).plan.images


def test_each_image_is_in_one_shard_and_shared_stages_stay_together() -> None:
    images = catalogue_images()

    shards = [affected.shard(images, number, 2) for number in (1, 2)]

    names = [{each.name for each in shard} for shard in shards]
    assert names[0] | names[1] == {each.name for each in images}
    assert names[0].isdisjoint(names[1])
    # The three images with PyTorch share its stage; TensorFlow has the other job.
    assert {"tensorflow-cpu", "mpi-cpu"} in names


def test_more_shards_than_images_leave_some_empty() -> None:
    assert affected.shard((image("one"),), 2, 2) == ()
