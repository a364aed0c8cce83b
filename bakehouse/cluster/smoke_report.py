"""Smoke-test results, stored by image digest; `push` requires a pass."""

import contextlib
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bakehouse.builder.verify import Outcome
from bakehouse.catalog.user_smoke import USER_CODE, UserSmoke
from bakehouse.errors import Diagnostic, Reason, SmokeError
from bakehouse.util import file_format
from bakehouse.util.files import display_path, is_file, matching_paths, read_bytes, write_whole
from bakehouse.util.format import format_count, format_names
from bakehouse.util.json_reader import decode, parse_json
from bakehouse.util.oci import Digest

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_OUTCOMES = (Outcome.NOT_TESTED, Outcome.PASSED, Outcome.FAILED)
"""In the order of precedence when reports are merged."""
_NO_TRANSPORT = "none"
_TRANSPORTS: Mapping[str, tuple[str, ...]] = {
    "nccl": ("nccl_all_reduce",),
    "gloo": ("torchrun_2x2", "torchrun_1x2"),
    "mpi": ("mpi_2x2", "mpirun_1x2"),
}
"""Checks in which ranks use a transport; the first transport that passed is reported."""
_FORMAT = 1
"""Format of the files. Files without a sha256 are older, and their checks are unknown."""
_RERUN = "remove it, then run `bake smoke` again"
MAX_AGE = timedelta(days=30)
"""Age up to which `promote` accepts results: the hosts and drivers of images change."""
MAX_CLOCK_DIFFERENCE = timedelta(hours=1)
_HASH = "sha256"
"""Field of a file with the sha256 of its other fields, as compact JSON with sorted keys."""
_SIGNATURE = "signature"
"""Field with the signature of that sha256. The sha256 does not cover it."""


