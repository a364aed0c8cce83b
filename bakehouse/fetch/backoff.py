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
        self._seconds, self._heard = seconds, 0.0
        self._down: dict[str, tuple[float, float, str]] = {}

    def until(self, asked: float) -> float:
        """When it ends for what was asked for then."""
        return max(asked, self._heard) + self._seconds

    def heard(self) -> None:
        """Some source is alive."""
        self._heard = time.monotonic()

    def worked(self, since: float) -> None:
        """Hashing a large file, or waiting for another run, is no silence of a source."""
        if time.monotonic() - since > _OWN_SECONDS:
            self.heard()

    def refusal(self, place: str, asked: float) -> str:
        """Why a place is not to be asked: it is down, or there is no time left. Empty where it is."""
        until, _, reason = self._down.get(place, (0.0, 0.0, "not tried: no time left"))
        now = time.monotonic()
        return reason if now < until or now > self.until(asked) else ""

    def leave(self, place: str, reason: str) -> None:
        """Ask nothing of a place for a while; for twice as long where it was down before."""
        now = time.monotonic()
        until, seconds, _ = self._down.get(place, (0.0, _DOWN_SECONDS / 2, ""))
        if now >= until:
            self._down[place] = (now + 2 * seconds, 2 * seconds, reason)

    def welcome(self, place: str) -> None:
        """A place has given a file."""
        self._down.pop(place, None)


class TransferSpeed:
    """Check of the speed of one transfer."""

    def __init__(self) -> None:
        self._since, self._bytes = time.monotonic(), 0

    def keep(self, count: int) -> None:
        """Raises SourceError where too few bytes came in the last while."""
        self._bytes += count
        if (seconds := time.monotonic() - self._since) < _SLOW_SECONDS:
            return
        if self._bytes < _LEAST_BYTES:
            reason = f"gave {format_bytes(self._bytes)} in {format_seconds(seconds)}: too slow"
            raise SourceError(reason, is_down=True)
        self._since, self._bytes = time.monotonic(), 0


def has_moved(count: int) -> bool:
    """Return whether a closed connection sent enough bytes to retry the same source."""
    return count >= _LEAST_BYTES
