"""Order of the steps of `push` and `release`."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from bakehouse.builder.built_image import BuiltImage
from bakehouse.catalog import git_history
from bakehouse.catalog.project import HOME
from bakehouse.engine import provision
from bakehouse.errors import EngineError
from bakehouse.pipeline import publish, without_engine
from bakehouse.pipeline.smoke import SmokeOptions
from bakehouse.plan.workspace import Selection, open_workspace, select
from bakehouse.publish.options import PublishOptions
from tests.support import plans
from tests.support.built_images import BUILT, PASSED
from tests.support.built_images import OTHER as OTHER_DIGEST

OTHER = replace(BUILT, image=plans.changed(BUILT.image, name="other"), digest=OTHER_DIGEST)
OPTIONS = PublishOptions(registry="local")


@pytest.fixture(scope="module")
def selection() -> Selection:
    return select(open_workspace(HOME), ["mpi-cpu"])


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Calls of the steps, which do nothing."""
    recorded: list[tuple[Any, ...]] = []

    def names(built: Sequence[BuiltImage]) -> list[str]:
        return [item.image.name for item in built]

    def check_access(_: Selection, options: PublishOptions) -> None:
        recorded.append(("check_access", options))

    def build(_: Selection, __: object, *, json: bool) -> tuple[BuiltImage, ...]:
        recorded.append(("build", json))
        return BUILT, OTHER

    def ensure_built(_: Selection, __: object, *, tested: bool) -> tuple[BuiltImage, ...]:
        recorded.append(("ensure_built", tested))
        return (BUILT,)

    def smoke_images(_: object, built: Sequence[BuiltImage], __: object, options: SmokeOptions) -> None:
        recorded.append(("smoke_images", names(built), options))

    def push_images(
        _: object, built: Sequence[BuiltImage], __: object, options: PublishOptions, *packer: object
    ) -> tuple[()]:
        recorded.append(("push_images", names(built), options, *packer))
        return ()

    monkeypatch.setattr(provision, "ensure", lambda *_: None)
    for step in (check_access, build, ensure_built, smoke_images, push_images):
        monkeypatch.setattr(publish, step.__name__, step)
    return recorded


def test_a_release_tests_what_no_report_covers_and_pushes_everything(
    selection: Selection, calls: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    untested = replace(PASSED, checks=())
    monkeypatch.setattr(
        publish, "known_checks", lambda _, image, __: untested if image.name == "other" else PASSED
    )
    testing = SmokeOptions(deadline=60.0)

    publish.release(selection, print, OPTIONS, testing, json=True)

    assert calls == [
        ("check_access", OPTIONS),
        ("build", True),
        ("smoke_images", ["other"], testing),
        ("push_images", [BUILT.image.name, "other"], OPTIONS),
    ]


@pytest.mark.parametrize("candidate", [False, True])
def test_a_push_builds_only_tested_images_unless_they_are_candidates(
    candidate: bool, selection: Selection, calls: list[tuple[Any, ...]]
) -> None:
    options = replace(OPTIONS, candidate=candidate)

    publish.push(selection, print, options)

    assert calls == [
        ("check_access", options),
        ("ensure_built", not candidate),
        ("push_images", [BUILT.image.name], options),
    ]


def test_a_release_names_uncommitted_files_before_it_builds(
    selection: Selection, calls: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = ("src/train.py", *(f"src/part{number}.py" for number in range(6)))
    monkeypatch.setattr(git_history, "uncommitted", lambda project, recipe: paths)
    monkeypatch.setattr(publish, "known_checks", lambda *_: PASSED)
    lines: list[tuple[str, int]] = []

    publish.release(selection, lambda line: lines.append((line, len(calls))), OPTIONS, SmokeOptions())

    first = "`src/train.py`, `src/part0.py`, `src/part1.py`, `src/part2.py` and 3 more"
    assert lines[0] == (f"`mpi-cpu`: released from uncommitted files: {first}", 1)
    assert calls[1][0] == "build"


def test_a_release_from_a_commit_names_no_files(
    selection: Selection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git_history, "uncommitted", lambda project, recipe: ())
    assert publish.uncommitted_lines(selection) == []


def test_without_an_engine_only_content_with_results_is_released(
    selection: Selection, calls: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_engine(*_: object) -> None:
        raise EngineError("no engine")

    untested = replace(PASSED, checks=())
    monkeypatch.setattr(
        publish, "known_checks", lambda _, image, __: untested if image.name == "other" else PASSED
    )
    monkeypatch.setattr(provision, "ensure", no_engine)
    for name in ("require_known_hosts", "render_images"):
        monkeypatch.setattr(publish, name, lambda *_: None)
    prepared = [(BUILT, "first"), (OTHER, "second")]
    monkeypatch.setattr(without_engine, "prepare", lambda *_: prepared)
    lines: list[str] = []

    publish.release(selection, lines.append, OPTIONS, SmokeOptions())

    assert lines == ["other: not tested here, so it becomes a candidate"]
    assert calls[1:] == [
        ("push_images", [BUILT.image.name], OPTIONS, "first"),
        ("push_images", ["other"], replace(OPTIONS, candidate=True), "second"),
    ]

    monkeypatch.setattr(without_engine, "prepare", no_engine)
    with pytest.raises(EngineError, match="no engine"):
        publish.release(selection, lines.append, OPTIONS, SmokeOptions())
    assert lines[1:] == ["no engine"]