def now() -> str:
    """Return the current time in the format of reports."""
    return datetime.now(UTC).replace(microsecond=0).isoformat()


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Result of one check."""

    name: str
    outcome: Outcome
    seconds: float
    reason: str = ""
    """Clause: the failure, or why the check did not run."""
    ranks: int = 1
    failed_rank: str = ""
    """The first rank that failed: `algo-2 rank 3`."""
    exit: str = ""
    """Exit code, and the ranks that were stopped."""
    source: str = ""
    """Script, with the line of the failure if known."""
    tail: tuple[str, ...] = ()
    log: Path | None = None
    """Log file, or directory with a log for each host and rank."""
    definition: str = ""
    """`UserSmoke.definition` of the check of user code."""


@dataclass(frozen=True, slots=True)
class SmokeReport:
    """Smoke-test results of one image."""

    image: str
    digest: Digest
    transport: str
    """Transport over which ranks communicated: `nccl`, `gloo`, `mpi` or `none`."""
    checks: tuple[CheckResult, ...]
    machine: str = ""
    """Host name of the machine that ran the checks, or the kind and number of machines."""
    date: str = field(default_factory=now)
    """Time at which the oldest of the checks ended."""
    origin: str = ""
    """Job on other machines that ran the checks."""
    unfinished: tuple[str, ...] = ()
    """Checks that should have run but have no result."""
    interrupted: str = ""
    """Reason why these did not run."""

    @property
    def passed(self) -> bool:
        """At least one check passed and none failed."""
        outcomes = {check.outcome for check in self.checks}
        return Outcome.PASSED in outcomes and Outcome.FAILED not in outcomes


@dataclass(frozen=True, slots=True)
class ReportFile:
    """A report with the other content of its file."""

    path: Path
    report: SmokeReport
    sha256: str
    bundle: bytes
    """Sigstore bundle with the signature of the sha256; empty if the file is not signed."""


@dataclass(frozen=True, slots=True)
class _Seal:
    """Fields of a file that are not part of the report."""

    sha256: str
    signature: Any = None


Sign = Callable[[SmokeReport, str], bytes]
"""Function that returns a Sigstore bundle for a report and the sha256 of its file."""
Verify = Callable[[ReportFile], None]
"""Function that raises an error for a file whose signature it does not accept."""


def save(report: SmokeReport, state: Path) -> Path:
    """Save a report by its digest, for `load`."""
    path = _path(state, report.digest)
    write(report, path)
    return path


def write(report: SmokeReport, path: Path, sign: Sign | None = None) -> None:
    """Write a report to a file, with a signature if `sign` is given."""
    document = file_format.numbered(json.loads(json.dumps(asdict(report), default=str)), _FORMAT)
    document[_HASH] = _hash_of(document)
    if sign:
        document[_SIGNATURE] = json.loads(sign(report, document[_HASH]))
    write_whole(path, json.dumps(document, indent=2, sort_keys=True) + "\n")


def load(state: Path, digest: Digest) -> SmokeReport | None:
    """Return this machine's report of an image, or None without a complete one.

    A file of an older Bakehouse, without the sha256 of its content, is ignored. Raises SmokeError for a file
    that is damaged, or that a newer Bakehouse wrote.
    """
    path = _path(state, digest)
    return _read(path, digest) if path.exists() and not _is_older(path) else None


def load_all(state: Path, digest: Digest, *, only_recent: bool = False) -> SmokeReport | None:
    """Return the merged reports of this machine and of others.

    With `only_recent`, checks that passed before `MAX_AGE` count as not tested. Failures count at any age.
    """
    own = load(state, digest)
    reports = [own] if own else []
    reports += [_read(path, digest) for path in matching_paths(_directory(state, digest), "*.json")]
    if only_recent:
        reports = [_drop_stale_passes(report) for report in reports]
    return merge_reports(reports) if reports else None


def has_passed(state: Path, image: str) -> bool:
    """Return whether any build of an image passed a smoke test on this machine."""
    for path in matching_paths(state / "smoke", "*.json"):
        with contextlib.suppress(SmokeError):
            report = _read(path)
            if report.image == image and report.passed:
                return True
    return False


def require_outside(path: Path, repository: Path) -> None:
    """Raise SmokeError for a file of results inside of a project's repository, which a commit can contain."""
    places = (path.absolute(), path.parent.resolve() / path.name, path.resolve())
    if any(place.is_relative_to(repository) for place in places):
        raise SmokeError(
            f"`{path}` is inside of the repository, so its results do not count",
            reasons=(Reason("a commit can contain such a file, without any test"),),
            hint=f"write it outside of `{repository}`, such as `/tmp/{path.name}`",
        )


def attach(
    path: Path, image: str, digests: Sequence[Digest], state: Path, verify: Verify | None = None
) -> SmokeReport:
    """Store another machine's report of an image that has one of `digests`.

    Raises SmokeError if the file was changed, or the report is of another image, incomplete or stale, and
    the error of `verify` for its signature.
    """
    if not is_file(path):
        raise SmokeError(f"`{path}` does not exist", hint="`bake smoke --report FILE` writes a report")
    file = _read_file(path)
    report = file.report
    if report.image != image or report.digest not in digests:
        facts = (("expected", f"{image} {digests[0]}"), ("found", f"{report.image} {report.digest}"))
        raise SmokeError(f"`{path}` is the report of another image", facts=facts)
    if report.unfinished:
        facts = (("not run", format_names(report.unfinished)), ("because", report.interrupted))
        raise SmokeError(
            f"`{path}` is incomplete: {format_count(len(report.unfinished), 'check')} did not run",
            facts=tuple((name, text) for name, text in facts if text),
            hint="run the checks again",
        )
    if (age := _age(report)) > MAX_AGE or age < -MAX_CLOCK_DIFFERENCE:
        reason = "dated in the future"
        if age > MAX_AGE:
            reason = f"{age.days} days old; the limit is {MAX_AGE.days}"
        written = (("written", report.date),)
        raise SmokeError(f"`{path}` is stale: it is {reason}", facts=written, hint="run the checks again")
    if verify:
        verify(file)
    return store(report, state)


