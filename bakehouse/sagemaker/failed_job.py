"""A job that failed on SageMaker, and its repetition on this machine.

The answer of DescribeTrainingJob has the FailureReason, and the log comes from CloudWatch.
"""

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from bakehouse.cluster.failure import Cause, LogContext, failure_tail, find_cause, known_failures
from bakehouse.cluster.job_report import JobReport, Status
from bakehouse.util.format import format_count

_PREFIX = re.compile(r"^\S*\d{4}-\d{2}-\d{2}T\S+\s+(?:\S*/)?algo-\d+-\d+\s?", re.MULTILINE)
"""Time and stream that `aws logs tail` writes before each line."""
_TAIL_LINES = 12
_FAILED = ("Failed", "Stopped")


class Verdict(StrEnum):
    """Result of the repetition of a failed job."""

    REPRODUCED = "reproduced"
    OTHER = "another failure"
    NOT_REPRODUCED = "not reproduced"
    UNKNOWN = "failed here too, but it is not known whether for the same cause"


@dataclass(frozen=True, slots=True)
class FailedJob:
    """A job that failed on SageMaker."""

    reason: str
    """FailureReason, or the secondary status of a job that was stopped."""
    cause: Cause | None
    """Known cause according to the log or the reason."""
    tail: tuple[str, ...]
    """The lines of the log that matter."""
    interruptions: int = 0
    """How often Spot instances were interrupted."""

    @property
    def lines(self) -> Iterator[str]:
        """Yield the failure as text for a terminal."""
        yield f"failed on SageMaker: {' '.join(self.reason.split()) or 'no reason is given'}"
        if self.cause:
            yield f"  cause: {self.cause.message}"
        else:
            yield "  cause: not known; the log of the job would decide it, with `--log FILE`"
        if self.interruptions:
            yield f"  Spot interrupted its instances {format_count(self.interruptions, 'time')}"
        yield from (f"    | {line}" for line in self.tail)
        if self.cause and self.cause.hint:
            yield f"  hint: {self.cause.hint}"


def read_failure(answer: Mapping[str, Any], log: str) -> FailedJob | None:
    """Return the failure of a job from its answer and its log, or None if it did not fail."""
    if answer.get("TrainingJobStatus") not in _FAILED:
        return None
    reason = str(answer.get("FailureReason") or answer.get("SecondaryStatus") or "")
    context = LogContext("the host", full=())
    text = log_text(log)
    own = find_cause(text, context) if text.strip() else None
    # The toolkit puts the exception into the reason, which has a limit of characters.
    stated = find_cause(reason, context)
    cause = next((cause for cause in (own, stated) if cause and cause.hint), own or stated)
    # A job that SageMaker stopped has no failure of its own
    cause = known_failures().statuses.get(str(answer.get("SecondaryStatus")), cause)
    lines = own.lines if own else text.splitlines()
    transitions = answer.get("SecondaryStatusTransitions") or ()
    statuses = [item.get("Status") for item in transitions if isinstance(item, Mapping)]
    return FailedJob(reason, cause, failure_tail(lines, _TAIL_LINES), statuses.count("Interrupted"))


def log_text(data: str) -> str:
    """Return the messages of a log: plain, of `aws logs tail`, or an export of CloudWatch as JSON or CSV."""
    start = data.lstrip()[:1]
    if start in ("{", "["):
        try:
            document = json.loads(data)
        except ValueError:
            return data
        events = document.get("events") if isinstance(document, dict) else document
        if isinstance(events, list):
            messages = [event.get("message") for event in events if isinstance(event, dict)]
            return "\n".join(message for message in messages if isinstance(message, str))
    if data.startswith("timestamp,message"):
        return "\n".join(row["message"] or "" for row in csv.DictReader(io.StringIO(data)))
    return _PREFIX.sub("", data)


def verdict(failed: FailedJob, report: JobReport) -> Verdict:
    """Return whether a run failed like the job on SageMaker."""
    if report.status is Status.COMPLETED:
        return Verdict.NOT_REPRODUCED
    if failed.cause is None:
        return Verdict.UNKNOWN
    known = failed.cause.message
    local = find_cause(report.reason, LogContext(report.failed_host))
    causes = {report.cause, local.message if local else ""} - {""}
    return Verdict.REPRODUCED if known in causes else Verdict.OTHER


def differences(values: Mapping[str, Any], report: JobReport, ranks: int | None) -> Iterator[str]:
    """Yield what of a job on SageMaker this machine did not imitate.

    `values` are those of the answer, and `ranks` the processes of the job; None if they are unknown.
    """
    if ranks is None:
        yield "the number of ranks on SageMaker is not known"
    elif ranks != report.ranks:
        yield f"{ranks} ranks on SageMaker became {report.ranks} here"
    resources = values.get("ResourceConfig")
    types = sorted(set(_types(resources))) if isinstance(resources, Mapping) else []
    if types:
        gpus = f"{report.gpus} GPUs of this machine" if report.gpus else "no GPU"
        yield f"the hosts had the cores and memory of this machine and {gpus} instead of {', '.join(types)}"
    for name, what in _NOT_IMITATED.items():
        if values.get(name):
            yield what
    for channel in values.get("InputDataConfig") or ():
        if isinstance(channel, Mapping) and channel.get("InputMode") in ("Pipe", "FastFile"):
            mode = channel["InputMode"]
            yield f"the channel {channel.get('ChannelName')} was a directory instead of {mode}"


_NOT_IMITATED: Mapping[str, str] = {
    "RoleArn": "the code had no execution role, so AWS answered it as without one",
    "VpcConfig": "the network had no VPC, security groups or endpoints",
    "EnableNetworkIsolation": "the network was not isolated",
    "EnableManagedSpotTraining": "no Spot instance was interrupted; `--kill algo-1@60s` imitates it",
}


def _types(resources: Mapping[str, Any]) -> Iterator[str]:
    groups = resources.get("InstanceGroups") or [resources]
    for group in groups if isinstance(groups, list) else []:
        if isinstance(group, Mapping) and isinstance(group.get("InstanceType"), str):
            yield group["InstanceType"]
