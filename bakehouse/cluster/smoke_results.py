"""Results of smoke checks: passed, or the failure with its rank and last log lines."""

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from bakehouse.builder.verify import CheckAnswer, Outcome, ProbeResults, VersionResult
from bakehouse.cluster import job_report
from bakehouse.cluster.failure import LogContext, find_cause, last_lines
from bakehouse.cluster.job import ML, TrainingJob
from bakehouse.cluster.job_report import Status
from bakehouse.cluster.job_runner import JobResult
from bakehouse.cluster.nccl_log import SOCKET, read_transports
from bakehouse.cluster.ranks import RankFailure, RankStep, first_failure, format_ranks, ranks_without
from bakehouse.cluster.smoke_checks import SmokeCheck
from bakehouse.cluster.smoke_report import COMPONENTS, PRIVATE_KEYS, CheckResult
from bakehouse.util.files import read_text
from bakehouse.util.format import format_names, format_seconds

TAIL_LINES = 12
_SKIPPED = re.compile(r"^(?:\[[^]]*\]:)?not tested: (?P<reason>.+)$", re.MULTILINE)
"""Line of a script that cannot test anything on these hosts; torchrun puts the rank before it."""


def not_tested(check: SmokeCheck, reason: str) -> CheckResult:
    """Return the result of a check that does not run."""
    return CheckResult(check.name, Outcome.NOT_TESTED, 0.0, reason, ranks=0)


def evaluate_job(check: SmokeCheck, job: TrainingJob, result: JobResult, logs: Path) -> CheckResult:
    """Return the result of a check that runs a job."""
    failure, reason = _problem(check, job, result)
    if check.kind.needs_efa and not reason:
        if skipped := _SKIPPED.search("\n".join(result.logs.values())):
            return not_tested(check, skipped["reason"])
        reason = _missing_efa(result)
    if not reason:
        return CheckResult(
            check.name,
            Outcome.PASSED,
            round(result.seconds, 1),
            ranks=job.ranks,
            source=check.source,
            log=logs,
        )
    rank_logs = {rank: text for log in result.rank_logs.values() for rank, text in log.ranks.items()}
    rank_log = rank_logs.get(failure.rank, "") if failure else ""
    return CheckResult(
        check.name,
        Outcome.FAILED,
        round(result.seconds, 1),
        _clause(reason),
        job.ranks,
        f"{job.host_of(failure.rank)} rank {failure.rank}" if failure else "",
        _exit(job, result, failure),
        check.source,
        _tail(rank_log) or _tail(result.logs[_failed_host(job, result, failure)]),
        logs,
    )


def _missing_efa(result: JobResult) -> str:
    """Return how hosts with EFA communicate without it; empty if they use it."""
    networks = read_transports(result.logs.values()).networks
    if not networks:
        return "NCCL's log does not name the network between the hosts"
    return f"the hosts have EFA, but communicate over {SOCKET}" if SOCKET in networks else ""


def evaluate_user_job(check: SmokeCheck, job: TrainingJob, result: JobResult, logs: Path) -> CheckResult:
    """Return the result of the user's own test: all hosts exit with 0, and the log contains `expect`."""
    assert check.smoke is not None
    report = job_report.report(job, result, logs)
    reason, tail = report.cause, report.tail
    if report.status is Status.COMPLETED:
        expect, text = check.smoke.expect, "\n".join(result.logs.values())
        reason = f"exit 0, but the log does not contain `{expect}`" if expect not in text else ""
        tail = _tail(result.logs[job.host_names[0]])
    passed = CheckResult(
        check.name, Outcome.PASSED, round(result.seconds, 1), ranks=job.ranks, source=check.source, log=logs
    )
    if not reason:
        return passed
    has_failed = report.status is not Status.COMPLETED
    rank = f" rank {report.failed_rank}" if report.failed_rank is not None else ""
    return replace(
        passed,
        outcome=Outcome.FAILED,
        reason=_clause(reason),
        failed_rank=f"{report.failed_host}{rank}" if has_failed and job.ranks > 1 else "",
        exit=_exit(job, result, None) if has_failed else "",
        tail=tail,
    )


def component_results(probes: ProbeResults) -> tuple[CheckResult, ...]:
    """Return the results of each component: one for its versions, and one for each of its checks."""
    log = read_text(probes.log, errors="replace") if probes.log.exists() else ""
    results: list[CheckResult] = []
    answered = [version.part for version in probes.versions if version.source or version.error]
    for part in dict.fromkeys((*answered, *(check.component for check in probes.checks))):
        versions = [version for version in probes.versions if version.part == part]
        checks = [check for check in probes.checks if check.component == part]
        results += _version_results(part, versions, log, probes, has_checks=bool(checks))
        results += (
            CheckResult(
                f"{COMPONENTS}.{part}.{check.check}",
                check.outcome,
                check.seconds,
                _clause(check.reason),
                source=check.source,
                tail=_tail(_output(log, check)) if check.outcome is Outcome.FAILED else (),
                log=probes.log,
            )
            for check in checks
        )
    return tuple(results)


def _version_results(
    part: str, versions: Sequence[VersionResult], log: str, probes: ProbeResults, *, has_checks: bool
) -> Iterator[CheckResult]:
    """Yield the result of the versions that a component reports; none if it only has checks."""
    result = CheckResult(f"{COMPONENTS}.{part}", Outcome.PASSED, 0.0, log=probes.log)
    if wrong := [version for version in versions if not version.matches]:
        reason = "; ".join(map(_wrong_version, wrong))
        tail = _tail(_section(log, part))
        yield replace(result, outcome=Outcome.FAILED, reason=reason, source=wrong[0].source, tail=tail)
    elif any(version.installed is not None for version in versions):
        yield result
    elif versions and not has_checks:
        yield replace(result, outcome=Outcome.NOT_TESTED, reason="it has no check for this image")


