"""Progress output of builds."""

import io
import json
import os
import pty
from dataclasses import replace
from typing import Any

import pytest

from bakehouse.builder.progress import Mode, Progress, mode_for
from bakehouse.engine.buildkit_events import EXPORT, Log, Step, StepTransfer, Tick


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def step(
    started: float | None = 1000.0,
    completed: float | None = None,
    *,
    target: str = "a",
    digest: str = "d",
    stage: str = "metis",
    text: str = "RUN --mount=type=secret,id=ca make",
    cached: bool = False,
    error: str = "",
) -> Step:
    return Step(digest, target, stage, "2/4", text, started, completed, cached, error)


def shown(mode: Mode, *, width: int = 60, verbose: bool = True) -> tuple[Progress, Clock, io.StringIO]:
    clock, stream = Clock(), io.StringIO()
    return Progress(stream, mode, verbose=verbose, width=width, clock=clock), clock, stream


def test_plain_lines_of_a_step_with_a_heartbeat() -> None:
    progress, clock, stream = shown(Mode.LINES)
    with progress:
        progress.report("base bakehouse/debian:12: made")
        progress(step())
        progress(step(target="b"))
        clock.now += 1.5
        progress(Tick())
        progress(Log("d", "cc one.c\ncc two.c\n", 1001.0))
        for _ in range(4 * 31):
            clock.now += 0.25
            progress(Tick())
        clock.now += 2.0
        progress(step(completed=1034.5))
        progress(step(completed=1034.5, target="b"))
    assert stream.getvalue() == (
        "  0.0 s  base bakehouse/debian:12: made\n"
        "  1.5 s  metis 2/4: RUN make (a, b)\n"
        "   12 s  still running: metis 2/4 (12 s): cc two.c\n"
        "   22 s  still running: metis 2/4 (22 s): cc two.c\n"
        "   32 s  still running: metis 2/4 (32 s): cc two.c\n"
        "   34 s  metis 2/4: done in 34 s (a, b)\n"
        "   34 s  1 step, 0 of them cached\n"
    )


def test_brief_and_cached_steps_are_counted_not_reported() -> None:
    progress, _, stream = shown(Mode.LINES)
    progress(step(completed=1000.2))
    progress(step(completed=1090.0, digest="e", cached=True))
    assert stream.getvalue() == ""
    assert progress.summary() == "2 steps, 1 of them cached"


def test_a_failing_step_is_reported_however_brief() -> None:
    progress, _, stream = shown(Mode.LINES)
    progress(step(completed=1000.2, error="exit code: 1"))
    assert stream.getvalue() == "  0.0 s  metis 2/4: failed after 0.2 s (a)\n"


def test_a_step_that_was_stopped_and_runs_again_is_reported_again() -> None:
    progress, clock, stream = shown(Mode.LINES)
    progress(step(completed=1001.2, error="context canceled"))
    clock.now += 2.0
    progress(step(1002.0))
    clock.now += 1.0
    progress(Tick())
    progress(step(1002.0, completed=1004.0))
    assert stream.getvalue() == (
        "  0.0 s  metis 2/4: failed after 1.2 s (a)\n"
        "  3.0 s  metis 2/4: RUN make (a)\n"
        "  3.0 s  metis 2/4: done in 2.0 s (a)\n"
    )


def test_a_step_that_equals_one_of_another_image_is_no_failure() -> None:
    progress, _, stream = shown(Mode.LINES)
    progress(step(completed=1000.0, error="failed to calculate checksum: context canceled"))
    assert stream.getvalue() == ""


def test_the_transfer_of_a_cached_result_is_only_a_heartbeat() -> None:
    progress, clock, stream = shown(Mode.LINES)
    progress(step(cached=True))
    progress(step())
    for _ in range(3):
        clock.now += 5.0
        progress(Tick())
    progress(step(completed=1015.0))
    assert stream.getvalue() == "   10 s  still running: metis 2/4 (10 s)\n"


def test_a_failed_export_of_a_cache_is_explained() -> None:
    progress, _, stream = shown(Mode.LINES)
    progress(Step("e", "a", "", "", "exporting cache to registry", 1000.0, 1000.4, error="no route\nto host"))
    assert stream.getvalue() == "  0.0 s  cache: failed after 0.4 s (a): no route to host\n"


def test_steps_of_builders_are_told_apart() -> None:
    progress, clock, stream = shown(Mode.LINES)
    progress(step(), "far")
    progress(step(), "near")
    clock.now += 2.0
    progress(Tick())
    progress(step(completed=1002.0), "near")
    progress.drop_running("far")
    assert stream.getvalue() == (
        "  2.0 s  metis 2/4: RUN make (a on far)\n"
        "  2.0 s  metis 2/4: RUN make (a on near)\n"
        "  2.0 s  metis 2/4: done in 2.0 s (a on near)\n"
    )
    assert [(step.builder, step.seconds) for step in progress.steps()] == [("near", 2.0)]


