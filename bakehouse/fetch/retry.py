"""Retries of failed requests, and back-off of failing sources.

`urllib3.Retry` is not used: a retry here also renews a login, resumes an upload or a download, reports
itself, and ends at a deadline.
"""

import random
import time
from dataclasses import dataclass

from bakehouse.util.deadline import NEVER

IDLE_SECONDS = 20.0
"""Seconds without a response for any file until the remaining files are reported as unavailable."""
_DOWN_SECONDS = 30.0
_LOCAL_WORK_SECONDS = 1.0
"""Local work that takes longer than this, such as hashing, extends the limit."""
_MAX_PAUSE = 15.0
_MAX_SECONDS = 600.0
"""Seconds for the retries of one operation without another deadline, even if a server asks for more."""
_MAX_STALLS = 1
"""A server that times out twice is not tried again."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Retries of failed requests; the defaults are those for a push."""

    attempts: int = 7
    """Seven attempts with pauses take half a minute, which is enough time to restart a registry."""
    pause: float = 0.5
    """Seconds before the second attempt; doubled before each further one."""
    timeout: float = 30.0
    """Seconds without data until a request times out."""
    until: float = NEVER
    """Deadline by time.monotonic()."""

    def seconds(self, attempt: int) -> float:
        """Return the pause after an attempt, numbered from 0."""
        # Jitter: clients that failed together should not retry together.
        return min(self.pause * float(2**attempt), _MAX_PAUSE) * random.uniform(0.8, 1.0)


DOWNLOAD = RetryPolicy(attempts=2, pause=0.4)
"""Only one retry, because files have other sources."""


class Retries:
    """Failed attempts of one operation, counted against a policy."""

    def __init__(self, policy: RetryPolicy, attempts: int = 0) -> None:
        """`attempts` overrides the number of attempts in the policy."""
        self._policy, self._attempts = policy, attempts or policy.attempts
        self.reset()

    def add(self, *, may_pass: bool, is_stalled: bool = False, at_least: float = 0.0) -> bool:
        """Count a failed attempt; return whether another one is allowed, and has time after a pause.

        `at_least` is the pause that the server asks for, in seconds.
        """
        self._failures += 1
        self._stalls += is_stalled
        self._pause = max(at_least, self._policy.seconds(self._failures - 1))
        has_time = time.monotonic() + self._pause < self._until
        return may_pass and has_time and self._failures < self._attempts and self._stalls <= _MAX_STALLS

    def wait(self) -> None:
        """Pause before the next attempt."""
        time.sleep(self._pause)

    def reset(self) -> None:
        """Forget the failures, because the operation has made progress."""
        self._failures = self._stalls = 0
        self._until = min(self._policy.until, time.monotonic() + _MAX_SECONDS)


class SourceBackoff:
    """Back-off shared by all files, so that many unavailable files take no longer than one."""

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
        if time.monotonic() - since > _LOCAL_WORK_SECONDS:
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
