"""Transfer of an image by the engine: its progress, and the kinds of its failures."""

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from bakehouse.registry.manifest import Manifest
from bakehouse.registry.registry import Credentials
from bakehouse.util.deadline import NEVER
from bakehouse.util.format import format_bytes
from bakehouse.util.oci import Digest
from bakehouse.util.terminal import Reporter


class Fault(StrEnum):
    """Kind of a failed transfer, which decides what to do next."""

    TRANSIENT = "transient"
    """Retry after a pause."""
    UNAUTHORIZED = "unauthorized"
    """Log in again, once."""
    DENIED = "denied"
    """Log in again, once, because some registries report an expired token like this; then stop."""
    MISSING = "missing"
    """Create the repository, once."""
    FULL = "full"
    """A quota or a disk is full. A retry cannot help."""
    CORRUPTED = "corrupted"
    """The registry received other bytes than were sent. Send them again."""
    NAME = "name"
    """The engine cannot resolve the registry's host name."""
    TRUST = "trust"
    """The engine does not trust the registry's certificate."""
    STALLED = "stalled"
    TIMED_OUT = "timed out"
    NOT_FOUND = "not found"
    """The engine does not have the image."""
    REFUSED = "refused"


class TransferError(Exception):
    """The transfer of an image failed."""

    def __init__(self, fault: Fault, text: str) -> None:
        super().__init__(text)
        self.fault = fault
        self.text = text


class Pusher(Protocol):
    """Uploads images from the engine's store to a registry."""

    def manifest(self, image: Digest) -> Manifest | None:
        """Return the manifest that a push would send; None if the engine does not show it."""

    def push(
        self,
        image: Digest,
        reference: str,
        credentials: Credentials | None,
        watch: "StallPolicy",
        progress: Reporter,
    ) -> Digest:
        """Push under `reference`; return the digest that the engine reports, or raise TransferError."""


# Authorisation comes first: docker's "push access denied, repository does not exist or may require
# authorization" names all three.
_SIGNS = (
    # Rate limits also contain "limit exceeded".
    (Fault.TRANSIENT, r"\b429\b|(?i:too ?many ?requests)"),
    (
        Fault.FULL,
        r"(?i:quota|exceed the configured upper limit|limit ?exceeded|insufficient storage|no space left)"
        r"|\b(?:412|413|507) [A-Z]",
    ),
    (
        Fault.UNAUTHORIZED,
        r"401 Unauthorized|no basic auth credentials|authorization failed|authentication required"
        r"|authorization token has expired",
    ),
    (Fault.DENIED, r"403 Forbidden|\bdenied\b|insufficient_scope|not authorized to perform"),
    # The registry no longer has an upload that was started.
    (Fault.TRANSIENT, r"/blobs/uploads/[^\s?:]\S*: (?:404|416) "),
    (Fault.MISSING, r"name unknown|NAME_UNKNOWN|404 Not Found|repository with name .* does not exist"),
    (Fault.NAME, r"no such host"),
    (Fault.TRUST, r"x509: |certificate signed by|tls: failed to verify|HTTP response to HTTPS client"),
    # The engine hides the registry's message. An upload is a bad request only because of its content.
    (Fault.CORRUPTED, r"DIGEST_INVALID|digest invalid|SIZE_INVALID|/blobs/uploads/\S*: 400 Bad Request"),
    (
        Fault.TRANSIENT,
        r"\b5\d\d [A-Z]|HTTP status: 5\d\d|\bEOF\b"
        r"|connection re(?:set|fused)|broken pipe|timeout|timed out|no route to host|temporary failure"
        r"|server misbehaving|(?i:internal ?server ?error)|http2: |use of closed network connection",
    ),
)

SETTLED_PER_SECOND = 20e6
"""Bytes per second that a registry stores at least, after a whole layer was sent."""

_PREFIX = re.compile(r'failed commit on ref "[^"]*": ')
_STATES = {
    "Pushed": "pushed",
    "Layer already exists": "already exists",
    "Already exists": "already exists",
}


