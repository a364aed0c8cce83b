"""A user who is not root, for faults that root does not meet."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

_NOBODY = 65534


@contextlib.contextmanager
def ordinary_user() -> Iterator[None]:
    """Give up the rights of root, also those of programs that are started."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(_NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@contextlib.contextmanager
def closed_directory(parent: Path) -> Iterator[Path]:
    """Make a directory that only root can read, and continue as an ordinary user."""
    closed = parent / "closed"
    (closed / "bin").mkdir(parents=True)
    closed.chmod(0)
    try:
        with ordinary_user():
            yield closed
    finally:
        closed.chmod(0o700)