def test_an_engine_that_sends_no_events_is_reported() -> None:
    progress, clock, stream = shown(Mode.LINES)
    for _ in range(3):
        progress(Tick())
        clock.now += 6
    progress(Tick())
    assert stream.getvalue() == "   12 s  still waiting for the engine: no step is running\n"


def test_the_heartbeat_names_the_longest_running_steps() -> None:
    progress, clock, stream = shown(Mode.LINES)
    for number in range(5):
        progress(step(1000.0 + number, digest=str(number), stage=f"stage{number}"))
    progress(StepTransfer("0", "sha256:1", 5_000_000, 0, False))
    clock.now += 10
    progress(Tick())
    clock.now += 10
    progress(Tick())
    assert stream.getvalue().splitlines()[-1] == (
        "   20 s  still running: stage0 2/4 (20 s, 5.0 MB), stage1 2/4 (19 s), stage2 2/4 (18 s), 2 more"
    )


def test_the_heartbeat_of_an_export() -> None:
    progress, clock, stream = shown(Mode.LINES)
    progress(Step("e", "a", "", "", "exporting to image", 1000.0))
    clock.now += 2
    progress(StepTransfer("e", "unpacking to docker.io/bakehouse/a:1", 0, 0, False))
    clock.now += 10
    progress(Tick())
    assert stream.getvalue() == (
        "  2.0 s  export: exporting to image (a)\n"
        "   12 s  still running: export (12 s): unpacking to docker.io/bakehouse/a:1\n"
    )


def test_steps_of_buildkit_itself_are_reported_only_when_they_take_long() -> None:
    progress, clock, stream = shown(Mode.LINES)
    progress(Step("m", "a", "internal", "", "load metadata for vendor/base:1", 1000.0))
    clock.now += 9
    progress(Tick())
    assert stream.getvalue() == ""
    clock.now += 4
    progress(Tick())
    assert stream.getvalue() == "   13 s  still running: load metadata for vendor/base:1 (13 s)\n"


def test_minutes_never_have_sixty_seconds() -> None:
    progress, clock, stream = shown(Mode.LINES)
    clock.now += 179.7
    progress.report("hello")
    assert stream.getvalue() == "   3:00  hello\n"


def test_bytes_are_shown_where_they_matter() -> None:
    progress, clock, stream = shown(Mode.LINES)
    progress(step(text=f"FROM registry.example/base:1@sha256:{'0' * 64}"))
    progress(StepTransfer("d", "sha256:1", 120_000_000, 410_000_000, False))
    clock.now += 40
    progress(Tick())
    clock.now += 40
    progress(Tick())
    assert stream.getvalue() == (
        "   40 s  base: FROM registry.example/base:1 (a)\n"
        "   80 s  still running: base (80 s, 120.0 MB of 410.0 MB): sha256:1\n"
    )


def test_the_text_of_a_heredoc_step_has_no_heredoc() -> None:
    progress, clock, stream = shown(Mode.LINES)
    progress(step(text='RUN --mount=type=secret,id=apt,target=/x <<"END" (set -e...)'))
    clock.now += 2
    progress(Tick())
    assert stream.getvalue() == "  2.0 s  metis 2/4: RUN (a)\n"


def test_an_export_shows_its_current_transfer() -> None:
    progress, clock, stream = shown(Mode.TABLE)
    progress(Step("e", "a", "", "", "exporting to image", 1000.0))
    progress(StepTransfer("e", "exporting layers", 0, 0, True))
    progress(StepTransfer("e", "unpacking to docker.io/bakehouse/a:1", 0, 0, False))
    clock.now += 3
    progress(Tick())
    assert stream.getvalue().endswith("    3.0 s  export  a  unpacking to docker.io/bakehouse/a:1\n")


def test_of_many_images_a_few_are_named() -> None:
    progress, clock, stream = shown(Mode.LINES)
    for number in range(9):
        progress(step(target=f"image-{number}"))
    clock.now += 2
    for number in range(9):
        progress(step(target=f"image-{number}", completed=1002.0))

    assert stream.getvalue().endswith("(image-0, image-1, image-2 and 6 more)\n")


def test_json_lines() -> None:
    progress, clock, stream = shown(Mode.JSON)
    progress.report("hello")
    progress(step())
    clock.now += 2
    progress(Tick())
    progress(step(completed=1002.0))
    progress(step(completed=1003.0, digest="e", cached=True))
    events = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert events[0] == {"at": 0.0, "event": "note", "text": "hello"}
    assert [event["event"] for event in events] == ["note", "started", "done", "cached"]
    assert events[2] == {
        "at": 2.0,
        "event": "done",
        "step": "metis 2/4",
        "text": "RUN --mount=type=secret,id=ca make",
        "images": ["a"],
        "seconds": 2.0,
        "bytes": 0,
        "bytes_total": 0,
    }


