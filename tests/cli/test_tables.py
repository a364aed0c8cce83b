"""Reports as text."""

from dataclasses import replace

import pytest

from bakehouse.builder.verify import Outcome
from bakehouse.cli import tables
from bakehouse.cluster.smoke_report import CheckResult, SmokeReport
from bakehouse.evidence.known_checks import KnownChecks
from bakehouse.ledger.releases import ReleasedArtifact, ReleasedRollback
from bakehouse.util.oci import ContentId
from tests.support.fleet_sizes import RECORD

COMMIT = "0123456789abcdef"


def test_a_release_that_was_signed_later_has_one_row() -> None:
    signed = replace(RECORD, tags=("2026.11.27",))
    candidate = replace(signed, candidate=True, artifacts=())

    rows = tables.released([replace(signed, artifacts=()), signed, candidate]).splitlines()

    assert [row.split()[1] for row in rows] == ["release", "candidate"]


@pytest.mark.parametrize(
    ("revision", "uncommitted", "shown"),
    [
        ("", (), "no commit"),
        (COMMIT, (), "0123456789ab"),
        (f"{COMMIT}-dirty", (), "0123456789ab-dirty"),
        (f"{COMMIT}-dirty", ("src/train.py",), "0123456789ab-dirty (`src/train.py`)"),
        (f"{COMMIT}-dirty", (*"abcdef",), "0123456789ab-dirty (`a`, `b`, `c`, `d` and 2 more)"),
    ],
)
def test_a_release_has_its_commit_and_uncommitted_files(
    revision: str, uncommitted: tuple[str, ...], shown: str
) -> None:
    record = replace(RECORD, tags=("2026.11.27",), revision=revision, uncommitted=uncommitted)

    assert tables.released([record]).rstrip().endswith(f"  {shown}")


def test_records_that_add_facts_to_a_release_have_no_line() -> None:
    release = replace(RECORD, tags=("t",), date="2026-11-27", candidate=False, tested=True)
    signed = replace(
        release, date="2026-11-28", artifacts=(ReleasedArtifact("application/json", "sha256:1"),)
    )
    back = replace(release, date="2026-11-29", rollback=ReleasedRollback("2026-11-29T01:02:03Z", "sha256:2"))
    line = f"t  {RECORD.image_uri}  no commit\n"

    assert tables.released([release, signed, back]) == (
        f"2026-11-27  release   {line}2026-11-29  rollback  {line}"
    )


def test_a_smoke_test_of_some_checks_says_what_is_older_and_what_is_missing() -> None:
    def passed(name: str, day: str) -> CheckResult:
        return CheckResult(name, Outcome.PASSED, 1.0, date=f"{day}T09:00:00+00:00")

    content = ContentId("sha256:" + "4f" * 32)
    now = (passed("mpi_2x2", "2026-11-29"),)
    older = (passed("torch_2x2", "2026-11-21"), passed("train_success", "2026-11-20"))
    report = SmokeReport("small", content, "gloo", now)
    known = KnownChecks("small", content, (*now, *older), ("private_keys",))

    line = "small  sha256:4f4f4f4f4f4f  1 passed; transport gloo\n"
    earlier = "  from earlier runs: 2 passed; the oldest of 2026-11-20; no result of `private_keys`\n"
    assert tables.smoke_table([report], [known]) == line + earlier
    assert tables.smoke_table([report], [KnownChecks("small", content, now)]) == line
