"""Report of a job: the status that SageMaker would give it, and the rank, host and log line of a failure."""

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from bakehouse.cluster.failure import (
    Cause,
    FirstFailure,
    cause_of,
    failure_tail,
    find_first_failure,
    in_order_of_end,
    script_exit,
    was_killed,
)
from bakehouse.cluster.job import TrainingJob
from bakehouse.cluster.job_runner import HostResult, InjectedFault, JobResult
from bakehouse.cluster.nccl_log import Transports, read_transports
from bakehouse.cluster.ranks import MPI_ABORT
from bakehouse.util.format import format_seconds

REASON_CHARACTERS = 1024
"""SageMaker's limit for the content of /opt/ml/output/failure."""
_SIGNALS = {134: "aborted", 137: "was killed", 139: "crashed (segmentation fault)", 143: "was terminated"}
TAIL_LINES = 15
_REASON_LENGTH = 200
"""Characters of a reason in the text."""


class Status(StrEnum):
    """TrainingJobStatus."""

    COMPLETED = "Completed"
    FAILED = "Failed"
    STOPPED = "Stopped"


@dataclass(frozen=True, slots=True)
class HostReport:
    """End of one host."""

    host: str
    group: str
    instance_type: str
    end: str
    """`exit 0`, `exit 1: out of memory`, `killed by this run`, `still running`."""
    seconds: float | None


@dataclass(frozen=True, slots=True)
class HostReaction:
    """End of a host after an injected fault."""

    host: str
    end: str
    seconds: float
    """Seconds from the fault to the host's end."""


@dataclass(frozen=True, slots=True)
class FaultReport:
    """An injected fault and the reactions of the other hosts."""

    what: str
    at: float
    others: tuple[HostReaction, ...]


@dataclass(frozen=True, slots=True)
class JobReport:
    """Report of a job."""

    job: str
    status: Status
    reason: str
    """FailureReason, or the reason of a stop; empty if the job completed."""
    seconds: float
    seed: int | None
    hosts: tuple[HostReport, ...]
    failed_rank: int | None
    failed_host: str
    cause: str
    """Cause of the first failure. SageMaker does not report it."""
    hint: str
    tail: tuple[str, ...]
    log: Path | None
    """Log of the rank or host that failed first."""
    losses: tuple[FaultReport, ...]
    ranks: int
    gpus: int
    """GPUs of this machine that the hosts had."""
    transports: Transports
    fallback: str
    """Message if the ranks did not use EFA although their instance type has it."""
    folder: Path

    @property
    def passed(self) -> bool:
        return self.status is Status.COMPLETED and not self.fallback


def report(
    job: TrainingJob, result: JobResult, directory: Path, efa_types: frozenset[str] = frozenset()
) -> JobReport:
    """Report a job's result. `efa_types` are the instance types with EFA."""
    status, reason = _status(job, result)
    failure = find_first_failure(job, result, has_failed=status is Status.FAILED)
    cause = cause_of(job, failure) if failure else None
    transports = read_transports(result.logs.values())
    return JobReport(
        job=job.name,
        status=status,
        reason=reason,
        seconds=round(result.seconds, 1),
        seed=job.seed,
        hosts=tuple(_host(job, host) for host in result.hosts),
        failed_rank=failure.rank if failure else None,
        failed_host=failure.host if failure else "",
        cause=_cause(job, result, failure, cause) if failure else "",
        hint=_hint(job, result, failure, cause),
        tail=_tail(failure, cause) if failure else (),
        log=directory / "logs" / failure.log if failure else None,
        losses=tuple(_fault(job, result, fault) for fault in result.faults),
        ranks=job.ranks,
        gpus=job.gpus,
        transports=transports,
        fallback=_fallback(job, transports, efa_types),
        folder=directory,
    )


def as_json(report: JobReport) -> str:
    """Return a report as a JSON object."""
    fields = {**asdict(report), "passed": report.passed}
    return json.dumps(fields, indent=2, sort_keys=True, default=str) + "\n"


def text(report: JobReport) -> str:
    """Return a report as text for a terminal."""
    host_width = max(len(host.host) for host in report.hosts)
    group_width = max(len(host.group) for host in report.hosts)
    lines = [
        f"{report.job}: {report.status} after {format_seconds(report.seconds)} (predicted SageMaker status)"
    ]
    if report.reason:
        lines.append(f"  {_one_line(report.reason)}")
    for host in report.hosts:
        after = f" after {format_seconds(host.seconds)}" if host.seconds is not None else ""
        columns = f"{host.host.ljust(host_width)}  {host.group.ljust(group_width)}  {host.instance_type}"
        lines.append(f"  {columns}  {host.end}{after}")
    if report.seed is not None:
        lines.append(f"  hosts were assigned to groups with --seed {report.seed}")
    for fault in report.losses:
        lines.append(f"  after {format_seconds(fault.at)} {fault.what}")
        lines += [
            f"    {other.host.ljust(host_width)}  {other.end}, {format_seconds(other.seconds)} later"
            for other in fault.others
        ]
    if report.cause:
        title = "first failure" if report.status is Status.FAILED else "not ended"
        rank = f"rank {report.failed_rank} on " if report.failed_rank is not None else ""
        lines.append(f"  {title}: {rank}{report.failed_host}: {report.cause}")
        lines += [f"    | {line}" for line in report.tail]
        lines.append(f"  log: {report.log}")
    if report.transports:
        version = f"NCCL {report.transports.version}: " if report.transports.version else "NCCL: "
        lines.append(f"  {version}{', '.join(report.transports.ways or report.transports.networks)}")
    elif report.ranks > 1 and report.status is Status.COMPLETED:
        without_gpus = "no NCCL: the hosts had no GPUs, so ranks used gloo, MPI or gRPC"
        without_log = "the transport of NCCL is unknown: add `--environment NCCL_DEBUG=INFO` to log it"
        lines.append(f"  {without_log if report.gpus else without_gpus}")
    if report.fallback:
        lines.append(f"  failed: {report.fallback}")
    lines.append(f"  logs of hosts and ranks: {report.folder}")
    if report.hint:
        lines += ["", f"hint: {report.hint}"]
    return "\n".join(lines) + "\n"


