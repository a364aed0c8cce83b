"""Ends what can't be interrupted: look-ups of names, answers that come byte by byte, others' programs."""

import queue
import threading
import time
from collections.abc import Callable
from typing import TypeVar

_Result = TypeVar("_Result")

NEVER = float("inf")


class OverdueError(Exception):
    """A deadline came."""

    def __init__(self) -> None:
        super().__init__("the deadline passed")


def remaining(until: float) -> float:
    """Seconds until a moment of time.monotonic(); raises OverdueError when it has passed."""
    left = until - time.monotonic()
    if left <= 0:
        raise OverdueError
    return left


def bounded(call: Callable[[], _Result], until: float) -> _Result:
    """What `call` gives, or OverdueError at `until`: it is then left to a thread that ends with us."""
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
