"""How long sources are waited for, and which are left for a while."""

from types import SimpleNamespace

import pytest

from bakehouse.fetch import backoff
from bakehouse.fetch.backoff import SourceBackoff


class Clock:
    now = 100.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(backoff, "time", SimpleNamespace(monotonic=lambda: found.now))
    return found


def test_an_answer_for_any_file_keeps_it(clock: Clock) -> None:
    found = SourceBackoff(25.0)
    clock.now = 120.0
    found.heard()
    clock.now = 144.0
    assert not found.refusal("there", 100.0)
    clock.now = 146.0
    assert found.refusal("there", 100.0) == "not tried: no time left"


def test_what_this_machine_does_itself_keeps_it(clock: Clock) -> None:
    found = SourceBackoff(25.0)
    clock.now = 130.0
    found.worked(129.9)
    assert found.refusal("there", 100.0) == "not tried: no time left"
    found.worked(100.0)
    assert not found.refusal("there", 100.0)


def test_a_place_that_is_down_is_left_twice_as_long_each_time(clock: Clock) -> None:
    found = SourceBackoff(1000.0)
    for seconds in (30.0, 60.0, 120.0):
        found.leave("there", "no connection")
        clock.now += seconds - 1
        found.leave("there", "said by another thread")
        assert found.refusal("there", 100.0) == "no connection"
        clock.now += 1
        assert not found.refusal("there", 100.0)
    found.welcome("there")
    found.leave("there", "no connection")
    clock.now += 30.0
    assert not found.refusal("there", 100.0)


def test_what_is_known_of_a_place_is_told_when_patience_is_over(clock: Clock) -> None:
    found = SourceBackoff(25.0)
    found.leave("there", "no connection")
    clock.now = 140.0
    assert found.refusal("there", 100.0) == "no connection"
    assert found.refusal("elsewhere", 100.0) == "not tried: no time left"
