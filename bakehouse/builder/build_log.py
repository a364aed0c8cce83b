"""Log of the last builds of this machine: `builds.json`, with the time of each step."""

import json
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path

from bakehouse.builder.timings import StepTime
from bakehouse.util.file_lock import exclusive
from bakehouse.util.files import read_bytes, write_whole
from bakehouse.util.json_reader import decode, parse_json
from bakehouse.util.terminal import clip

_MAX_BUILDS = 10
_MAX_CHARACTERS = 120
"""Maximum length of a step's text."""


@dataclass(frozen=True, slots=True)
class Build:
    """One build of images."""

    started: str
    """Time in UTC."""
    builder: str
    """Names of remote builders; empty for the engine of this machine."""
    steps: tuple[StepTime, ...]
    """Sorted by their start times, which are relative to the start of the build."""


def record_build(build: Build, state: Path) -> None:
    """Add a build to the log, unless no step ran. The oldest builds are removed."""
    if not build.steps:
        return
    began = datetime.fromisoformat(build.started).timestamp()
    steps = tuple(_relative(step, began) for step in build.steps)
    with exclusive(state / "locks" / "builds.lock"):
        builds = (*load_builds(state), replace(build, steps=steps))[-_MAX_BUILDS:]
        write_whole(_path(state), json.dumps([asdict(record) for record in builds], indent=1) + "\n")


def _relative(step: StepTime, began: float) -> StepTime:
    # BuildKit reports a cached step with the times of an earlier build
    start = max(0.0, step.started - began)
    end = max(start, step.started - began + step.seconds)
    return replace(
        step,
        text=clip(" ".join(step.text.split()), _MAX_CHARACTERS),
        started=0.0 if step.cached else round(start, 3),
        seconds=0.0 if step.cached else round(end - start, 3),
        spent=(),
    )


def load_builds(state: Path) -> tuple[Build, ...]:
    """Return the recorded builds, oldest first; none if the log is missing or unreadable."""
    try:
        return decode(parse_json(read_bytes(_path(state))), tuple[Build, ...])
    except (OSError, ValueError):
        # The next build replaces it
        return ()


def _path(state: Path) -> Path:
    return state / "builds.json"
