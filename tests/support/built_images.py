"""An image, its build, and results of its checks."""

from datetime import UTC, datetime

from bakehouse.builder.built_image import BuiltImage
from bakehouse.builder.verify import Outcome
from bakehouse.cluster.check_keys import definitions
from bakehouse.cluster.smoke_report import CheckResult, Setup, SmokeReport, transport_of
from bakehouse.evidence.known_checks import KnownChecks
from bakehouse.plan.model import Image
from bakehouse.util.oci import ContentId, Digest
from tests.support import plans

DIGEST = Digest("sha256:" + "4f1c09d2a7be" + "0" * 52)
OTHER = Digest("sha256:" + "91ab6e0c55f3" + "0" * 52)
CONTENT = ContentId("sha256:" + "c0a7e27d5b11" + "0" * 52)
IMAGE = plans.image("mpi-cpu", key="7c1e44b0" * 8)
BUILT = BuiltImage(IMAGE, DIGEST, DIGEST, 1, CONTENT)
DATE = "2026-11-21T10:00:00+00:00"
TOOLKIT = Setup("train toolkit")


def report(*outcomes: Outcome, content: ContentId = CONTENT, required: tuple[str, ...] = ()) -> KnownChecks:
    """Return the results of an image with these outcomes."""
    checks = (CheckResult(f"check_{n}", outcome, 1.0, date=DATE) for n, outcome in enumerate(outcomes, 1))
    return KnownChecks("mpi-cpu", content, tuple(checks), required=required)


PASSED = report(Outcome.PASSED, Outcome.NOT_TESTED)


def results(
    image: Image = IMAGE,
    setup: Setup = TOOLKIT,
    *,
    date: str = "",
    machine: str = "host",
    failed: tuple[str, ...] = (),
) -> tuple[CheckResult, ...]:
    """Return a result of each check of an image that can run in a setup; all passed, except `failed`."""
    date = date or datetime.now(UTC).isoformat()
    return tuple(
        CheckResult(
            name,
            Outcome.FAILED if name in failed else Outcome.PASSED,
            1.0,
            key=definition.key,
            setup=setup,
            date=date,
            machine=machine,
        )
        for name, definition in definitions(image, setup, ()).items()
        if definition.key
    )


def smoke_report(content: ContentId, checks: tuple[CheckResult, ...], image: str = "mpi-cpu") -> SmokeReport:
    """Return the report of a machine with results."""
    date = max(check.date for check in checks)
    return SmokeReport(image, content, transport_of(checks), checks, checks[0].machine, date)
