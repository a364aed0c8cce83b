"""Says how a job ended as SageMaker would say it, and which rank, host and line to look at."""

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from bakehouse.cluster.cluster import HostResult, InjectedFault, JobResult
from bakehouse.cluster.failure import Cause, script_end
from bakehouse.cluster.job import TrainingJob
from bakehouse.cluster.job_failure import First, by_time, first_to_fail, is_killed, told_cause
from bakehouse.cluster.nccl_log import Transports, transports
from bakehouse.cluster.ranks import MPI_ABORT
from bakehouse.util.format import format_seconds

REASON_CHARACTERS = 1024
"""What SageMaker keeps of /opt/ml/output/failure."""
_SIGNALS = {134: "aborted", 137: "was killed", 139: "crashed (segmentation fault)", 143: "was terminated"}
TAIL_LINES = 15


class Status(StrEnum):
    """TrainingJobStatus."""

    COMPLETED = "Completed"
    FAILED = "Failed"
    STOPPED = "Stopped"


@dataclass(frozen=True, slots=True)
class HostReport:
    """How one host ended."""

    host: str
    group: str
    instance_type: str
    end: str
    """`exit 0`, `exit 1: out of memory`, `killed by this run`, `still running`."""
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Notice:
    """How one host took a loss."""

    host: str
    end: str
    seconds: float
    """How long after the loss it ended, or was ended with the job."""


@dataclass(frozen=True, slots=True)
class LossReport:
    """What this run took from the job, and how long the others took to notice."""

    what: str
    at: float
    others: tuple[Notice, ...]


@dataclass(frozen=True, slots=True)
class JobReport:
    """How a job ended."""

    job: str
    status: Status
    reason: str
    """FailureReason, or why it stopped; empty where it completed."""
    seconds: float
    seed: int | None
    hosts: tuple[HostReport, ...]
    failed_rank: int | None
    failed_host: str
    cause: str
    """What this machine saw of the first failure, which SageMaker would not tell."""
    hint: str
    tail: tuple[str, ...]
    log: Path | None
    """Of the rank or host that failed first."""
    losses: tuple[LossReport, ...]
    ranks: int
    gpus: int
    """Of this machine, that its hosts had."""
    transports: Transports
    fallback: str
    """Why the way that ranks talked is a failure, where it is."""
    folder: Path

    @property
    def passed(self) -> bool:
        return self.status is Status.COMPLETED and not self.fallback


def report(
    job: TrainingJob, end: JobResult, folder: Path, efa_types: frozenset[str] = frozenset()
) -> JobReport:
    """What the end of a job means; `efa_types` are the instance types with EFA interfaces."""
    status, reason = _status(job, end)
    first = first_to_fail(job, end, has_failed=status is Status.FAILED)
    found = told_cause(job, first) if first else None
    seen = transports(end.logs.values())
    return JobReport(
        job=job.name,
        status=status,
        reason=reason,
        seconds=round(end.seconds, 1),
        seed=job.seed,
        hosts=tuple(_host(job, one) for one in end.hosts),
        failed_rank=first.rank if first else None,
        failed_host=first.host if first else "",
        cause=_cause(job, end, first, found) if first else "",
        hint=_hint(job, end, first, found),
        tail=_tail(first, found) if first else (),
        log=folder / "logs" / first.log if first else None,
        losses=tuple(_loss(job, end, loss) for loss in end.faults),
        ranks=job.ranks,
        gpus=job.gpus,
        transports=seen,
        fallback=_fallback(job, seen, efa_types),
        folder=folder,
    )


def as_json(found: JobReport) -> str:
    """One object, for programs."""
    fields = {**asdict(found), "passed": found.passed}
    return json.dumps(fields, indent=2, sort_keys=True, default=str) + "\n"


def text(found: JobReport) -> str:
    """What a person reads at the end of a run."""
    width = max(len(one.host) for one in found.hosts)
    groups = max(len(one.group) for one in found.hosts)
    lines = [f"{found.job}: {found.status} after {format_seconds(found.seconds)}, as SageMaker would say"]
    if found.reason:
        lines.append(f"  {_first_line(found.reason)}")
    for one in found.hosts:
        when = f" after {format_seconds(one.seconds)}" if one.seconds is not None else ""
        where = f"{one.host.ljust(width)}  {one.group.ljust(groups)}  {one.instance_type}"
        lines.append(f"  {where}  {one.end}{when}")
    if found.seed is not None:
        lines.append(f"  hosts were dealt to groups by --seed {found.seed}")
    for loss in found.losses:
        lines.append(f"  after {format_seconds(loss.at)} {loss.what}")
        lines += [
            f"    {one.host.ljust(width)}  {one.end}, {format_seconds(one.seconds)} later"
            for one in loss.others
        ]
    if found.cause:
        what = "first to fail" if found.status is Status.FAILED else "not ended"
        rank = f"rank {found.failed_rank} on " if found.failed_rank is not None else ""
        lines.append(f"  {what}: {rank}{found.failed_host}: {found.cause}")
        lines += [f"    | {line}" for line in found.tail]
        lines.append(f"  its log: {found.log}")
    if found.transports:
        version = f"NCCL {found.transports.version}: " if found.transports.version else "NCCL: "
        lines.append(f"  {version}{', '.join(found.transports.ways or found.transports.networks)}")
    elif found.ranks > 1 and found.status is Status.COMPLETED:
        without = "no NCCL: the hosts had no GPUs, so ranks talked through gloo, MPI or gRPC"
        silent = "NCCL did not say how ranks talked: `--environment NCCL_DEBUG=INFO` lets it"
        lines.append(f"  {silent if found.gpus else without}")
    if found.fallback:
        lines.append(f"  failed: {found.fallback}")
    lines.append(f"  logs of hosts and ranks: {found.folder}")
    if found.hint:
        lines += ["", f"hint: {found.hint}"]
    return "\n".join(lines) + "\n"


