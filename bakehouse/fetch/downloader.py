"""Parallel downloads of the files that builds need, each from the first source that has it.

Files on this machine are not downloaded again. Sources that return different bytes than the pinned ones are
reported and skipped. Sources that are down are skipped for some time. Interrupted downloads are resumed.
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

from bakehouse.fetch.cache import FileCache, PartialFile
from bakehouse.fetch.faults import Fault, SourceError
from bakehouse.fetch.http_client import MIN_BYTES, TransferSpeed
from bakehouse.fetch.local_mirror import LocalMirrors
from bakehouse.fetch.required_files import RequiredFile
from bakehouse.fetch.retry import DOWNLOAD, IDLE_SECONDS, Retries, SourceBackoff
from bakehouse.fetch.sources import Offer
from bakehouse.util.deadline import OverdueError, bounded
from bakehouse.util.format import format_bytes, format_seconds
from bakehouse.util.terminal import detail

MAX_CONCURRENT_DOWNLOADS = 8
_OPEN_SECONDS = 16.0
"""Time limit for name look-up, connection and first response, because name look-ups have no limit."""
_MAX_CUTS = 5
_MIN_REPORTED_BYTES = 1_000_000
"""Downloads of smaller files are not reported."""


class StoppedError(Exception):
    """The fetcher was stopped."""


class MissingError(Exception):
    """A file is unavailable."""

    def __init__(self, file: RequiredFile, failures: tuple[tuple[str, str], ...]) -> None:
        super().__init__(file.file)
        self.failures = failures
        """The failure of each source."""


@dataclass
class FileDownload:
    """A download and its progress."""

    file: RequiredFile
    requested: float
    began: float
    source: str = ""
    received: int = 0
    """Bytes of the file on this machine."""
    fetched: int = 0
    """Bytes received over the network, including discarded ones."""
    total: int | None = None
    path: Path | None = None
    failure: Exception | None = None
    done: threading.Event = field(default_factory=threading.Event)


class Fetcher:
    """Downloads of files by sha256, for many threads; leaving its context stops all downloads."""

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
        """`here` returns candidates on this machine; `copies` copies local files into the store."""
        self._store, self._local, self._offers, self._here = store, local, offers, here
        self._copies, self._backoff = copies, SourceBackoff(patience)
        self._lock = threading.Lock()
        self._transfers: dict[tuple[str, str], FileDownload] = {}
        self._waiting: queue.PriorityQueue[tuple[int, int, FileDownload | None]] = queue.PriorityQueue()
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

    def ask(self, file: RequiredFile, *, urgent: bool = False) -> FileDownload:
        """Queue a download. A failed one is queued again."""
        assert file.sha256
        with self._lock:
            # A directory of files contains the same bytes once for each name.
            key = (file.sha256, file.file)
            transfer = self._transfers.get(key)
            if transfer is None or transfer.failure or (transfer.path and not transfer.path.exists()):
                now = time.monotonic()
                transfer = FileDownload(file, now, now, total=file.bytes)
                self._transfers[key] = transfer
                self._put(transfer, urgent=urgent)
            elif urgent and not transfer.done.is_set():
                self._put(transfer, urgent=True)
            if len(self._threads) < min(MAX_CONCURRENT_DOWNLOADS, len(self._transfers)):
                thread = threading.Thread(target=self._work, daemon=True)
                self._threads.append(thread)
                thread.start()
        return transfer

    def local(self, file: RequiredFile) -> Path | None:
        """Return the path of a file on this machine; None if it must be downloaded."""
        assert file.sha256
        if path := self._store.find(file.sha256, file.file) or self._local.find(file.sha256, file.file):
            return path
        for path in self._here(file):
            with contextlib.suppress(OSError):
                if self._local.sha256(path) == file.sha256:
                    return path
        return None

    @property
    def transfers(self) -> tuple[FileDownload, ...]:
        with self._lock:
            return tuple(self._transfers.values())

    def take_failures(self) -> tuple[FileDownload, ...]:
        """Return and forget the transfers that failed, so that a new request tries again."""
        with self._lock:
            failed = [transfer for transfer in self._transfers.values() if transfer.failure]
            for transfer in failed:
                del self._transfers[str(transfer.file.sha256), transfer.file.file]
        return tuple(failed)

    def lines(self) -> Iterator[str]:
        """Yield new progress lines."""
        while self._lines:
            yield self._lines.popleft()

    def say(self, line: str) -> None:
        self._lines.append(line)

    def _put(self, transfer: FileDownload, *, urgent: bool) -> None:
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
                # A transfer that became urgent is in the queue twice.
                if transfer.source or transfer.done.is_set():
                    continue
                transfer.source = "this machine"
            try:
                transfer.path = self._have(transfer)
            except Exception as error:
                transfer.failure = error
            transfer.done.set()

    def _have(self, transfer: FileDownload) -> Path:
        file = transfer.file
        assert file.sha256
        began = time.monotonic()
        path = self.local(file)
        self._backoff.record_work(began)
        if path and not (self._copies and not path.is_relative_to(self._store.root)):
            transfer.received = path.stat().st_size
            return path
        transfer.began = time.monotonic()
        with self._store.claim(file.sha256, self._go_on) as part:
            self._backoff.record_work(transfer.began)
            if stored := self._store.find(file.sha256, file.file):
                transfer.received = stored.stat().st_size
                return stored
            if path:
                self._copy(path, part, transfer)
            if part.sha256 != file.sha256:
                self._fetch(part, transfer)
                if transfer.fetched >= _MIN_REPORTED_BYTES:
                    detail(self.say)(_summary(transfer))
            return self._store.keep(part, file.sha256, file.file)

    def _copy(self, path: Path, part: PartialFile, transfer: FileDownload) -> None:
        part.drop()
        with path.open("rb") as source, part.writing(0, "", "") as out:
            while chunk := source.read(1 << 20):
                self._go_on()
                out.write(chunk)
                transfer.received += len(chunk)
        if part.sha256 != transfer.file.sha256:
            part.drop()
            self.say(f"{path} changed on disk; ignored")

    def _fetch(self, part: PartialFile, transfer: FileDownload) -> None:
        failures: list[tuple[str, str]] = []
        for offer in self._offers(transfer.file):
            if reason := self._backoff.refusal(offer.place, transfer.requested):
                failures.append((offer.name, reason))
                continue
            try:
                self._from(offer, part, transfer)
            except SourceError as error:
                failures.append((offer.name, error.reason))
                if error.fault.is_down:
                    self._backoff.mark_down(offer.place, error.reason)
                else:
                    self._backoff.record_response()
            else:
                self._backoff.mark_up(offer.place)
                return
        raise MissingError(transfer.file, tuple(failures))

    def _from(self, offer: Offer, part: PartialFile, transfer: FileDownload) -> None:
        """Download a complete file from one source."""
        transfer.source = offer.name
        cuts, retries, is_resumed = 0, Retries(DOWNLOAD), part.size > 0
        while True:
            before = transfer.fetched
            try:
                self._receive(offer, part, transfer)
            except SourceError as error:
                if cuts < _MAX_CUTS and transfer.fetched - before >= MIN_BYTES:
                    cuts += 1
                    continue
                if not retries.add(may_pass=error.fault.is_worth_a_retry):
                    raise
                if self._is_stopped.wait(DOWNLOAD.seconds(0)):
                    raise
                continue
            if part.sha256 == transfer.file.sha256:
                return
            part.drop()
            if not is_resumed:
                reason = "returned a file that does not match the pinned sha256; refused"
                self.say(f"{transfer.file.file}: {offer.name} {reason}")
                raise SourceError(reason)
            # The bytes before the interruption may come from another source.
            is_resumed = False

    def _receive(self, offer: Offer, part: PartialFile, transfer: FileDownload) -> None:
        size = transfer.file.bytes
        if size is not None and part.size >= size:
            part.drop()
        with contextlib.ExitStack() as stack:
            opening = offer.open(part.size, part.validator(offer.place))
            left = self._backoff.deadline(transfer.requested) - time.monotonic()
            seconds = min(_OPEN_SECONDS, max(left, 1.0))
            try:
                response = bounded(opening.__enter__, time.monotonic() + seconds)
            except OverdueError:
                reason = f"did not respond within {seconds:.0f} s"
                raise SourceError(reason, Fault.SILENT) from None
            stack.push(opening)
            self._backoff.record_response()
            if size is not None and response.total not in (None, size):
                reason = f"has {response.total} bytes instead of {size}; refused"
                self.say(f"{transfer.file.file}: {offer.name} {reason}")
                raise SourceError(reason)
            transfer.total = size or response.total
            with part.writing(response.start, offer.place, response.validator):
                transfer.received = part.size
                speed = TransferSpeed()
                for chunk in response.chunks():
                    self._go_on()
                    self._backoff.record_response()
                    part.write(chunk)
                    transfer.received = part.size
                    transfer.fetched += len(chunk)
                    speed.add(len(chunk))
                    if size is not None and part.size > size:
                        return
            if transfer.total is not None and part.size < transfer.total:
                reason = "closed the connection"
                raise SourceError(reason, Fault.CUT_OFF)


def _summary(transfer: FileDownload) -> str:
    seconds = max(time.monotonic() - transfer.began, 0.1)
    size, speed = format_bytes(transfer.fetched), format_bytes(transfer.fetched / seconds)
    time_text = format_seconds(seconds)
    return f"fetched {transfer.file.file}: {size} in {time_text}, {speed}/s, from {transfer.source}"
