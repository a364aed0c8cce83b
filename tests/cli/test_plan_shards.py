"""The options of `plan` with which pipelines select images."""

from dataclasses import replace
from pathlib import Path

import pytest

from bakehouse.cli import main
from bakehouse.plan.workspace import open_workspace, select
from tests.support.release_records import a_record
from tests.support.sagemaker_releases import put
from tests.support.trees import Tree


def shard(capsys: pytest.CaptureFixture[str], number: int) -> set[str]:
    assert main.run(("plan", "--missing", "candidate", "--shard", f"{number}/2", "--names")) == 0
    return {*capsys.readouterr().out.split()}


def test_a_published_image_does_not_move_others_to_another_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = Tree(tmp_path)
    tree.write("pyproject.toml", '[tool.bakehouse]\nrecipes = ["mine"]\n')
    for name in "abcd":
        recipe = f'summary: {name}\nbase: {{debian: "12"}}\nrun: ["echo {name}"]\n'
        tree.write(f"mine/images/{name}.yaml", recipe)
    monkeypatch.chdir(tmp_path)
    first, second = shard(capsys, 1), shard(capsys, 2)
    assert first | second == {*"abcd"}
    # The first job publishes its images before the second one starts.
    for image in select(open_workspace(tmp_path), sorted(first)).plan.images:
        put(tmp_path, replace(a_record(), image=image.name, key=image.key, candidate=True))

    assert shard(capsys, 1) == set()
    assert shard(capsys, 2) == second
