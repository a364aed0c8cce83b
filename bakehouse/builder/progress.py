"""Progress of a build: a short table on a terminal, plain lines elsewhere, JSON lines on request."""

import json
import os
import re
import threading
import time
from collections.abc import Callable, Sequence
from enum import StrEnum
from types import TracebackType
from typing import Self, TextIO

from bakehouse.builder.timings import BuildTimes, StepTime, Work
from bakehouse.engine.buildkit_events import EXPORT, Event, Step
from bakehouse.util.format import format_bytes, format_count, format_seconds
from bakehouse.util.heartbeat import SILENT_SECONDS
from bakehouse.util.terminal import Redrawn, clip, in_colour, is_verbose

_REDRAW_SECONDS = 0.5
_MAX_ROWS = 6
_MAX_RUNNING = 3
_MAX_IMAGES, _FIRST_IMAGES = 6, 3
_BRIEF_SECONDS = 1.0
"""Shorter steps are counted, not reported."""
_MEGABYTE = 1_000_000
_NOISE = re.compile(r" --[a-z]+=\S+| <<-?[\"']?\w+[\"']?(?: \(.*\)$)?|(?<=FROM )docker\.io/|@sha256:\w+")


class Mode(StrEnum):
    TABLE = "table"
    LINES = "lines"
    JSON = "json"


def mode_for(stream: TextIO) -> Mode:
    """Return TABLE for a terminal, LINES for other streams."""
    return Mode.TABLE if stream.isatty() and os.environ.get("TERM") != "dumb" else Mode.LINES


