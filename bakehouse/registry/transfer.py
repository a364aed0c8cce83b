"""One transfer of an image as the engine tells it: what moved, what went wrong, of which class."""

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
    """What a failed transfer asks for."""

    TRANSIENT = "transient"
    """Try again after a pause."""
    UNAUTHORIZED = "unauthorized"
    """Log in again, once."""
    DENIED = "denied"
    """Log in again, once: some registries say so of an old token; else stop."""
    MISSING = "missing"
    """Make the repository, once."""
    FULL = "full"
    """A quota, or a disk: nothing that we can do makes room."""
    CORRUPTED = "corrupted"
    """What arrived was not what was sent: send it again."""
    NAME = "name"
    """The engine finds no address for the registry's name."""
    TRUST = "trust"
    """The engine does not trust the registry's certificate."""
    STALLED = "stalled"
    TIMED_OUT = "timed out"
    NOT_FOUND = "not found"
    """The engine holds no such image."""
    REFUSED = "refused"


class TransferError(Exception):
    """An image did not get across."""

    def __init__(self, fault: Fault, text: str) -> None:
        super().__init__(text)
        self.fault = fault
        self.text = text


class Pusher(Protocol):
    """Moves an image from the engine's store to a registry."""

    def manifest(self, image: Digest) -> Manifest | None:
        """The manifest that a push would send; None where the engine can't be made to show it."""

    def push(
        self,
        image: Digest,
        reference: str,
        credentials: Credentials | None,
        watch: "StallPolicy",
        progress: Reporter,
    ) -> Digest:
        """Push under `reference`, and give the digest that the engine says it sent; raises TransferError."""


# Authorisation comes first: docker's "push access denied, repository does not exist or may require
# authorization" names all three.
_SIGNS = (
    # "limit exceeded" is also said of how often one may ask.
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
    # An upload that was begun, at a registry that has forgotten it.
    (Fault.TRANSIENT, r"/blobs/uploads/[^\s?:]\S*: (?:404|416) "),
    (Fault.MISSING, r"name unknown|NAME_UNKNOWN|404 Not Found|repository with name .* does not exist"),
    (Fault.NAME, r"no such host"),
    (Fault.TRUST, r"x509: |certificate signed by|tls: failed to verify|HTTP response to HTTPS client"),
    # The engine keeps the registry's words to itself; what is wrong with a request for a blob is its content.
    (Fault.CORRUPTED, r"DIGEST_INVALID|digest invalid|SIZE_INVALID|/blobs/uploads/\S*: 400 Bad Request"),
    (
        Fault.TRANSIENT,
        r"\b5\d\d [A-Z]|HTTP status: 5\d\d|\bEOF\b"
        r"|connection re(?:set|fused)|broken pipe|timeout|timed out|no route to host|temporary failure"
        r"|server misbehaving|(?i:internal ?server ?error)|http2: |use of closed network connection",
    ),
)

SETTLED_PER_SECOND = 20e6
"""Bytes of a layer that a registry may take a second to store, after all of it has arrived."""


_PREFIX = re.compile(r'failed commit on ref "[^"]*": ')
_STATES = {
    "Pushed": "pushed",
    "Layer already exists": "is there already",
    "Already exists": "is there already",
}


def fault_in(text: str) -> Fault:
    """The class of a failure, by the words of the engine or of the registry."""
    for fault, pattern in _SIGNS:
        if re.search(pattern, text):
            return fault
    return Fault.REFUSED


@dataclass(frozen=True, slots=True)
class StallPolicy:
    """When a push is given up although nobody said it failed."""

    stall: float
    """Seconds in which nothing moves."""
    until: float = NEVER
    """By time.monotonic()."""
    moved: Callable[[float], None] = lambda _: None
    """Told when the push moved last, at every word of the engine; what it raises ends the push."""
    pushed: set[str] = field(default_factory=set)
    """The layers that were sent, in all attempts, as the engine calls them."""

    def idle_timeout(self, settling: int = 0) -> float:
        """How many seconds without any word are too many, while so many bytes may be being stored."""
        return max(0.1, min(self._allowed(settling), self.until - time.monotonic()))

    def check(self, moved_at: float, settling: int = 0) -> None:
        self.moved(moved_at)
        now = time.monotonic()
        if now >= self.until:
            message = "the deadline passed"
            raise TransferError(Fault.TIMED_OUT, message)
        allowed = self._allowed(settling)
        if now - moved_at >= allowed:
            message = f"nothing moved for {allowed:.0f} s"
            raise TransferError(Fault.STALLED, message)

    def _allowed(self, settling: int) -> float:
        return self.stall + settling / SETTLED_PER_SECOND


class Layers:
    """What the events of one push add up to."""

    def __init__(self, progress: Reporter, every: float = 5.0) -> None:
        self._progress = progress
        self._every = every
        self._said_at = self.moved_at = time.monotonic()
        self._states: dict[str, tuple[str, int, int]] = {}
        self.digest: Digest | None = None
        self.pushed: set[str] = set()

    @property
    def settling(self) -> int:
        """The bytes of layers that were sent whole, while the registry has not said that it has them.

        Until it has stored them it says nothing, which a registry that died does too.
        """
        return sum(
            total
            for status, current, total in self._states.values()
            if status == "Pushing" and current >= total
        )

    def see(self, event: Mapping[str, Any]) -> None:
        """Take one event of docker's stream, which reports its errors here and nowhere else."""
        detail = event.get("errorDetail") or {}
        if text := detail.get("message") or event.get("error"):
            raise TransferError(fault_in(str(text)), _PREFIX.sub("", str(text)))
        aux = event.get("aux") or {}
        status = str(event.get("status", ""))
        sent = re.search(r"digest: (sha256:[0-9a-f]{64})", status)
        if found := aux.get("Digest") or (sent and sent[1]):
            self.digest = Digest(str(found))
        layer = str(event.get("id", ""))
        sizes = event.get("progressDetail") or {}
        old = self._states.get(layer, ("", 0, 0))
        new = (status, int(sizes.get("current", 0)), int(sizes.get("total", 0)) or old[2])
        # The engine repeats itself ten times a second, moving or not.
        if new != old or not layer:
            self.moved_at = time.monotonic()
        if layer:
            self._states[layer] = new
            if status == "Pushed":
                self.pushed.add(layer)
            self._tell(layer, old[0], new)

    def _tell(self, layer: str, before: str, state: tuple[str, int, int]) -> None:
        status, _, total = state
        news = status.partition(" ")[0]
        if news != before.partition(" ")[0] and news not in ("Preparing", "Waiting", "Pushing"):
            size = f" ({format_bytes(total)})" if total else ""
            self._progress(f"layer {layer} {_STATES.get(status, status)}{size}")
        elif time.monotonic() - self._said_at >= self._every:
            states = self._states.values()
            done = sum(total if name == "Pushed" else current for name, current, total in states)
            everything = sum(total for _, _, total in states)
            self._progress(f"{format_bytes(done)} of {format_bytes(everything)} pushed")
            self._said_at = time.monotonic()
