"""Shows a build while it runs: a short table on a terminal, plain lines elsewhere, JSON lines on request."""

import json
import os
import re
import time
from collections.abc import Callable, Sequence
from enum import StrEnum
from types import TracebackType
from typing import Self, TextIO

from bakehouse.build.timings import BuildTimes, StepTime, Work
from bakehouse.engine.buildkit_events import EXPORT, Event, Step, Tick
from bakehouse.util.format import format_bytes, format_seconds
from bakehouse.util.terminal import Redrawn, clip, in_colour

_HEARTBEAT_SECONDS = 30.0
_REDRAW_SECONDS = 0.5
_MOST_ROWS = 6
_MOST_IMAGES, _FEW_IMAGES = 6, 3
_BRIEF_SECONDS = 1.0
"""Steps that take less are counted, not told."""
_MEGABYTE = 1_000_000
_NOISE = re.compile(r" --[a-z]+=\S+| <<-?[\"']?\w+[\"']?(?: \(.*\)$)?|(?<=FROM )docker\.io/|@sha256:\w+")


class Mode(StrEnum):
    TABLE = "table"
    LINES = "lines"
    JSON = "json"


def mode_for(stream: TextIO) -> Mode:
    """A table where somebody watches, lines elsewhere."""
    return Mode.TABLE if stream.isatty() and os.environ.get("TERM") != "dumb" else Mode.LINES


class Progress:
    """Takes a build's events and writes what a person wants to know of them."""

    @classmethod
    def on(cls, stream: TextIO, *, json: bool = False) -> Self:
        """As the stream is looked at: a table where somebody watches, lines elsewhere, JSON where asked."""
        return cls(stream, Mode.JSON if json else mode_for(stream), colour=in_colour(stream))

    def __init__(
        self,
        stream: TextIO,
        mode: Mode,
        *,
        colour: bool = False,
        width: int | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._stream, self._mode, self._clock = stream, mode, clock
        self._rows = Redrawn(stream, colour=colour, width=width)
        self._times = BuildTimes()
        self._began = clock()
        self._drawn = 0.0
        self._told: dict[str, float] = {}
        """When a step was last spoken of; infinity once it has ended."""
        self._heard = clock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._rows.erase()
        self._stream.flush()

    def __call__(self, event: Event) -> None:
        work = self._times.note(event)
        now = self._clock()
        if not isinstance(event, Tick):
            self._heard = now
        if isinstance(event, Step) and work and work.is_shown:
            if work.completed:
                self._tell_end(work, now)
            elif work.is_running and self._told.get(work.step.digest) == float("inf"):
                # It was stopped, and the next call of buildx takes it up again.
                del self._told[work.step.digest]
        if self._mode is Mode.TABLE:
            if now - self._drawn >= _REDRAW_SECONDS:
                self._draw(now)
        else:
            self._tell_running(now)

    def report(self, text: str) -> None:
        """Write one line of one's own."""
        self._write(text, {"event": "note", "text": text})

    def steps(self) -> tuple[StepTime, ...]:
        """How long each step took so far."""
        return self._times.steps(self._clock())

    def summary(self) -> str:
        """`12 steps done, 9 of them cached`, of all that was told."""
        ended = [work for work in self._times.shown() if work.completed and work.step.text != EXPORT]
        cached = sum(work.is_cached for work in ended)
        return f"{len(ended)} steps, {cached} of them cached"

    def _tell_end(self, work: Work, now: float) -> None:
        if self._told.get(work.step.digest) == float("inf"):
            return
        self._told[work.step.digest] = float("inf")
        seconds = work.seconds(now)
        if work.is_cached or (seconds < _BRIEF_SECONDS and not work.step.error):
            if self._mode is Mode.JSON:
                self._write("", self._facts("cached" if work.is_cached else "done", work, now))
            return
        how = "failed after" if work.step.error else "done in"
        text = f"{work.label}: {how} {format_seconds(seconds)}{_bytes(work)} ({_images(work)})"
        self._write(text, self._facts("failed" if work.step.error else "done", work, now))

    def _tell_running(self, now: float) -> None:
        running = [work for work in self._times.shown() if work.is_running]
        if not running and now - self._heard >= _HEARTBEAT_SECONDS:
            self._heard = now
            self.report(f"nothing runs, and the engine has said nothing for {_HEARTBEAT_SECONDS:.0f} s")
        for work in running:
            if work.seconds(now) < _BRIEF_SECONDS:
                continue
            last = self._told.get(work.step.digest)
            if last is None:
                self._told[work.step.digest] = now
                text = f"{work.label}: {_command(work.step.text)} ({_images(work)})"
                self._write(text, self._facts("started", work, now))
            elif now - last >= _HEARTBEAT_SECONDS:
                self._told[work.step.digest] = now
                since = f"running for {format_seconds(work.seconds(now))}{_bytes(work)} ({_images(work)})"
                doing = f": {clip(work.doing, 90)}" if work.doing else ""
                self._write(f"{work.label}: {since}{doing}", self._facts("running", work, now))

    def _facts(self, event: str, work: Work, now: float) -> dict[str, object]:
        moved, total = work.moved()
        facts: dict[str, object] = {
            "event": event, "step": work.label, "text": work.step.text, "images": list(work.images),
            "seconds": round(work.seconds(now), 3), "bytes": moved, "bytes_total": total,
        }  # fmt: skip
        return facts | ({"error": work.step.error} if work.step.error else {})

    def _write(self, text: str, facts: dict[str, object]) -> None:
        elapsed = self._clock() - self._began
        if self._mode is Mode.JSON:
            self._stream.write(json.dumps({"at": round(elapsed, 3), **facts}) + "\n")
        else:
            self._rows.erase()
            self._stream.write(f"{format_seconds(elapsed):>7}  {text}\n")
        self._stream.flush()

    def _draw(self, now: float) -> None:
        self._drawn = now
        self._rows.draw(self._table(now))

    def _table(self, now: float) -> Sequence[str]:
        running = [work for work in self._times.shown() if work.is_running and not work.is_cached]
        running.sort(key=lambda work: work.started or 0.0)
        rows = [f"{format_seconds(now - self._began):>7}  {self.summary()}, {len(running)} running"]
        width = max((len(work.label) for work in running[:_MOST_ROWS]), default=0)
        for work in running[:_MOST_ROWS]:
            last = work.doing or _command(work.step.text)
            what = f"{work.label:{width}}{_bytes(work)}  {','.join(work.images)}"
            rows.append(f"{format_seconds(work.seconds(now)):>9}  {what}  {last}")
        if len(running) > _MOST_ROWS:
            rows.append(f"{'':9}  and {len(running) - _MOST_ROWS} more")
        return rows


def _images(work: Work) -> str:
    """The images of a step; of many, the first few."""
    names = list(work.images)
    if len(names) <= _MOST_IMAGES:
        return ", ".join(names)
    return f"{', '.join(names[:_FEW_IMAGES])} and {len(names) - _FEW_IMAGES} more"


def _bytes(work: Work) -> str:
    moved, total = work.moved()
    if moved < _MEGABYTE:
        return ""
    of = f" of {format_bytes(total)}" if total else ""
    return f", {format_bytes(moved)}{of}"


def _command(text: str) -> str:
    """A step's text without its mounts, digests, and the beginning of what it takes from a heredoc."""
    return clip(_NOISE.sub("", " ".join(text.split())), 70)
