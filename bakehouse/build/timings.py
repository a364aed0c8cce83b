"""Keeps what a build does and has done, from its events: which steps, for which images, for how long."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from bakehouse.engine.buildkit_events import EXPORT, Event, Log, Step, Tail, Transfer

Activity = Literal["download", "compile", "install", "export", "other"]

_BY_LOG: tuple[tuple[re.Pattern[str], Activity], ...] = (
    (re.compile(r" *(?:Get:\d|Downloading |Collecting |Fetched )"), "download"),
    (re.compile(r" *(?:Building wheel|Preparing metadata|\[ *\d+%\]|checking (?:for|whether) )"), "compile"),
    (re.compile(r" *(?:\S*/)?(?:gcc|g\+\+|cc|c\+\+|nvcc|make|cmake|libtool:)(?:\[| )"), "compile"),
    (re.compile(r" *(?:Installing |Unpacking |Setting up |Selecting previously)"), "install"),
)
_FETCHES = re.compile(r"\b(?:fetch|curl|wget) ")


@dataclass(frozen=True, slots=True)
class StepTime:
    """How long one step took; a step that images share is one step."""

    stage: str
    """Empty for the export of an image."""
    position: str
    text: str
    images: tuple[str, ...]
    seconds: float
    cached: bool
    spent: tuple[tuple[Activity, float], ...]
    """The seconds by what the step was doing, as far as its log tells."""


@dataclass(slots=True)
class Work:
    """One step of the graph as it stands, over all the images it belongs to."""

    step: Step
    images: dict[str, Step] = field(default_factory=dict)
    transfers: dict[str, Transfer] = field(default_factory=dict)
    tail: Tail = field(default_factory=lambda: Tail(1))
    _activity: Activity = "other"
    _since: float = 0.0
    _spent: dict[Activity, float] = field(default_factory=dict)

    @property
    def started(self) -> float | None:
        return min((one.started for one in self.images.values() if one.started), default=None)

    @property
    def completed(self) -> float | None:
        """When it was done; None while it waits or runs."""
        ends = [one.completed for one in self.images.values() if one.started]
        return max(end for end in ends if end) if ends and all(ends) else None

    @property
    def is_running(self) -> bool:
        return self.started is not None and self.completed is None

    @property
    def is_cached(self) -> bool:
        return any(one.cached for one in self.images.values())

    @property
    def is_shown(self) -> bool:
        """BuildKit's own small steps are nobody's concern, nor is the merging of linked layers."""
        if self.step.stage == "internal":
            return self.step.text.startswith("load build context")
        return self.step.stage != "auth" and not self.step.text.startswith("LINK ")

    @property
    def label(self) -> str:
        if self.step.text == EXPORT:
            return "export"
        if self.step.stage == "internal":
            return "context"
        # FROM is the first step of many stages, and has the name of any of them.
        is_base = self.step.text.startswith("FROM ")
        return "base" if is_base else f"{self.step.stage} {self.step.position}".strip()

    @property
    def doing(self) -> str:
        """Its last line of log, or what it is moving."""
        under_way = [one.name for one in self.transfers.values() if not one.completed]
        return next(iter(self.tail.lines()), under_way[-1] if under_way else "")

    def seconds(self, now: float) -> float:
        """How long it ran, or has been running."""
        return max(0.0, (self.completed or now) - self.started) if self.started else 0.0

    def moved(self) -> tuple[int, int]:
        """Bytes moved, and to be moved; the second is 0 where that isn't known."""
        known = all(one.total for one in self.transfers.values())
        total = sum(one.total for one in self.transfers.values()) if known else 0
        return sum(one.current for one in self.transfers.values()), total

    def note(self, step: Step) -> None:
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
        )


class BuildTimes:
    """All steps of a bake call, by digest."""

    def __init__(self) -> None:
        self.works: dict[str, Work] = {}

    def note(self, event: Event) -> Work | None:
        """Take an event in; gives the step it is about."""
        if isinstance(event, Step):
            work = self.works.setdefault(event.digest, Work(event))
            work.note(event)
            return work
        if isinstance(event, Log | Transfer) and (found := self.works.get(event.digest)):
            if isinstance(event, Log):
                found.log(event.text, event.time)
            else:
                found.transfers[event.name] = event
            return found
        return None

    def shown(self) -> list[Work]:
        return [work for work in self.works.values() if work.is_shown and work.images]

    def steps(self, now: float) -> tuple[StepTime, ...]:
        """Every step that ran or was cached, in the order of their beginnings."""
        started = [work for work in self.shown() if work.started]
        return tuple(work.time(now) for work in sorted(started, key=lambda work: work.started or 0.0))


def spent(steps: Iterable[StepTime]) -> dict[Activity, float]:
    """Seconds by what was done; steps run beside each other, so that the sum is more than the clock says."""
    total: dict[Activity, float] = {}
    for step in steps:
        for activity, seconds in step.spent:
            total[activity] = total.get(activity, 0.0) + (0.0 if step.cached else seconds)
    return total


def _first_activity(step: Step) -> Activity:
    """What a step does before it says anything."""
    if step.text == EXPORT:
        return "export"
    return "download" if _FETCHES.search(step.text) else "other"
