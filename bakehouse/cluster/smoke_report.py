"""Results of smoke checks, and the file that carries them from one machine to another."""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bakehouse.builder.verify import Outcome
from bakehouse.catalog.job_checks import JOB_CHECKS
from bakehouse.errors import Diagnostic, Reason, SmokeError
from bakehouse.util import file_format
from bakehouse.util.files import display_path, is_file, read_bytes, write_whole
from bakehouse.util.format import format_count, format_names
from bakehouse.util.json_reader import decode, parse_json
from bakehouse.util.oci import ContentId

COMPONENTS = "components"
PRIVATE_KEYS = "no_private_keys"
NO_TRANSPORT = "none"
_TRANSPORTS = ("nccl", "gloo", "mpi")
"""Libraries with which ranks communicate; the first one of which a check passed is reported."""
_FORMAT = 2
"""Format of the files. The results in older ones do not say which checks gave them."""
_RERUN = "remove it, then run `bake smoke` again"
MAX_CLOCK_DIFFERENCE = timedelta(hours=1)
_CONTENT = re.compile(r"sha256:[0-9a-f]{64}")
_HASH = "sha256"
"""Field of a file with the sha256 of its other fields, as compact JSON with sorted keys."""
_SIGNATURE = "signature"
"""Field with the signature of that sha256. The sha256 does not cover it."""


def now() -> str:
    """Return the current time in the format of reports."""
    return datetime.now(UTC).replace(microsecond=0).isoformat()


@dataclass(frozen=True, slots=True)
class Setup:
    """Conditions that decide which checks of an image run, and how."""

    startup: str = ""
    """Words for the programs and code that SageMaker starts in the image."""
    hosts: int = 1
    gpus: int = 0
    """GPUs of all hosts."""
    is_remote: bool = False
    """The hosts of a job ran the checks, instead of this machine's engine."""


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
    key: str = ""
    """Key of the check, see `check_keys`; empty if it did not run."""
    setup: Setup = Setup()
    date: str = ""
    """Time at which it ended."""
    machine: str = ""


@dataclass(frozen=True, slots=True)
class SmokeReport:
    """Results of one smoke test of an image."""

    image: str
    content: ContentId
    transport: str
    """Transport over which ranks communicated: `nccl`, `gloo`, `mpi` or `none`."""
    checks: tuple[CheckResult, ...]
    machine: str = ""
    """Host name of the machine that ran the checks, or the kind and number of machines."""
    date: str = field(default_factory=now)
    """Time at which the checks ended."""
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


def write(report: SmokeReport, path: Path, sign: Sign | None = None) -> None:
    """Write a report to a file, with a signature if `sign` is given."""
    document = file_format.numbered(json.loads(json.dumps(asdict(report), default=str)), _FORMAT)
    document[_HASH] = _hash_of(document)
    if sign:
        document[_SIGNATURE] = json.loads(sign(report, document[_HASH]))
    write_whole(path, json.dumps(document, indent=2, sort_keys=True) + "\n")


def require_outside(path: Path, repository: Path) -> None:
    """Raise SmokeError for a file of results inside of a project's repository, which a commit can contain."""
    places = (path.absolute(), path.parent.resolve() / path.name, path.resolve())
    if any(place.is_relative_to(repository) for place in places):
        raise SmokeError(
            f"`{path}` is inside of the repository, so its results do not count",
            reasons=(Reason("a commit can contain such a file, without any test"),),
            hint=f"write it outside of `{repository}`, such as `/tmp/{path.name}`",
        )


