"""Records of published images."""

from dataclasses import replace
from typing import Any

import pytest

from bakehouse.builder.verify import Outcome
from bakehouse.cluster.smoke_report import CheckResult
from bakehouse.ledger.releases import ReleasedArtifact, ReleasedCheck, ReleasedFindings
from bakehouse.publish.record import record_of, with_known_facts
from tests.support.built_images import IMAGE, OTHER, report
from tests.support.release_records import DAY, PUBLISHED, a_record


def test_a_release_without_a_smoke_test_says_so() -> None:
    untested = record_of(PUBLISHED, IMAGE, None, DAY)
    assert (untested.tested, untested.checks, untested.transport) == (False, (), "")


def test_a_release_that_failed_its_smoke_test_keeps_the_checks() -> None:
    failed = record_of(PUBLISHED, IMAGE, report(Outcome.FAILED), DAY)
    assert (failed.tested, failed.checks) == (False, (ReleasedCheck("check_1", "failed"),))


def test_what_hangs_on_a_digest_in_its_registry_is_not_forgotten() -> None:
    bill, note = ReleasedArtifact("bill", f"sha256:{1:064x}"), ReleasedArtifact("note", f"sha256:{2:064x}")
    earlier = replace(a_record(), candidate=True, artifacts=(note,))
    elsewhere = replace(earlier, image_uri="elsewhere", artifacts=(ReleasedArtifact("other", "x"),))
    assert with_known_facts(a_record(), [earlier, elsewhere], [bill]).artifacts == (bill, note)
    assert with_known_facts(a_record(), [elsewhere]) == a_record()


def test_a_scan_of_a_digest_is_not_forgotten() -> None:
    scan: dict[str, Any] = {"scanned": "2026-11-20T12:30:00Z", "findings": (ReleasedFindings("LOW", 2),)}
    scanned = replace(a_record(), **scan)
    other = replace(scanned, digest=OTHER, not_scanned="no", scanned="")
    assert with_known_facts(a_record(), [scanned, other]) == scanned
    assert with_known_facts(a_record(), [scanned, replace(a_record(), not_scanned="no")]).not_scanned == "no"


def test_a_gpu_release_says_whether_a_check_used_gpus() -> None:
    image = replace(IMAGE, gpu=True)
    passed = report(Outcome.PASSED)
    on_gpu = replace(passed, checks=(*passed.checks, CheckResult("gpu", Outcome.PASSED, 1.0)))
    skipped = replace(passed, checks=(*passed.checks, CheckResult("gpu", Outcome.NOT_TESTED, 0.0)))

    assert record_of(PUBLISHED, IMAGE, on_gpu, DAY).tested_on_gpus is None
    assert record_of(PUBLISHED, image, on_gpu, DAY).tested_on_gpus is True
    assert record_of(PUBLISHED, image, skipped, DAY).tested_on_gpus is False
    assert record_of(PUBLISHED, image, None, DAY).tested_on_gpus is False


@pytest.mark.parametrize("name", ["user_code", "torchrun_2x2", "components.pytorch.computes_on_gpu"])
def test_a_check_that_can_pass_without_a_gpu_is_no_test_on_gpus(name: str) -> None:
    passed = replace(report(Outcome.PASSED), checks=(CheckResult(name, Outcome.PASSED, 1.0),))

    assert record_of(PUBLISHED, replace(IMAGE, gpu=True), passed, DAY).tested_on_gpus is False
