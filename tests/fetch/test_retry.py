"""Idle time-outs of sources, and the back-off after failures."""

from types import SimpleNamespace

import pytest

from bakehouse.fetch import retry
from bakehouse.fetch.retry import SourceBackoff


class Clock:
    now = 100.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(retry, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def test_an_answer_for_any_file_keeps_it(clock: Clock) -> None:
    sources = SourceBackoff(25.0)
    clock.now = 120.0
    sources.record_response()
    clock.now = 144.0
    assert not sources.refusal("there", 100.0)
    clock.now = 146.0
    assert sources.refusal("there", 100.0) == "not tried: no time left"


def test_what_this_machine_does_itself_keeps_it(clock: Clock) -> None:
    sources = SourceBackoff(25.0)
    clock.now = 130.0
    sources.record_work(129.9)
    assert sources.refusal("there", 100.0) == "not tried: no time left"
    sources.record_work(100.0)
    assert not sources.refusal("there", 100.0)


def test_a_place_that_is_down_is_left_twice_as_long_each_time(clock: Clock) -> None:
    sources = SourceBackoff(1000.0)
    for seconds in (30.0, 60.0, 120.0):
        sources.mark_down("there", "no connection")
        clock.now += seconds - 1
        sources.mark_down("there", "said by another thread")
        assert sources.refusal("there", 100.0) == "no connection"
        clock.now += 1
        assert not sources.refusal("there", 100.0)
    sources.mark_up("there")
    sources.mark_down("there", "no connection")
    clock.now += 30.0
    assert not sources.refusal("there", 100.0)


def test_the_last_error_of_a_source_is_reported_after_the_idle_time_out(clock: Clock) -> None:
    sources = SourceBackoff(25.0)
    sources.mark_down("there", "no connection")
    clock.now = 140.0
    assert sources.refusal("there", 100.0) == "no connection"
    assert sources.refusal("elsewhere", 100.0) == "not tried: no time left"
