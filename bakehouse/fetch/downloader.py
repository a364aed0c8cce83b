"""Parallel downloads of the files that builds need, each from the first source that has it.

What is here already is taken from here. A source that gives other bytes than those pinned is told and left;
one that is down is not asked again for a while. Interrupted downloads go on where they ended.
"""

import contextlib
import itertools
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bakehouse.fetch.backoff import IDLE_SECONDS, SourceBackoff, TransferSpeed, has_moved
from bakehouse.fetch.cache import FileCache, PartialFile
from bakehouse.fetch.http_client import SourceError
from bakehouse.fetch.local_mirror import LocalMirrors
from bakehouse.fetch.required_files import RequiredFile
from bakehouse.fetch.sources import Offer
from bakehouse.util.deadline import OverdueError, bounded
from bakehouse.util.format import format_bytes, format_seconds

AT_ONCE = 8
_OPEN_SECONDS = 16.0
"""For a name, a connection and the first answer: what resolves names knows no bounds."""
_PAUSE = 0.4
_MOST_CUTS = 5
_TOLD_BYTES = 1_000_000
"""Downloads of smaller files are not reported."""


class StoppedError(Exception):
    """Nobody waits for files any more."""


@dataclass(frozen=True, slots=True)
class Missing:
    """A file that can't be had."""

    file: RequiredFile
    said: tuple[tuple[str, str], ...]
    """Failure of each source."""


class MissingError(Exception):
    def __init__(self, missing: Missing) -> None:
        super().__init__(missing.file.file)
        self.missing = missing


@dataclass
class Transfer:
    """A file on its way; read by whoever shows progress."""

    file: RequiredFile
    asked: float
    began: float
    source: str = ""
    received: int = 0
    """Bytes of it that are here."""
    fetched: int = 0
    """Bytes that came over the network, those that were thrown away too."""
    total: int | None = None
    path: Path | None = None
    failure: Exception | None = None
    done: threading.Event = field(default_factory=threading.Event)


