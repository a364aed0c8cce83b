"""The column *Scanned*: a scan of ECR, signed scans, and the policy on them."""

from dataclasses import replace
from typing import Any

import pytest

from bakehouse.catalog.trust_settings import Policy, ScanRules
from bakehouse.commands.report.scan_state import ScanPolicy, scan_policy_of, scan_state
from bakehouse.commands.report.states import CellState, Mark, not_recorded
from bakehouse.ledger.releases import ReleasedFindings, ReleasedScan
from tests.support.release_records import a_record
from tests.support.signing_keys import KeyFiles

RECORD = a_record()
TIME = "2026-11-20T10:00:00Z"
CLEAN = ReleasedScan("one", TIME, TIME, (), 0, "", ())
HIGH = (ReleasedFindings("HIGH", 2), ReleasedFindings("LOW", 1))
POLICY = ScanPolicy(ScanRules(), {"one": "one.pub", "two": "two.pub"})
CLEAN_NOTE = f"scanned {TIME} with data of {TIME}: no open findings. This page does not verify signatures."


def signed(*scans: ReleasedScan, policy: ScanPolicy | None = None) -> CellState:
    return scan_state([replace(RECORD, scans=scans)], policy)


def rules(**values: Any) -> ScanPolicy:
    return replace(POLICY, rules=ScanRules(**values))


def test_an_image_without_a_scan_is_not_recorded() -> None:
    assert scan_state([]) == scan_state([RECORD]) == not_recorded()
    required = not_recorded("The policy requires a signed scan, and none is recorded.")
    assert scan_state([RECORD], POLICY) == required


def test_a_scan_of_ecr_is_done_only_without_findings() -> None:
    clean = replace(RECORD, scanned=TIME)
    found = replace(clean, findings=(ReleasedFindings("HIGH", 2), ReleasedFindings("LOW", 0)))
    skipped = replace(RECORD, not_scanned="no rights")

    note = f"Amazon ECR scanned {TIME}."
    assert scan_state([clean]) == CellState(Mark.DONE, "no findings, 2026-11-20", note)
    assert scan_state([RECORD, found]) == CellState(Mark.PARTLY, "2 HIGH, 2026-11-20", note)
    assert scan_state([skipped]) == CellState(Mark.UNKNOWN, "not scanned", "Amazon ECR: no rights.")


def test_a_clean_scan_of_ecr_is_not_the_signed_scan_that_the_policy_requires() -> None:
    state = scan_state([replace(RECORD, scanned=TIME)], POLICY)

    note = f"Amazon ECR scanned {TIME}. The policy requires a signed scan, and none is recorded."
    assert state == CellState(Mark.PARTLY, "no findings, 2026-11-20", note)


def test_a_signed_scan_has_counts_and_a_date() -> None:
    waived = replace(CLEAN, findings=HIGH, waived=3, waived_until="2026-12-01")

    assert signed(CLEAN) == CellState(Mark.DONE, "no findings, 2026-11-20", f"Signed by a key, {CLEAN_NOTE}")
    note = (
        f"Signed by a key, scanned {TIME} with data of {TIME}: 2 HIGH, 1 LOW, 3 waived until 2026-12-01. "
        "This page does not verify signatures."
    )
    assert signed(waived) == CellState(Mark.PARTLY, "2 HIGH, 1 LOW, 2026-11-20", note)
    assert signed(replace(waived, findings=())).text == "no open findings, 2026-11-20"
    assert signed(replace(waived, findings=())).mark is Mark.PARTLY


def test_contents_that_were_not_scanned_are_never_clean() -> None:
    partial = replace(CLEAN, not_scanned=("Python", "files"))
    text = "no findings, Python, files not scanned, 2026-11-20"

    assert (signed(partial).mark, signed(partial).text) == (Mark.PARTLY, text)
    accepted = signed(partial, policy=rules(accept_not_scanned=("Python", "files")))
    assert (accepted.mark, accepted.text) == (Mark.PARTLY, text)
    refused = signed(partial, policy=rules(accept_not_scanned=("files",)))
    assert (refused.mark, refused.text) == (Mark.FAILED, "refused: Python not scanned, 2026-11-20")


def test_an_accepted_scan_names_the_key_and_expires() -> None:
    note = f"Signed by one.pub, {CLEAN_NOTE} The policy accepts it until 2026-11-27T10:00:00Z."

    assert signed(CLEAN, policy=POLICY) == CellState(
        Mark.DONE, "no findings, 2026-11-20", note, "2026-11-27T10:00:00Z"
    )


