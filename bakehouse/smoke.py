"""Turns a BuiltImage into a SmokeReport: a cluster on one machine, started as SageMaker starts it."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from bakehouse.plan import Digest


class Outcome(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    NOT_TESTED = "not tested"


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
    tail: tuple[str, ...] = ()
    log: Path | None = None


@dataclass(frozen=True, slots=True)
class SmokeReport:
    """What was seen of one image, by its digest."""

    image: str
    digest: Digest
    transport: str
    """`gloo` or `nccl`: which one the ranks talked through."""
    checks: tuple[CheckResult, ...]

    @property
    def passed(self) -> bool:
        return bool(self.checks) and all(check.outcome is not Outcome.FAILED for check in self.checks)
