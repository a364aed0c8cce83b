"""Finds what failed first in a job: the host, the rank where there are ranks, and what it printed."""

import re
from dataclasses import dataclass

from bakehouse.cluster.cluster import HostResult, JobResult
from bakehouse.cluster.failure import Cause, Scene, cause, script_end
from bakehouse.cluster.job import TrainingJob
from bakehouse.cluster.ranks import RankFailure, first_failure, launcher_failures


@dataclass(frozen=True, slots=True)
class First:
    """What failed first, and what it printed."""

    host: str
    rank: int | None
    reason: str
    """How its launcher, or the rank itself, says that it ended."""
    log: str
    text: str
    full: tuple[str, ...]

    @property
    def by_signal(self) -> bool:
        """Whether it was ended from outside: what it printed last is not why."""
        return bool(re.search(r"signal|exited with -", self.reason))


def first_to_fail(job: TrainingJob, end: JobResult, *, has_failed: bool) -> First | None:
    """What to look at of a job that failed or took too long."""
    full = {one.host: one.full for one in end.hosts}
    if end.timed_out and not has_failed:
        host = next(one.host for one in end.hosts if one.exit_code is None)
        return First(host, None, "", f"{host}.log", end.logs[host], full[host])
    if not has_failed:
        return None
    lost = next((one.host for one in end.hosts if is_killed(job, one)), "")
    if lost:
        return First(lost, None, "", f"{lost}.log", end.logs[lost], full[lost])
    ranks = [_of_rank(job, end, failure) for failure in _failures(end)]
    if ranks:
        return next((one for one in ranks if not _is_consequence(job, one)), ranks[0])
    # Open MPI 4 sometimes loses the message that names the rank.
    texts = {rank: text for split in end.rank_logs.values() for rank, text in split.ranks.items()}
    ranks = [_of_rank(job, end, RankFailure(rank, "")) for rank in sorted(texts)]
    raised = [one for one in ranks if (told := told_cause(job, one)) and not told.is_consequence]
    if raised:
        return raised[0]
    host = next(one.host for one in by_time(end) if one.exit_code)
    return First(host, None, script_end(end.logs[host]), f"{host}.log", end.logs[host], full[host])


def told_cause(job: TrainingJob, first: First) -> Cause | None:
    """What its log says of the cause; nothing where it was ended from outside."""
    if first.by_signal:
        return None
    return cause(first.text, Scene(first.host, job.host_names, first.full), first.rank)


def _failures(end: JobResult) -> tuple[RankFailure, ...]:
    """The ranks that failed, the first first; none where neither they nor a launcher say so."""
    lines = "".join(end.rank_logs[one.host].rest for one in by_time(end))
    first, seen = first_failure(end.events, lines), launcher_failures(lines)
    return seen if first is None or first in seen else (first,)


def _of_rank(job: TrainingJob, end: JobResult, failed: RankFailure) -> First:
    host = job.host_of(failed.rank)
    full = next(one.full for one in end.hosts if one.host == host)
    for split in end.rank_logs.values():
        if text := split.ranks.get(failed.rank):
            log = f"{host}-rank-{failed.rank}.log"
            return First(host, failed.rank, failed.reason, log, text, full)
    # It printed nothing of its own, or nobody can tell it from others: its launcher's host has it.
    told = next((one for one in end.logs if _tells(end.rank_logs[one].rest, failed)), host)
    return First(host, failed.rank, failed.reason, f"{told}.log", end.logs[told], full)


def _is_consequence(job: TrainingJob, first: First) -> bool:
    told = told_cause(job, first)
    return told is not None and told.is_consequence


def _tells(lines: str, failed: RankFailure) -> bool:
    return failed.rank in {one.rank for one in launcher_failures(lines)}


def is_killed(job: TrainingJob, one: HostResult) -> bool:
    """Whether this run killed a host."""
    return one.host in job.kills and one.exit_code == 137


def by_time(end: JobResult) -> list[HostResult]:
    """The hosts in the order in which they ended."""
    return sorted(end.hosts, key=lambda host: (host.seconds is None, host.seconds or 0.0))
