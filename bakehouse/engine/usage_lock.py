"""Who has the engine do what `docker ps` does not show, and who restarts it once nobody does.

One lock of the machine: those who build or push share it, across all checkouts, and who restarts the engine
holds it alone.
"""

import contextlib
from collections.abc import Iterator

from bakehouse.engine.dockerd import DaemonPaths
from bakehouse.util import file_lock
from bakehouse.util.deadline import NEVER, OverdueError


@contextlib.contextmanager
def engine_in_use(until: float = NEVER, place: DaemonPaths | None = None) -> Iterator[None]:
    """Keep the engine from being restarted meanwhile, by any run of Bakehouse on this machine.

    One that is being restarted is waited for, but not past that time. Where no engine of ours has been
    started there is no lock, and nothing to fear.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError, OverdueError):
            stack.enter_context(file_lock.joined((place or DaemonPaths()).in_use, until))
        yield


@contextlib.contextmanager
def exclusive_engine(place: DaemonPaths) -> Iterator[bool]:
    """Whether nobody uses the engine; if so, whoever is about to waits until this ends."""
    with file_lock.at_once(place.in_use) as held:
        yield held
