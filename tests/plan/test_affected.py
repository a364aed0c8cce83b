"""Images that a change affects, and their shards."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bakehouse.catalog.project import HOME, ProjectSettings
from bakehouse.errors import UsageError
from bakehouse.plan import affected, dockerfile, image_keys, image_lock
from bakehouse.plan.key_reasons import key_reasons
from bakehouse.plan.model import ImageKey
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

    project = ProjectSettings(tmp_path / "team", ())
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
    project = ProjectSettings(tmp_path, ())

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
        affected.changed_since(ProjectSettings(tmp_path, ()), (), "gone")


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "a/b", "1/1000"])
def test_an_invalid_shard_is_a_mistake(text: str) -> None:
    with pytest.raises(UsageError, match=rf"^invalid shard `{text}`$"):
        affected.parse_shard(text)


def test_each_image_is_in_one_shard_and_shared_stages_stay_together() -> None:
    images = select(
        open_workspace(HOME), ["mpi-cpu", "pytorch-cpu", "pytorch-d*-cpu", "tensorflow-cpu"]
    ).plan.images

    shards = [affected.shard(images, number, 2) for number in (1, 2)]

    names = [{each.name for each in shard} for shard in shards]
    assert names[0] | names[1] == {each.name for each in images}
    assert names[0].isdisjoint(names[1])
    # The three images with PyTorch share its stage; TensorFlow has the other job.
    assert {"tensorflow-cpu", "mpi-cpu"} in names


def test_more_shards_than_images_leave_some_empty() -> None:
    assert affected.shard((image("one"),), 2, 2) == ()


PLAIN = 'summary: x\nbase: {debian: "12"}\ncomponents: {python: "3.11"}\n'
EDITS = {
    "mine/images/own.lock": (
        f"mine==2 --hash=sha256:{'b' * 64}  # mine-2.whl 5\n",
        {"own": ("mine 1 → 2",)},
        {"requirements"},
    ),
    "mine/images/env.yaml": (
        PLAIN + "environment: {LEVEL: '2'}\n",
        {"env": ("~ environment LEVEL 1 → 2",)},
        set(),
    ),
    "mine/components/greet/files/hello": ("bye\n", {"greeted": ("files of component greet",)}, {"greet"}),
    "mine/images/new.yaml": (PLAIN, {"new": ("new image",)}, set()),
    "mine/images/src/train.py": ("print()\n", {"churn": ("the training code",)}, set()),
}
"""Edited files: the new text, the reasons by image, and the names of the new stages."""


@pytest.fixture
def fleet(tmp_path: Path) -> Tree:
    """Four rendered and committed images, each of which reads another kind of file."""
    tree = Tree(tmp_path)
    tree.write("pyproject.toml", '[tool.bakehouse]\nrecipes = ["mine"]\n')
    greet = 'summary: x\nreleases:\n  - version: "1"\n'
    template = "FROM toolchain AS greet\n{{ place(stage.file('hello'), '/out/hello') }}\n"
    template = f"{{% block build %}}\n{template}{{% endblock %}}\n"
    for path, text in {
        "components/greet/component.yaml": greet,
        "components/greet/install.j2": template,
        "components/greet/files/hello": "hello\n",
        "images/own.yaml": PLAIN + "requirements: own.lock\n",
        "images/own.lock": f"mine==1 --hash=sha256:{'a' * 64}  # mine-1.whl 5\n",
        "images/env.yaml": PLAIN + "environment: {LEVEL: '1'}\n",
        "images/greeted.yaml": PLAIN.replace("}\n", ', greet: "*"}\n', 2).replace('"12", greet: "*"', '"12"'),
        "images/churn.yaml": PLAIN + "code: {directory: src, entry_point: train.py}\n",
        "images/src/train.py": "pass\n",
    }.items():
        tree.write(f"mine/{path}", text)
    render_all(tmp_path)
    commit(tmp_path, {})
    return tree


def render_all(root: Path) -> None:
    workspace = open_workspace(root)
    for file in dockerfile.render(select(workspace, []).plan, workspace.templates):
        file.write(workspace.project.images)


def compare(root: Path) -> tuple[dict[str, tuple[str, ...]], set[str]]:
    """Return the reasons by image, and the names of the new stages."""
    workspace = open_workspace(root)
    plan = select(workspace, []).plan
    result = affected.compare(workspace, plan.images, "HEAD")
    return dict(result.reasons), {plan.stages[key].name for key in result.stages}


def test_an_edit_gives_new_keys_to_the_stages_that_read_the_file(fleet: Tree) -> None:
    unchanged = compare(fleet.root)
    results = {}
    for path, (text, *_) in EDITS.items():
        before = (fleet.root / path).read_text() if (fleet.root / path).exists() else None
        edited = fleet.write(path, text)
        results[path] = compare(fleet.root)
        edited.unlink() if before is None else edited.write_text(before)

    assert unchanged == ({}, set())
    assert results == {path: (reasons, stages) for path, (_, reasons, stages) in EDITS.items()}


def test_a_key_that_the_same_recipe_no_longer_gets_is_of_another_bakehouse(fleet: Tree) -> None:
    lock = fleet.root / "images/env/lock.json"
    old = affected.keys_at(open_workspace(fleet.root).project, "HEAD")["env"]
    commit(fleet.root, {"images/env/lock.json": lock.read_text().replace(str(old), "0" * 64)})

    reasons, stages = compare(fleet.root)

    assert reasons == {"env": ("another version of Bakehouse: its templates or components",)}
    # The other images of the commit have the stage `python` with the same key
    assert stages == set()


def test_the_versions_of_components_are_reasons(fleet: Tree) -> None:
    image = select(open_workspace(fleet.root), ["env"]).image
    committed = (fleet.root / "images/env/Dockerfile").read_bytes().replace(b'python="3.11', b'python="3.10')
    lock = json.dumps(json.loads(image_lock.text(image)) | {"key": "0" * 64}).encode()

    [reason] = key_reasons(image, lock, committed)

    assert reason.startswith("python 3.10 (distribution) → 3.11")
    assert key_reasons(image, b"<<<<", committed) == ("its lock.json in that commit is damaged",)
    assert key_reasons(image, b"", b"") == ()
