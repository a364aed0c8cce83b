"""Runs pushes in parallel and uploads each shared blob only once."""

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from bakehouse.errors import BakehouseError
from bakehouse.util.deadline import NEVER, remaining
from bakehouse.util.oci import Digest

T = TypeVar("T")

_MAX_CONCURRENT_UPLOADS = 4
"""More uploads would only share the connection."""
_SLOW_SECONDS = 10.0
"""Seconds without progress after which others no longer wait for an upload."""
_CHECK_SECONDS = 0.5
_STOP_SECONDS = 5.0
"""Seconds in which interrupted uploads notice it."""


@dataclass(slots=True, eq=False)
class QueuedUpload:
    """One running upload of a blob."""

    blob: tuple[str, Digest]
    stopped: threading.Event
    moved_at: float = field(default_factory=time.monotonic)

    def moved(self) -> None:
        """Record progress; raise KeyboardInterrupt after an interrupt."""
        self.moved_at = time.monotonic()
        if self.stopped.is_set():
            raise KeyboardInterrupt

    def is_slow(self) -> bool:
        return time.monotonic() - self.moved_at >= _SLOW_SECONDS


class PushQueue:
    """Threads for pushes and their uploads, with a limit on parallel uploads."""

    def __init__(self, max_concurrent: int = _MAX_CONCURRENT_UPLOADS) -> None:
        self._at_once = max_concurrent
        self._stopped = threading.Event()
        self._changed = threading.Condition()
        self._running: list[QueuedUpload] = []
        self._repositories: dict[tuple[str, Digest], str] = {}

    def each(self, tasks: Sequence[Callable[[], T]]) -> list[T | BakehouseError]:
        """Return the result or error of each task; a failure does not stop the others.

        An interrupt stops the running pushes, and no further one starts.
        """
        if len(tasks) < 2:
            # Only the main thread is interrupted at once, even while it waits.
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
            until = time.monotonic() + _STOP_SECONDS
            for thread in threads:
                thread.join(max(0.0, until - time.monotonic()))
            raise
        return [outcomes[number] for number in range(len(tasks))]

    def uploads(self, uploads: Sequence[Callable[[], T]]) -> list[T]:
        """Return the results of uploads of one image; raise the first failure after all have ended."""

        def settle(upload: Callable[[], T]) -> T | Exception:
            try:
                return upload()
            except Exception as error:
                return error

        outcomes = self.each([partial(settle, upload) for upload in uploads])
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome
        return [outcome for outcome in outcomes if not isinstance(outcome, Exception)]

    @contextlib.contextmanager
    def turn(self, host: str, repository: str, blob: Digest, until: float = NEVER) -> Iterator[QueuedUpload]:
        """Wait until there is room, and until no other push is sending this blob to the same registry.

        The registry can reuse a blob that another push has sent. Uploads without progress are not waited for.
        Raises OverdueError if it cannot start by `until`.
        """
        upload = QueuedUpload((host, blob), self._stopped)
        with self._changed:
            while not self._is_free_for(upload):
                if self._stopped.is_set():
                    raise KeyboardInterrupt
                self._changed.wait(min(_CHECK_SECONDS, remaining(until)))
            upload.moved()
            self._running.append(upload)
        try:
            yield upload
            self._repositories[upload.blob] = repository
        finally:
            with self._changed:
                self._running.remove(upload)
                self._changed.notify_all()

    def repository_of(self, host: str, blob: Digest) -> str:
        """Return a repository that has a blob from an earlier upload; empty if none is known."""
        return self._repositories.get((host, blob), "")

    def _is_free_for(self, upload: QueuedUpload) -> bool:
        moving = [running for running in self._running if not running.is_slow()]
        return len(moving) < self._at_once and all(running.blob != upload.blob for running in moving)


def _outcome(task: Callable[[], T]) -> T | BakehouseError:
    try:
        return task()
    except BakehouseError as error:
        return error
