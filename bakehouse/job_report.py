"""Says how a job ended as SageMaker would say it, and which rank, host and line to look at."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from bakehouse.cluster import HostEnd, JobEnd
from bakehouse.jobs import Job
from bakehouse.ranks import Failure, first_failure
from bakehouse.transports import Transports, transports

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
    transports: Transports
    fallback: str
    """Why the way that ranks talked is a failure, where it is."""
    folder: Path

    @property
    def passed(self) -> bool:
        return self.status is Status.COMPLETED and not self.fallback


def report(job: Job, end: JobEnd, folder: Path, efa_types: frozenset[str] = frozenset()) -> JobReport:
    """What the end of a job means; `efa_types` are the instance types with EFA interfaces."""
    status, reason = _status(job, end)
    failed = first_failure(end.notes, "".join(log.rest for log in end.split.values()))
    failed = failed if status is Status.FAILED else None
    host = _failing_host(job, end, failed) if status is Status.FAILED else ""
    seen = transports(end.logs.values())
    return JobReport(
        job=job.name,
        status=status,
        reason=reason,
        seconds=round(end.seconds, 1),
        seed=job.seed,
        hosts=tuple(_host(job, one) for one in end.hosts),
        failed_rank=failed.rank if failed else None,
        failed_host=host,
        cause=failed.reason if failed else _cause(end, host),
        hint=_hint(job, end, host),
        tail=_tail(end, host, failed),
        transports=seen,
        fallback=_fallback(job, seen, efa_types),
        folder=folder,
    )


def as_json(found: JobReport) -> str:
    """One object, for programs."""
    fields = {**asdict(found), "passed": found.passed, "folder": str(found.folder)}
    return json.dumps(fields, indent=2, sort_keys=True, default=str) + "\n"


def text(found: JobReport) -> str:
    """What a person reads at the end of a run."""
    width = max(len(one.host) for one in found.hosts)
    groups = max(len(one.group) for one in found.hosts)
    lines = [f"{found.job}: {found.status} after {found.seconds:.1f} s, as SageMaker would say"]
    if found.reason:
        lines.append(f"  {_first_line(found.reason)}")
    for one in found.hosts:
        when = f" after {one.seconds:.1f} s" if one.seconds is not None else ""
        where = f"{one.host.ljust(width)}  {one.group.ljust(groups)}  {one.instance_type}"
        lines.append(f"  {where}  {one.end}{when}")
    if found.seed is not None:
        lines.append(f"  hosts were dealt to groups by --seed {found.seed}")
    if found.failed_rank is not None:
        lines.append(f"  first to fail: rank {found.failed_rank} on {found.failed_host}: {found.cause}")
    elif found.cause:
        lines.append(f"  first to fail: {found.failed_host}: {found.cause}")
    lines += [f"    | {line}" for line in found.tail]
    if found.transports:
        version = f"NCCL {found.transports.version}: " if found.transports.version else "NCCL: "
        lines.append(f"  {version}{', '.join(found.transports.ways or found.transports.networks)}")
    if found.fallback:
        lines.append(f"  failed: {found.fallback}")
    lines.append(f"  logs of hosts and ranks: {found.folder}")
    if found.hint:
        lines += ["", f"hint: {found.hint}"]
    return "\n".join(lines) + "\n"


def _status(job: Job, end: JobEnd) -> tuple[Status, str]:
    if end.stopped:
        return Status.STOPPED, f"stopped after {job.stop_after:g} s"
    for host in end.hosts:
        if host.host in job.kills and host.exit_code:
            # A host that is lost, SageMaker says no more of.
            return Status.FAILED, f"InternalServerError: {host.host} was lost"
    for host in _by_time(end):
        if host.exit_code:
            said = (host.failure or "").strip()[:REASON_CHARACTERS]
            return Status.FAILED, f"AlgorithmError: {said}, exit code: {host.exit_code}"
    if end.timed_out:
        return Status.STOPPED, f"MaxRuntimeExceeded: no end within {job.deadline:g} s"
    return Status.COMPLETED, ""


def _by_time(end: JobEnd) -> list[HostEnd]:
    return sorted(end.hosts, key=lambda host: (host.seconds is None, host.seconds or 0.0))


def _host(job: Job, one: HostEnd) -> HostReport:
    group = job.group_of(one.host)
    if one.exit_code is None:
        words = "still running"
    elif one.host in job.kills and one.exit_code == 137:
        words = "killed by this run"
    elif one.out_of_memory:
        words = f"exit {one.exit_code}: out of memory"
    else:
        words = f"exit {one.exit_code}"
    return HostReport(one.host, group.name, group.instance_type, words, one.seconds)


def _failing_host(job: Job, end: JobEnd, failed: Failure | None) -> str:
    if failed:
        return job.host_of(failed.rank)
    ended = [host.host for host in _by_time(end) if host.exit_code]
    return (ended or [end.hosts[0].host])[0]


def _cause(end: JobEnd, host: str) -> str:
    one = next((one for one in end.hosts if one.host == host), None)
    if one is None or not one.exit_code:
        return ""
    if one.out_of_memory:
        return "ran out of memory"
    return _SIGNALS.get(one.exit_code, f"exited with {one.exit_code}")


def _hint(job: Job, end: JobEnd, host: str) -> str:
    if end.timed_out:
        running = ", ".join(one.host for one in end.hosts if one.exit_code is None)
        return f"{running} did not end: read its log, or give the job more time with `--timeout`"
    if any(one.out_of_memory for one in end.hosts):
        return "take a larger instance type, or a smaller batch"
    if host and job.group_of(host).gpus == 0 and "nvidia" in end.logs[host].lower():
        return "the hosts had no GPU; `--gpus` gives them those of this machine"
    return ""


def _tail(end: JobEnd, host: str, failed: Failure | None) -> tuple[str, ...]:
    if not host:
        return ()
    ranks: Mapping[int, str] = {
        rank: log for split in end.split.values() for rank, log in split.ranks.items()
    }
    said = ranks.get(failed.rank, "") if failed else ""
    lines = [line.rstrip()[:200] for line in (said or end.logs[host]).splitlines() if line.strip()]
    return tuple(lines[-TAIL_LINES:])


def _fallback(job: Job, seen: Transports, efa_types: frozenset[str]) -> str:
    wanted = sorted({group.instance_type for group in job.groups} & efa_types)
    if not (wanted and seen.falls_back):
        return ""
    return f"the ranks talked through TCP sockets (NET/Socket); {', '.join(wanted)} has EFA for that"


def _first_line(reason: str) -> str:
    lines = reason.splitlines()
    return lines[0] + (" …" if len(lines) > 1 else "")
