"""Heartbeat lines of silent steps."""

import time

import pytest

from bakehouse.util import heartbeat as module
from bakehouse.util.heartbeat import Heartbeat, heartbeat


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_silent_step_is_reported_every_ten_seconds() -> None:
    lines: list[str] = []
    clock = Clock()
    beat = Heartbeat(lines.append, "running: apt-get update", clock)
    for _ in range(4 * 25):
        beat.tick()
        clock.now += 0.25
    assert lines == ["still running: apt-get update (10 s)", "still running: apt-get update (20 s)"]


def test_a_new_step_starts_from_zero() -> None:
    lines: list[str] = []
    clock = Clock()
    beat = Heartbeat(lines.append, "running: one", clock)
    clock.now = 9.0
    beat.restart("running: two")
    clock.now = 18.0
    beat.tick()
    assert lines == []
    clock.now = 19.0
    beat.tick()
    assert lines == ["still running: two (10 s)"]


def test_a_blocking_call_is_reported_from_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SILENT_SECONDS", 0.0)
    monkeypatch.setattr(module, "_TICK_SECONDS", 0.01)
    lines: list[str] = []
    with heartbeat(lines.append, "waiting for a lock"):
        until = time.monotonic() + 10
        while not lines and time.monotonic() < until:
            time.sleep(0.01)
    assert lines[0].rpartition(" (")[0] == "still waiting for a lock"
    count = len(lines)
    time.sleep(0.05)
    assert len(lines) == count


def test_a_step_that_was_not_reported_does_not_delay_the_next_line() -> None:
    lines: list[str] = []
    seconds = [0.0]
    beat = Heartbeat(lines.append, "running: a", lambda: seconds[-1])
    for now, rename in ((8.0, True), (9.9, False), (10.0, False)):
        seconds.append(now)
        if rename:
            beat.rename("running: b")
        beat.tick()

    assert lines == ["still running: b (2.0 s)"]