def test_the_table_is_redrawn_in_place_and_never_wider_than_the_terminal() -> None:
    progress, clock, stream = shown(Mode.TABLE, width=40)
    with progress:
        progress(step())
        progress(Log("d", "x" * 100 + "\n", 1001.0))
        clock.now += 10
        progress(Tick())
        first = stream.getvalue()
        assert first.endswith(
            "   10 s  0 steps, 0 of them cached, 1 …\n     10 s  metis 2/4  a  xxxxxxxxxxxxx…\n"
        )
        clock.now += 1
        progress(Tick())
        assert stream.getvalue().removeprefix(first).startswith("\033[2F\033[J")
    assert stream.getvalue().endswith("\033[2F\033[J")


def test_the_table_has_few_rows() -> None:
    progress, clock, stream = shown(Mode.TABLE, width=100)
    for number in range(9):
        progress(step(digest=str(number), stage=f"stage{number}"))
    clock.now += 10
    progress(Tick())
    last = stream.getvalue().rpartition("\033[J")[2]
    assert len(last.splitlines()) == 8
    assert last.endswith("and 3 more\n")


def test_colour_is_only_where_it_is_asked_for() -> None:
    stream, clock = io.StringIO(), Clock()
    progress = Progress(stream, Mode.TABLE, colour=True, width=40, clock=clock)
    clock.now += 10
    progress(step(started=clock.now))
    assert "\033[2m" in stream.getvalue()


def test_a_table_needs_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TERM", raising=False)
    reader, writer = pty.openpty()
    with os.fdopen(reader, "rb"), os.fdopen(writer, "w") as terminal:
        assert mode_for(terminal) is Mode.TABLE
        monkeypatch.setenv("TERM", "dumb")
        assert mode_for(terminal) is Mode.LINES
    assert mode_for(io.StringIO()) is Mode.LINES


def part(position: str, started: float, completed: float, target: str = "a", **facts: Any) -> Step:
    """Return a step of a stage that has ended."""
    stage = facts.pop("stage", "metis")
    digest = f"{stage} {position} {target}"
    return Step(digest, target, stage, position, "RUN x", started, completed, **facts)


def test_without_verbose_a_stage_that_ran_is_one_line() -> None:
    progress, clock, stream = shown(Mode.LINES, verbose=False)
    with progress:
        progress(part("1/2", 1000.0, 1004.0))
        progress(replace(part("2/2", 1004.0, 0.0), completed=None))
        clock.now += 12
        progress(Tick())
        progress(part("2/2", 1004.0, 1012.0))
        progress(part("1/1", 1000.0, 1000.2, stage="brief"))
        progress(part("1/1", 1000.0, 1005.0, stage="cached", cached=True))
        progress(Step("e", "a", "a", "", EXPORT, 1012.0, 1014.0))
    assert stream.getvalue() == (
        "   12 s  still running: metis 2/2 (8.0 s)\n"
        "   12 s  metis: done in 12 s (a)\n"
        "   12 s  export: done in 2.0 s (a)\n"
        "   12 s  4 steps, 1 of them cached\n"
    )


def test_the_seconds_from_which_a_stage_is_a_line_can_be_set() -> None:
    clock, stream = Clock(), io.StringIO()
    with Progress(stream, Mode.LINES, brief=10.0, clock=clock) as progress:
        progress(part("1/1", 1000.0, 1009.0, stage="brief"))
        progress(part("1/1", 1000.0, 1010.0, stage="long"))
    assert stream.getvalue() == "  0.0 s  long: done in 10 s (a)\n  0.0 s  2 steps, 0 of them cached\n"


def test_stages_of_one_name_are_told_apart_by_their_images() -> None:
    progress, _, stream = shown(Mode.LINES, verbose=False)
    for target in ("a", "b"):
        progress(replace(part("1/2", 1000.0, 1002.0, target), digest="shared"))
    progress(part("2/2", 1002.0, 1004.0, "a"))
    progress(part("2/2", 1002.0, 1007.0, "b"))
    assert stream.getvalue() == ("  0.0 s  metis: done in 4.0 s (a)\n  0.0 s  metis: done in 7.0 s (b)\n")


def test_a_stage_whose_last_steps_were_not_reported_is_a_line_at_the_end() -> None:
    progress, _, stream = shown(Mode.LINES, verbose=False)
    with progress:
        progress(part("1/3", 1000.0, 1002.0))
        assert stream.getvalue() == ""
    assert stream.getvalue() == ("  0.0 s  metis: done in 2.0 s (a)\n  0.0 s  1 step, 0 of them cached\n")


def test_a_step_that_fails_is_a_line_of_its_own() -> None:
    progress, _, stream = shown(Mode.LINES, verbose=False)
    with progress:
        progress(part("1/2", 1000.0, 1002.0))
        progress(part("2/2", 1002.0, 1003.0, error="exit code: 1"))
    assert stream.getvalue() == (
        "  0.0 s  metis 2/2: failed after 1.0 s (a)\n  0.0 s  2 steps, 0 of them cached\n"
    )
