"""The use case of `run` for a job that failed on SageMaker: its cause, and whether it fails here."""

import sys
from pathlib import Path

from bakehouse.cluster.job_report import JobReport
from bakehouse.errors import ReplayError, SmokeError, UsageError
from bakehouse.jobs.given_job import GivenJob
from bakehouse.jobs.job_check import check_settings
from bakehouse.plan.workspace import Workspace
from bakehouse.sagemaker.failed_job import FailedJob, Verdict, differences, read_failure, verdict
from bakehouse.util.files import read_text
from bakehouse.util.terminal import Reporter

_CODES = {
    Verdict.REPRODUCED: SmokeError.exit_code,
    Verdict.OTHER: ReplayError.exit_code,
    Verdict.UNKNOWN: SmokeError.exit_code,
    Verdict.NOT_REPRODUCED: 0,
}


def open_failure(workspace: Workspace, given: GivenJob, log: str, report: Reporter) -> FailedJob | None:
    """Report the failure of a job and what `validate` finds in its settings; None for other jobs.

    `log` is a file, or `-` for standard input. Raises UsageError if it cannot be read.
    """
    answer = given.file.answer if given.file else {}
    failed = read_failure(answer, _read(log)) if answer else None
    if failed is None:
        if log:
            hint = "give the answer of `aws sagemaker describe-training-job` for a failed job"
            raise UsageError("`--log` needs a job that failed, in `--job`", hint=hint)
        return None
    for line in failed.lines:
        report(line)
    for finding in check_settings(workspace, given).findings:
        report(f"  {'error' if finding.is_error else 'warning'} of `validate`: {finding.message}")
        if finding.hint:
            report(f"    hint: {finding.hint}")
    return failed


def conclude(
    workspace: Workspace, given: GivenJob, failed: FailedJob, result: JobReport, report: Reporter
) -> int:
    """Report whether a job failed here as on SageMaker, and return the exit code for that."""
    outcome = verdict(failed, result)
    cause = failed.cause.message if failed.cause else "the cause is not known"
    report(f"{outcome}; on SageMaker: {cause}")
    answer = given.file.answer if given.file else {}
    for difference in differences(answer, result, _ranks(workspace, given)):
        report(f"  not imitated: {difference}")
    return _CODES[outcome]


def _ranks(workspace: Workspace, given: GivenJob) -> int | None:
    """Return the number of ranks on SageMaker; None if it is not known."""
    request = check_settings(workspace, given).request
    if not request.distribution:
        return request.hosts
    mpi = request.distribution.get("mpi")
    per_host = mpi.get("processes_per_host") if isinstance(mpi, dict) else None
    if type(per_host) is int:
        return per_host * request.hosts
    if any(group.gpus is None for group in request.groups):
        return None
    return sum(max(group.gpus or 0, 1) * group.count for group in request.groups)


def _read(log: str) -> str:
    if not log:
        return ""
    if log == "-":
        return sys.stdin.read()
    try:
        return read_text(Path(log), errors="replace")
    except OSError as error:
        raise UsageError(f"cannot read the log `{log}`: {(error.strerror or '').lower()}") from error
