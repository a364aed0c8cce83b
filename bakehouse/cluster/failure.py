"""The first failure of a job, and its cause according to the log.

`recipes/failures.yaml` has the known messages. Only the end of a log is searched, starting shortly before the
exception that ended the process, because the program survived earlier errors. Unknown causes are reported
with the exception's own text. Logs without an exception have no cause.
"""

import re
import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from bakehouse.catalog.project import HOME
from bakehouse.cluster.job import CODE_DIRECTORY, TrainingJob
from bakehouse.cluster.job_runner import HostResult, JobResult
from bakehouse.cluster.ranks import RankFailure, first_failure, launcher_failures
from bakehouse.errors import Problems, RecipeError
from bakehouse.util import yaml_reader
from bakehouse.util.yaml_fields import Fields

_LINES_BEFORE = 15
"""Lines before a traceback that belong to it: messages of native code."""
_END_LINES = 60
"""Lines to search at the end of a log without a traceback."""
_LATE_LINES = 200
"""The last traceback must end in this many last lines. Toolkits print more lines after it."""
_MAX_MESSAGE = 300
_MAX_LOG = 200_000
"""Characters to read from the end of a log."""
_MAX_LINE = 200


@dataclass(frozen=True, slots=True)
class LogContext:
    """The origin of a log."""

    host: str
    hosts: tuple[str, ...] = ()
    full: tuple[str, ...] = ()
    """Full directories of this host."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Reason of a failure."""

    message: str
    hint: str = ""
    lines: tuple[str, ...] = ()
    """The log up to the message."""
    is_consequence: bool = False
    """Another process failed and this one noticed."""


@dataclass(frozen=True, slots=True)
class FirstFailure:
    """The host or rank that failed first."""

    host: str
    rank: int | None
    reason: str
    """Exit according to the launcher or the rank."""
    log: str
    """File name."""
    text: str
    full: tuple[str, ...]

    @property
    def by_signal(self) -> bool:
        """The process was killed from outside, so its log does not contain the reason.

        A process that aborts (signal 6) writes the reason itself.
        """
        is_signal = re.search(r"signal|exited with -", self.reason)
        return bool(is_signal) and not re.search(r"SIGABRT|signal 6\b|exited with -6\b", self.reason)


class KnownFailure(NamedTuple):
    """A known cause and its patterns. Its texts can contain `{host}`, `{hosts}` and the patterns' groups."""

    message: str
    hint: str
    patterns: tuple[str, ...]
    source: str


@dataclass(frozen=True, slots=True)
class KnownFailures:
    """The known causes of failures; the first match counts."""

    failures: tuple[KnownFailure, ...]
    statuses: Mapping[str, Cause]
    """By secondary status of a stopped job."""


@cache
def known_failures() -> KnownFailures:
    """Return the causes of the catalogue; raise RecipeError if their file has mistakes."""
    path = HOME / "recipes/failures.yaml"
    problems = Problems()
    table = Fields(yaml_reader.load(path), f"`{path.name}`", problems)
    failures, statuses = [], {}
    for item in table.children("failures", "a failure"):
        texts = (item.text("message", required=True), item.text("hint"))
        failures.append(KnownFailure(*texts, item.texts("patterns"), item.text("source", required=True)))
        item.finish()
    for item in table.children("statuses", "a status"):
        cause = Cause(item.text("message", required=True), item.text("hint", required=True))
        item.text("source", required=True)
        statuses[item.text("status", required=True)] = cause
        item.finish()
    table.finish()
    problems.raise_as(RecipeError)
    return KnownFailures(tuple(failures), statuses)


_SPACE_HINT = "increase `volume_size` of the job; `bake run` has no limit unless `local.volume_size` is set"
_FULL = re.compile(r"No space left on device|inline_container\.cc|iostream error")
"""Messages about a full directory. PyTorch's do not state the reason."""
_INVOKING = re.compile(r"^Invoking script with the following command:")
_LAUNCHER = re.compile(r"^[EWI]\d{4} \S+ +\d+ torch/distributed/elastic/")
_NATIVE = re.compile(r"^\[?[EWI]\d{4} |^\[rank\d+\]")
"""Messages of libraries, which are not those of the script."""
_RANK = re.compile(r"^\[rank(?P<rank>\d{1,9})\]: ?")
_TRACEBACK = re.compile(r"^\s*Traceback \(most recent call last\):?$")
_CARETS = re.compile(r"[\s~^]+")
"""Marks of Python below a line of code."""
_OWN_FRAME = re.compile(f'^\\s*File "{re.escape(CODE_DIRECTORY)}/')
_EXCEPTION = re.compile(r"^\s?(?:(?:[a-z_]\w*\.)+\w+|[A-Z]\w*)(?:: .*)?$")
_SYNTAX = re.compile(r"^\s*(?:SyntaxError|IndentationError|TabError): ")
_CONSEQUENCES = (re.compile(r"ChildFailedError"), re.compile(r"Connection (?:closed|reset) by peer"))
"""Exceptions because another process failed, least informative first."""
_EXIT = re.compile(r"^ExitCode (?P<code>-?\d{1,9})$", re.M)


