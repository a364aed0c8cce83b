"""Durations and activities of a build, from its events."""

from bakehouse.builder.timings import BuildTimes, StepTime, spent
from bakehouse.engine.buildkit_events import Log, Step, StepTransfer


def step(
    started: float | None = 100.0,
    completed: float | None = None,
    *,
    target: str = "a",
    stage: str = "metis",
    text: str = "RUN make",
    cached: bool = False,
) -> Step:
    return Step("d", target, stage, "2/2", text, started, completed, cached)


def test_a_step_that_two_images_share_is_one() -> None:
    times = BuildTimes()
    times.note(step())
    times.note(step(100.1, target="b"))
    times.note(step(completed=103.0))
    assert times.works["", "d"].is_running
    times.note(step(100.1, 103.1, target="b"))

    (only,) = times.steps(200.0)
    assert (only.images, round(only.seconds, 3), only.cached) == (("a", "b"), 3.1, False)


def test_seconds_go_to_what_the_log_says_is_done() -> None:
    times = BuildTimes()
    times.note(step(text="RUN pip install"))
    times.note(Log("d", "Looking in indexes\n", 101.0))
    times.note(Log("d", "Collecting numpy\n  Downloading numpy (16 MB)\n", 102.0))
    times.note(Log("d", "Building wheel for x: started\n", 105.0))
    times.note(Log("d", "Installing collected packages: numpy\n", 109.0))
    times.note(step(completed=110.0, text="RUN pip install"))

    (only,) = times.steps(200.0)
    assert dict(only.spent) == {"other": 2.0, "download": 3.0, "compile": 4.0, "install": 1.0}


def test_a_silent_fetch_is_a_download_and_an_export_an_export() -> None:
    times = BuildTimes()
    times.note(step(completed=104.0, text="RUN --mount=type=secret,id=ca fetch 00 https://x y"))
    times.note(Step("e", "a", "", "", "exporting to image", 104.0, 106.0))
    assert spent(times.steps(200.0)) == {"download": 4.0, "export": 2.0}


def test_cached_steps_cost_nothing() -> None:
    step = StepTime("s", "1/2", "RUN make", ("a",), 3.0, True, (("compile", 3.0),), 100.0)
    assert spent([step]) == {"compile": 0.0}


def test_bytes_are_known_where_every_transfer_knows_them() -> None:
    times = BuildTimes()
    times.note(step())
    times.note(StepTransfer("d", "sha256:1", 5, 10, False))
    assert times.works["", "d"].moved() == (5, 10)
    times.note(StepTransfer("d", "sha256:2", 7, 0, False))
    assert times.works["", "d"].moved() == (12, 0)


def test_buildkits_own_steps_are_not_shown() -> None:
    times = BuildTimes()
    times.note(step(stage="internal", text="load build definition from Dockerfile"))
    assert times.shown() == []
    times.note(step(stage="internal", text="load build context"))
    assert [work.label for work in times.shown()] == ["context"]


def test_events_of_unknown_steps_are_ignored() -> None:
    assert BuildTimes().note(Log("x", "text", 1.0)) is None


def test_a_step_that_a_later_call_repeats_keeps_its_time() -> None:
    times = BuildTimes()
    times.note(step(completed=103.0))
    for repeated in (step(None, target="b"), step(200.0, 200.0, target="b", cached=True)):
        times.note(repeated)

    [result] = times.steps(300.0)
    assert (result.images, result.seconds, result.cached) == (("a", "b"), 3.0, False)


def test_the_transfer_of_a_cached_result_is_no_run() -> None:
    times = BuildTimes()
    for event in (step(100.0, cached=True), step(101.0), step(101.0, 105.0), step(100.0, 105.0, cached=True)):
        times.note(event)

    assert [result.cached for result in times.steps(300.0)] == [True]


def test_a_step_that_runs_again_counts_from_its_last_start() -> None:
    times = BuildTimes()
    times.note(step(completed=103.0))
    times.note(step(200.0, 201.0, target="b"))

    [result] = times.steps(300.0)
    assert (result.images, result.seconds) == (("b",), 1.0)