def store(report: SmokeReport, state: Path) -> SmokeReport:
    """Store a report from other machines; its checks replace those in their earlier reports."""
    target = _directory(state, report.digest) / f"{_file_name(report.machine)}.json"
    if target.exists():
        earlier = _read(target)
        merged = replace_checks(earlier, report.checks)
        has_earlier = {check.name for check in merged.checks} > {check.name for check in report.checks}
        date = min(report.date, earlier.date) if has_earlier else report.date
        report = replace(report, transport=merged.transport, checks=merged.checks, date=date)
    write(report, target)
    return report


def replace_checks(report: SmokeReport, checks: Iterable[CheckResult]) -> SmokeReport:
    """Return `report` with the results of checks that ran again."""
    new = {check.name: check for check in checks}
    old = tuple(new.pop(check.name, check) for check in report.checks)
    merged = old + tuple(new.values())
    return replace(report, transport=transport_of(merged), checks=merged)


def _drop_stale_passes(report: SmokeReport) -> SmokeReport:
    """Return a report in which checks that passed too long ago were not tested."""
    if _age(report) <= MAX_AGE:
        return report
    reason = f"its result of {report.date[:10]} is older than {MAX_AGE.days} days"
    checks = tuple(
        replace(check, outcome=Outcome.NOT_TESTED, reason=reason)
        if check.outcome is Outcome.PASSED
        else check
        for check in report.checks
    )
    return replace(report, transport=transport_of(checks), checks=checks)


def _age(report: SmokeReport) -> timedelta:
    return datetime.now(UTC) - datetime.fromisoformat(report.date)


def transport_of(checks: Iterable[CheckResult]) -> str:
    """Return the transport over which ranks communicated in checks that passed, or `none`."""
    passed = {check.name for check in checks if check.outcome is Outcome.PASSED}
    names = (name for name, users in _TRANSPORTS.items() if passed.intersection(users))
    return next(names, _NO_TRANSPORT)


def merge_reports(reports: Sequence[SmokeReport]) -> SmokeReport:
    """Merge reports of one digest. A check failed if it failed anywhere, and passed if it passed once.

    Results of the user's test by different definitions stay separate.
    """
    checks: dict[tuple[str, str], CheckResult] = {}
    for report in reports:
        for check in report.checks:
            key = (check.name, check.definition)
            other = checks.get(key)
            if other is None or _OUTCOMES.index(check.outcome) > _OUTCOMES.index(other.outcome):
                checks[key] = check
    transports = {report.transport for report in reports}
    return replace(
        reports[0],
        transport=next((transport for transport in _TRANSPORTS if transport in transports), _NO_TRANSPORT),
        checks=tuple(checks.values()),
        machine=", ".join(dict.fromkeys(report.machine for report in reports if report.machine)),
    )


def current(report: SmokeReport, smoke: UserSmoke | None) -> SmokeReport:
    """Return a report without results of the user's test by another definition than `smoke`."""
    definition = smoke.definition if smoke else ""
    checks = (check for check in report.checks if check.name != USER_CODE or check.definition == definition)
    return replace(report, checks=tuple(checks))


def release_blockers(
    report: SmokeReport | None, required: Iterable[str], smoke: UserSmoke | None = None
) -> tuple[str, ...]:
    """Return the reasons against a release, each as a clause. A required check that was skipped is a reason.

    `smoke` is the user's test; results by another definition do not count.
    """
    if report is None:
        return ("it was never smoke-tested",)
    is_outdated = smoke is not None and any(check.name == USER_CODE for check in report.checks)
    report = current(report, smoke)
    failed = [f"`{check.name}`" for check in report.checks if check.outcome is Outcome.FAILED]
    if failed:
        return (f"its smoke test failed: {', '.join(failed)}",)
    if not report.passed:
        return ("its smoke test ran no check",)
    checks = {check.name: check for check in report.checks}
    blockers = []
    for name in required:
        check = checks.get(name)
        if check is None and name == USER_CODE and is_outdated:
            blockers.append(f"`{name}` is required, but `smoke` in the recipe changed after the test")
        elif check is None:
            blockers.append(f"`{name}` is required but is in no report")
        elif check.outcome is not Outcome.PASSED:
            reason = f": {check.reason}" if check.reason else ""
            blockers.append(f"`{name}` is required but was not tested{reason}")
    return tuple(blockers)