def fault_in(text: str) -> Fault:
    """Return the kind of a failure by the message of the engine or the registry."""
    for fault, pattern in _SIGNS:
        if re.search(pattern, text):
            return fault
    return Fault.REFUSED


@dataclass(frozen=True, slots=True)
class StallPolicy:
    """Limits after which a push is stopped although no failure was reported."""

    stall: float
    """Seconds without progress."""
    until: float = NEVER
    """Deadline by time.monotonic()."""
    moved: Callable[[float], None] = lambda _: None
    """Called at each event with the time of the last progress; its exceptions end the push."""
    pushed: set[str] = field(default_factory=set)
    """Layers sent in all attempts, by the engine's names."""

    def idle_timeout(self, settling: int = 0) -> float:
        """Return the seconds without an event until a stall, while the registry stores `settling` bytes."""
        return max(0.1, min(self._allowed(settling), self.until - time.monotonic()))

    def check(self, moved_at: float, settling: int = 0) -> None:
        self.moved(moved_at)
        now = time.monotonic()
        if now >= self.until:
            message = "the deadline passed"
            raise TransferError(Fault.TIMED_OUT, message)
        allowed = self._allowed(settling)
        if now - moved_at >= allowed:
            message = f"no progress for {allowed:.0f} s"
            raise TransferError(Fault.STALLED, message)

    def _allowed(self, settling: int) -> float:
        return self.stall + settling / SETTLED_PER_SECOND


class Layers:
    """Progress of the layers of one push, according to the engine's events."""

    def __init__(self, progress: Reporter, every: float = 5.0) -> None:
        self._progress = progress
        self._every = every
        self._reported_at = self.moved_at = time.monotonic()
        self._states: dict[str, tuple[str, int, int]] = {}
        self.digest: Digest | None = None
        self.pushed: set[str] = set()

    @property
    def settling(self) -> int:
        """Return the bytes of layers that were sent whole, but not confirmed by the registry.

        While it stores them it is silent, just like a registry that has failed.
        """
        return sum(
            total
            for status, current, total in self._states.values()
            if status == "Pushing" and current >= total
        )

    def see(self, event: Mapping[str, Any]) -> None:
        """Process one event of docker's stream; raise TransferError for a reported error."""
        detail = event.get("errorDetail") or {}
        if text := detail.get("message") or event.get("error"):
            raise TransferError(fault_in(str(text)), _PREFIX.sub("", str(text)))
        aux = event.get("aux") or {}
        status = str(event.get("status", ""))
        match = re.search(r"digest: (sha256:[0-9a-f]{64})", status)
        if digest := aux.get("Digest") or (match and match[1]):
            self.digest = Digest(str(digest))
        layer = str(event.get("id", ""))
        sizes = event.get("progressDetail") or {}
        old = self._states.get(layer, ("", 0, 0))
        new = (status, int(sizes.get("current", 0)), int(sizes.get("total", 0)) or old[2])
        # The engine sends ten events a second, even without progress.
        if new != old or not layer:
            self.moved_at = time.monotonic()
        if layer:
            self._states[layer] = new
            if status == "Pushed":
                self.pushed.add(layer)
            self._report(layer, old[0], new)

    def _report(self, layer: str, before: str, state: tuple[str, int, int]) -> None:
        status, _, total = state
        state_name = status.partition(" ")[0]
        if state_name != before.partition(" ")[0] and state_name not in ("Preparing", "Waiting", "Pushing"):
            size = f" ({format_bytes(total)})" if total else ""
            self._progress(f"layer {layer} {_STATES.get(status, status)}{size}")
        elif time.monotonic() - self._reported_at >= self._every:
            states = self._states.values()
            done = sum(total if name == "Pushed" else current for name, current, total in states)
            all_bytes = sum(total for _, _, total in states)
            self._progress(f"{format_bytes(done)} of {format_bytes(all_bytes)} pushed")
            self._reported_at = time.monotonic()
