"""Reads from the log of what failed first why it failed: a table of what programs are known to say.

Only the end of a log counts, from a little before the exception that ended the process: what was said before
was survived. What no rule knows is told with the exception's own words, and an end without any not at all.
"""

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

_BEFORE = 15
"""Lines before a traceback that belong to it: what native code says before Python hears of it."""
_END = 60
"""Lines at the end of a log without a traceback that may tell why."""
_LATE = 200
"""Lines at the end of a log in which the last traceback has to end: toolkits print more after it."""
_LONGEST = 300
_TOO_LONG = 200_000
"""Characters of a log's end that are read."""


@dataclass(frozen=True, slots=True)
class Scene:
    """Where a log was written."""

    host: str
    hosts: tuple[str, ...] = ()
    full: tuple[str, ...] = ()
    """Folders of this host that could take no more."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a process failed."""

    words: str
    hint: str = ""
    lines: tuple[str, ...] = ()
    """The log up to where it is said."""
    is_consequence: bool = False
    """Another process failed, and this one noticed."""


class _Rule(NamedTuple):
    pattern: re.Pattern[str]
    words: str
    hint: str = ""


_TAKEN = "something on {host} listens there already: take another port, or end it first"
_NAMES = "the hosts of this job are {hosts}; SM_HOSTS names them on each"
_SILENT = "whoever is to listen there has not started, has ended, or can't be reached from {host}"
_ROOM = (
    "give it more room: `--volume-size`, or the SDK's `volume_size`; without it "
    "`./bake run` has this machine's disk"
)
_RANKS = "a host takes as many ranks as `processes_per_host` says"

_RULES = (
    _Rule(
        re.compile(r"port: (?P<port>\d+),[^\n]*name: EADDRINUSE"), "port {port} is taken on {host}", _TAKEN
    ),
    _Rule(
        re.compile(r"Address already in use \(while attempting to bind on address \('[^']*', (?P<port>\d+)"),
        "port {port} is taken on {host}",
        _TAKEN,
    ),
    _Rule(
        re.compile(r"Failed to add port to server: [^\n]* for '[^'\n]*:(?P<port>\d+)'"),
        "port {port} is taken on {host}",
        _TAKEN,
    ),
    _Rule(re.compile(r"\[Errno 98\] Address already in use"), "a port is taken on {host}", _TAKEN),
    _Rule(
        re.compile(
            r"network addresses of \((?P<name>[\w.-]+), \d+\) cannot be retrieved \(gai error"
            r"[\s\S]*timed out after \d+ms while trying to connect to \((?P=name), "
        ),
        "the name {name} can't be resolved",
        _NAMES,
    ),
    _Rule(
        re.compile(
            r"\b(?P<name>algo-\d+)\b[^\n]*\n(?:[^\n]*\n){1,12}?"
            r"(?:socket\.gaierror|urllib\.error\.URLError): [^\n]*Name or service not known"
        ),
        "the name {name} can't be resolved",
        _NAMES,
    ),
    _Rule(re.compile(r"Failed to resolve '(?P<name>[^']+)'"), "the name {name} can't be resolved", _NAMES),
    _Rule(
        re.compile(r"Could not resolve hostname (?P<name>[^\s:]+)"),
        "the name {name} can't be resolved",
        _NAMES,
    ),
    _Rule(re.compile(r"Name or service not known"), "a host's name can't be resolved", _NAMES),
    _Rule(
        re.compile(r"timed out after \d+ms while trying to connect to \((?P<name>[\w.-]+), (?P<port>\d+)\)"),
        "nothing answered on port {port} of {name}",
        _SILENT,
    ),
    _Rule(
        re.compile(r"\[Errno 111\] Connection refused"), "nothing listens where {host} connects to", _SILENT
    ),
    _Rule(re.compile(r"\[Errno 113\] No route to host"), "no way leads where {host} connects to", _SILENT),
    _Rule(
        re.compile(r"(?:\[Errno 110\] Connection timed out|TimeoutError: timed out)"),
        "nobody answered {host} in time",
        _SILENT,
    ),
    _Rule(
        re.compile(r"\[Errno 28\] No space left on device: '(?P<path>[^']+)'"),
        "no room is left for {path}",
        _ROOM,
    ),
    _Rule(re.compile(r"No space left on device"), "no room is left on {host}", _ROOM),
    _Rule(
        re.compile(r"(?P<error>ModuleNotFoundError: No module named '(?P<name>[^'.]+)[^'\n]*')"),
        "{error}",
        "name what `{name}` comes from in the image's recipe, or in a `requirements.txt` beside the script, "
        "which the toolkit installs",
    ),
    _Rule(
        re.compile(
            r'File "(?:/opt/ml/code/)?(?P<file>[^"\n]+)", line (?P<line>\d+)\n(?:[^\n]*\n){1,3}?\s*'
            r"(?P<error>(?:SyntaxError|IndentationError|TabError): [^\n]+)"
        ),
        "{error} ({file}, line {line})",
        "`python -m py_compile {file}` tells the same without a job",
    ),
    _Rule(
        re.compile(r"can't open file '(?P<file>[^']+)': \[Errno 2\]"),
        "there is no script {file}",
        "`--entry-point` is a path below `--source-dir`, or below /opt/ml/code where the image brings it",
    ),
    _Rule(
        re.compile(r"not enough slots available in the system to satisfy the (?P<count>\d+)"),
        "mpirun was asked for {count} ranks, more than the hosts have slots",
        _RANKS,
    ),
    _Rule(
        re.compile(r"mpirun: Error: unknown option \"(?P<option>[^\"]+)\""),
        "mpirun knows no option {option}",
        "`custom_mpi_options` are those of the image's mpirun: `mpirun --help` in it has them all",
    ),
)
"""What is looked for first comes first. Each was seen in a log; see the tests."""

