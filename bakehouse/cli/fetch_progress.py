"""Shows downloads: a short table on a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self, TextIO

from bakehouse.build.progress import Mode, mode_for
from bakehouse.fetch.downloader import Fetcher, Transfer
from bakehouse.util.format import format_bytes, format_seconds
from bakehouse.util.terminal import Redrawn

_REDRAW_SECONDS = 0.5
_HEARTBEAT_SECONDS = 10.0
_MOST_ROWS = 8


class FetchProgress:
    """Prints the progress of downloads."""

    def __init__(
        self,
        stream: TextIO,
        count: int,
        *,
        mode: Mode | None = None,
        width: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream, self._count, self._clock = stream, count, clock
        self._mode = mode or mode_for(stream)
        self._began = self._drawn = clock()
        self._rows = Redrawn(stream, width=width)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._rows.erase()
        self._stream.flush()

    def show(self, fetcher: Fetcher) -> None:
        """Print news. Call it a few times a second."""
        now, transfers = self._clock(), fetcher.transfers
        for line in fetcher.lines():
            self._write(line, now)
        if self._mode is Mode.TABLE:
            if now - self._drawn >= _REDRAW_SECONDS:
                self._draw(transfers, now)
        elif now - self._drawn >= _HEARTBEAT_SECONDS:
            self._drawn = now
            self._write(self._summary(transfers, now), now)

    def _summary(self, transfers: Sequence[Transfer], now: float) -> str:
        here = sum(one.path is not None for one in transfers)
        fetched = sum(one.fetched for one in transfers)
        rate = format_bytes(fetched / max(now - self._began, 0.1))
        return f"{here} of {self._count} files are here, {format_bytes(fetched)} fetched, {rate}/s"

    def _draw(self, transfers: Sequence[Transfer], now: float) -> None:
        self._drawn = now
        running = [one for one in transfers if one.source and not one.done.is_set()]
        rows = [f"{format_seconds(now - self._began):>7}  {self._summary(transfers, now)}"]
        for one in running[:_MOST_ROWS]:
            of = f" of {format_bytes(one.total)}" if one.total else ""
            received = f"{format_bytes(one.received)}{of}"
            rows.append(f"{format_seconds(now - one.began):>9}  {one.file.file}  {received}  {one.source}")
        self._rows.draw(rows)

    def _write(self, text: str, now: float) -> None:
        self._rows.erase()
        self._stream.write(f"{format_seconds(now - self._began):>7}  {text}\n")
        self._stream.flush()
