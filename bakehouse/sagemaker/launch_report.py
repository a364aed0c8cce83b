"""Report of a job on SageMaker: how it ended, or how to continue if it still runs."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from bakehouse.cluster.failure import Cause, LogContext, failure_tail, find_cause
from bakehouse.cluster.job_report import TAIL_LINES, Status
from bakehouse.errors import Diagnostic, LaunchError, SmokeError
from bakehouse.sagemaker.follow import FollowResult
from bakehouse.util.format import format_seconds

INTERRUPTED = 130
"""A shell's exit code for a program that Ctrl-C ended."""


@dataclass(frozen=True, slots=True)
class LaunchReport:
    """Result of a job on SageMaker, or its last known state."""

    job: str
    region: str
    status: Status | None
    """None if it still runs as far as known."""
    reason: str = ""
    """FailureReason; empty if the job completed."""
    seconds: float | None = None
    """Training time according to SageMaker."""
    billed: int | None = None
    host: str = ""
    """Host whose log contains the cause."""
    cause: str = ""
    hint: str = ""
    tail: tuple[str, ...] = ()
    model: str = ""
    """S3 URI of the model, if the job completed."""
    problem: Diagnostic | None = None
    """Reason why following ended before the job."""
    interrupted: bool = False
    stopping: bool = False
    """SageMaker was asked to stop the job, which had not stopped yet."""

    @property
    def exit_code(self) -> int:
        """0 if the job completed or was only sent."""
        if self.status is not None:
            return 0 if self.status is Status.COMPLETED else SmokeError.exit_code
        if self.problem:
            return LaunchError.exit_code
        return INTERRUPTED if self.interrupted else 0

    @property
    def stop_command(self) -> str:
        command = ["aws", "sagemaker", "stop-training-job", "--region", self.region]
        return shlex.join([*command, "--training-job-name", self.job])

    @property
    def follow_command(self) -> str:
        return shlex.join(["bake", "launch", "--follow", self.job, "--region", self.region])


def report(job: str, region: str, followed: FollowResult) -> LaunchReport:
    """Report the result of following a job."""
    description = followed.description
    if description is None:
        return LaunchReport(
            job,
            region,
            None,
            problem=followed.problem,
            interrupted=followed.problem is None,
            stopping=followed.stopping,
        )
    status = Status(description.status)
    host, cause = _cause(followed.tails, description.reason) if status is Status.FAILED else ("", None)
    return LaunchReport(
        job=job,
        region=region,
        status=status,
        reason=description.reason,
        seconds=description.seconds,
        billed=description.billed,
        host=host,
        cause=cause.message if cause else "",
        hint=cause.hint if cause else "",
        tail=failure_tail(cause.lines, TAIL_LINES) if cause and host else (),
        model=description.model if status is Status.COMPLETED else "",
    )


def text(report: LaunchReport) -> str:
    """Return a report as text for a terminal."""
    if report.status is None:
        return _running_text(report)
    after = f" after {format_seconds(report.seconds)}" if report.seconds is not None else ""
    billed = f", {report.billed} s billed" if report.billed is not None else ""
    lines = [f"{report.job}: {report.status}{after}{billed}"]
    lines += [f"  {line.strip()}" for line in report.reason.splitlines() if line.strip()]
    if report.cause:
        lines.append(f"  cause{f' on {report.host}' if report.host else ''}: {report.cause}")
        lines += [f"    | {line}" for line in report.tail]
    if report.model:
        lines.append(f"  model: {report.model}")
    if report.hint:
        lines += ["", f"hint: {report.hint}"]
    return "\n".join(lines) + "\n"


def _running_text(report: LaunchReport) -> str:
    state = "is stopping" if report.stopping else "is running"
    lines = [f"{report.job}: {state} in {report.region}; Bakehouse no longer follows it"]
    if report.problem:
        lines.append(f"  because {report.problem.message}")
        lines += [f"  and {reason.text}" for reason in report.problem.reasons]
        lines += [f"  {name}  {value}" for name, value in report.problem.facts]
    if not report.stopping:
        lines.append(f"  to stop it    {report.stop_command}")
    lines.append(f"  to follow it  {report.follow_command}")
    if report.problem and report.problem.hint:
        lines += ["", f"hint: {report.problem.hint}"]
    return "\n".join(lines) + "\n"


def _cause(tails: Mapping[str, str], reason: str) -> tuple[str, Cause | None]:
    """Return the cause in a log and its host, or else the cause in FailureReason."""
    hosts = tuple(tails)
    causes = [
        (host, cause) for host, log in tails.items() if (cause := find_cause(log, LogContext(host, hosts)))
    ]
    causes.sort(key=lambda pair: pair[1].is_consequence)
    return causes[0] if causes else ("", find_cause(reason, LogContext("the host", hosts)))
