"""An image, its build and reports of its smoke test."""

from bakehouse.builder.built_image import BuiltImage
from bakehouse.builder.verify import Outcome
from bakehouse.cluster.smoke_report import CheckResult, SmokeReport
from bakehouse.util.oci import Digest
from tests.support import plans

DIGEST = Digest("sha256:" + "4f1c09d2a7be" + "0" * 52)
OTHER = Digest("sha256:" + "91ab6e0c55f3" + "0" * 52)
IMAGE = plans.image("mpi-cpu", key="7c1e44b0" * 8)
BUILT = BuiltImage(IMAGE, DIGEST, DIGEST, 1)


def report(*outcomes: Outcome, digest: Digest = DIGEST) -> SmokeReport:
    checks = (CheckResult(f"check_{n}", outcome, 1.0) for n, outcome in enumerate(outcomes, 1))
    return SmokeReport("mpi-cpu", digest, "mpi", tuple(checks))


PASSED = report(Outcome.PASSED, Outcome.NOT_TESTED)
