"""Record the events of one rank of a job, one JSON line each, in a file that is read from outside.

It runs inside the image next to the training script and only needs the standard library of Python 3.8 or
later.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import time
from collections.abc import Iterator
from pathlib import Path

DIRECTORY = Path(os.environ.get("SM_OUTPUT_DATA_DIR", "/opt/ml/output/data"), "ranks")


def host_name() -> str:
    """Return the name that SageMaker gives this host. The kernel's name can be another one."""
    try:
        return str(json.loads(Path("/opt/ml/input/config/resourceconfig.json").read_text())["current_host"])
    except (OSError, ValueError, KeyError):
        return platform.node()


class Rank:
    """Events of one rank. Each is in the file before the next statement runs."""

    def __init__(self, rank: str, size: str) -> None:
        self.rank = int(rank)
        self.size = int(size)
        DIRECTORY.mkdir(parents=True, exist_ok=True)
        self.record("started")

    def arrived(self) -> None:
        """Record that the rank reaches the first collective. The others wait for ranks that do not."""
        self.record("arrived")
        # One write, because ranks without a buffer mix their lines
        print(f"rank {self.rank} of {self.size} on {host_name()} has arrived\n", end="", flush=True)

    def record(self, step: str, reason: str = "") -> None:
        line = {"rank": self.rank, "host": host_name(), "step": step, "at": time.time(), "reason": reason}
        with (DIRECTORY / f"{self.rank}.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")


@contextlib.contextmanager
def recorded(rank: str, size: str) -> Iterator[Rank]:
    """Record the end of the block: `finished`, or `failed` with the reason."""
    events = Rank(rank, size)
    try:
        yield events
    except BaseException as error:
        events.record("failed", f"{type(error).__name__}: {error}")
        raise
    events.record("finished")
