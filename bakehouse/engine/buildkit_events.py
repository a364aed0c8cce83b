"""Typed events of a BuildKit build, decoded from buildx's raw JSON."""

import base64
import json
import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from bakehouse.errors import without_logins

TAIL_LINES = 15
LOG_LINES = 100_000
"""Maximum lines of a step's output that are kept for its log, which is written if the step fails."""
EXPORT = "exporting to image"
_EXPORTS = {"exporting to oci image format": EXPORT}
_NAME = re.compile(r"\[(?P<prefix>[^\]]+)\] (?P<text>.*)", re.DOTALL)
_POSITION = re.compile(r"\d+/\d+")
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(frozen=True, slots=True)
class Step:
    """Current state of a step of one image's build; sent again after each change.

    Steps that images share have the same digest, and are sent once for each image.
    """

    digest: str
    target: str
    stage: str
    """Stage name; `internal` for steps of BuildKit itself; empty for the export."""
    position: str
    """Position in the stage, such as `2/3`."""
    text: str
    started: float | None = None
    """Seconds since the epoch on BuildKit's clock."""
    completed: float | None = None
    cached: bool = False
    error: str = ""


@dataclass(frozen=True, slots=True)
class Log:
    """Output of a step: any number of lines, which can be incomplete."""

    digest: str
    text: str
    time: float


@dataclass(frozen=True, slots=True)
class StepTransfer:
    """Progress of a step's download, upload or export in bytes; a total of 0 is unknown."""

    digest: str
    name: str
    current: int
    total: int
    completed: bool


@dataclass(frozen=True, slots=True)
class Tick:
    """Passing of time, four times a second."""


Event = Step | Log | StepTransfer | Tick


class Output:
    """Parser of buildx's standard error: JSON objects of many lines, mixed with plain text."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._pieces: list[str] = []
        self._rest = ""
        self._decode = json.JSONDecoder().raw_decode

    def feed(self, text: str) -> Iterator[dict[str, Any]]:
        """Add text and yield the objects that are complete now."""
        self._pieces.append(text)
        if "\n" not in text:
            return
        # Adding each piece of a long line to the rest would copy the line each time
        self._rest += "".join(self._pieces)
        self._pieces.clear()
        while self._rest:
            if self._rest.startswith("{"):
                try:
                    status, end = self._decode(self._rest)
                except json.JSONDecodeError as error:
                    if "\n" not in self._rest[error.pos :]:
                        return
                    # The object is damaged, not incomplete
                except (ValueError, RecursionError):
                    pass
                else:
                    yield status
                    self._rest = self._rest[end:].lstrip()
                    continue
            line, newline, rest = self._rest.partition("\n")
            if not newline:
                return
            self._text.append(line)
            self._rest = rest

    def end(self) -> tuple[str, ...]:
        """Return all lines that are not JSON."""
        return (*self._text, *"".join((self._rest, *self._pieces)).splitlines())


class Tail:
    """Last lines of a log that arrives in chunks."""

    def __init__(self, limit: int = TAIL_LINES) -> None:
        self._lines: deque[str] = deque(maxlen=limit)
        self._open = ""

    def add(self, text: str) -> None:
        *lines, self._open = (self._open + text).split("\n")
        self._lines.extend(text for line in lines if (text := _plain(line)))

    def lines(self) -> tuple[str, ...]:
        last = _plain(self._open)
        return tuple([*self._lines, last] if last else self._lines)[-(self._lines.maxlen or 0) :]


def _plain(line: str) -> str:
    """Return a line as a terminal shows it finally, without colours, overwritten text and logins.

    The environment of steps contains the proxies of this machine, whose URLs can have logins.
    """
    return without_logins(_COLOUR.sub("", line.rstrip().rpartition("\r")[2]))


def events(status: Mapping[str, Any], targets: Mapping[str, str]) -> Iterator[Event]:
    """Yield the events of a status object of buildx; `targets` has the images by bake target.

    Invalid entries are left out, because a build must not fail if its progress cannot be shown.
    """
    for name, parse in (("vertexes", _step), ("statuses", _transfer), ("logs", _log)):
        entries = status.get(name)
        for entry in entries if isinstance(entries, list) else ():
            try:
                yield parse(entry, targets)
            except (KeyError, TypeError, AttributeError, ValueError, OverflowError):
                continue


def _step(vertex: Mapping[str, Any], targets: Mapping[str, str]) -> Step:
    target, stage, position, text = _parse_name(vertex["name"], targets)
    return Step(
        digest=str(vertex["digest"]),
        target=target,
        stage=stage,
        position=position,
        text=text,
        started=_seconds(vertex.get("started")),
        completed=_seconds(vertex.get("completed")),
        cached=bool(vertex.get("cached")),
        error=str(vertex.get("error") or ""),
    )


def _transfer(transfer: Mapping[str, Any], targets: Mapping[str, str]) -> StepTransfer:
    current, total = int(transfer.get("current") or 0), int(transfer.get("total") or 0)
    is_completed = bool(transfer.get("completed"))
    return StepTransfer(str(transfer["vertex"]), str(transfer["id"]), current, total, is_completed)


def _log(log: Mapping[str, Any], targets: Mapping[str, str]) -> Log:
    text = base64.b64decode(log["data"]).decode("utf-8", "replace")
    return Log(str(log["vertex"]), text, _seconds(log.get("timestamp")) or 0.0)


def _parse_name(name: str, targets: Mapping[str, str]) -> tuple[str, str, str, str]:
    """Return target, stage, position and text; with a single target buildx omits its name."""
    only = next(iter(targets.values())) if len(targets) == 1 else ""
    match = _NAME.fullmatch(name)
    if match is None:
        return only, "", "", _EXPORTS.get(name, name)
    words = match["prefix"].split()
    target = targets[words.pop(0)] if not only and words[0] in targets else only
    position = words.pop() if words and _POSITION.fullmatch(words[-1]) else ""
    return target, " ".join(words), position, _EXPORTS.get(match["text"], match["text"])


def _seconds(text: str | None) -> float | None:
    return datetime.fromisoformat(text).timestamp() if text else None