def _status(job: TrainingJob, result: JobResult) -> tuple[Status, str]:
    if result.stopped:
        return Status.STOPPED, f"stopped after {job.stop_after:g} s"
    for host in result.hosts:
        if was_killed(job, host):
            # SageMaker reports no more than this about a lost host.
            return Status.FAILED, f"InternalServerError: {host.host} was lost"
    for host in in_order_of_end(result):
        if host.exit_code:
            failure = (host.failure or "").strip()[:REASON_CHARACTERS]
            return Status.FAILED, f"AlgorithmError: {failure}, exit code: {host.exit_code}"
    if result.timed_out:
        return Status.STOPPED, f"MaxRuntimeExceeded: the job did not end within {job.deadline:g} s"
    return Status.COMPLETED, ""


def _host(job: TrainingJob, host: HostResult) -> HostReport:
    group = job.group_of(host.host)
    if host.exit_code is None:
        end = "still running"
    elif was_killed(job, host):
        end = "killed by this run"
    elif host.out_of_memory:
        end = f"exit {host.exit_code}: out of memory"
    else:
        end = f"exit {host.exit_code}"
    return HostReport(host.host, group.name, group.instance_type, end, host.seconds)


def _cause(job: TrainingJob, result: JobResult, failure: FirstFailure, cause: Cause | None) -> str:
    host = next(host for host in result.hosts if host.host == failure.host)
    if result.timed_out and not host.exit_code:
        return f"did not end within {job.deadline:g} s"
    if was_killed(job, host):
        return "killed by this run"
    if failure.rank is not None and result.events:
        return failure.reason
    if cause:
        return cause.message
    if host.out_of_memory:
        return "ran out of memory"
    if failure.reason == MPI_ABORT:
        # mpi4py calls MPI_ABORT with the script's exit code, and mpirun exits with that.
        return script_exit(result.logs[job.rank_hosts[0]]) or failure.reason
    return failure.reason or _SIGNALS.get(host.exit_code or 0, "") or f"exited with {host.exit_code}"


def _hint(job: TrainingJob, result: JobResult, failure: FirstFailure | None, cause: Cause | None) -> str:
    if result.timed_out:
        running = ", ".join(host.host for host in result.hosts if host.exit_code is None)
        if result.faults:
            return f"set time-outs in the script: {running} did not notice the failure"
        return f"read the log of {running}, or allow more time with `--timeout`"
    if any(host.out_of_memory for host in result.hosts):
        return "use a larger instance type or a smaller batch"
    if result.faults:
        return f"this run caused the failure: {result.faults[0].description}"
    if cause and cause.hint:
        return cause.hint
    if failure and job.group_of(failure.host).gpus == 0 and "nvidia" in result.logs[failure.host].lower():
        return "use `--gpus` to give the hosts GPUs of this machine; they had none"
    return ""


def _tail(failure: FirstFailure, cause: Cause | None) -> tuple[str, ...]:
    """Return the last lines of a log up to the cause. Toolkits and launchers print more after it."""
    return failure_tail(cause.lines if cause else failure.text.splitlines(), TAIL_LINES)


def _fault(job: TrainingJob, result: JobResult, fault: InjectedFault) -> FaultReport:
    others = tuple(
        HostReaction(
            host.host,
            _host(job, host).end,
            round((result.seconds if host.seconds is None else host.seconds) - fault.at, 1),
        )
        for host in result.hosts
        if host.host in fault.witnesses
    )
    return FaultReport(fault.description, round(fault.at, 1), others)


def _fallback(job: TrainingJob, transports: Transports, efa_types: frozenset[str]) -> str:
    with_efa = sorted({group.instance_type for group in job.groups} & efa_types)
    if not (with_efa and transports.uses_sockets):
        return ""
    return f"the ranks used TCP sockets (NET/Socket) although {', '.join(with_efa)} has EFA"


def _one_line(reason: str) -> str:
    """Return the beginning of a reason. The toolkit writes the exception after its own first line."""
    line = " ".join(reason.split())
    return line if len(line) <= _REASON_LENGTH else f"{line[:_REASON_LENGTH]} …"
