"""Says what the end of a check means for the image: passed, or what failed, where, and its last lines."""

import itertools
from collections.abc import Sequence
from pathlib import Path

from bakehouse.build.verify import Outcome, ProbeResults, VersionResult
from bakehouse.cluster.cluster import JobResult
from bakehouse.cluster.job import ML, TrainingJob
from bakehouse.cluster.ranks import RankFailure, RankStep, first_failure, format_ranks, ranks_without
from bakehouse.cluster.smoke_checks import Check
from bakehouse.cluster.smoke_report import CheckResult
from bakehouse.util.format import format_seconds

COMPONENTS = "components"
PRIVATE_KEYS = "no_private_keys"
TAIL_LINES = 12


def evaluate_job(check: Check, job: TrainingJob, end: JobResult, folder: Path) -> CheckResult:
    """What the end of a job says about the image."""
    failed, reason = _what_failed(check, job, end)
    if not reason:
        return CheckResult(
            check.name,
            Outcome.PASSED,
            round(end.seconds, 1),
            ranks=job.ranks,
            source=check.source,
            log=folder,
        )
    text = _rank_logs(end).get(failed.rank, "") if failed else ""
    return CheckResult(
        check.name,
        Outcome.FAILED,
        round(end.seconds, 1),
        _clause(reason),
        job.ranks,
        f"{job.host_of(failed.rank)} rank {failed.rank}" if failed else "",
        _exit_words(job, end, failed),
        check.source,
        _last_lines(text) or _last_lines(end.logs[_failing_host(job, end, failed)]),
        folder,
    )


def component_results(answers: ProbeResults) -> tuple[CheckResult, ...]:
    """One result for declared against installed, and one for each check that a component brings."""
    log = answers.log.read_text(errors="replace") if answers.log.exists() else ""
    wrong = [answer for answer in answers.versions if not answer.agrees]
    told = any(answer.installed is not None for answer in answers.versions)
    outcome = Outcome.FAILED if wrong else Outcome.PASSED if told else Outcome.NOT_TESTED
    declared = CheckResult(
        COMPONENTS,
        outcome,
        round(answers.seconds, 1),
        "; ".join(map(_wrong_version, wrong)) or ("" if told else "no component can tell its version"),
        source=wrong[0].source if wrong else "",
        tail=_last_lines(_section(log, wrong[0].component)) if wrong else (),
        log=answers.log,
    )
    checks = (
        CheckResult(
            f"{COMPONENTS}.{answer.component}.{answer.check}",
            answer.outcome,
            answer.seconds,
            _clause(answer.reason),
            source=answer.source,
            tail=_last_lines(_section(log, answer.component)) if answer.outcome is Outcome.FAILED else (),
            log=answers.log,
        )
        for answer in answers.checks
    )
    return (declared, *checks)


def key_result(found: Sequence[str], seconds: float) -> CheckResult:
    """Whether the image holds a private key, which everyone who can pull it would have."""
    reason = f"the image holds {', '.join(f'`{path}`' for path in found)}" if found else ""
    return CheckResult(PRIVATE_KEYS, Outcome.FAILED if found else Outcome.PASSED, round(seconds, 1), reason)


def _rank_logs(end: JobResult) -> dict[int, str]:
    return {rank: text for log in end.rank_logs.values() for rank, text in log.ranks.items()}


def _what_failed(check: Check, job: TrainingJob, end: JobResult) -> tuple[RankFailure | None, str]:
    """The rank that failed first, where one did, and what is wrong; no words when nothing is."""
    if check.must_fail:
        return None, _untold_failure(job, end)
    first = first_failure(end.events, "".join(log.rest for log in end.rank_logs.values()))
    if end.timed_out:
        return (first, first.reason) if first else _late(check, job, end)
    if host := next((host for host in end.hosts if host.exit_code), None):
        words = "ran out of memory" if host.out_of_memory else f"exited with {host.exit_code}"
        return first, first.reason if first else f"{host.host} {words}"
    for host in end.hosts:
        if not job.command and not host.success:
            return None, f"{host.host} wrote no {ML}/output/success"
        if check.needs_model and not host.model:
            return None, f"{host.host} wrote no file below {ML}/model"
    silent = ranks_without(end.events, RankStep.FINISHED, job.ranks) if check.records_ranks else ()
    if silent:
        return None, f"exit 0, but {_ranks(silent)} did not finish"
    return None, ""


def _untold_failure(job: TrainingJob, end: JobResult) -> str:
    """How an image that runs a failing script fails to say so."""
    host = end.hosts[0]
    if end.timed_out:
        return f"no end within {job.deadline:g} s of a failing script"
    if host.exit_code != 1:
        return f"a failing script ended with exit {host.exit_code}, not 1"
    if host.failure is None:
        return f"a failing script left no {ML}/output/failure"
    return f"a failing script left {ML}/output/success" if host.success else ""


def _late(check: Check, job: TrainingJob, end: JobResult) -> tuple[RankFailure | None, str]:
    """Who kept a job from ending in time."""
    opening = f"no end within {job.deadline:g} s"
    if not check.records_ranks:
        return None, opening
    missing = ranks_without(end.events, RankStep.ARRIVED, job.ranks)
    if len(missing) == job.ranks:
        absent = ranks_without(end.events, RankStep.STARTED, job.ranks)
        words = f"{_ranks(absent)} did not start" if absent else "all ranks started"
        return None, f"{opening}; {words}, none arrived at the first collective"
    if missing:
        return RankFailure(
            missing[0], ""
        ), f"{opening}; {_ranks(missing)} did not arrive at the first collective"
    if silent := ranks_without(end.events, RankStep.FINISHED, job.ranks):
        return RankFailure(silent[0], ""), f"{opening}; all ranks arrived, {_ranks(silent)} did not finish"
    running = [host.host for host in end.hosts if host.exit_code is None]
    return None, f"{opening}; all ranks finished, {', '.join(running)} did not end"


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {format_ranks(ranks)}"


def _failing_host(job: TrainingJob, end: JobResult, failed: RankFailure | None) -> str:
    if failed:
        return job.host_of(failed.rank)
    ended = [host.host for host in end.hosts if host.exit_code]
    running = [host.host for host in end.hosts if host.exit_code is None]
    return (ended + running + [job.host_names[0]])[0]


def _exit_words(job: TrainingJob, end: JobResult, failed: RankFailure | None) -> str:
    code = next((code for code in end.exit_codes if code), None)
    words = f"{'none' if code is None else code} after {format_seconds(end.seconds)}"
    done = {note.rank for note in end.events if note.step is RankStep.FINISHED}
    if failed and not end.timed_out and (others := set(range(job.ranks)) - done - {failed.rank}):
        words += f"; {_ranks(sorted(others))} went down with it"
    return words


def _wrong_version(answer: VersionResult) -> str:
    if answer.error:
        return f"`{answer.component}` can't say its version: {_clause(answer.error)}"
    return f"`{answer.component}` is {answer.installed}, declared {answer.declared}"


def _section(log: str, component: str) -> str:
    """What one component printed, without the answers themselves."""
    _, _, after = log.partition(f"--- {component}\n")
    lines = itertools.takewhile(lambda line: not line.startswith("--- "), after.splitlines())
    return "\n".join(line for line in lines if not line.startswith('{"'))


def _clause(reason: str) -> str:
    """The first line: some exceptions bring a page."""
    return next(iter(reason.strip().splitlines()), "")[:300]


def _last_lines(text: str) -> tuple[str, ...]:
    return tuple(line.rstrip()[:200] for line in text.splitlines() if line.strip())[-TAIL_LINES:]
