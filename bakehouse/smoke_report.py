"""What was seen of an image, kept by its digest: the pass that `push` asks for."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bakehouse.checks import Outcome
from bakehouse.errors import Diagnostic, SmokeError
from bakehouse.files import write_whole
from bakehouse.plan import Digest


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

    @property
    def passed(self) -> bool:
        """No check failed, and not all were left out."""
        outcomes = {check.outcome for check in self.checks}
        return Outcome.PASSED in outcomes and Outcome.FAILED not in outcomes


def save(report: SmokeReport, state: Path) -> Path:
    """Write `report` where `load` finds it by digest."""
    path = _path(state, report.digest)
    write_whole(path, json.dumps(asdict(report), indent=2, sort_keys=True, default=str) + "\n")
    return path


def load(state: Path, digest: Digest) -> SmokeReport | None:
    """The report of the image with that digest, or None when it was never tested whole."""
    path = _path(state, digest)
    if not path.exists():
        return None
    try:
        report = _report(json.loads(path.read_text()))
    except (ValueError, TypeError, KeyError) as error:
        raise SmokeError(
            Diagnostic(
                f"`{path}` is not a report of smoke tests",
                facts=(("because", f"{type(error).__name__}: {error}"),),
                hint="remove it, then run `./bake smoke` again",
            )
        ) from error
    if report.digest != digest:
        raise SmokeError(
            Diagnostic(
                f"`{path}` is the report of another image",
                facts=(("expected", digest), ("found", report.digest)),
                hint="remove it, then run `./bake smoke` again",
            )
        )
    return report


def merged(known: SmokeReport, rerun: Iterable[CheckResult]) -> SmokeReport:
    """`known` with the results of checks that ran again."""
    fresh = {check.name: check for check in rerun}
    kept = tuple(fresh.pop(check.name, check) for check in known.checks)
    return replace(known, checks=kept + tuple(fresh.values()))


def require_passed(report: SmokeReport) -> None:
    """Raise SmokeError with a diagnostic for each check that failed."""
    failed = [check for check in report.checks if check.outcome is Outcome.FAILED]
    if failed:
        raise SmokeError(*(failure(report, check) for check in failed))


def failure(report: SmokeReport, check: CheckResult) -> Diagnostic:
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


def _shown(path: Path) -> str:
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def _report(fields: Mapping[str, Any]) -> SmokeReport:
    return SmokeReport(**{**fields, "checks": tuple(_check(check) for check in fields["checks"])})


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
