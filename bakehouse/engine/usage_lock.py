"""Lock that prevents a restart of the engine during builds and pushes.

`docker ps` does not show builds and pushes. All checkouts on this machine use one lock: builds and pushes
share it, a restart of the engine holds it exclusively.
"""

import contextlib
from collections.abc import Iterator

from bakehouse.engine.daemon_paths import DaemonPaths
from bakehouse.util import file_lock
from bakehouse.util.deadline import NEVER, OverdueError


@contextlib.contextmanager
def engine_in_use(until: float = NEVER, paths: DaemonPaths | None = None) -> Iterator[None]:
    """Prevent a restart of the engine by any run of Bakehouse on this machine.

    Waits for a restart in progress, at most until the given time. If Bakehouse did not start an engine,
    there is no lock, because nothing restarts the engine.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError, OverdueError):
            stack.enter_context(file_lock.join_shared((paths or DaemonPaths()).in_use, until))
        yield


@contextlib.contextmanager
def exclusive_engine(paths: DaemonPaths) -> Iterator[bool]:
    """Yield whether the engine is idle; if so, builds and pushes wait until the context ends."""
    with file_lock.try_exclusive(paths.in_use) as is_held:
        yield is_held
