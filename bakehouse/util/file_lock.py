"""Locks between processes; the kernel releases them when their holder ends."""

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bakehouse.util.deadline import NEVER, remaining

_POLL_SECONDS = 0.1


@contextlib.contextmanager
def exclusive(path: Path, waiting: Callable[[], None] = lambda: None, until: float = NEVER) -> Iterator[None]:
    """Hold `path` alone; `waiting` is called once when somebody else holds it.

    Raises OverdueError where it is not to be had before `until`, of time.monotonic().
    """
    with _opened(path) as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            _wait_for(handle, fcntl.LOCK_EX, until)
        yield


def _wait_for(handle: int, operation: int, until: float) -> None:
    if until == NEVER:
        fcntl.flock(handle, operation)
        return
    while True:
        try:
            fcntl.flock(handle, operation | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(min(_POLL_SECONDS, remaining(until)))
        else:
            return


@contextlib.contextmanager
def shared(path: Path) -> Iterator[Callable[[], bool]]:
    """Hold `path` together with others that hold it so; the function given tells whether there are none.

    It is for the moment of leaving: asking may give the share up.
    """
    with _opened(path) as handle:
        fcntl.flock(handle, fcntl.LOCK_SH)

        def is_alone() -> bool:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            return False

        yield is_alone


@contextlib.contextmanager
def try_exclusive(path: Path) -> Iterator[bool]:
    """Hold `path` alone if nobody holds it at this moment; gives whether that is so."""
    with _opened(path) as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


@contextlib.contextmanager
def join_shared(path: Path, until: float = NEVER) -> Iterator[None]:
    """Hold `path` together with others, also where one may not write; its folder is not made.

    Raises OSError where it can't be opened, OverdueError where somebody holds it alone until that time.
    """
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except PermissionError:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _wait_for(handle, fcntl.LOCK_SH, until)
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        yield handle
    finally:
        os.close(handle)
