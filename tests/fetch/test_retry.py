"""Attempts of one operation, idle time-outs of sources, and the back-off after failures."""

from types import SimpleNamespace

import pytest

from bakehouse.fetch import retry
from bakehouse.fetch.retry import Retries, RetryPolicy, SourceBackoff


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


def test_attempts_are_limited() -> None:
    retries = Retries(RetryPolicy(attempts=3))

    assert [retries.add(may_pass=True) for _ in range(3)] == [True, True, False]
    assert not Retries(RetryPolicy(attempts=3), attempts=1).add(may_pass=True)
    assert not Retries(RetryPolicy()).add(may_pass=False)


def test_a_server_that_is_silent_twice_is_not_asked_again() -> None:
    retries = Retries(RetryPolicy(attempts=9))

    assert retries.add(may_pass=True, is_stalled=True)
    assert retries.add(may_pass=True)
    assert not retries.add(may_pass=True, is_stalled=True)


def test_progress_starts_the_count_anew() -> None:
    retries = Retries(RetryPolicy(attempts=2))

    assert retries.add(may_pass=True, is_stalled=True)
    retries.reset()
    assert retries.add(may_pass=True, is_stalled=True)


def test_pauses_double_up_to_a_limit() -> None:
    pauses = [RetryPolicy().seconds(attempt) for attempt in range(9)]

    assert all(0.8 * full <= pause <= full for full, pause in zip((0.5, 1, 2, 4, 8), pauses, strict=False))
    assert max(pauses) <= 15.0


def test_no_retry_is_later_than_the_deadline(clock: Clock) -> None:
    assert not Retries(RetryPolicy(until=clock.now + 1.0)).add(may_pass=True, at_least=2.0)
    retries = Retries(RetryPolicy())
    assert retries.add(may_pass=True, at_least=599.0)
    clock.now += 599.0
    assert not retries.add(may_pass=True, at_least=2.0), "no policy waits for hours, whatever a server asks"
    assert not Retries(RetryPolicy()).add(may_pass=True, at_least=float("inf"))
