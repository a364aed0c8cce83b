"""Locks between processes; the kernel releases them when their holder ends."""

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bakehouse.util.deadline import NEVER, remaining
from bakehouse.util.files import make_directory, open_handle

_POLL_SECONDS = 0.1


@contextlib.contextmanager
def exclusive(path: Path, waiting: Callable[[], None] = lambda: None, until: float = NEVER) -> Iterator[None]:
    """Hold an exclusive lock on `path`; `waiting` is called once if another process holds it.

    Raises OverdueError if it is still held at `until` (time.monotonic()).
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
    """Hold a shared lock on `path`, and yield a function that checks whether no other process holds it.

    Call the function only at the end, because it may release the shared lock.
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
    """Hold an exclusive lock on `path` if no process holds it; yield whether it is held."""
    with _opened(path) as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


@contextlib.contextmanager
def join_shared(path: Path, until: float = NEVER) -> Iterator[None]:
    """Hold a shared lock on `path`, even without write permission; its directory is not created.

    Raises OSError if it cannot be opened, OverdueError if a process still holds it exclusively at `until`.
    """
    try:
        handle = open_handle(path, os.O_RDWR | os.O_CREAT)
    except PermissionError:
        handle = open_handle(path, os.O_RDONLY)
    try:
        _wait_for(handle, fcntl.LOCK_SH, until)
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    make_directory(path.parent)
    handle = open_handle(path, os.O_RDWR | os.O_CREAT)
    try:
        yield handle
    finally:
        os.close(handle)
