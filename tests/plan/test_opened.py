"""A project that tests open with recipes that were read before is the one that commands open."""

from pathlib import Path

import pytest

from bakehouse.plan.workspace import open_workspace
from tests.support import own_recipes
from tests.support.trees import Tree

OWN = {
    "images/mine.yaml": 'summary: x\nbase: {debian: "12"}\ncomponents: {part: "*"}\n',
    "images/mpi-cpu.yaml": 'summary: Replaced\nbase: {debian: "12"}\n',
    "images/wrong.yaml": "summary: x\n",
    "components/part/component.yaml": 'summary: x\nreleases: [{version: "1"}]\n',
    "components/horovod/component.yaml": "sumary: x\n",
}


def test_it_is_what_commands_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = Tree(tmp_path)
    tree.write("pyproject.toml", '[tool.bakehouse]\nrecipes = ["own"]\n')
    for name, text in OWN.items():
        tree.write(f"own/{name}", text)
    monkeypatch.chdir(tmp_path)

    ours, real = own_recipes.opened(), open_workspace()

    assert "mine" in real.recipes
    assert {broken.family for broken in real.broken} > {"wrong"}
    assert dict(ours.catalog.components) == dict(real.catalog.components)
    assert ours.catalog.broken == real.catalog.broken
    assert dict(ours.recipes) == dict(real.recipes)
    assert set(ours.broken) == set(real.broken)
    assert (ours.project, ours.templates) == (real.project, real.templates)
