"""Lines such as `still running: apt-get update (25 s)` while a step prints nothing."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from bakehouse.util.format import format_seconds
from bakehouse.util.terminal import Reporter

SILENT_SECONDS = 10.0
"""Longest time without a line of progress."""
_TICK_SECONDS = 0.5


class Heartbeat:
    """Reports that a step still runs, 10 s after its last line and every 10 s from then on."""

    def __init__(self, report: Reporter, phrase: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._report, self._clock = report, clock
        self.restart(phrase)

    def restart(self, phrase: str) -> None:
        """Begin a new step that was just reported; its lines are `still <phrase> (25 s)`."""
        self.rename(phrase)
        self._last = self._started

    def rename(self, phrase: str) -> None:
        """Begin a new step that was not reported, which does not delay the next line."""
        self._phrase = phrase
        self._started = self._clock()

    def tick(self) -> None:
        """Report the step if the last line was at least 10 s ago; call this often."""
        now = self._clock()
        if now - self._last >= SILENT_SECONDS:
            self._last = now
            self._report(f"still {self._phrase} ({format_seconds(now - self._started)})")


@contextlib.contextmanager
def heartbeat(report: Reporter, phrase: str) -> Iterator[None]:
    """Report from a thread that a blocking call still runs, until the context ends."""
    beat, stop = Heartbeat(report, phrase), threading.Event()

    def run() -> None:
        # The reader of standard error may be gone.
        with contextlib.suppress(OSError):
            while not stop.wait(_TICK_SECONDS):
                beat.tick()

    thread = threading.Thread(target=run, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