_FULL = re.compile(r"No space left on device|inline_container\.cc|iostream error")
"""What is said of a folder that is full: PyTorch doesn't say why it could not write."""
_RANK = re.compile(r"^\[rank(?P<rank>\d+)\]: ?")
_TRACEBACK = re.compile(r"^\s*Traceback \(most recent call last\):?$")
_EXCEPTION = re.compile(r"^\s?(?:(?:[a-z_]\w*\.)+\w+|[A-Z]\w*)(?:: .*)?$")
_SYNTAX = re.compile(r"^\s*(?:SyntaxError|IndentationError|TabError): ")
_CONSEQUENCES = (re.compile(r"ChildFailedError"), re.compile(r"Connection (?:closed|reset) by peer"))
"""What is raised because another process failed, the least telling first."""
_EXIT = re.compile(r"^ExitCode (?P<code>-?\d+)$", re.M)


def cause(log: str, scene: Scene, rank: int | None = None) -> Cause | None:
    """Why the process failed that wrote a log; None where it doesn't say.

    Of a log that several ranks share, the lines of `rank` count where PyTorch has marked them.
    """
    lines = _lines(log[-_TOO_LONG:], rank)
    start, end = _exception(lines)
    # What Python said before its exception was survived; native code says what it has to before.
    before = [line for line in lines[max(0, start - _BEFORE) : start] if "[Errno" not in line]
    window = "\n".join([*before, *lines[start:end]] if end else lines[-_END:])
    told = tuple(lines[:end] if end else lines)
    words = {"host": scene.host, "hosts": ", ".join(scene.hosts)}
    if scene.full and _FULL.search(window):
        return Cause(
            f"{' and '.join(scene.full)} {'is' if len(scene.full) == 1 else 'are'} full", _ROOM, told
        )
    for rule in _RULES:
        if match := rule.pattern.search(window):
            known = words | match.groupdict()
            return Cause(rule.words.format(**known), rule.hint.format(**known), told)
    if not end:
        return None
    last = lines[end - 1].strip().rstrip('"')[:_LONGEST]
    return Cause(last, lines=told, is_consequence=any(one.search(last) for one in _CONSEQUENCES))


def script_end(log: str) -> str:
    """How the toolkit says that the script ended; empty where it doesn't."""
    codes = [int(match["code"]) for match in _EXIT.finditer(log)]
    if not codes:
        return ""
    if codes[-1] < 0:
        names = {one.value: one.name for one in signal.Signals}
        return f"the script was ended by signal {names.get(-codes[-1], -codes[-1])}"
    return f"the script exited with {codes[-1]}"


def _lines(log: str, rank: int | None) -> list[str]:
    lines = log.splitlines()
    mine = [line for line in lines if (tag := _RANK.match(line)) and int(tag["rank"]) == rank]
    return [_RANK.sub("", line) for line in mine or lines]


def _exception(lines: Sequence[str]) -> tuple[int, int]:
    """Where the last exception begins and ends, one that is no consequence if there is; else both are 0."""
    found = [span for span in _exceptions(lines) if span[1] > len(lines) - _LATE]
    for consequence in _CONSEQUENCES:
        found = [span for span in found if not consequence.search(lines[span[1] - 1])] or found
    return found[-1] if found else (0, 0)


def _exceptions(lines: Sequence[str]) -> list[tuple[int, int]]:
    found, start = [], None
    for number, line in enumerate(lines):
        if _TRACEBACK.match(line):
            start = number
        elif _SYNTAX.match(line) or (start is not None and _EXCEPTION.match(line)):
            found.append((number if start is None else start, number + 1))
            start = None
    return found