def find_cause(log: str, context: LogContext, rank: int | None = None) -> Cause | None:
    """Return the cause of a failure according to a log, or None if the log does not contain one.

    If several ranks share the log, only lines that PyTorch marked with `rank` count.
    """
    lines = _lines(log[-_MAX_LOG:], rank)
    start, end = _exception(lines)
    # Python survived the errors before its last exception, but native code prints its message before that.
    before = [line for line in lines[max(0, start - _LINES_BEFORE) : start] if "[Errno" not in line]
    window = "\n".join([*before, *lines[start:end]] if end else lines[-_END_LINES:])
    log_lines = tuple(lines[:end] if end else lines)
    if context.full and _FULL.search(window):
        verb = "is" if len(context.full) == 1 else "are"
        return Cause(f"{' and '.join(context.full)} {verb} full", _SPACE_HINT, log_lines)
    for rule in known_failures().failures:
        matches = (re.search(pattern, window) for pattern in rule.patterns)
        if match := next(filter(None, matches), None):
            values = {"host": context.host, "hosts": ", ".join(context.hosts), **match.groupdict()}
            return Cause(rule.message.format(**values), rule.hint.format(**values), log_lines)
    message = lines[end - 1].strip().rstrip('"')[:_MAX_MESSAGE] if end else ""
    is_consequence = any(pattern.search(message) for pattern in _CONSEQUENCES)
    if _CONSEQUENCES[0].search(message) and (count := _script_end(lines)):
        last = lines[count - 1].strip()[:_MAX_MESSAGE]
        return Cause(f"the script ended; its last line is `{last}`", lines=tuple(lines[:count]))
    return Cause(message, lines=log_lines, is_consequence=is_consequence) if end else None


def _script_end(lines: Sequence[str]) -> int:
    """Return the number of lines up to the last one that the script wrote; 0 if the log does not show it.

    `sys.exit("reason")` writes its reason there. A launcher reports the end of the script.
    """
    start = _script_start(lines)
    report = next((number for number in range(start, len(lines)) if _LAUNCHER.match(lines[number])), 0)
    own = [number for number in range(start, report) if lines[number].strip()] if start else []
    # An exception is in the log of the rank that raised it first.
    has_exception = any(_TRACEBACK.match(lines[number]) for number in own)
    return own[-1] + 1 if own and not has_exception and not _NATIVE.match(lines[own[-1]]) else 0


def _script_start(lines: Sequence[str]) -> int:
    """Return the number of lines before those of the script: the toolkit's environment and its command."""
    markers = [number for number, line in enumerate(lines) if _INVOKING.match(line)]
    following = range(markers[-1] + 1, len(lines)) if markers else range(0)
    return next((number + 1 for number in following if lines[number].strip()), 0)


def find_first_failure(job: TrainingJob, result: JobResult, *, has_failed: bool) -> FirstFailure | None:
    """Return the first failure of a job, or a host that did not end in time."""
    if result.timed_out and not has_failed:
        return _of_host(result, next(host for host in result.hosts if host.exit_code is None))
    if not has_failed:
        return None
    if killed := next((host for host in result.hosts if was_killed(job, host)), None):
        return _of_host(result, killed)
    ranks = [_of_rank(job, result, failure) for failure in _rank_failures(result)]
    if ranks:
        return next((failure for failure in ranks if not _is_consequence(job, failure)), ranks[0])
    # Open MPI 4 sometimes loses its message about the failed rank.
    texts = {rank: text for log in result.rank_logs.values() for rank, text in log.ranks.items()}
    for rank in sorted(texts):
        failure = _of_rank(job, result, RankFailure(rank, ""))
        if (cause := cause_of(job, failure)) and not cause.is_consequence:
            return failure
    host = next(host for host in in_order_of_end(result) if host.exit_code)
    return _of_host(result, host, script_exit(result.logs[host.host]))


def cause_of(job: TrainingJob, failure: FirstFailure) -> Cause | None:
    """Return the cause in the log of a failure; None if the process was killed from outside."""
    if failure.by_signal:
        return None
    return find_cause(failure.text, LogContext(failure.host, job.host_names, failure.full), failure.rank)