def _status(job: TrainingJob, end: JobResult) -> tuple[Status, str]:
    if end.stopped:
        return Status.STOPPED, f"stopped after {job.stop_after:g} s"
    for host in end.hosts:
        if is_killed(job, host):
            # A host that is lost, SageMaker says no more of.
            return Status.FAILED, f"InternalServerError: {host.host} was lost"
    for host in by_time(end):
        if host.exit_code:
            said = (host.failure or "").strip()[:REASON_CHARACTERS]
            return Status.FAILED, f"AlgorithmError: {said}, exit code: {host.exit_code}"
    if end.timed_out:
        return Status.STOPPED, f"MaxRuntimeExceeded: no end within {job.deadline:g} s"
    return Status.COMPLETED, ""


def _host(job: TrainingJob, one: HostResult) -> HostReport:
    group = job.group_of(one.host)
    if one.exit_code is None:
        words = "still running"
    elif is_killed(job, one):
        words = "killed by this run"
    elif one.out_of_memory:
        words = f"exit {one.exit_code}: out of memory"
    else:
        words = f"exit {one.exit_code}"
    return HostReport(one.host, group.name, group.instance_type, words, one.seconds)


def _cause(job: TrainingJob, end: JobResult, first: First, found: Cause | None) -> str:
    one = next(one for one in end.hosts if one.host == first.host)
    if end.timed_out and not one.exit_code:
        return f"no end within {job.deadline:g} s"
    if is_killed(job, one):
        return "killed by this run"
    if first.rank is not None and end.events:
        return first.reason
    if found:
        return found.words
    if one.out_of_memory:
        return "ran out of memory"
    if first.reason == MPI_ABORT:
        # mpi4py calls it with the code that the script exited with, which mpirun then exits with.
        return script_end(end.logs[job.rank_hosts[0]]) or first.reason
    return first.reason or _SIGNALS.get(one.exit_code or 0, "") or f"exited with {one.exit_code}"


def _hint(job: TrainingJob, end: JobResult, first: First | None, found: Cause | None) -> str:
    if end.timed_out:
        running = ", ".join(one.host for one in end.hosts if one.exit_code is None)
        if end.faults:
            return f"{running} did not notice: let the script wait for others no longer than it has to"
        return f"{running} did not end: read its log, or give the job more time with `--timeout`"
    if any(one.out_of_memory for one in end.hosts):
        return "take a larger instance type, or a smaller batch"
    if end.faults:
        return f"this run did that: {end.faults[0].description}"
    if found and found.hint:
        return found.hint
    if first and job.group_of(first.host).gpus == 0 and "nvidia" in end.logs[first.host].lower():
        return "the hosts had no GPU; `--gpus` gives them those of this machine"
    return ""


def _tail(first: First, found: Cause | None) -> tuple[str, ...]:
    """The last lines up to what tells the cause: toolkits and launchers say much after it."""
    told = found.lines if found else first.text.splitlines()
    lines = [line.rstrip()[:200] for line in told if line.strip()]
    return tuple(lines[-TAIL_LINES:])


def _loss(job: TrainingJob, end: JobResult, loss: InjectedFault) -> LossReport:
    others = tuple(
        Notice(
            one.host,
            _host(job, one).end,
            round((end.seconds if one.seconds is None else one.seconds) - loss.at, 1),
        )
        for one in end.hosts
        if one.host in loss.witnesses
    )
    return LossReport(loss.description, round(loss.at, 1), others)


def _fallback(job: TrainingJob, seen: Transports, efa_types: frozenset[str]) -> str:
    wanted = sorted({group.instance_type for group in job.groups} & efa_types)
    if not (wanted and seen.uses_sockets):
        return ""
    return f"the ranks talked through TCP sockets (NET/Socket); {', '.join(wanted)} has EFA for that"


def _first_line(reason: str) -> str:
    lines = reason.splitlines()
    return lines[0] + (" …" if len(lines) > 1 else "")
