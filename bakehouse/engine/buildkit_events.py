"""What BuildKit tells while it builds, as typed events decoded from buildx's raw JSON."""

import base64
import json
import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

TAIL_LINES = 15
EXPORT = "exporting to image"
_NAME = re.compile(r"\[(?P<place>[^\]]+)\] (?P<text>.*)", re.DOTALL)
_POSITION = re.compile(r"\d+/\d+")
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(frozen=True, slots=True)
class Step:
    """A step of one image's build as it stands now; told again whenever that changes.

    Steps that images share have the same digest, and are told once for each image.
    """

    digest: str
    target: str
    stage: str
    """The stage's name; `internal` for BuildKit's own work; empty for the export."""
    position: str
    """`2/3`, within the stage."""
    text: str
    started: float | None = None
    """Seconds since the epoch, by BuildKit's clock."""
    completed: float | None = None
    cached: bool = False
    error: str = ""


@dataclass(frozen=True, slots=True)
class Log:
    """What a step printed: any number of lines, whole or not."""

    digest: str
    text: str
    time: float


@dataclass(frozen=True, slots=True)
class Transfer:
    """How far a step's download, upload or export has come, in bytes; a total of 0 is not known."""

    digest: str
    name: str
    current: int
    total: int
    completed: bool


@dataclass(frozen=True, slots=True)
class Tick:
    """Nothing but the passing of time, four times a second."""


Event = Step | Log | Transfer | Tick


class Output:
    """buildx's standard error: JSON objects of many lines, and plain text where buildx itself speaks."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._rest = ""
        self._decode = json.JSONDecoder().raw_decode

    def feed(self, text: str) -> Iterator[dict[str, Any]]:
        """The objects that are complete now."""
        self._rest += text
        if "\n" not in text:
            return
        while self._rest:
            if self._rest.startswith("{"):
                try:
                    found, end = self._decode(self._rest)
                except ValueError:
                    return
                yield found
                self._rest = self._rest[end:].lstrip()
            else:
                line, newline, rest = self._rest.partition("\n")
                if not newline:
                    return
                self._text.append(line)
                self._rest = rest

    def end(self) -> tuple[str, ...]:
        """All lines that were no JSON."""
        return (*self._text, *self._rest.splitlines())


class Tail:
    """The last lines of a log that comes in pieces."""

    def __init__(self, limit: int = TAIL_LINES) -> None:
        self._lines: deque[str] = deque(maxlen=limit)
        self._open = ""

    def add(self, text: str) -> None:
        *whole, self._open = (self._open + text).split("\n")
        self._lines.extend(line for one in whole if (line := _plain(one)))

    def lines(self) -> tuple[str, ...]:
        last = _plain(self._open)
        return tuple([*self._lines, last] if last else self._lines)[-(self._lines.maxlen or 0) :]


def _plain(line: str) -> str:
    """A line as a terminal would leave it: what a carriage return overwrote and colours are gone."""
    return _COLOUR.sub("", line.rstrip().rpartition("\r")[2])


def events(status: Mapping[str, Any], targets: Mapping[str, str]) -> Iterator[Event]:
    """The events in one of buildx's status objects; `targets` has the images by their names in bake files."""
    for one in status.get("vertexes") or ():
        target, stage, position, text = _parse_name(one["name"], targets)
        yield Step(
            digest=one["digest"],
            target=target,
            stage=stage,
            position=position,
            text=text,
            started=_seconds(one.get("started")),
            completed=_seconds(one.get("completed")),
            cached=bool(one.get("cached")),
            error=one.get("error", ""),
        )
    for one in status.get("statuses") or ():
        name, current, total = one["id"], int(one.get("current") or 0), int(one.get("total") or 0)
        yield Transfer(one["vertex"], name, current, total, bool(one.get("completed")))
    for one in status.get("logs") or ():
        text = base64.b64decode(one["data"]).decode("utf-8", "replace")
        yield Log(one["vertex"], text, _seconds(one.get("timestamp")) or 0.0)


def _parse_name(name: str, targets: Mapping[str, str]) -> tuple[str, str, str, str]:
    """Target, stage, position and text; buildx names the target only where there are several."""
    only = next(iter(targets.values())) if len(targets) == 1 else ""
    match = _NAME.fullmatch(name)
    if match is None:
        return only, "", "", name
    words = match["place"].split()
    target = targets[words.pop(0)] if not only and words[0] in targets else only
    position = words.pop() if words and _POSITION.fullmatch(words[-1]) else ""
    return target, " ".join(words), position, match["text"]


def _seconds(text: str | None) -> float | None:
    return datetime.fromisoformat(text).timestamp() if text else None