class Fetcher:
    """Files by their sha256, for many threads that ask; use it as a context, which ends all fetching."""

    def __init__(
        self,
        store: FileCache,
        local: LocalMirrors,
        *,
        offers: Callable[[RequiredFile], Iterable[Offer]] = lambda _: (),
        here: Callable[[RequiredFile], Iterable[Path]] = lambda _: (),
        copies: bool = False,
        patience: float = IDLE_SECONDS,
    ) -> None:
        """`copies` has the store take in what lies elsewhere on this machine too."""
        self._store, self._local, self._offers, self._here = store, local, offers, here
        self._copies, self._patience = copies, SourceBackoff(patience)
        self._lock = threading.Lock()
        self._transfers: dict[tuple[str, str], Transfer] = {}
        self._waiting: queue.PriorityQueue[tuple[int, int, Transfer | None]] = queue.PriorityQueue()
        self._count = itertools.count()
        self._threads: list[threading.Thread] = []
        self._is_stopped = threading.Event()
        self._lines: deque[str] = deque()

    def __enter__(self) -> "Fetcher":
        return self

    def __exit__(self, *error: object) -> None:
        self._is_stopped.set()
        for _ in self._threads:
            self._waiting.put((0, next(self._count), None))
        self._store.save()

    def get(self, file: RequiredFile) -> Path:
        """Wait for a file and return its path. Raises MissingError, StoppedError."""
        transfer = self.ask(file, urgent=True)
        while not transfer.done.wait(0.5):
            self._go_on()
        if transfer.failure:
            raise transfer.failure
        assert transfer.path
        return transfer.path

    def ask(self, file: RequiredFile, *, urgent: bool = False) -> Transfer:
        """Have a file fetched; one that could not be had is tried again."""
        assert file.sha256
        with self._lock:
            # Two names of the same bytes are two files: a folder is to have both.
            key = (file.sha256, file.file)
            there = self._transfers.get(key)
            if there is None or there.failure or (there.path and not there.path.exists()):
                now = time.monotonic()
                there = Transfer(file, now, now, total=file.bytes)
                self._transfers[key] = there
                self._put(there, urgent=urgent)
            elif urgent and not there.done.is_set():
                self._put(there, urgent=True)
            if len(self._threads) < min(AT_ONCE, len(self._transfers)):
                thread = threading.Thread(target=self._work, daemon=True)
                self._threads.append(thread)
                thread.start()
        return there

    def local(self, file: RequiredFile) -> Path | None:
        """Return the path of a file on this machine; None if it must be downloaded."""
        assert file.sha256
        if path := self._store.find(file.sha256, file.file):
            return path
        if path := self._local.find(file.sha256, file.file):
            return path
        for path in self._here(file):
            with contextlib.suppress(OSError):
                if self._local.sha256(path) == file.sha256:
                    return path
        return None

    @property
    def transfers(self) -> tuple[Transfer, ...]:
        with self._lock:
            return tuple(self._transfers.values())

    def take_failures(self) -> tuple[Transfer, ...]:
        """Return and forget the transfers that failed, so that a new request tries again."""
        with self._lock:
            failed = [one for one in self._transfers.values() if one.failure]
            for one in failed:
                del self._transfers[str(one.file.sha256), one.file.file]
        return tuple(failed)

    def lines(self) -> Iterator[str]:
        """Yield new progress lines."""
        while self._lines:
            yield self._lines.popleft()

    def say(self, line: str) -> None:
        self._lines.append(line)

    def _put(self, transfer: Transfer, *, urgent: bool) -> None:
        self._waiting.put((0 if urgent else 1, next(self._count), transfer))

    def _go_on(self) -> None:
        if self._is_stopped.is_set():
            raise StoppedError

    def _work(self) -> None:
        while not self._is_stopped.is_set():
            _, _, transfer = self._waiting.get()
            if transfer is None:
                return
            with self._lock:
                # One that became urgent stands in the queue twice.
                if transfer.source or transfer.done.is_set():
                    continue
                transfer.source = "this machine"
            try:
                transfer.path = self._have(transfer)
            except Exception as error:
                transfer.failure = error
            transfer.done.set()

    def _have(self, transfer: Transfer) -> Path:
        file = transfer.file
        assert file.sha256
        began = time.monotonic()
        path = self.local(file)
        self._patience.worked(began)
        if path and not (self._copies and not path.is_relative_to(self._store.root)):
            transfer.received = path.stat().st_size
            return path
        transfer.began = time.monotonic()
        with self._store.claim(file.sha256, self._go_on) as part:
            self._patience.worked(transfer.began)
            if found := self._store.find(file.sha256, file.file):
                transfer.received = found.stat().st_size
                return found
            if path:
                self._copy(path, part, transfer)
            if part.sha256 != file.sha256:
                self._fetch(part, transfer)
                if transfer.fetched >= _TOLD_BYTES:
                    self.say(_arrived(transfer))
            return self._store.keep(part, file.sha256, file.file)

    def _copy(self, path: Path, part: PartialFile, transfer: Transfer) -> None:
        part.drop()
        with path.open("rb") as source, part.writing(0, "", "") as out:
            while chunk := source.read(1 << 20):
                self._go_on()
                out.write(chunk)
                transfer.received += len(chunk)
        if part.sha256 != transfer.file.sha256:
            part.drop()
            self.say(f"{path} changed on disk; ignored")

    def _fetch(self, part: PartialFile, transfer: Transfer) -> None:
        said: list[tuple[str, str]] = []
        for offer in self._offers(transfer.file):
            if reason := self._patience.refusal(offer.place, transfer.asked):
                said.append((offer.name, reason))
                continue
            try:
                self._from(offer, part, transfer)
            except SourceError as error:
                said.append((offer.name, error.reason))
                if error.is_down:
                    self._patience.leave(offer.place, error.reason)
                else:
                    self._patience.heard()
            else:
                self._patience.welcome(offer.place)
                return
        raise MissingError(Missing(transfer.file, tuple(said)))

    def _from(self, offer: Offer, part: PartialFile, transfer: Transfer) -> None:
        """All of a file's bytes from one source."""
        transfer.source = offer.name
        cuts, is_retry, is_resumed = 0, False, part.size > 0
        while True:
            before = transfer.fetched
            try:
                self._receive(offer, part, transfer)
            except SourceError as error:
                if cuts < _MOST_CUTS and has_moved(transfer.fetched - before):
                    cuts += 1
                    continue
                if error.is_worth_a_retry and not is_retry and not self._is_stopped.wait(_PAUSE):
                    is_retry = True
                    continue
                raise
            if part.sha256 == transfer.file.sha256:
                return
            part.drop()
            if not is_resumed:
                reason = "returned other bytes than the pinned ones; refused"
                self.say(f"{transfer.file.file}: {offer.name} {reason}")
                raise SourceError(reason)
            # The beginning may be another source's.
            is_resumed = False

    def _receive(self, offer: Offer, part: PartialFile, transfer: Transfer) -> None:
        wanted = transfer.file.bytes
        if wanted is not None and part.size >= wanted:
            part.drop()
        place = offer.place
        with contextlib.ExitStack() as stack:
            opening = offer.open(part.size, part.validator(place))
            seconds = min(_OPEN_SECONDS, max(self._patience.until(transfer.asked) - time.monotonic(), 1.0))
            try:
                reply = bounded(opening.__enter__, time.monotonic() + seconds)
            except OverdueError:
                reason = f"did not respond within {seconds:.0f} s"
                raise SourceError(reason, is_down=True) from None
            stack.push(opening)
            self._patience.heard()
            if wanted is not None and reply.total not in (None, wanted):
                reason = f"has {reply.total} bytes instead of {wanted}; refused"
                self.say(f"{transfer.file.file}: {offer.name} {reason}")
                raise SourceError(reason)
            transfer.total = wanted or reply.total
            with part.writing(reply.start, place, reply.validator):
                transfer.received = part.size
                pace = TransferSpeed()
                for chunk in reply.chunks():
                    self._go_on()
                    self._patience.heard()
                    part.write(chunk)
                    transfer.received = part.size
                    transfer.fetched += len(chunk)
                    pace.keep(len(chunk))
                    if wanted is not None and part.size > wanted:
                        return
            if transfer.total is not None and part.size < transfer.total:
                reason = "closed the connection"
                raise SourceError(reason, is_worth_a_retry=True)


def _arrived(one: Transfer) -> str:
    seconds = max(time.monotonic() - one.began, 0.1)
    how = f"{format_bytes(one.fetched)} in {format_seconds(seconds)}, {format_bytes(one.fetched / seconds)}/s"
    return f"fetched {one.file.file}: {how}, from {one.source}"
