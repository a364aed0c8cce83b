"""Says how a job on SageMaker ended, or how to come back to one that goes on."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from bakehouse.cluster.failure import Cause, LogContext, find_cause
from bakehouse.cluster.job_report import TAIL_LINES, Status
from bakehouse.errors import Diagnostic, LaunchError, SmokeError
from bakehouse.sagemaker.follow import Followed
from bakehouse.util.format import format_seconds

INTERRUPTED = 130
"""What a shell says of a program that Ctrl-C ended."""


@dataclass(frozen=True, slots=True)
class LaunchReport:
    """How a job ended on SageMaker, or that it goes on."""

    job: str
    region: str
    status: Status | None
    """None: it goes on, as far as is known."""
    reason: str = ""
    """FailureReason; empty where it completed."""
    seconds: float | None = None
    """Of training, as SageMaker counts."""
    billed: int | None = None
    host: str = ""
    """Whose log tells the cause."""
    cause: str = ""
    hint: str = ""
    tail: tuple[str, ...] = ()
    model: str = ""
    """Where in S3 it is, of a job that completed."""
    trouble: Diagnostic | None = None
    """Why following ended before the job."""
    interrupted: bool = False
    stopping: bool = False
    """SageMaker was asked to stop it, and nobody waited for that."""

    @property
    def exit_code(self) -> int:
        """0 where it completed, or was only to be sent."""
        if self.status is not None:
            return 0 if self.status is Status.COMPLETED else SmokeError.exit_code
        if self.trouble:
            return LaunchError.exit_code
        return INTERRUPTED if self.interrupted else 0

    @property
    def stop_command(self) -> str:
        words = ["aws", "sagemaker", "stop-training-job", "--region", self.region]
        return shlex.join([*words, "--training-job-name", self.job])

    @property
    def follow_command(self) -> str:
        return shlex.join(["./bake", "follow", self.job, "--region", self.region])


def report(job: str, region: str, followed: Followed) -> LaunchReport:
    """What following a job has come to."""
    described = followed.description
    if described is None:
        return LaunchReport(
            job,
            region,
            None,
            trouble=followed.trouble,
            interrupted=followed.trouble is None,
            stopping=followed.stopping,
        )
    status = Status(described["TrainingJobStatus"])
    reason = str(described.get("FailureReason", ""))
    host, found = _cause(followed.texts, reason) if status is Status.FAILED else ("", None)
    return LaunchReport(
        job=job,
        region=region,
        status=status,
        reason=reason,
        seconds=_seconds(described),
        billed=described.get("BillableTimeInSeconds"),
        host=host,
        cause=found.message if found else "",
        hint=found.hint if found else "",
        tail=_tail(found) if found and host else (),
        model=_model(described) if status is Status.COMPLETED else "",
    )


def text(found: LaunchReport) -> str:
    """What a person reads at the end of following a job."""
    if found.status is None:
        return _left(found)
    after = f" after {format_seconds(found.seconds)}" if found.seconds is not None else ""
    billed = f", {found.billed} s are billed" if found.billed is not None else ""
    lines = [f"{found.job}: {found.status}{after}{billed}"]
    lines += [f"  {line.strip()}" for line in found.reason.splitlines() if line.strip()]
    if found.cause:
        lines.append(f"  {found.host or 'it'} says: {found.cause}")
        lines += [f"    | {line}" for line in found.tail]
    if found.model:
        lines.append(f"  model: {found.model}")
    if found.hint:
        lines += ["", f"hint: {found.hint}"]
    return "\n".join(lines) + "\n"


def _left(found: LaunchReport) -> str:
    does = "is being stopped" if found.stopping else "goes on"
    lines = [f"{found.job}: it {does} in {found.region}, and is not followed here"]
    if found.trouble:
        lines.append(f"  because {found.trouble.message}")
        lines += [f"  and {one.text}" for one in found.trouble.reasons]
        lines += [f"  {name}  {value}" for name, value in found.trouble.facts]
    if not found.stopping:
        lines.append(f"  to stop it    {found.stop_command}")
    lines.append(f"  to follow it  {found.follow_command}")
    if found.trouble and found.trouble.hint:
        lines += ["", f"hint: {found.trouble.hint}"]
    return "\n".join(lines) + "\n"


def _cause(texts: Mapping[str, str], reason: str) -> tuple[str, Cause | None]:
    """The host whose log tells why, and what it tells; else what the reason itself tells."""
    hosts = tuple(texts)
    found = [
        (host, told) for host, log in texts.items() if (told := find_cause(log, LogContext(host, hosts)))
    ]
    found.sort(key=lambda one: one[1].is_consequence)
    return found[0] if found else ("", find_cause(reason, LogContext("the host", hosts)))


def _tail(found: Cause) -> tuple[str, ...]:
    lines = [line.rstrip()[:200] for line in found.lines if line.strip()]
    return tuple(lines[-TAIL_LINES:])


def _seconds(described: Mapping[str, Any]) -> float | None:
    start, end = described.get("TrainingStartTime"), described.get("TrainingEndTime")
    if isinstance(start, datetime) and isinstance(end, datetime):
        return (end - start).total_seconds()
    return None


def _model(described: Mapping[str, Any]) -> str:
    artifacts = described.get("ModelArtifacts")
    return str(artifacts.get("S3ModelArtifacts", "")) if isinstance(artifacts, Mapping) else ""