def key_result(keys: Sequence[str], seconds: float) -> CheckResult:
    """Return a failure if the image contains private keys, because everyone who pulls it gets them."""
    reason = f"the image contains private keys: {format_names(keys)}" if keys else ""
    return CheckResult(PRIVATE_KEYS, Outcome.FAILED if keys else Outcome.PASSED, round(seconds, 1), reason)


def _problem(check: SmokeCheck, job: TrainingJob, result: JobResult) -> tuple[RankFailure | None, str]:
    """Return the rank that failed first, if any, and the reason; the reason is empty if the check passed."""
    if check.kind.must_fail:
        return None, _unreported_failure(job, result)
    first = first_failure(result.events, "".join(log.rest for log in result.rank_logs.values()))
    if result.timed_out:
        return (first, first.reason) if first else _late(check, job, result)
    if host := next((host for host in result.hosts if host.exit_code), None):
        end = "ran out of memory" if host.out_of_memory else f"exited with {host.exit_code}"
        return first, first.reason if first else f"{host.host} {end}"
    for host in result.hosts:
        if not job.command and not host.success and not result.mpirun_ended:
            return None, f"{host.host} wrote no {ML}/output/success"
        if check.kind.needs_model and not host.model:
            return None, f"{host.host} wrote no file below {ML}/model"
    unfinished = (
        ranks_without(result.events, RankStep.FINISHED, job.ranks) if check.kind.records_ranks else ()
    )
    if unfinished:
        return None, f"exit 0, but {_ranks(unfinished)} did not finish"
    return None, ""


def _unreported_failure(job: TrainingJob, result: JobResult) -> str:
    """Return how an image fails to report a failing script; empty if it reports it."""
    host = result.hosts[0]
    if result.timed_out:
        return f"a failing script did not end within {job.deadline:g} s"
    if host.exit_code != 1:
        return f"a failing script exited with {host.exit_code} instead of 1"
    if ranks_without(result.events, RankStep.ARRIVED, job.ranks):
        return "the failing script did not run"
    if host.failure is None:
        return f"a failing script wrote no {ML}/output/failure"
    return f"a failing script wrote {ML}/output/success" if host.success else ""


def _late(check: SmokeCheck, job: TrainingJob, result: JobResult) -> tuple[RankFailure | None, str]:
    """Return the rank that kept a job from ending in time."""
    message = f"did not end within {job.deadline:g} s"
    if not check.kind.records_ranks:
        return None, message
    missing = ranks_without(result.events, RankStep.ARRIVED, job.ranks)
    if len(missing) == job.ranks:
        absent = ranks_without(result.events, RankStep.STARTED, job.ranks)
        started = f"{_ranks(absent)} did not start" if absent else "all ranks started"
        return None, f"{message}; {started}, none arrived at the first collective{_seen(job, result)}"
    if missing:
        problem = f"{message}; {_ranks(missing)} did not arrive at the first collective"
        return RankFailure(missing[0], ""), problem
    if unfinished := ranks_without(result.events, RankStep.FINISHED, job.ranks):
        problem = f"{message}; all ranks arrived, {_ranks(unfinished)} did not finish"
        return RankFailure(unfinished[0], ""), problem
    running = [host.host for host in result.hosts if host.exit_code is None]
    return None, f"{message}; all ranks finished, {', '.join(running)} did not end"


def _seen(job: TrainingJob, result: JobResult) -> str:
    """Return the cause that a host's log names, such as a connection that timed out; empty without one."""
    contexts = (LogContext(host.host, job.host_names, host.full) for host in result.hosts)
    causes = (find_cause(result.logs[context.host], context) for context in contexts)
    return next((f"; {cause.message}" for cause in causes if cause), "")


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {format_ranks(ranks)}"


def _failed_host(job: TrainingJob, result: JobResult, failure: RankFailure | None) -> str:
    if failure:
        return job.host_of(failure.rank)
    failed = [host.host for host in result.hosts if host.exit_code]
    running = [host.host for host in result.hosts if host.exit_code is None]
    return (failed + running + [job.host_names[0]])[0]


def _exit(job: TrainingJob, result: JobResult, failure: RankFailure | None) -> str:
    code = next((code for code in result.exit_codes if code), None)
    text = f"{'none' if code is None else code} after {format_seconds(result.seconds)}"
    finished = {event.rank for event in result.events if event.step is RankStep.FINISHED}
    if failure and not result.timed_out and (others := {*range(job.ranks)} - finished - {failure.rank}):
        text += f"; {_ranks(sorted(others))} stopped with it"
    return text


def _wrong_version(version: VersionResult) -> str:
    if version.error:
        return f"`{version.component}` did not report its version: {_clause(version.error)}"
    return f"`{version.component}` is {version.installed}, declared {version.declared}"


def _output(log: str, check: CheckAnswer) -> str:
    """Return the output of a check if it has a section of its own, else that of its component."""
    return _section(log, f"{check.component}.{check.check}") or _section(log, check.component)


def _section(log: str, component: str) -> str:
    """Return the output of one component, without the probe's JSON lines."""
    _, _, after = log.partition(f"--- {component}\n")
    lines = itertools.takewhile(lambda line: not line.startswith("--- "), after.splitlines())
    return "\n".join(line for line in lines if not line.startswith('{"'))


def _clause(reason: str) -> str:
    """Return the first line of a reason, because some exceptions have a page of text."""
    return next(iter(reason.strip().splitlines()), "")[:300]


def _tail(text: str) -> tuple[str, ...]:
    return last_lines(text.splitlines(), TAIL_LINES)
