"""Deadlines for calls that cannot be interrupted, such as name look-ups and slow responses."""

import queue
import threading
import time
from collections.abc import Callable
from typing import TypeVar

_Result = TypeVar("_Result")

NEVER = float("inf")


class OverdueError(Exception):
    """A deadline has passed."""

    def __init__(self) -> None:
        super().__init__("the deadline passed")


def remaining(until: float) -> float:
    """Return the seconds until a moment of time.monotonic(); raise OverdueError if it has passed."""
    left = until - time.monotonic()
    if left <= 0:
        raise OverdueError
    return left


def bounded(call: Callable[[], _Result], until: float) -> _Result:
    """Return the result of `call`, or raise OverdueError at `until` and leave the call in a daemon thread."""
    if until == NEVER:
        return call()
    left = remaining(until)
    ended: queue.SimpleQueue[tuple[_Result | None, BaseException | None]] = queue.SimpleQueue()

    def work() -> None:
        try:
            ended.put((call(), None))
        except BaseException as error:
            ended.put((None, error))

    threading.Thread(target=work, daemon=True).start()
    try:
        result, error = ended.get(timeout=left)
    except queue.Empty:
        raise OverdueError from None
    if error:
        raise error
    return result  # type: ignore[return-value]
