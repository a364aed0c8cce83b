"""Runs pushes in parallel and uploads each shared layer only once."""

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from bakehouse.errors import BakehouseError
from bakehouse.util.deadline import NEVER, remaining
from bakehouse.util.oci import Digest

T = TypeVar("T")

_AT_ONCE = 4
"""More pushes would only share the connection and the engine's disk."""
_SLOW = 10.0
"""Seconds without progress after which other pushes no longer wait for a push."""
_CHECK_SECONDS = 0.5
_TIME_TO_STOP = 5.0
"""Seconds in which an interrupted push removes its name of the image from the engine."""


@dataclass(slots=True, eq=False)
class QueuedPush:
    """One running push."""

    layers: frozenset[Digest]
    stopped: threading.Event
    moved_at: float = field(default_factory=time.monotonic)

    def moved(self, at: float) -> None:
        """Record the time of the last progress; raise KeyboardInterrupt after an interrupt."""
        self.moved_at = at
        if self.stopped.is_set():
            raise KeyboardInterrupt

    def is_slow(self) -> bool:
        return time.monotonic() - self.moved_at >= _SLOW


class PushQueue:
    """Pushes to one registry, each in its own thread, with a limit on parallel uploads."""

    def __init__(self, at_once: int = _AT_ONCE) -> None:
        self._at_once = at_once
        self._stopped = threading.Event()
        self._changed = threading.Condition()
        self._running: list[QueuedPush] = []

    def each(self, tasks: Sequence[Callable[[], T]]) -> list[T | BakehouseError]:
        """Return the result or error of each; a failure does not stop the others.

        An interrupt stops the running pushes, and no further one starts.
        """
        if len(tasks) < 2:
            # Only the main thread is interrupted at once, whatever it waits for.
            return [_outcome(task) for task in tasks]
        finished: queue.SimpleQueue[tuple[int, T | BaseException]] = queue.SimpleQueue()

        def run(number: int) -> None:
            try:
                finished.put((number, _outcome(tasks[number])))
            except BaseException as error:
                finished.put((number, error))

        # Not an executor: Python waits for its threads at exit, even if they hang.
        threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(len(tasks))]
        for thread in threads:
            thread.start()
        outcomes: dict[int, T | BakehouseError] = {}
        try:
            while len(outcomes) < len(tasks):
                number, outcome = finished.get()
                if isinstance(outcome, BaseException) and not isinstance(outcome, BakehouseError):
                    raise outcome
                outcomes[number] = outcome
        except BaseException:
            self._stopped.set()
            until = time.monotonic() + _TIME_TO_STOP
            for thread in threads:
                thread.join(max(0.0, until - time.monotonic()))
            raise
        return [outcomes[number] for number in range(len(tasks))]

    @contextlib.contextmanager
    def turn(self, layers: Collection[Digest], until: float = NEVER) -> Iterator[QueuedPush]:
        """Wait until there is room, and until no other push is sending one of these layers.

        The registry reuses layers that another push has sent. Pushes without progress are not waited for.
        Raises OverdueError if its turn has not come by `until`.
        """
        push = QueuedPush(frozenset(layers), self._stopped)
        with self._changed:
            while not self._is_free_for(push):
                if self._stopped.is_set():
                    raise KeyboardInterrupt
                self._changed.wait(min(_CHECK_SECONDS, remaining(until)))
            push.moved(time.monotonic())
            self._running.append(push)
        try:
            yield push
        finally:
            with self._changed:
                self._running.remove(push)
                self._changed.notify_all()

    def _is_free_for(self, push: QueuedPush) -> bool:
        moving = [running for running in self._running if not running.is_slow()]
        return len(moving) < self._at_once and not any(running.layers & push.layers for running in moving)


def _outcome(task: Callable[[], T]) -> T | BakehouseError:
    try:
        return task()
    except BakehouseError as error:
        return error
