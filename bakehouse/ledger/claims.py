"""Claims: one caller releases an image, and the others that need the same release wait for its result.

A claim is kept where the ledger is. On this machine it is a locked file, which the kernel unlocks when its
holder ends. In S3 it is an object that its holder renews; conditional writes decide who holds it.
"""

import contextlib
import fcntl
import json
import os
import threading
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from bakehouse import errors
from bakehouse.errors import BakehouseError, Diagnostic, PublishError
from bakehouse.ledger.s3_ledger import S3Ledger
from bakehouse.ledger.store import FileLedger, Ledger, TeamLedger
from bakehouse.util.json_reader import parse_json

LEASE = timedelta(seconds=60)
"""Age at which the claim of a holder that does not renew it ends."""
RENEWAL_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Holder:
    """Content of a claim: its present or last holder, and the error with which that one ended."""

    token: str
    error: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> bytes:
        return json.dumps({"token": self.token, "error": dict(self.error)}).encode()

    @classmethod
    def parse(cls, content: bytes) -> "Holder":
        """Return the holder; one without a token if the content was not written whole."""
        try:
            fields = parse_json(content)
            return cls(str(fields["token"]), fields["error"])
        except (ValueError, KeyError, TypeError):
            return cls("")

    def raise_error(self) -> None:
        """Raise the error with which the holder ended, if it did."""
        if not self.error:
            return
        kind = getattr(errors, self.error["kind"], BakehouseError)
        mistakes = (Diagnostic(message, hint=hint) for message, hint in self.error["mistakes"])
        raise kind.of(*mistakes)


def _failure(error: BakehouseError) -> dict[str, Any]:
    mistakes = [(diagnostic.message, diagnostic.hint) for diagnostic in error.diagnostics]
    return {"kind": type(error).__name__, "mistakes": mistakes}


class Claim(Protocol):
    """A claim that this process holds."""

    previous: Holder
    """The holder before."""

    def end(self, error: BakehouseError | None) -> None:
        """Give the claim up, and record the error if there is one."""


class Claims(Protocol):
    def take(self) -> "Claim | Holder":
        """Return the claim, or its holder if another process has it."""


def claims(ledger: Ledger, locks: Path, image: str, key: str) -> Claims:
    """Return the claims on the release of an image with a key; `locks` is a directory of this machine."""
    if isinstance(ledger, TeamLedger):
        return _SharedClaims(ledger.team, image, key)
    assert isinstance(ledger, FileLedger)
    return _FileClaims(locks / f"release-{image}-{key}.claim")


@contextlib.contextmanager
def ended(claim: Claim) -> Iterator[None]:
    """End a claim; record an error for those who wait."""
    error: BakehouseError | None = None
    try:
        yield
    except BakehouseError as failure:
        error = failure
        raise
    finally:
        claim.end(error)


@dataclass(frozen=True, slots=True)
class _FileClaims:
    path: Path

    def take(self) -> "Claim | Holder":
        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        holder = Holder.parse(os.pread(handle, 1 << 20, 0))
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return holder
        # Its holder may have ended since it was read
        return _FileClaim(handle, Holder.parse(os.pread(handle, 1 << 20, 0)))


class _FileClaim:
    def __init__(self, handle: int, previous: Holder) -> None:
        self._handle = handle
        self._token = uuid.uuid4().hex
        self.previous = previous
        self._write(Holder(self._token))

    def end(self, error: BakehouseError | None) -> None:
        self._write(Holder(self._token, _failure(error) if error else {}))
        os.close(self._handle)

    def _write(self, holder: Holder) -> None:
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, holder.to_json(), 0)


@dataclass(frozen=True, slots=True)
class _SharedClaims:
    team: S3Ledger
    image: str
    key: str

    def take(self) -> "Claim | Holder":
        name = f"{self.image}/{self.key}.claim"
        stored = self.team.read_object(name)
        previous, condition = Holder(""), {"IfNoneMatch": "*"}
        if stored:
            previous = Holder.parse(stored.content)
            if not previous.error and previous.token and stored.age < LEASE:
                return previous
            condition = {"IfMatch": stored.version}
        own = Holder(uuid.uuid4().hex)
        version = self.team.write_object(name, own.to_json(), condition)
        if not version:
            stored = self.team.read_object(name)
            return Holder.parse(stored.content) if stored else Holder("")
        return _SharedClaim(self.team, name, own, previous, version)


class _SharedClaim:
    def __init__(self, team: S3Ledger, name: str, own: Holder, previous: Holder, version: str) -> None:
        self._team, self._name, self._own, self._version = team, name, own, version
        self.previous = previous
        self._ended = threading.Event()
        self._renewal = threading.Thread(target=self._renew, daemon=True)
        self._renewal.start()

    def end(self, error: BakehouseError | None) -> None:
        self._ended.set()
        self._renewal.join()
        # Without an error, an empty token: the next caller need not wait for the lease.
        holder = Holder(self._own.token, _failure(error)) if error else Holder("")
        self._team.write_object(self._name, holder.to_json(), {"IfMatch": self._version})

    def _renew(self) -> None:
        while not self._ended.wait(RENEWAL_SECONDS):
            with contextlib.suppress(PublishError):
                condition = {"IfMatch": self._version}
                self._version = self._team.write_object(self._name, self._own.to_json(), condition)
