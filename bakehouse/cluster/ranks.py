"""Says what each rank of a job did: its own log, when it got how far, who failed first, who never came.

A launcher mixes the output of all ranks into one stream and, once one of them fails, kills the others; what
a person wants is the one that failed. It is found from facts (what ranks noted about themselves, what the
launcher says it saw), never from words such as "Error" in a log.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

# Open MPI 4 writes [1,3]<stdout>:, 5 [prterun-algo-1-17@1,3]<stdout>:, the toolkit makes of the first
# [1,mpirank:3,algo-2]<stdout>:. A line without an end is followed by the next tag.
_MPI = re.compile(
    r"\[(?P<five>[\w.-]+@)?\d+,(?:mpirank:)?(?P<rank>\d+)(?:,[\w.-]+)?\]<std(?:out|err)>:(?(five) ?)"
)
_TORCHRUN = re.compile(r"\[default(\d+)\]:")

MPI_ABORT = "MPI_ABORT was invoked"
_LAUNCHER_SAYS = (
    re.compile(r"process rank (?P<rank>\d+) with PID \S+ on node \S+ (?P<reason>exited on signal [^\n.]*)"),
    re.compile(rf"(?P<reason>{MPI_ABORT}) on rank (?P<rank>\d+)"),
    re.compile(r"Process name: \[[^\n]*,\s*(?P<rank>\d+)\]\s*Exit code:\s*(?P<code>\d+)"),
    re.compile(
        r"Root Cause \(first observed failure\):.*?time\s*: (?P<time>\S+).*?rank\s*: (?P<rank>\d+)"
        r".*?exitcode\s*: (?P<code>-?\d+)",
        re.S,
    ),
)


class RankStep(StrEnum):
    """How far a rank came, in its own words."""

    STARTED = "started"
    ARRIVED = "arrived"
    FINISHED = "finished"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class RankEvent:
    """What a rank noted about itself, at a time on this machine's clock."""

    rank: int
    host: str
    step: RankStep
    at: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RankFailure:
    """The rank that failed first; what happened to the others followed from it."""

    rank: int
    reason: str


@dataclass(frozen=True, slots=True)
class SplitLog:
    """One host's output, taken apart."""

    ranks: Mapping[int, str]
    rest: str
    """What no rank printed: the toolkit's and the launcher's own lines."""


def read_events(files: Iterable[bytes]) -> tuple[RankEvent, ...]:
    """The notes that ranks wrote, in the order of time; a line that a dying rank left torn is passed over."""
    notes = []
    for line in (line for content in files for line in content.splitlines()):
        try:
            fields = json.loads(line)
            notes.append(
                RankEvent(
                    fields["rank"],
                    fields["host"],
                    RankStep(fields["step"]),
                    fields["at"],
                    fields.get("reason", ""),
                )
            )
        except (ValueError, KeyError, TypeError):
            continue
    return tuple(sorted(notes, key=lambda note: note.at))


def split_log(text: str, first_rank: int = 0) -> SplitLog:
    """Take one host's output apart by the tags of Open MPI 4 and 5, of the toolkit, and of torchrun.

    torchrun counts each host's ranks from 0; `first_rank` is what the host's first one is called in the job.
    """
    ranks: dict[int, list[str]] = {}
    rest: list[str] = []
    for line in text.splitlines(keepends=True):
        if local := _TORCHRUN.match(line):
            ranks.setdefault(first_rank + int(local[1]), []).append(line[local.end() :])
            continue
        tags = list(_MPI.finditer(line))
        rest.append(line[: tags[0].start()] if tags else line)
        ends = [tag.start() for tag in tags[1:]] + [len(line)]
        for tag, end in zip(tags, ends, strict=False):
            ranks.setdefault(int(tag["rank"]), []).append(line[tag.end() : end])
    return SplitLog({rank: "".join(ranks[rank]) for rank in sorted(ranks)}, "".join(rest))


def first_failure(notes: Sequence[RankEvent], launcher_lines: str) -> RankFailure | None:
    """The rank that failed first, and how; None when nothing says.

    A rank that a signal ended, or that called `_exit`, notes nothing: the launcher saw it, and what others
    noted after its end are consequences.
    """
    seen = next(iter(launcher_failures(launcher_lines)), None)
    last = {note.rank: note for note in notes}
    if seen and (seen.rank not in last or last[seen.rank].step in (RankStep.STARTED, RankStep.ARRIVED)):
        return seen
    for note in notes:
        if note.step is RankStep.FAILED:
            return RankFailure(note.rank, note.reason)
    return seen


def ranks_without(notes: Iterable[RankEvent], step: RankStep, expected: int) -> tuple[int, ...]:
    """Which of the `expected` ranks never noted `step`."""
    reached = {note.rank for note in notes if note.step is step}
    return tuple(rank for rank in range(expected) if rank not in reached)


def format_ranks(ranks: Iterable[int]) -> str:
    """Ranks as a person writes them: `0-2, 5`."""
    parts: list[tuple[int, int]] = []
    for rank in sorted(set(ranks)):
        if parts and parts[-1][1] == rank - 1:
            parts[-1] = (parts[-1][0], rank)
        else:
            parts.append((rank, rank))
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)


def launcher_failures(lines: str) -> tuple[RankFailure, ...]:
    """The ranks whose failure launchers tell of, the first to fail first; each torchrun tells of its own."""
    for pattern in _LAUNCHER_SAYS:
        found = [match.groupdict() for match in pattern.finditer(lines)]
        if found:
            found.sort(key=lambda match: match.get("time") or "")
            return tuple(
                RankFailure(int(one["rank"]), one.get("reason") or f"exited with {one['code']}")
                for one in found
            )
    return ()
