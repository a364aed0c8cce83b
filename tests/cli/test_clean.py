"""Which images `bake clean` removes."""

import os
from collections.abc import Collection
from pathlib import Path

import pytest

from bakehouse.builder import stage_cache
from bakehouse.builder.build_steps import StepKey, read_steps
from bakehouse.catalog.project import HOME, Project
from bakehouse.cli import clean
from bakehouse.errors import UsageError
from bakehouse.pipeline import render
from bakehouse.plan.workspace import open_workspace, select
from tests.support.errors import error_text
from tests.support.fake_engine import FakeEngine, Run
from tests.support.trees import Tree

CHURN = 'summary: x\nbase: {debian: "12"}\ncomponents: {python: "3.11"}\n'


class Recorder(FakeEngine):
    """Records the prefixes of the images that are removed, and the images that are kept."""

    def __init__(self) -> None:
        super().__init__(lambda spec: Run())
        self.prefixes: list[str] = []
        self.kept: set[str] = set()
        self.removed: tuple[str, ...] = ()

    def remove_images(self, prefix: str, keep: Collection[str]) -> tuple[str, ...]:
        self.prefixes.append(prefix)
        self.kept |= {*keep}
        return self.removed


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Recorder:
    recorder = Recorder()
    monkeypatch.setattr(clean, "inspect", lambda: None)
    monkeypatch.setattr("bakehouse.engine.docker.connect", lambda: recorder)
    monkeypatch.setenv("BAKEHOUSE_CACHE", str(tmp_path / "cache"))
    return recorder


def test_images_of_other_projects_are_kept(engine: Recorder, tmp_path: Path) -> None:
    tree = Tree(tmp_path / "project")
    tree.write("pyproject.toml", '[tool.bakehouse]\nrecipes = ["mine"]\n')
    tree.write("mine/images/churn.yaml", CHURN)
    clean.run(open_workspace(tree.root), print, everything=False)

    assert engine.prefixes == ["bakehouse/churn:", "bakehouse/rehearsal/churn:"]
    assert {name.rpartition(":")[0] for name in engine.kept} == {"bakehouse/churn", "bakehouse/debian"}


def test_bases_are_kept_because_other_projects_may_use_them(engine: Recorder, tmp_path: Path) -> None:
    tree = Tree(tmp_path / "project")
    tree.write("pyproject.toml", '[tool.bakehouse]\nrecipes = ["mine"]\n')
    tree.write("mine/images/churn.yaml", CHURN)
    workspace = open_workspace(tree.root)
    [planned] = select(workspace, ["churn"]).plan.images
    base = planned.base.reference
    lines: list[str] = []

    clean.run(workspace, lines.append, everything=True)

    assert engine.prefixes == ["bakehouse/churn:", "bakehouse/rehearsal/churn:"]
    assert engine.kept == {base}
    assert lines[0] == (
        f"kept base {base}, which other projects may use; `docker image rm {base}` removes it"
    )


def test_in_bakehouses_checkout_all_older_images_are_removed(engine: Recorder) -> None:
    clean.run(open_workspace(HOME), print, everything=False)

    assert engine.prefixes == ["bakehouse/"]
    assert "bakehouse/mpi-cpu:latest" in engine.kept


@pytest.mark.parametrize(
    ("cache", "line"),
    [
        (False, "removed 4 bytes of compressed layers that no push used for two weeks"),
        (True, "removed 7 bytes of compressed layers"),
    ],
)
def test_compressed_layers_that_no_push_uses_are_removed(
    engine: Recorder, tmp_path: Path, cache: bool, line: str
) -> None:
    tree = Tree(tmp_path / "project")
    tree.write("pyproject.toml", "[tool.bakehouse]\n")
    directory = tmp_path / "cache/layers/gzip"
    directory.mkdir(parents=True)
    (directory / "old").write_text("old\n")
    os.utime(directory / "old", (0, 0))
    (directory / "new").write_text("new")
    lines: list[str] = []
    clean.run(open_workspace(tree.root), lines.append, everything=False, cache=cache)

    assert line in lines
    assert [path.name for path in directory.iterdir()] == ([] if cache else ["new"])


def test_the_build_cache_keeps_the_stages_of_the_images(
    engine: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, Collection[StepKey]]] = []

    def remove_unused(project: Project, reference: str, used: Collection[StepKey]) -> int:
        calls.append((reference, used))
        return 2

    monkeypatch.setattr(stage_cache, "remove_unused", remove_unused)
    tree = Tree(tmp_path / "project")
    tree.write("pyproject.toml", '[tool.bakehouse]\nrecipes = ["mine"]\nbuild_cache = "r.example/cache"\n')
    tree.write("mine/images/churn.yaml", CHURN)
    workspace = open_workspace(tree.root)
    engine.removed = ("bakehouse/churn:0123abcd",)
    lines: list[str] = []

    clean.run(workspace, lines.append, everything=False, build_cache=True)

    render.write(select(workspace, ["churn"]), print)
    directory = tree.root / "images/churn"
    steps = read_steps((directory / "Dockerfile").read_text(), directory, tree.root / "code")
    assert steps
    assert calls == [("r.example/cache", {step.key for step in stage_cache.stage_ends(steps)})]
    assert "removed 2 stages from the build cache r.example/cache" in lines


def test_a_project_without_a_build_cache_has_none_to_clean(engine: Recorder) -> None:
    with pytest.raises(UsageError) as caught:
        clean.run(open_workspace(HOME), print, everything=False, build_cache=True)

    assert error_text(caught.value) == (
        "error: this project has no build cache in a registry\n"
        "\n"
        "hint: set `build_cache` in [tool.bakehouse], or BAKEHOUSE_BUILD_CACHE\n"
    )
