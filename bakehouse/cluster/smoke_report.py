"""What was seen of an image, kept by its digest: the pass that `push` asks for."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bakehouse.build.verify import Outcome
from bakehouse.errors import Diagnostic, SmokeError
from bakehouse.util.files import write_whole
from bakehouse.util.oci import Digest

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class CheckResult:
    """How one check ended."""

    name: str
    outcome: Outcome
    seconds: float
    reason: str = ""
    """Why it was not tested, or what failed, in one clause."""
    ranks: int = 1
    failed_rank: str = ""
    """`algo-2 rank 3`: the first to fail; the others are consequences."""
    exit: str = ""
    """With which code it ended, and what became of the other ranks."""
    source: str = ""
    """The script that was running, with the line where it failed when that is known."""
    tail: tuple[str, ...] = ()
    log: Path | None = None
    """A file, or the folder with a file for each host and rank."""


@dataclass(frozen=True, slots=True)
class SmokeReport:
    """What was seen of one image, by its digest."""

    image: str
    digest: Digest
    transport: str
    """What the ranks talked through: `nccl`, `gloo`, or `mpi` in an image without torchrun."""
    checks: tuple[CheckResult, ...]
    machine: str = ""
    """The name of the machine that it was seen on."""

    @property
    def passed(self) -> bool:
        """No check failed, and not all were left out."""
        outcomes = {check.outcome for check in self.checks}
        return Outcome.PASSED in outcomes and Outcome.FAILED not in outcomes


def save(report: SmokeReport, state: Path) -> Path:
    """Write `report` where `load` finds it by digest."""
    path = _path(state, report.digest)
    write(report, path)
    return path


def write(report: SmokeReport, path: Path) -> None:
    write_whole(path, json.dumps(asdict(report), indent=2, sort_keys=True, default=str) + "\n")


def load(state: Path, digest: Digest) -> SmokeReport | None:
    """The report of the image with that digest, or None when it was never tested whole."""
    path = _path(state, digest)
    if not path.exists():
        return None
    report = _read(path)
    if report.digest != digest:
        raise _of_another(path, digest, report.digest)
    return report


def _read(path: Path) -> SmokeReport:
    try:
        return _report(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        message = f"`{path}` is not a report of smoke tests"
        facts = (("because", f"{type(error).__name__}: {error}"),)
        hint = "remove it, then run `./bake smoke` again"
        raise SmokeError(Diagnostic(message, facts=facts, hint=hint)) from error


def _of_another(path: Path, expected: Digest, found: Digest) -> SmokeError:
    message = f"`{path}` is the report of another image"
    facts = (("expected", expected), ("found", found))
    return SmokeError(Diagnostic(message, facts=facts, hint="remove it, then run `./bake smoke` again"))


def replace_checks(known: SmokeReport, rerun: Iterable[CheckResult]) -> SmokeReport:
    """`known` with the results of checks that ran again."""
    fresh = {check.name: check for check in rerun}
    kept = tuple(fresh.pop(check.name, check) for check in known.checks)
    return replace(known, checks=kept + tuple(fresh.values()))


def attach(path: Path, image: str, digests: Sequence[Digest], state: Path) -> SmokeReport:
    """Keep a report that another machine made of an image, with those of the same digest.

    Checks in a later report of the same machine take the place of its earlier ones.
    """
    report = _read(path)
    if report.image != image or report.digest not in digests:
        facts = (("expected", f"{image} {digests[0]}"), ("found", f"{report.image} {report.digest}"))
        raise SmokeError(Diagnostic(f"`{path}` is the report of another image", facts=facts))
    there = _folder(state, report.digest) / f"{_file_name(report.machine)}.json"
    if there.exists():
        report = replace(report, checks=replace_checks(_read(there), report.checks).checks)
    write(report, there)
    return report


def load_all(state: Path, digest: Digest) -> SmokeReport | None:
    """All that was seen of an image, here and on other machines."""
    here = load(state, digest)
    reports = [here] if here else []
    for path in sorted(_folder(state, digest).glob("*.json")):
        report = _read(path)
        if report.digest != digest:
            raise _of_another(path, digest, report.digest)
        reports.append(report)
    return merge_reports(reports) if reports else None


def merge_reports(reports: Sequence[SmokeReport]) -> SmokeReport:
    """Reports of one digest as one: a check failed if it failed anywhere, and passed if it passed once."""
    found: dict[str, CheckResult] = {}
    worth = (Outcome.NOT_TESTED, Outcome.PASSED, Outcome.FAILED)
    for report in reports:
        for check in report.checks:
            old = found.get(check.name)
            if old is None or worth.index(check.outcome) > worth.index(old.outcome):
                found[check.name] = check
    transports = {report.transport for report in reports}
    return replace(
        reports[0],
        transport=next((one for one in ("nccl", "gloo", "mpi") if one in transports), ""),
        checks=tuple(found.values()),
        machine=", ".join(dict.fromkeys(report.machine for report in reports if report.machine)),
    )


def release_blockers(report: SmokeReport | None, required: Iterable[str]) -> tuple[str, ...]:
    """Why an image may not be released, each as a clause; none where it may.

    A required check that was skipped has not passed.
    """
    if report is None:
        return ("it was never smoke-tested",)
    failed = [check.name for check in report.checks if check.outcome is Outcome.FAILED]
    if failed:
        return (f"its smoke test failed: {_listed(failed)}",)
    if not report.passed:
        return ("its smoke test made no check",)
    by_name = {check.name: check for check in report.checks}
    told = []
    for name in required:
        check = by_name.get(name)
        if check is None:
            told.append(f"`{name}` is required, and no report has it")
        elif check.outcome is not Outcome.PASSED:
            reason = f": {check.reason}" if check.reason else ""
            told.append(f"`{name}` is required, and was not tested{reason}")
    return tuple(told)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def require_passed(report: SmokeReport) -> None:
    """Raise SmokeError with a diagnostic for each check that failed."""
    failed = [check for check in report.checks if check.outcome is Outcome.FAILED]
    if failed:
        raise SmokeError(*(check_diagnostic(report, check) for check in failed))


def check_diagnostic(report: SmokeReport, check: CheckResult) -> Diagnostic:
    """One failed check, told with the first failing rank and its last lines."""
    where = f" on {check.failed_rank} of {check.ranks}" if check.failed_rank else ""
    facts = (
        ("image", f"{report.image} {report.digest[:19]}"),
        ("from", check.source),
        ("because", check.reason),
        ("exit", check.exit),
        ("full logs", _shown(check.log) if check.log else ""),
        ("last lines", f"of {check.failed_rank or 'the log'}" if check.tail else ""),
    )
    selected = check.name.partition(".")[0]
    return Diagnostic(
        f"check `{check.name}` failed{where}",
        facts=tuple((name, value) for name, value in facts if value),
        tail=check.tail,
        hint=f"rerun this check only: `./bake smoke {report.image} --check {selected}`",
    )


def _path(state: Path, digest: Digest) -> Path:
    return state / "smoke" / f"{digest.removeprefix('sha256:')}.json"


def _folder(state: Path, digest: Digest) -> Path:
    """Where reports of other machines are kept."""
    return state / "smoke" / digest.removeprefix("sha256:")


def _file_name(machine: str) -> str:
    return re.sub("[^A-Za-z0-9-]", "_", machine)[:64] or "unnamed"


def _shown(path: Path) -> str:
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def _report(fields: Mapping[str, Any]) -> SmokeReport:
    report = SmokeReport(**{**fields, "checks": tuple(_check(check) for check in fields["checks"])})
    texts = (report.image, report.transport, report.machine, *(check.name for check in report.checks))
    if not all(isinstance(text, str) for text in texts) or not _DIGEST.fullmatch(report.digest):
        message = "a name or a digest is none"
        raise ValueError(message)
    return report


def _check(fields: Mapping[str, Any]) -> CheckResult:
    log = fields["log"]
    return CheckResult(
        **{
            **fields,
            "outcome": Outcome(fields["outcome"]),
            "tail": tuple(fields["tail"]),
            "log": Path(log) if log else None,
        }
    )
