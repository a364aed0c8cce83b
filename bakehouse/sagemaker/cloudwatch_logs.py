"""Reads what the hosts of a job on SageMaker print, from CloudWatch, each event once."""

import math
import re
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from bakehouse.cluster.cluster import OutputHandler
from bakehouse.sagemaker.client import TrainingService
from bakehouse.util.aws import AwsError

_HOST = re.compile(r"/(?P<host>algo-[0-9]+)[-/]")
_KEPT = 200_000
"""Characters of the end of each host's log that are kept to find a cause in."""
_BAD_TOKEN = "InvalidParameterException"


@dataclass(slots=True)
class _Place:
    """How far a log was read."""

    host: str
    token: str = ""
    since: int = 0
    """From which time on it is read: what belongs to the token."""
    time: int = 0
    at_time: int = 0
    """The events of that time that were read."""
    passed: int = 0
    """Of these, how many were met again where a token was no longer taken."""
    waiting: deque[tuple[int, str]] = field(default_factory=deque)
    """What was read and not handed on, with its time."""


@dataclass(slots=True)
class _End:
    """The last lines of a host."""

    lines: deque[str] = field(default_factory=deque)
    size: int = 0

    def add(self, line: str) -> None:
        self.lines.append(line)
        self.size += len(line)
        while self.size - len(self.lines[0]) >= _KEPT:
            self.size -= len(self.lines.popleft())


class TrainingLogs:
    """The logs of a job's hosts."""

    def __init__(self, service: TrainingService, job: str, hosts: Collection[str]) -> None:
        self._service = service
        self._job = job
        self._places: dict[str, _Place] = {}
        self._ends = {host: _End() for host in hosts}

    @property
    def texts(self) -> dict[str, str]:
        """The end of what each host printed."""
        return {host: "".join(end.lines)[-_KEPT:] for host, end in self._ends.items()}

    def hear(self, heard: OutputHandler) -> bool:
        """Hand on what is new, in the order in which it was printed; whether there was anything.

        A page of each log at a time: the first lines of a long job don't wait for its last. What was read
        before an error is handed on too.
        """
        unread: set[str] = set()
        for stream in self._service.log_streams(self._job):
            named = _HOST.search(stream)
            if named and named["host"] in self._ends:
                self._places.setdefault(stream, _Place(named["host"]))
                unread.add(stream)
        found = False
        try:
            while unread:
                for stream in sorted(unread):
                    if not self._places[stream].waiting and not self._read(stream):
                        unread.remove(stream)
                # Of what comes later, a page that was not read yet may hold something earlier.
                ends = (max(time for time, _ in self._places[stream].waiting) for stream in unread)
                found |= self._hand_on(min(ends, default=math.inf), heard)
        except AwsError:
            self._hand_on(math.inf, heard)
            raise
        return found

    def _hand_on(self, until: float, heard: OutputHandler) -> bool:
        """Hand on what was read, up to a time; whether there was anything."""
        found = False
        while True:
            ready = [one for one in self._places.values() if one.waiting and one.waiting[0][0] <= until]
            if not ready:
                return found
            place = min(ready, key=lambda one: one.waiting[0][0])
            _, text = place.waiting[0]
            heard(place.host, text.encode())
            # Only now: an interrupt loses no line.
            place.waiting.popleft()
            self._ends[place.host].add(text)
            found = True

    def _read(self, stream: str) -> bool:
        """Read on in a log up to a page that has something new; whether there was one before its end."""
        place = self._places[stream]
        while True:
            try:
                page = self._service.log_events(stream, place.token, place.since)
            except AwsError as error:
                if error.code != _BAD_TOKEN or not place.token:
                    raise
                # A token is good for a day.
                place.token, place.since, place.passed = "", place.time, 0
                continue
            place.waiting += [
                (int(event["timestamp"]), f"{event['message']}\n")
                for event in page.events
                if _is_new(event, place)
            ]
            is_last = page.token == place.token
            place.token = page.token
            if is_last or place.waiting:
                return bool(place.waiting)


def _is_new(event: Mapping[str, Any], place: _Place) -> bool:
    """Whether an event was not read yet; counts it."""
    time = int(event["timestamp"])
    if time == place.time and place.passed < place.at_time:
        place.passed += 1
        return False
    if time != place.time:
        place.time, place.at_time = time, 0
    place.at_time += 1
    place.passed = place.at_time
    return True
