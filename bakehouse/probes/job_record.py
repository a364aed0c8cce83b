"""Notes what one rank of a job does, a line for each step, in a file of its own for the outside to read.

Runs inside the image, beside the training script, with nothing but the standard library (3.8 or later).
"""

from __future__ import annotations

import contextlib
import json
import platform
import time
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path("/opt/ml/output/data/ranks")


class Rank:
    """One rank's notes; each is in the file before the next statement runs."""

    def __init__(self, rank: str, size: str) -> None:
        self.rank = int(rank)
        self.size = int(size)
        FOLDER.mkdir(parents=True, exist_ok=True)
        self.note("started")

    def arrived(self) -> None:
        """To be called before the first collective: who doesn't come this far is who the others wait for."""
        self.note("arrived")
        print(f"rank {self.rank} of {self.size} on {platform.node()} has arrived", flush=True)

    def note(self, step: str, reason: str = "") -> None:
        line = {"rank": self.rank, "host": platform.node(), "step": step, "at": time.time(), "reason": reason}
        with (FOLDER / f"{self.rank}.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")


@contextlib.contextmanager
def recorded(rank: str, size: str) -> Iterator[Rank]:
    """Note how the block ends: `finished`, or `failed` and why."""
    notes = Rank(rank, size)
    try:
        yield notes
    except BaseException as error:
        notes.note("failed", f"{type(error).__name__}: {error}")
        raise
    notes.note("finished")
