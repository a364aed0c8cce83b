"""Claims: one caller makes a release, and the others that need the same one wait for its end.

A claim is kept where the ledger is. On this machine it is a locked file, which the kernel unlocks when its
holder ends. In S3 it is an object that its holder renews; conditional writes decide who holds it.
"""

import contextlib
import fcntl
import json
import os
import threading
import uuid
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from bakehouse import errors
from bakehouse.errors import BakehouseError, Diagnostic, PublishError
from bakehouse.ledger.s3_ledger import S3Ledger
from bakehouse.ledger.store import Ledger, TeamLedger
from bakehouse.util.files import make_directory, open_handle
from bakehouse.util.json_reader import decode, parse_json

LEASE = timedelta(seconds=60)
"""Age at which a claim in S3 expires unless its holder renews it."""
RENEWAL_SECONDS = 15.0
_MAX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Attempt:
    """Content of a claim: the current or last attempt to make the release."""

    number: int
    is_held: bool
    """Its holder has not ended it."""
    kind: str = ""
    """Class of the error with which it ended; empty without one."""
    mistakes: tuple[Diagnostic, ...] = ()
    holder: str = field(default="", compare=False)
    """Random id by which its holder knows its own writes; empty in claims of older versions."""

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), default=str).encode()

    @classmethod
    def parse(cls, content: bytes) -> "Attempt":
        """Return the attempt; its number is 0 if the claim is new or incomplete."""
        try:
            return decode(parse_json(content), cls)
        except ValueError:
            return cls(0, is_held=False)

    @property
    def first_to_end(self) -> int:
        """Number of the first attempt that ends after the claim was read."""
        return self.number if self.is_held else self.number + 1

    def next(self) -> "Attempt":
        return Attempt(self.number + 1, is_held=True, holder=uuid.uuid4().hex)

    def ended(self, error: BaseException | None) -> "Attempt":
        if not isinstance(error, BakehouseError):
            return replace(self, is_held=False)
        return replace(self, is_held=False, kind=type(error).__name__, mistakes=error.diagnostics)

    def raise_error(self, awaited: int | None) -> None:
        """Raise its error if it is the attempt with this number or a later one."""
        if self.mistakes and awaited is not None and self.number >= awaited:
            kinds = (kind for kind in vars(errors).values() if isinstance(kind, type))
            named = [
                kind for kind in kinds if kind.__name__ == self.kind and issubclass(kind, BakehouseError)
            ]
            raise (named or [BakehouseError])[0].of(*self.mistakes)


class Claim(Protocol):
    """A claim that this process holds until the block ends; an error of the block is recorded."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Claims(Protocol):
    """The claims on one release."""

    def take(self, awaited: int | None = None) -> Claim | Attempt:
        """Return a claim, or the attempt of the process that holds it.

        `awaited` is the number of the first attempt that the caller waited for. Raises the error of that
        attempt or of a later one.
        """


def claims(ledger: Ledger, locks: Path, image: str, key: str) -> Claims:
    """Return the claims on the release of an image with a key; `locks` is a directory of this machine."""
    if isinstance(ledger, TeamLedger):
        return _SharedClaims(ledger.team, f"{image}/{key}.claim")
    return _FileClaims(locks / f"release-{image}-{key}.claim")


@dataclass(frozen=True, slots=True)
class _FileClaims:
    path: Path

    def take(self, awaited: int | None = None) -> Claim | Attempt:
        make_directory(self.path.parent)
        with contextlib.ExitStack() as stack:
            handle = open_handle(self.path, os.O_RDWR | os.O_CREAT)
            stack.callback(os.close, handle)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return Attempt.parse(os.pread(handle, _MAX_BYTES, 0))
            last = Attempt.parse(os.pread(handle, _MAX_BYTES, 0))
            last.raise_error(awaited)
            claim = _FileClaim(handle, last.next())
            stack.pop_all()
        return claim


class _FileClaim:
    def __init__(self, handle: int, attempt: Attempt) -> None:
        self._handle, self._attempt = handle, attempt
        self._write(attempt)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            # A claim that is not written whole is free, and those that wait for it make the release
            with contextlib.suppress(OSError):
                self._write(self._attempt.ended(error))
        finally:
            os.close(self._handle)

    def _write(self, attempt: Attempt) -> None:
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, attempt.to_json(), 0)


@dataclass(frozen=True, slots=True)
class _SharedClaims:
    team: S3Ledger
    name: str

    def take(self, awaited: int | None = None) -> Claim | Attempt:
        stored = self.team.read_object(self.name)
        last = Attempt.parse(stored.content if stored else b"")
        if stored and last.is_held and stored.age < LEASE:
            return last
        last.raise_error(awaited)
        attempt = last.next()
        version = self.write(attempt, stored.version if stored else "")
        return _SharedClaim(self, attempt, version) if version else attempt

    def write(self, attempt: Attempt, version: str) -> str:
        """Replace a version of the claim; return the present version, or an empty text if it is another's.

        S3 also refuses the repetition of a write whose response was lost, and a write during another one.
        """
        content = attempt.to_json()
        for _ in range(2):
            if replaced := self.team.replace_object(self.name, content, version):
                return replaced
            stored = self.team.read_object(self.name)
            if stored is None or Attempt.parse(stored.content).holder != attempt.holder:
                return ""
            version = stored.version
            if stored.content == content:
                break
        return version


class _SharedClaim:
    def __init__(self, claims: _SharedClaims, attempt: Attempt, version: str) -> None:
        self._claims, self._attempt, self._version = claims, attempt, version
        self._ended = threading.Event()
        self._renewal = threading.Thread(target=self._renew, daemon=True)

    def __enter__(self) -> Self:
        self._renewal.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._renewal.join()
        self._write(self._attempt.ended(error))

    def _renew(self) -> None:
        while not self._ended.wait(RENEWAL_SECONDS):
            self._write(self._attempt)

    def _write(self, attempt: Attempt) -> None:
        # Without a version, another process has taken the claim, because this one did not renew it in time.
        if not self._version:
            return
        # A claim that cannot be written expires.
        with contextlib.suppress(PublishError):
            self._version = self._claims.write(attempt, self._version)
