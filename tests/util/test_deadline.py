import threading
import time

import pytest

from bakehouse.util.deadline import NEVER, OverdueError, bounded, remaining


def test_what_ends_in_time_is_given() -> None:
    assert bounded(lambda: "done", time.monotonic() + 60) == "done"
    assert bounded(lambda: "done", NEVER) == "done"


def test_what_it_raises_is_raised() -> None:
    def fail() -> None:
        message = "wrong"
        raise ValueError(message)

    with pytest.raises(ValueError, match="wrong"):
        bounded(fail, time.monotonic() + 60)


def test_what_does_not_end_is_left_to_itself() -> None:
    released = threading.Event()
    with pytest.raises(OverdueError, match="the deadline passed"):
        bounded(lambda: released.wait(60), time.monotonic() + 0.1)
    released.set()


def test_nothing_is_begun_after_the_deadline() -> None:
    begun: list[int] = []
    with pytest.raises(OverdueError):
        bounded(lambda: begun.append(1), time.monotonic() - 1)
    assert begun == []
    with pytest.raises(OverdueError):
        remaining(time.monotonic() - 1)