class Progress:
    """Receives the events of a build, from any thread, and prints its progress."""

    @classmethod
    def on(cls, stream: TextIO, *, json: bool = False, brief: float = _BRIEF_SECONDS) -> Self:
        """Choose the mode by the stream: a table on a terminal, otherwise lines; JSON on request.

        Unless verbose, stages of fewer than `brief` seconds are counted, not reported.
        """
        mode = Mode.JSON if json else mode_for(stream)
        return cls(stream, mode, colour=in_colour(stream), verbose=is_verbose(), brief=brief)

    def __init__(
        self,
        stream: TextIO,
        mode: Mode,
        *,
        colour: bool = False,
        verbose: bool = False,
        brief: float = _BRIEF_SECONDS,
        width: int | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._stream, self._mode, self._clock = stream, mode, clock
        self._brief = brief
        self._reports_steps = verbose or mode is Mode.JSON
        self._rows = Redrawn(stream, colour=colour, width=width)
        self._times = BuildTimes()
        self._began = self._last_line = clock()
        self._last_draw = 0.0
        self._started: set[tuple[str, str]] = set()
        """Keys of the steps whose start was printed."""
        self._ended: set[tuple[str, str]] = set()
        """Keys of the steps whose end was printed, also as that of their stage."""
        self._lock = threading.RLock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._rows.erase()
        with self._lock:
            now = self._clock()
            for stage in self._stages(self._times.shown()):
                if not any(work.step.error for work in stage):
                    self._report_stage(stage, now)
            if self._mode is not Mode.JSON and self._completed():
                self.report(self.summary())
        self._stream.flush()

    def __call__(self, event: Event, builder: str = "") -> None:
        with self._lock:
            self._note(event, builder)

    def _note(self, event: Event, builder: str) -> None:
        work = self._times.note(event, builder)
        now = self._clock()
        if isinstance(event, Step) and work and work.is_shown:
            if work.completed and (self._reports_steps or work.step.error):
                self._report_end(work, now)
            elif work.completed:
                self._report_stages(work, now)
            elif work.is_running and work.key in self._ended:
                # The step was stopped, and the next call of buildx runs it again.
                self._ended.discard(work.key)
                self._started.discard(work.key)
        if self._mode is Mode.TABLE:
            if now - self._last_draw >= _REDRAW_SECONDS:
                self._draw(now)
        else:
            self._report_running(now)

    def report(self, text: str) -> None:
        """Print a line that does not come from an event."""
        with self._lock:
            self._write(text, {"event": "note", "text": text})

    def drop_running(self, builder: str) -> None:
        """Forget the steps that a lost builder did not complete."""
        with self._lock:
            self._times.drop_running(builder)

    def steps(self) -> tuple[StepTime, ...]:
        """Return the duration of each step so far."""
        return self._times.steps(self._clock())

    def summary(self) -> str:
        """Return the counts of completed and cached steps, such as `12 steps, 9 of them cached`."""
        completed = self._completed()
        cached = sum(work.is_cached for work in completed)
        return f"{format_count(len(completed), 'step')}, {cached} of them cached"

    def _completed(self) -> list[Work]:
        return [work for work in self._times.shown() if work.completed and work.step.text != EXPORT]

    def _report_end(self, work: Work, now: float) -> None:
        if work.key in self._ended:
            return
        self._ended.add(work.key)
        seconds = work.seconds(now)
        # BuildKit cancels a step that equals a running one of another image
        is_canceled = "context canceled" in work.step.error
        if work.is_cached or (seconds < _BRIEF_SECONDS and (not work.step.error or is_canceled)):
            if self._mode is Mode.JSON:
                self._write("", self._facts("cached" if work.is_cached else "done", work, now))
            return
        outcome = "failed after" if work.step.error else "done in"
        text = f"{work.label}: {outcome} {format_seconds(seconds)}{_bytes(work)} ({_images(work)})"
        if work.step.error and work.label == "cache":
            # No later message explains it, because a build does not need its cache
            text += f": {' '.join(work.step.error.split())}"
        self._write(text, self._facts("failed" if work.step.error else "done", work, now))

    def _report_stages(self, work: Work, now: float) -> None:
        """Report the stages that the end of a step completes."""
        same_name = [one for one in self._times.shown() if one.stage == work.stage]
        for stage in self._stages(same_name):
            if work in stage and len(stage) >= work.steps_of_stage and all(map(_is_done, stage)):
                self._report_stage(stage, now)

    def _stages(self, works: Sequence[Work]) -> list[list[Work]]:
        """Return the steps of each stage that has steps whose end was not printed.

        Steps are grouped by image, because images can have different stages of the same name.
        """
        stages: dict[tuple[str, ...], list[Work]] = {}
        for work in works:
            for image in work.images:
                stages.setdefault((work.builder, work.stage, image), []).append(work)
        by_steps = {frozenset(work.key for work in stage): stage for stage in stages.values()}
        return [stage for keys, stage in by_steps.items() if not keys <= self._ended]

    def _report_stage(self, stage: Sequence[Work], now: float) -> None:
        done = [work for work in stage if _is_done(work)]
        self._ended |= {work.key for work in done}
        ran = [work for work in done if not work.is_cached]
        if not ran:
            return
        seconds = max(work.completed or now for work in ran) - min(work.started or now for work in ran)
        if seconds < self._brief:
            return
        moved = _moved(sum(work.moved()[0] for work in ran))
        images = _images(min(ran, key=lambda work: len(work.images)))
        self._write(f"{ran[0].stage}: done in {format_seconds(seconds)}{moved} ({images})", {})

    def _report_running(self, now: float) -> None:
        running = [work for work in self._times.shown() if work.is_running]
        for work in running if self._reports_steps else ():
            is_long = work.seconds(now) >= _BRIEF_SECONDS
            if is_long and work.key not in self._started and not work.is_cached:
                self._started.add(work.key)
                text = f"{work.label}: {_command(work.step.text)} ({_images(work)})"
                self._write(text, self._facts("started", work, now))
        if now - self._last_line < SILENT_SECONDS:
            return
        if self._mode is Mode.JSON and running:
            for work in running:
                self._write("", self._facts("running", work, now))
        else:
            self.report(self._heartbeat(running, now))

    def _heartbeat(self, running: Sequence[Work], now: float) -> str:
        """Return the line for a build that printed nothing for a while."""
        # BuildKit's internal steps are not shown, but can take long, such as querying a registry for a base.
        works = running or [work for work in self._times.works.values() if work.is_running]
        if not works:
            return "still waiting for the engine: no step is running"
        works = sorted(works, key=lambda work: work.started or 0.0)
        steps = [f"{work.label} ({format_seconds(work.seconds(now))}{_bytes(work)})" for work in works]
        if len(steps) > _MAX_RUNNING:
            steps[_MAX_RUNNING:] = [f"{len(steps) - _MAX_RUNNING} more"]
        doing = works[0].doing if len(works) == 1 else ""
        return f"still running: {', '.join(steps)}{f': {clip(doing, 90)}' if doing else ''}"

    def _facts(self, event: str, work: Work, now: float) -> dict[str, object]:
        moved, total = work.moved()
        facts: dict[str, object] = {
            "event": event, "step": work.label, "text": work.step.text, "images": list(work.images),
            "seconds": round(work.seconds(now), 3), "bytes": moved, "bytes_total": total,
            **({"builder": work.builder} if work.builder else {}),
        }  # fmt: skip
        return facts | ({"error": work.step.error} if work.step.error else {})

    def _write(self, text: str, facts: dict[str, object]) -> None:
        self._last_line = self._clock()
        elapsed = self._last_line - self._began
        if self._mode is Mode.JSON:
            self._stream.write(json.dumps({"at": round(elapsed, 3), **facts}) + "\n")
        else:
            self._rows.erase()
            self._stream.write(f"{format_seconds(elapsed):>7}  {text}\n")
        self._stream.flush()

    def _draw(self, now: float) -> None:
        self._last_draw = now
        self._rows.draw(self._table(now))

    def _table(self, now: float) -> Sequence[str]:
        running = [work for work in self._times.shown() if work.is_running and not work.is_cached]
        running.sort(key=lambda work: work.started or 0.0)
        rows = [f"{format_seconds(now - self._began):>7}  {self.summary()}, {len(running)} running"]
        width = max((len(work.label) for work in running[:_MAX_ROWS]), default=0)
        for work in running[:_MAX_ROWS]:
            doing = work.doing or _command(work.step.text)
            step = f"{work.label:{width}}{_bytes(work)}  {','.join(work.images)}{_builder(work)}"
            rows.append(f"{format_seconds(work.seconds(now)):>9}  {step}  {doing}")
        if len(running) > _MAX_ROWS:
            rows.append(f"{'':9}  and {len(running) - _MAX_ROWS} more")
        return rows


def _images(work: Work) -> str:
    """Return the first few images of a step, the number of the others, and the builder."""
    names = list(work.images)
    if len(names) <= _MAX_IMAGES:
        return f"{', '.join(names)}{_builder(work)}"
    return f"{', '.join(names[:_FIRST_IMAGES])} and {len(names) - _FIRST_IMAGES} more{_builder(work)}"


def _builder(work: Work) -> str:
    return f" on {work.builder}" if work.builder else ""


def _bytes(work: Work) -> str:
    moved, total = work.moved()
    return _moved(moved, f" of {format_bytes(total)}" if total else "")


def _moved(bytes: int, of_total: str = "") -> str:
    return f", {format_bytes(bytes)}{of_total}" if bytes >= _MEGABYTE else ""


def _is_done(work: Work) -> bool:
    return bool(work.completed and not work.step.error)


def _command(text: str) -> str:
    """Return the text of a step without its mounts, digests and heredoc."""
    return clip(_NOISE.sub("", " ".join(text.split())), 70)