def require_passed(report: SmokeReport) -> None:
    """Raise SmokeError with a diagnostic for each failed check."""
    failed = [check for check in report.checks if check.outcome is Outcome.FAILED]
    if failed:
        raise SmokeError.of(*(check_diagnostic(report, check) for check in failed))


def check_diagnostic(report: SmokeReport, check: CheckResult) -> Diagnostic:
    """Return the diagnostic of a failed check: the first failed rank and its last lines."""
    rank = f" on {check.failed_rank} of {check.ranks}" if check.failed_rank else ""
    facts = (
        ("image", f"{report.image} {report.digest[:19]}"),
        ("from", check.source),
        ("because", check.reason),
        ("exit", check.exit),
        ("full logs", display_path(check.log) if check.log else ""),
        ("last lines", f"of {check.failed_rank or 'the log'}" if check.tail else ""),
    )
    selected = check.name.partition(".")[0]
    return Diagnostic(
        f"check `{check.name}` failed{rank}",
        facts=tuple((name, value) for name, value in facts if value),
        tail=check.tail,
        hint=f"rerun this check only: `bake smoke {report.image} --check {selected}`",
    )


def _read(path: Path, digest: Digest | None = None) -> SmokeReport:
    """Return the report in a file; raise SmokeError if it is invalid or belongs to another digest."""
    report = _read_file(path).report
    if digest and report.digest != digest:
        digests = (("expected", digest), ("found", report.digest))
        raise SmokeError(f"`{path}` is the report of another image", facts=digests, hint=_RERUN)
    return report


def _read_file(path: Path) -> ReportFile:
    """Return the content of a file. Raises SmokeError if it is invalid."""
    try:
        document = parse_json(read_bytes(path))
        file_format.require_known(document, _FORMAT)
        seal = decode(document, _Seal)
        content = {name: value for name, value in document.items() if name not in (_HASH, _SIGNATURE)}
        report = _parse(content)
    except file_format.NewerFormatError as error:
        facts = (("because", str(error)),)
        raise SmokeError(f"cannot read `{path}`", facts=facts, hint=file_format.UPGRADE) from error
    except (OSError, ValueError, TypeError) as error:
        facts = (("because", str(error)),)
        raise SmokeError(f"`{path}` is not a smoke report", facts=facts, hint=_RERUN) from error
    if seal.sha256 != (found := _hash_of(content)):
        hashes = (("expected", f"sha256:{seal.sha256}"), ("found", f"sha256:{found}"))
        raise SmokeError(f"`{path}` was changed after it was written", facts=hashes, hint=_RERUN)
    return ReportFile(path, report, found, json.dumps(seal.signature).encode() if seal.signature else b"")


def _is_older(path: Path) -> bool:
    """Return whether a file is a report in a format before those with a sha256."""
    try:
        document = parse_json(read_bytes(path))
        return (
            isinstance(document, dict)
            and not {_HASH, file_format.KEY} & document.keys()
            and bool(decode(document, SmokeReport))
        )
    except (OSError, ValueError):
        return False


def _hash_of(document: Mapping[str, Any]) -> str:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _path(state: Path, digest: Digest) -> Path:
    return state / "smoke" / f"{digest.removeprefix('sha256:')}.json"


def _directory(state: Path, digest: Digest) -> Path:
    """Return the directory for reports of other machines."""
    return state / "smoke" / digest.removeprefix("sha256:")


def _file_name(machine: str) -> str:
    return re.sub("[^A-Za-z0-9-]", "_", machine)[:64] or "unnamed"


def _parse(document: Mapping[str, Any]) -> SmokeReport:
    report = decode(document, SmokeReport)
    if not _DIGEST.fullmatch(report.digest):
        message = f"`{report.digest}` is not a digest"
        raise ValueError(message)
    _age(report)
    return report
