"""Reads what the hosts of a job on SageMaker print, from CloudWatch, each event once."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from bakehouse.cluster import Heard
from bakehouse.training_service import ServiceError, TrainingService

_HOST = re.compile(r"/(?P<host>algo-[0-9]+)[-/]")
_KEPT = 200_000
"""Characters of the end of each host's log that are kept to find a cause in."""
_BAD_TOKEN = "InvalidParameterException"


@dataclass(slots=True)
class _Place:
    """How far a log was read."""

    token: str = ""
    since: int = 0
    """From which time on it is read: what belongs to the token."""
    time: int = 0
    at_time: int = 0
    """The events of that time that were read."""
    passed: int = 0
    """Of these, how many were met again where a token was no longer taken."""


class TrainingLogs:
    """The logs of a job's hosts."""

    def __init__(self, service: TrainingService, job: str, hosts: Collection[str]) -> None:
        self._service = service
        self._job = job
        self._places: dict[str, _Place] = {}
        self.texts = dict.fromkeys(hosts, "")
        """The end of what each host printed."""

    def hear(self, heard: Heard) -> bool:
        """Hand on what is new, in the order in which it was printed; whether there was anything.

        What was read before an error is handed on too.
        """
        found: list[tuple[int, str, str]] = []
        try:
            for stream in self._service.log_streams(self._job):
                named = _HOST.search(stream)
                if named and named["host"] in self.texts:
                    self._read(stream, named["host"], found)
        finally:
            for _, host, text in sorted(found, key=itemgetter(0)):
                self.texts[host] = (self.texts[host] + text)[-_KEPT:]
                heard(host, text.encode())
        return bool(found)

    def _read(self, stream: str, host: str, found: list[tuple[int, str, str]]) -> None:
        place = self._places.setdefault(stream, _Place())
        while True:
            try:
                page = self._service.log_events(stream, place.token, place.since)
            except ServiceError as error:
                if error.code != _BAD_TOKEN or not place.token:
                    raise
                # A token is good for a day.
                place.token, place.since, place.passed = "", place.time, 0
                continue
            found += [
                (event["timestamp"], host, f"{event['message']}\n")
                for event in page.events
                if _is_new(event, place)
            ]
            is_last = page.token == place.token
            place.token = page.token
            if is_last:
                return


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