def was_killed(job: TrainingJob, host: HostResult) -> bool:
    """Return whether the job's `kills` ended a host."""
    return host.host in job.kills and host.exit_code == 137


def in_order_of_end(result: JobResult) -> list[HostResult]:
    """Return the hosts in the order in which they ended."""
    return sorted(result.hosts, key=lambda host: (host.seconds is None, host.seconds or 0.0))


def script_exit(log: str) -> str:
    """Return the script's exit according to the toolkit; empty if the log does not contain it."""
    codes = [int(match["code"]) for match in _EXIT.finditer(log)]
    if not codes:
        return ""
    if codes[-1] < 0:
        names = {number.value: number.name for number in signal.Signals}
        return f"the script was killed by signal {names.get(-codes[-1], -codes[-1])}"
    return f"the script exited with {codes[-1]}"


def failure_tail(lines: Iterable[str], count: int) -> tuple[str, ...]:
    """Return the last lines of a log up to a failure, without carets.

    Frames of libraries can fill them, so the last frame of the user's code is kept before them.
    """
    whole = list(lines)
    whole = whole[_script_start(whole) :]
    shown = [line for line in whole if line.strip() and not _CARETS.fullmatch(line)]
    tail = shown[-count:]
    first = len(shown) - len(tail)
    start = next((number for number in reversed(range(first)) if _TRACEBACK.match(shown[number])), first)
    own = [number for number in range(start, len(shown)) if _OWN_FRAME.search(shown[number])]
    if own and own[-1] < first:
        tail = [*shown[own[-1] : own[-1] + 2], "  …", *shown[first + 3 :]]
    return last_lines(tail, count)


def last_lines(lines: Iterable[str], count: int) -> tuple[str, ...]:
    """Return the last lines that are not empty, shortened for a terminal."""
    return tuple(line.rstrip()[:_MAX_LINE] for line in lines if line.strip())[-count:]


def _rank_failures(result: JobResult) -> tuple[RankFailure, ...]:
    """Return the failed ranks, earliest first, that ranks or launchers report."""
    lines = "".join(result.rank_logs[host.host].rest for host in in_order_of_end(result))
    first, reported = first_failure(result.events, lines), launcher_failures(lines)
    return reported if first is None or first in reported else (first,)


def _of_host(result: JobResult, host: HostResult, reason: str = "") -> FirstFailure:
    return FirstFailure(host.host, None, reason, f"{host.host}.log", result.logs[host.host], host.full)


def _of_rank(job: TrainingJob, result: JobResult, failure: RankFailure) -> FirstFailure:
    host = job.host_of(failure.rank)
    full = next(end.full for end in result.hosts if end.host == host)
    for log in result.rank_logs.values():
        if text := log.ranks.get(failure.rank):
            name = f"{host}-rank-{failure.rank}.log"
            return FirstFailure(host, failure.rank, failure.reason, name, text, full)
    # The rank has no log of its own. Its output is in the log of the host whose launcher reports it.
    reporter = next(
        (name for name in result.logs if _reports(result.rank_logs[name].rest, failure.rank)), host
    )
    return FirstFailure(host, failure.rank, failure.reason, f"{reporter}.log", result.logs[reporter], full)


def _is_consequence(job: TrainingJob, failure: FirstFailure) -> bool:
    cause = cause_of(job, failure)
    return cause is not None and cause.is_consequence


def _reports(lines: str, rank: int) -> bool:
    return any(failure.rank == rank for failure in launcher_failures(lines))


def _lines(log: str, rank: int | None) -> list[str]:
    lines = log.splitlines()
    own = [line for line in lines if (tag := _RANK.match(line)) and int(tag["rank"]) == rank]
    return [_RANK.sub("", line) for line in own or lines]


def _exception(lines: Sequence[str]) -> tuple[int, int]:
    """Return start and end of the last exception, (0, 0) if there is none.

    Exceptions that are consequences only count if there are no others.
    """
    spans = [span for span in _exceptions(lines) if span[1] > len(lines) - _LATE_LINES]
    for consequence in _CONSEQUENCES:
        spans = [span for span in spans if not consequence.search(lines[span[1] - 1])] or spans
    return spans[-1] if spans else (0, 0)


def _exceptions(lines: Sequence[str]) -> list[tuple[int, int]]:
    spans, start = [], None
    for number, line in enumerate(lines):
        if _TRACEBACK.match(line):
            start = number
        elif _SYNTAX.match(line) or (start is not None and _EXCEPTION.match(line)):
            spans.append((number if start is None else start, number + 1))
            start = None
    return spans
