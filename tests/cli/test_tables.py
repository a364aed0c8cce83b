"""Reports as text."""

from dataclasses import replace

import pytest

from bakehouse.cli import tables
from bakehouse.ledger.releases import ReleasedArtifact, ReleasedRollback
from tests.support.fleet_sizes import RECORD

COMMIT = "0123456789abcdef"


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