def test_a_scan_expires_by_the_age_of_its_data_or_with_its_first_waiver() -> None:
    old_data = replace(CLEAN, updated="2026-11-18T00:00:00Z")
    waived = replace(CLEAN, waived=1, waived_until="2026-11-21")

    assert signed(old_data, policy=POLICY).until == "2026-11-25T00:00:00Z"
    assert signed(waived, policy=POLICY).until == "2026-11-21T23:59:59Z"
    assert signed(CLEAN, policy=rules(max_age=1)).until == "2026-11-21T10:00:00Z"


@pytest.mark.parametrize(
    ("severity", "accepted", "is_refused"),
    [
        ("LOW", "", True),
        ("HIGH", "MEDIUM", True),
        ("HIGH", "HIGH", False),
        ("not rated", "HIGH", True),
        ("not rated", "CRITICAL", False),
    ],
)
def test_a_severe_finding_is_refused(severity: str, accepted: str, is_refused: bool) -> None:
    scan = replace(CLEAN, findings=(ReleasedFindings(severity, 1),))
    state = signed(scan, policy=rules(max_severity=accepted))

    text = f"1 {severity}, 2026-11-20"
    expected = (Mark.FAILED, f"refused: {text}", "") if is_refused else (Mark.PARTLY, text, state.until)
    assert (state.mark, state.text, state.until) == expected


def test_a_finding_by_any_trusted_key_counts_while_its_scan_is_recent() -> None:
    severe = replace(CLEAN, key="two", finished="2026-11-19T10:00:00Z", findings=HIGH)

    assert signed(severe, CLEAN, policy=POLICY).text == "refused: 2 HIGH, 1 LOW, 2026-11-19"
    assert signed(severe, CLEAN, policy=rules(max_age=1)).mark is Mark.FAILED
    old = replace(severe, finished="2026-11-12T10:00:00Z")
    assert signed(old, CLEAN, policy=POLICY).mark is Mark.DONE


def test_a_complete_scan_by_one_key_is_enough() -> None:
    partial = replace(CLEAN, key="two", not_scanned=("files",))

    assert signed(partial, CLEAN, policy=POLICY).mark is not Mark.FAILED


def test_a_scan_by_a_stranger_is_refused() -> None:
    state = signed(replace(CLEAN, key="stranger"), policy=POLICY)

    note = f"Signed by a key that the policy does not trust, {CLEAN_NOTE}"
    assert state == CellState(Mark.FAILED, "refused: no trusted key, 2026-11-20", note)
    assert signed(replace(CLEAN, key="stranger", findings=HIGH), CLEAN, policy=POLICY).mark is Mark.DONE


def test_the_worse_of_a_signed_scan_and_one_of_ecr_counts() -> None:
    record = replace(RECORD, scans=(CLEAN,), scanned="2026-11-21T00:00:00Z", findings=HIGH)
    state = scan_state([record])

    text = "no findings, 2026-11-20; ECR: 2 HIGH, 1 LOW, 2026-11-21"
    note = f"Signed by a key, {CLEAN_NOTE} Amazon ECR scanned 2026-11-21T00:00:00Z."
    assert state == CellState(Mark.PARTLY, text, note)
    skipped = scan_state([replace(RECORD, scans=(CLEAN,), not_scanned="no rights")])
    note = f"Signed by a key, {CLEAN_NOTE} Amazon ECR: no rights."
    assert skipped == CellState(Mark.DONE, "no findings, 2026-11-20", note)


@pytest.mark.parametrize("time", ["", "today", "2026-11-20T10:00:00", "9999-12-31T23:59:59Z"])
def test_a_time_that_is_not_valid_is_long_ago(time: str) -> None:
    assert signed(replace(CLEAN, finished=time), policy=POLICY).until == "1970-01-08T00:00:00Z"
    waived = replace(CLEAN, waived=1, waived_until=time)
    assert signed(waived, policy=POLICY).until == "1970-01-01T00:00:00Z"


def test_a_policy_counts_only_if_it_requires_scans(keys: dict[str, KeyFiles]) -> None:
    policy = Policy((keys["builder"].public,), require=("scan",), scan=ScanRules("HIGH"))
    public_key = keys["builder"].public_key

    assert scan_policy_of(policy) == ScanPolicy(ScanRules("HIGH"), {public_key.hint: public_key.name})
    assert scan_policy_of(replace(policy, require=("tests",))) is None
    assert scan_policy_of(None) is None
