"""Durations and activities of the steps of a build, collected from its events."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from bakehouse.engine.buildkit_events import EXPORT, Event, Log, Step, StepTransfer, Tail

Activity = Literal["download", "compile", "install", "export", "other"]

_BY_LOG: tuple[tuple[re.Pattern[str], Activity], ...] = (
    (re.compile(r" *(?:Get:\d|Downloading |Collecting |Fetched )"), "download"),
    (re.compile(r" *(?:Building wheel|Preparing metadata|\[ *\d+%\]|checking (?:for|whether) )"), "compile"),
    (re.compile(r" *(?:\S*/)?(?:gcc|g\+\+|cc|c\+\+|nvcc|make|cmake|libtool:)(?:\[| )"), "compile"),
    (re.compile(r" *(?:Installing |Unpacking |Setting up |Selecting previously)"), "install"),
)
_CACHE = ("exporting cache", "importing cache")
_FETCHES = re.compile(r"\b(?:fetch|curl|wget) ")


@dataclass(frozen=True, slots=True)
class StepTime:
    """Duration of one step; a step that images share is one step."""

    stage: str
    """Stage name; empty for the export of an image."""
    position: str
    text: str
    images: tuple[str, ...]
    seconds: float
    cached: bool
    spent: tuple[tuple[Activity, float], ...]
    """Seconds for each activity, as far as the step's log shows them."""
    started: float
    """Time of its start, in seconds since the epoch."""
    builder: str = ""
    """Name of a remote builder; empty for the engine of this machine."""


@dataclass(slots=True)
class Work:
    """Current state of one step on one builder, for all the images it belongs to."""

    step: Step
    builder: str = ""
    images: dict[str, Step] = field(default_factory=dict)
    transfers: dict[str, StepTransfer] = field(default_factory=dict)
    tail: Tail = field(default_factory=lambda: Tail(1))
    _activity: Activity = "other"
    _since: float = 0.0
    _spent: dict[Activity, float] = field(default_factory=dict)
    _is_from_cache: bool = False

    @property
    def key(self) -> tuple[str, str]:
        return self.builder, self.step.digest

    @property
    def started(self) -> float | None:
        return min((step.started for step in self.images.values() if step.started), default=None)

    @property
    def completed(self) -> float | None:
        """Time of completion; None while the step waits or runs."""
        ends = [step.completed for step in self.images.values() if step.started]
        return max(end for end in ends if end) if ends and all(ends) else None

    @property
    def is_running(self) -> bool:
        return self.started is not None and self.completed is None

    @property
    def is_cached(self) -> bool:
        return any(step.cached for step in self.images.values())

    @property
    def is_shown(self) -> bool:
        """False for small internal steps of BuildKit and for merges of `COPY --link` layers."""
        if self.step.stage == "internal":
            return self.step.text.startswith("load build context")
        return self.step.stage != "auth" and not self.step.text.startswith("LINK ")

    @property
    def label(self) -> str:
        return f"{self.stage} {self.step.position}".strip() if self.steps_of_stage else self.stage

    @property
    def stage(self) -> str:
        """Name of the stage, or of a step that belongs to no stage."""
        if self.step.text == EXPORT:
            return "export"
        if self.step.text.startswith(_CACHE):
            return "cache"
        if self.step.stage == "internal":
            return "context" if self.is_shown else self.step.text
        # Many stages share a FROM step, which has the name of one of them.
        return "base" if self.step.text.startswith("FROM ") else self.step.stage

    @property
    def steps_of_stage(self) -> int:
        """Number of the stage's steps; 0 for a step that belongs to no stage."""
        is_own = self.stage != self.step.stage
        return 0 if is_own else int(self.step.position.rpartition("/")[2] or 0)

    @property
    def doing(self) -> str:
        """Last line of the step's log, or the name of its current transfer."""
        transfers = [transfer.name for transfer in self.transfers.values() if not transfer.completed]
        return next(iter(self.tail.lines()), transfers[-1] if transfers else "")

    def seconds(self, now: float) -> float:
        """Return the duration of the step, up to `now` if it still runs."""
        return max(0.0, (self.completed or now) - self.started) if self.started else 0.0

    def moved(self) -> tuple[int, int]:
        """Return the bytes transferred and the total; the total is 0 if it is unknown."""
        transfers = self.transfers.values()
        is_known = all(transfer.total for transfer in transfers)
        total = sum(transfer.total for transfer in transfers) if is_known else 0
        return sum(transfer.current for transfer in transfers), total

    def note(self, step: Step) -> None:
        ran = next((known for known in self.images.values() if _has_run(known)), None)
        if step.cached and not ran:
            self._is_from_cache = True
        if self._is_from_cache:
            # BuildKit reports the transfer of a cached result as if the step ran
            step = replace(step, cached=True)
        elif ran and (step.cached or not step.started):
            # A later call of buildx repeats the step, as cached
            step = replace(ran, target=step.target)
        elif step.started and self.completed and step.started > self.completed:
            # A later call runs it again
            self.images.clear()
        self.step = step
        self.images[step.target] = step
        if not self._since and step.started:
            self._since = step.started
            self._activity = _first_activity(step)
        if self.completed:
            self._spend(self.completed)

    def log(self, text: str, at: float) -> None:
        self.tail.add(text)
        for line in text.splitlines():
            activity = next((name for pattern, name in _BY_LOG if pattern.match(line)), self._activity)
            if activity != self._activity:
                self._spend(at)
                self._activity = activity

    def _spend(self, until: float) -> None:
        self._spent[self._activity] = self._spent.get(self._activity, 0.0) + max(0.0, until - self._since)
        self._since = max(self._since, until)

    def time(self, now: float) -> StepTime:
        return StepTime(
            stage=self.step.stage,
            position=self.step.position,
            text=self.step.text,
            images=tuple(self.images),
            seconds=self.seconds(now),
            cached=self.is_cached,
            spent=tuple(self._spent.items()),
            started=self.started or now,
            builder=self.builder,
        )


