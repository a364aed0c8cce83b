"""Which images `bake clean` removes."""

import os
import shutil
from collections.abc import Collection
from pathlib import Path
from threading import Thread

import pytest

from bakehouse.builder import image_owners, stage_cache
from bakehouse.builder.build_steps import StepKey, read_steps
from bakehouse.catalog.project import HOME, ProjectSettings
from bakehouse.cli import clean
from bakehouse.engine.protocol import StoredImage
from bakehouse.errors import EngineError, UsageError
from bakehouse.pipeline import render
from bakehouse.plan.workspace import Workspace, open_workspace, select
from tests.support.errors import error_text, raised, refusal
from tests.support.fake_engine import FakeEngine, Run
from tests.support.trees import Tree

CHURN = 'summary: x\nbase: {debian: "12"}\ncomponents: {python: "3.11"}\n'


class Recorder(FakeEngine):
    """Has some images, which can be removed."""

    def __init__(self) -> None:
        super().__init__(lambda spec: Run())
        self.names: dict[str, str] = {}
        """The digest of the image that each name points to."""
        self.used: set[str] = set()

    def image(self, reference: str) -> StoredImage | None:
        return StoredImage(self.names[reference], 1) if reference in self.names else None

    def remove_image(self, name: str) -> bool:
        if name in self.used:
            return False
        self.names.pop(name, "")
        return True

    def build_cache_bytes(self) -> int:
        return 10_180_000_000


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Recorder:
    recorder = Recorder()
    monkeypatch.setattr(clean, "inspect", lambda: None)
    monkeypatch.setattr("bakehouse.engine.docker.connect", lambda: recorder)
    monkeypatch.setenv("BAKEHOUSE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return recorder


@pytest.fixture
def project(tmp_path: Path) -> Workspace:
    return churn_project(tmp_path / "project")


def churn_project(root: Path, python: str = '"3.11"') -> Workspace:
    """A project with the image `churn`; all projects of a user share the state directory."""
    tree = Tree(root)
    tree.write("pyproject.toml", '[tool.bakehouse]\nrecipes = ["mine"]\n')
    tree.write("mine/images/churn.yaml", CHURN.replace('"3.11"', python))
    return open_workspace(tree.root)


def cleaned(workspace: Workspace, *, everything: bool = False) -> list[str]:
    """The lines of `clean` that are about images."""
    lines: list[str] = []
    clean.run(workspace, lines.append, everything=everything)
    return [line for line in lines if " image " in line]


def built(workspace: Workspace, engine: Recorder, *older: str) -> frozenset[str]:
    """Record builds of older images, then of all images of a project; return the names of the latter."""
    images = select(workspace, ["churn"]).plan.images
    names = image_owners.names_of(images)
    image_owners.record(workspace.project, {*names, *older})
    engine.names |= {name: name.rpartition(":")[2] for name in older}
    engine.names |= dict.fromkeys(names, images[0].key)
    digests = {image_owners.digest_name(image.reference, image.key) for image in images}
    image_owners.record(workspace.project, digests)
    return names


def test_images_of_older_recipes_are_removed(engine: Recorder, project: Workspace) -> None:
    names = built(project, engine, "bakehouse/churn:0123abcd")

    assert cleaned(project) == ["removed image bakehouse/churn:0123abcd"]
    assert engine.names.keys() == names
    assert cleaned(project) == []


def test_images_of_deleted_recipes_are_removed(engine: Recorder, project: Workspace) -> None:
    built(project, engine, "bakehouse/renamed:0123abcd", "bakehouse/renamed:latest")
    engine.names["bakehouse/renamed:latest"] = "0123abcd"

    assert cleaned(project) == [
        "removed image bakehouse/renamed:0123abcd",
        "removed image bakehouse/renamed:latest",
    ]


def test_images_that_another_directory_built_are_kept(
    engine: Recorder, project: Workspace, tmp_path: Path
) -> None:
    clone = churn_project(tmp_path / "clone")
    engine.names["bakehouse/churn:unknown"] = "unknown"
    built(clone, engine, "bakehouse/churn:0123abcd")
    built(project, engine, "bakehouse/churn:0123abcd", "bakehouse/churn:4567ef01")

    assert cleaned(project) == [
        f"kept image bakehouse/churn:0123abcd, which {clone.project.root} built",
        "removed image bakehouse/churn:4567ef01",
    ]
    assert {"bakehouse/churn:unknown", "bakehouse/churn:0123abcd"} <= engine.names.keys()
    # It belongs to the clone alone now.
    assert cleaned(clone) == ["removed image bakehouse/churn:0123abcd"]


def test_a_directory_that_is_gone_keeps_no_images(
    engine: Recorder, project: Workspace, tmp_path: Path
) -> None:
    clone = churn_project(tmp_path / "clone")
    built(clone, engine, "bakehouse/churn:0123abcd")
    built(project, engine, "bakehouse/churn:0123abcd")
    shutil.rmtree(clone.project.root)

    assert cleaned(project) == ["removed image bakehouse/churn:0123abcd"]


def test_all_images_of_directories_that_are_gone_are_removed(
    engine: Recorder, project: Workspace, tmp_path: Path
) -> None:
    own = built(project, engine)
    gone = churn_project(tmp_path / "gone", '"3.12"')
    names = built(gone, engine) | own
    shutil.rmtree(gone.project.root)

    assert cleaned(project) == []
    assert cleaned(project, everything=True) == [f"removed image {name}" for name in sorted(names)]
    assert engine.names == {}
    assert image_owners.read(gone.project).own == frozenset()


def test_an_image_of_a_directory_that_is_gone_is_removed_when_no_container_uses_it(
    engine: Recorder, project: Workspace, tmp_path: Path
) -> None:
    gone = churn_project(tmp_path / "gone", '"3.12"')
    built(gone, engine, "bakehouse/churn:0123abcd")
    shutil.rmtree(gone.project.root)
    engine.used = {"bakehouse/churn:0123abcd"}

    line = "kept image bakehouse/churn:0123abcd, which a container uses"
    assert line in cleaned(project, everything=True)
    engine.used = set()
    assert cleaned(project) == ["removed image bakehouse/churn:0123abcd"]


def test_other_projects_record_images_before_or_after_a_removal(
    engine: Recorder, project: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise, a build would find the image and then lose it."""
    name = "bakehouse/churn:0123abcd"
    built(project, engine, name)
    clone = churn_project(tmp_path / "clone")
    recording = Thread(target=image_owners.record, args=(clone.project, [name]))

    owners: list[frozenset[str]] = []

    def remove(name: str) -> bool:
        recording.start()
        recording.join(timeout=0.3)
        owners.append(image_owners.read(clone.project).own)
        return True

    monkeypatch.setattr(engine, "remove_image", remove)

    assert cleaned(project) == [f"removed image {name}"]
    recording.join(timeout=60)
    assert [*owners, image_owners.read(clone.project).own] == [frozenset(), {name}]


def test_all_images_of_the_project_and_their_bases_are_removed(engine: Recorder, project: Workspace) -> None:
    names = built(project, engine)

    assert cleaned(project, everything=True) == [f"removed image {name}" for name in sorted(names)]
    assert any(name.startswith("bakehouse/debian:") for name in names)


@pytest.mark.parametrize("is_recorded", [True, False])
def test_a_tag_that_another_project_moved_is_kept(
    engine: Recorder, project: Workspace, tmp_path: Path, is_recorded: bool
) -> None:
    """Without a record of it, the other project belongs to another user of the same engine."""
    built(project, engine)
    other = churn_project(tmp_path / "other", '"3.12"')
    names = built(other, engine)
    if not is_recorded:
        image_owners.forget(other.project, image_owners.read(other.project).own)
    reason = f"{other.project.root} built" if is_recorded else "this project did not build"

    assert f"kept image bakehouse/churn:latest, which {reason}" in cleaned(project, everything=True)
    assert engine.names["bakehouse/churn:latest"][:8] in {name.rpartition(":")[2] for name in names}
    assert cleaned(project, everything=True) == []


def test_a_project_removes_the_tag_that_it_moved(
    engine: Recorder, project: Workspace, tmp_path: Path
) -> None:
    other = churn_project(tmp_path / "other", '"3.12"')
    built(other, engine)
    built(project, engine)

    assert "removed image bakehouse/churn:latest" in cleaned(project, everything=True)


def test_cleaning_does_not_forget_tags_that_are_still_needed(
    engine: Recorder, project: Workspace, tmp_path: Path
) -> None:
    other = churn_project(tmp_path / "other", '"3.12"')
    built(other, engine)
    names = built(project, engine)

    assert cleaned(project) == []
    cleaned(other, everything=True)
    assert names <= engine.names.keys()


def test_a_tag_that_still_points_to_an_older_image_is_removed_later(
    engine: Recorder, project: Workspace
) -> None:
    built(project, engine, "bakehouse/churn:0123abcd")
    engine.names["bakehouse/churn:latest"] = "0123abcd"

    assert cleaned(project) == ["removed image bakehouse/churn:0123abcd"]
    assert "removed image bakehouse/churn:latest" in cleaned(project, everything=True)


def test_an_image_that_a_container_uses_is_removed_later(engine: Recorder, project: Workspace) -> None:
    built(project, engine, "bakehouse/churn:0123abcd")
    engine.used = {"bakehouse/churn:0123abcd"}

    assert cleaned(project) == ["kept image bakehouse/churn:0123abcd, which a container uses"]
    engine.used = set()
    assert cleaned(project) == ["removed image bakehouse/churn:0123abcd"]


def test_a_damaged_record_of_another_project_stops_before_anything_is_removed(
    engine: Recorder, project: Workspace
) -> None:
    names = built(project, engine, "bakehouse/churn:0123abcd")
    path = project.project.user_state / "images/other.json"
    path.write_text("1 1")

    assert refusal(EngineError, cleaned, project) == (
        f"error: {path} is damaged: Extra data: line 1 column 3 (char 2)\n"
        "\n"
        "hint: remove it: `bake build` in its project recreates it\n"
    )
    assert engine.names.keys() == {*names, "bakehouse/churn:0123abcd"}


def test_the_size_of_the_build_cache_is_reported(engine: Recorder, project: Workspace) -> None:
    lines: list[str] = []
    clean.run(project, lines.append, everything=False)

    assert lines[-1] == (
        "the engine's build cache has 10.18 GB; `docker builder prune` removes the unused part, "
        "for all projects"
    )


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

    def remove_unused(project: ProjectSettings, reference: str, used: Collection[StepKey]) -> int:
        calls.append((reference, used))
        return 2

    monkeypatch.setattr(stage_cache, "remove_unused", remove_unused)
    tree = Tree(tmp_path / "project")
    tree.write("pyproject.toml", '[tool.bakehouse]\nrecipes = ["mine"]\nbuild_cache = "r.example/cache"\n')
    tree.write("mine/images/churn.yaml", CHURN)
    workspace = open_workspace(tree.root)
    lines: list[str] = []

    clean.run(workspace, lines.append, everything=False, build_cache=True)

    render.write(select(workspace, ["churn"]), print)
    directory = tree.root / "images/churn"
    steps = read_steps((directory / "Dockerfile").read_text(), directory, tree.root / "code")
    assert steps
    assert calls == [("r.example/cache", {step.key for step in stage_cache.stage_ends(steps)})]
    assert "removed 2 stages from the build cache r.example/cache" in lines


def test_a_project_without_a_build_cache_has_none_to_clean(engine: Recorder) -> None:
    error = raised(UsageError, clean.run, open_workspace(HOME), print, everything=False, build_cache=True)

    assert error_text(error) == (
        "error: this project has no build cache in a registry\n"
        "\n"
        "hint: set `build_cache` in [tool.bakehouse], or BAKEHOUSE_BUILD_CACHE\n"
    )
