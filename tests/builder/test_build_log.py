"""Log of the last builds."""

from dataclasses import replace
from pathlib import Path

import pytest

from bakehouse.builder.build_log import Build, load_builds, record_build
from bakehouse.builder.timings import StepTime
from tests.support.build_logs import BEGAN, TIME

STEP = StepTime(
    *("torch", "2/3", "RUN  pip\n install", ("a", "b"), 3.00049, False, (("install", 3.0),), TIME + 1.5),
    builder="far",
)
BUILD = Build(BEGAN, "", (STEP,))


def test_steps_count_from_the_start_of_the_build(tmp_path: Path) -> None:
    record_build(BUILD, tmp_path)

    assert load_builds(tmp_path) == (
        Build(BEGAN, "", (replace(STEP, text="RUN pip install", seconds=3.0, spent=(), started=1.5),)),
    )


def test_a_cached_step_takes_no_time(tmp_path: Path) -> None:
    record_build(replace(BUILD, steps=(replace(STEP, cached=True, started=TIME - 500),)), tmp_path)
    [build] = load_builds(tmp_path)

    assert [(step.started, step.seconds) for step in build.steps] == [(0.0, 0.0)]


def test_a_step_that_another_build_began_counts_from_this_one(tmp_path: Path) -> None:
    record_build(replace(BUILD, steps=(replace(STEP, started=TIME - 1, seconds=3.0),)), tmp_path)
    [build] = load_builds(tmp_path)

    assert [(step.started, step.seconds) for step in build.steps] == [(0.0, 2.0)]


def test_a_build_without_steps_is_not_recorded(tmp_path: Path) -> None:
    record_build(replace(BUILD, steps=()), tmp_path)

    assert not (tmp_path / "builds.json").exists()


def test_the_last_ten_builds_are_kept(tmp_path: Path) -> None:
    for number in range(12):
        record_build(replace(BUILD, builder=f"b{number}"), tmp_path)

    assert [build.builder for build in load_builds(tmp_path)] == [f"b{number}" for number in range(2, 12)]


@pytest.mark.parametrize("text", ["{", "[1]", "{}", '[{"started": "x"}]'])
def test_an_unreadable_log_is_replaced(tmp_path: Path, text: str) -> None:
    (tmp_path / "builds.json").write_text(text)

    assert load_builds(tmp_path) == ()
    record_build(BUILD, tmp_path)
    assert len(load_builds(tmp_path)) == 1
