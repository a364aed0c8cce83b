"""Time limits for sources of files, and back-off of failing sources."""

import time

from bakehouse.fetch.http_client import SourceError
from bakehouse.util.format import format_bytes, format_seconds

IDLE_SECONDS = 20.0
"""Seconds without a response for any file, after which the remaining files are unavailable."""
_DOWN_SECONDS = 30.0
_SLOW_SECONDS = 20.0
_LEAST_BYTES = 20_000
"""Bytes that a source must send in that time."""
_OWN_SECONDS = 1.0
"""Local work of this length, such as hashing, extends the limit."""


class SourceBackoff:
    """Back-off shared by all files, so that many unavailable files take as long as one."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._last_response = seconds, 0.0
        self._down: dict[str, tuple[float, float, str]] = {}

    def deadline(self, requested: float) -> float:
        """Return the deadline of a file that was requested at that time."""
        return max(requested, self._last_response) + self._seconds

    def record_response(self) -> None:
        """Extend the deadline, because a source has responded."""
        self._last_response = time.monotonic()

    def record_work(self, since: float) -> None:
        """Extend the deadline after local work, such as hashing a large file or waiting for another run."""
        if time.monotonic() - since > _OWN_SECONDS:
            self.record_response()

    def refusal(self, server: str, requested: float) -> str:
        """Return why to skip a server: it is down, or the deadline has passed. Empty if it is usable."""
        until, _, reason = self._down.get(server, (0.0, 0.0, "not tried: no time left"))
        now = time.monotonic()
        return reason if now < until or now > self.deadline(requested) else ""

    def mark_down(self, server: str, reason: str) -> None:
        """Skip a server for some time, which doubles with each failure."""
        now = time.monotonic()
        until, seconds, _ = self._down.get(server, (0.0, _DOWN_SECONDS / 2, ""))
        if now >= until:
            self._down[server] = (now + 2 * seconds, 2 * seconds, reason)

    def mark_up(self, server: str) -> None:
        """Reset the back-off of a server that sent a file."""
        self._down.pop(server, None)


class TransferSpeed:
    """Check of the speed of one transfer."""

    def __init__(self) -> None:
        self._since, self._bytes = time.monotonic(), 0

    def add(self, count: int) -> None:
        """Count received bytes; raise SourceError if the transfer is too slow."""
        self._bytes += count
        if (seconds := time.monotonic() - self._since) < _SLOW_SECONDS:
            return
        if self._bytes < _LEAST_BYTES:
            reason = f"sent {format_bytes(self._bytes)} in {format_seconds(seconds)}: too slow"
            raise SourceError(reason, is_down=True)
        self._since, self._bytes = time.monotonic(), 0


def has_moved(count: int) -> bool:
    """Return whether a closed connection sent enough bytes to retry the same source."""
    return count >= _LEAST_BYTES
