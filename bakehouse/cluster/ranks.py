"""Per-rank logs and events of a job, and the rank that failed first.

A launcher mixes the output of all ranks and kills the others once one of them fails. The first failure is
found from facts: the events that ranks record and the launcher's own messages. Words such as "Error" in a
log are not evidence.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from bakehouse.util.json_reader import parse_json

# Open MPI 4 writes [1,3]<stdout>:, Open MPI 5 [prterun-algo-1-17@1,3]<stdout>:, and the toolkit turns the
# first into [1,mpirank:3,algo-2]<stdout>:. After text without a line end, the next tag is on the same line.
MPI_TAG = re.compile(
    r"\[(?P<five>[\w.-]+@)?\d+,(?:mpirank:)?(?P<rank>\d{1,9})(?:,[\w.-]+)?\]<std(?:out|err)>:(?(five) ?)"
)
TORCHRUN_TAG = re.compile(r"\[default(?P<rank>\d{1,9})\]:")

MPI_ABORT = "MPI_ABORT was invoked"
_LAUNCHER_MESSAGES = (
    re.compile(
        r"process rank (?P<rank>\d{1,9}) with PID \S+ on node \S+ (?P<reason>exited on signal [^\n.]*)"
    ),
    re.compile(rf"(?P<reason>{MPI_ABORT}) on rank (?P<rank>\d{{1,9}})"),
    re.compile(r"Process name: \[[^\n]*,\s*(?P<rank>\d{1,9})\]\s*Exit code:\s*(?P<code>\d{1,9})"),
    re.compile(
        r"Root Cause \(first observed failure\):.*?time\s*: (?P<time>\S+).*?rank\s*: (?P<rank>\d{1,9})"
        r".*?exitcode\s*: (?P<code>-?\d+)",
        re.S,
    ),
)


class RankStep(StrEnum):
    """Progress of a rank."""

    STARTED = "started"
    ARRIVED = "arrived"
    FINISHED = "finished"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class RankEvent:
    """An event that a rank recorded, with the time of this machine's clock."""

    rank: int
    host: str
    step: RankStep
    at: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RankFailure:
    """A failed rank and the reason."""

    rank: int
    reason: str


@dataclass(frozen=True, slots=True)
class SplitLog:
    """One host's output, split by rank."""

    ranks: Mapping[int, str]
    rest: str
    """Lines without a rank: those of the toolkit and the launcher."""


def read_events(files: Iterable[bytes]) -> tuple[RankEvent, ...]:
    """Return the recorded events, oldest first. Incomplete lines of killed ranks are skipped."""
    events = []
    for line in (line for content in files for line in content.splitlines()):
        try:
            fields = parse_json(line)
            events.append(
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
    return tuple(sorted(events, key=lambda event: event.at))


def split_log(text: str, first_rank: int = 0) -> SplitLog:
    """Split one host's output by the tags of Open MPI 4 and 5, the toolkit and torchrun.

    torchrun numbers the ranks of each host from 0; `first_rank` is the job's number of the host's first rank.
    """
    ranks: dict[int, list[str]] = {}
    rest: list[str] = []
    for line in text.splitlines(keepends=True):
        if local := TORCHRUN_TAG.match(line):
            ranks.setdefault(first_rank + int(local["rank"]), []).append(line[local.end() :])
            continue
        tags = list(MPI_TAG.finditer(line))
        rest.append(line[: tags[0].start()] if tags else line)
        ends = [tag.start() for tag in tags[1:]] + [len(line)]
        for tag, end in zip(tags, ends, strict=False):
            ranks.setdefault(int(tag["rank"]), []).append(line[tag.end() : end])
    return SplitLog({rank: "".join(ranks[rank]) for rank in sorted(ranks)}, "".join(rest))


def first_failure(events: Sequence[RankEvent], launcher_lines: str) -> RankFailure | None:
    """Return the rank that failed first, or None if it is unknown.

    A rank that a signal ended or that called `_exit` records no event. If the launcher reports such a rank,
    the failures that others recorded afterwards are consequences.
    """
    reported = next(iter(launcher_failures(launcher_lines)), None)
    last = {event.rank: event for event in events}
    if reported and (
        reported.rank not in last or last[reported.rank].step in (RankStep.STARTED, RankStep.ARRIVED)
    ):
        return reported
    for event in events:
        if event.step is RankStep.FAILED:
            return RankFailure(event.rank, event.reason)
    return reported


def ranks_without(events: Iterable[RankEvent], step: RankStep, expected: int) -> tuple[int, ...]:
    """Return those of the `expected` ranks that never recorded `step`."""
    reached = {event.rank for event in events if event.step is step}
    return tuple(rank for rank in range(expected) if rank not in reached)


def format_ranks(ranks: Iterable[int]) -> str:
    """Return ranks as ranges: `0-2, 5`."""
    spans: list[tuple[int, int]] = []
    for rank in sorted(set(ranks)):
        if spans and spans[-1][1] == rank - 1:
            spans[-1] = (spans[-1][0], rank)
        else:
            spans.append((rank, rank))
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)


def launcher_failures(lines: str) -> tuple[RankFailure, ...]:
    """Return the failed ranks that launchers report, earliest first. Each torchrun reports its own."""
    for pattern in _LAUNCHER_MESSAGES:
        matches = [match.groupdict() for match in pattern.finditer(lines)]
        if matches:
            matches.sort(key=lambda match: match.get("time") or "")
            return tuple(
                RankFailure(int(match["rank"]), match.get("reason") or f"exited with {match['code']}")
                for match in matches
            )
    return ()