def read_file(
    path: Path, image: str, content: ContentId, max_age: timedelta, verify: Verify | None = None
) -> SmokeReport:
    """Return another machine's report of an image.

    Raises SmokeError if the file was changed, or the report is of another image, incomplete or older than
    `max_age`, and the error of `verify` for its signature.
    """
    if not is_file(path):
        raise SmokeError(f"`{path}` does not exist", hint="`bake smoke --report FILE` writes a report")
    file = _read_file(path)
    report = file.report
    if report.content != content:
        facts = (("expected", f"{image} {content}"), ("found", f"{report.image} {report.content}"))
        raise SmokeError(f"`{path}` is the report of another image", facts=facts)
    if report.unfinished:
        facts = (("not run", format_names(report.unfinished)), ("because", report.interrupted))
        raise SmokeError(
            f"`{path}` is incomplete: {format_count(len(report.unfinished), 'check')} did not run",
            facts=tuple((name, text) for name, text in facts if text),
            hint="run the checks again",
        )
    ages = [age_of(report.date), *(age_of(check.date) for check in report.checks if check.date)]
    age = max(ages)
    if age > max_age or min(ages) < -MAX_CLOCK_DIFFERENCE:
        reason = "dated in the future"
        if age > max_age:
            reason = f"{age.days} days old; the limit is {max_age.days}"
        written = (("written", report.date),)
        raise SmokeError(f"`{path}` is stale: it is {reason}", facts=written, hint="run the checks again")
    if verify:
        verify(file)
    return report


def age_of(date: str) -> timedelta:
    """Return the time since a date of a result. Raises ValueError."""
    return datetime.now(UTC) - datetime.fromisoformat(date)


def transport_of(checks: Iterable[CheckResult]) -> str:
    """Return the transport over which ranks communicated in checks that passed, or `none`."""
    passed = (check.name for check in checks if check.outcome is Outcome.PASSED)
    used = {JOB_CHECKS[name].transport for name in passed if name in JOB_CHECKS}
    return next((name for name in _TRANSPORTS if name in used), NO_TRANSPORT)


def require_passed(report: SmokeReport) -> None:
    """Raise SmokeError with a diagnostic for each failed check."""
    failed = [check for check in report.checks if check.outcome is Outcome.FAILED]
    if failed:
        raise SmokeError.of(*(check_diagnostic(report, check) for check in failed))


def check_diagnostic(report: SmokeReport, check: CheckResult) -> Diagnostic:
    """Return the diagnostic of a failed check: the first failed rank and its last lines."""
    rank = f" on {check.failed_rank} of {check.ranks}" if check.failed_rank else ""
    facts = (
        ("image", f"{report.image} {report.content[:19]}"),
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


def _read_file(path: Path) -> ReportFile:
    """Return the content of a file. Raises SmokeError if it is invalid."""
    try:
        document = parse_json(read_bytes(path))
        file_format.require_known(document, _FORMAT)
        if "digest" in document and document.get(file_format.KEY) != _FORMAT:
            raise SmokeError(
                f"`{path}` was written by an earlier version, so its results do not count",
                hint="run the checks again",
            )
        seal = decode(document, _Seal)
        content = {name: value for name, value in document.items() if name not in (_HASH, _SIGNATURE)}
        report = decode(content, SmokeReport)
        if not _CONTENT.fullmatch(report.content):
            message = f"`{report.content}` is not a content ID"
            raise ValueError(message)
        for date in (report.date, *filter(None, (check.date for check in report.checks))):
            age_of(date)
    except file_format.NewerFormatError as error:
        facts = (("because", str(error)),)
        raise SmokeError(f"cannot read `{path}`", facts=facts, hint=file_format.UPGRADE) from error
    except (OSError, ValueError, TypeError, AttributeError) as error:
        facts = (("because", str(error)),)
        raise SmokeError(f"`{path}` is not a smoke report", facts=facts, hint=_RERUN) from error
    if seal.sha256 != (found := _hash_of(content)):
        hashes = (("expected", f"sha256:{seal.sha256}"), ("found", f"sha256:{found}"))
        raise SmokeError(f"`{path}` was changed after it was written", facts=hashes, hint=_RERUN)
    return ReportFile(path, report, found, json.dumps(seal.signature).encode() if seal.signature else b"")


def _hash_of(document: Mapping[str, Any]) -> str:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