class BuildTimes:
    """Steps of bake calls, by builder and digest."""

    def __init__(self) -> None:
        self.works: dict[tuple[str, str], Work] = {}

    def note(self, event: Event, builder: str = "") -> Work | None:
        """Record an event and return the step it belongs to."""
        if isinstance(event, Step):
            work = self.works.setdefault((builder, event.digest), Work(event, builder))
            work.note(event)
            return work
        if isinstance(event, Log | StepTransfer) and (owner := self.works.get((builder, event.digest))):
            if isinstance(event, Log):
                owner.log(event.text, event.time)
            else:
                owner.transfers[event.name] = event
            return owner
        return None

    def drop_running(self, builder: str) -> None:
        """Remove the steps that a lost builder did not complete."""
        for key, work in [*self.works.items()]:
            if work.builder == builder and not work.completed:
                del self.works[key]

    def shown(self) -> list[Work]:
        return [work for work in self.works.values() if work.is_shown and work.images]

    def steps(self, now: float) -> tuple[StepTime, ...]:
        """Return all steps that ran or were cached, in order of their start."""
        started = [work for work in self.shown() if work.started]
        return tuple(work.time(now) for work in sorted(started, key=lambda work: work.started or 0.0))


def spent(steps: Iterable[StepTime]) -> dict[Activity, float]:
    """Return the total seconds of each activity; parallel steps add up to more than the elapsed time."""
    total: dict[Activity, float] = {}
    for step in steps:
        for activity, seconds in step.spent:
            total[activity] = total.get(activity, 0.0) + (0.0 if step.cached else seconds)
    return total


def _has_run(step: Step) -> bool:
    return bool(step.completed and not step.cached and not step.error)


def _first_activity(step: Step) -> Activity:
    """Return the activity of a step that has not logged anything yet."""
    if step.text == EXPORT:
        return "export"
    return "download" if _FETCHES.search(step.text) else "other"
