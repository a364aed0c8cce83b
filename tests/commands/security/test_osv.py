"""Vulnerabilities of Python packages in small snapshots of OSV's data."""

import json
from pathlib import Path

import pytest

from bakehouse.commands.security import osv
from bakehouse.errors import RecipeError
from bakehouse.trust.findings import Vulnerability
from tests.support.errors import error_text
from tests.support.osv_records import events, record, written


def check(directory: Path, version: str, *records: object) -> dict[str, str]:
    """Return the vulnerabilities of a version of the package, each with its fix."""
    snapshot = osv.load(written(directory, *records), {"demo-package"})
    vulnerabilities, undecided = osv.find_vulnerabilities(snapshot.affected.get("demo-package", ()), version)
    assert undecided == ()
    return {each.id: each.fixed for each in vulnerabilities}


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("0.9", False),
        ("1.0", True),
        ("1.2", False),
        ("2.0rc1", False),
        ("3.0.dev1", False),
        ("3.0", True),
        ("3.4.9", True),
        ("3.5", False),
        ("1!0.1", False),
    ],
)
def test_versions_between_events_are_affected(tmp_path: Path, version: str, expected: bool) -> None:
    pairs = (("fixed", "3.5"), ("introduced", "3.0"), ("introduced", "1.0"), ("fixed", "1.2"))
    assert bool(check(tmp_path, version, record(ranges=events(*pairs)))) is expected


def test_the_fix_is_the_next_one_above_the_version(tmp_path: Path) -> None:
    pairs = (("introduced", "1.0"), ("fixed", "1.2"), ("introduced", "3.0"), ("fixed", "3.5"))
    assert check(tmp_path, "1.1", record(ranges=events(*pairs))) == {"GHSA-aaaa-bbbb-cccc": "1.2"}


def test_versions_after_the_last_affected_one_are_not_affected(tmp_path: Path) -> None:
    last = record(ranges=events(("introduced", "0"), ("last_affected", "2.1")))
    assert check(tmp_path, "2.1", last) == {"GHSA-aaaa-bbbb-cccc": ""}
    assert check(tmp_path, "2.1.1", last) == {}


def test_a_build_of_the_last_affected_version_is_affected(tmp_path: Path) -> None:
    last = record(ranges=events(("introduced", "0"), ("last_affected", "2.1")))
    assert check(tmp_path, "2.1+cu130", last) == {"GHSA-aaaa-bbbb-cccc": ""}


def test_versions_before_a_limit_are_affected(tmp_path: Path) -> None:
    limited = record(ranges=events(("introduced", "0"), ("limit", "2.0")))
    assert check(tmp_path, "1.9", limited) == {"GHSA-aaaa-bbbb-cccc": ""}
    assert check(tmp_path, "2.0", limited) == {}


def test_listed_versions_are_affected(tmp_path: Path) -> None:
    listed = record(ranges=[], versions=["1.0", "2004d", "1.1.0"])
    assert check(tmp_path, "1.1", listed) == {"GHSA-aaaa-bbbb-cccc": ""}
    assert check(tmp_path, "1.2", listed) == {}


def test_records_of_one_cve_are_one_vulnerability(tmp_path: Path) -> None:
    other = record("PYSEC-2026-7", ranges=events(("introduced", "0"), ("fixed", "2.1")))
    other["aliases"] = ["CVE-2026-1234"]
    first = record(aliases=["CVE-2026-1234", "PYSEC-2026-7"])
    snapshot = osv.load(written(tmp_path, first, other), {"demo-package"})
    vulnerabilities, _ = osv.find_vulnerabilities(snapshot.affected["demo-package"], "1.0")
    names = ("GHSA-aaaa-bbbb-cccc", "PYSEC-2026-7")
    assert vulnerabilities == (Vulnerability("CVE-2026-1234", "2.1", names),)


def test_withdrawn_records_are_ignored(tmp_path: Path) -> None:
    assert check(tmp_path, "1.0", record(withdrawn="2026-11-21T00:00:00Z")) == {}


def test_other_ecosystems_and_packages_are_ignored(tmp_path: Path) -> None:
    other = record("GHSA-npm")
    other["affected"][0]["package"]["ecosystem"] = "npm"
    assert check(tmp_path, "1.0", other, record("GHSA-other", package="demo")) == {}


@pytest.mark.parametrize(
    ("ranges", "reason"),
    [
        (
            events(("introduced", "0"), ("fixed", "2004d")),
            "a range of it is unreadable: Invalid version: '2004d'",
        ),
        ([{"type": "GIT", "repo": "r", "events": [{"introduced": "0"}]}], "its record names only commits"),
    ],
)
def test_a_version_that_cannot_be_compared_is_undecided(tmp_path: Path, ranges: object, reason: str) -> None:
    snapshot = osv.load(written(tmp_path, record(ranges=ranges)), {"demo-package"})
    assert osv.find_vulnerabilities(snapshot.affected["demo-package"], "1.0") == (
        (),
        (("GHSA-aaaa-bbbb-cccc", reason),),
    )


def test_the_snapshot_has_the_day_of_its_newest_record(tmp_path: Path) -> None:
    directory = tmp_path / "PyPI"
    directory.mkdir()
    for number, day in enumerate(("2026-11-20", "2026-11-24", "2025-01-01")):
        content = record(str(number), modified=f"{day}T00:00:00Z", withdrawn="2026-11-21T00:00:00Z")
        (directory / f"{number}.json").write_text(json.dumps(content))
    assert osv.load(directory, ()).title == "3 records of PyPI, the newest of 2026-11-24"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"affected": []}, "`0.json` is not a valid record of OSV: `id` must be a string that is not empty"),
        (
            {**record(), "affected": {}},
            "`0.json` is not a valid record of OSV: `affected` must be a list",
        ),
        (
            record(ranges=[{"type": "ECOSYSTEM", "events": [{"introduced": 0}]}]),
            "`0.json` is not a valid record of OSV: "
            "`affected[0].ranges[0].events[0].introduced` must be a string",
        ),
    ],
)
def test_a_damaged_record_is_an_error(tmp_path: Path, content: object, message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        osv.load(written(tmp_path, content), {"demo-package"})
    assert caught.value.diagnostics[0].message == message


def test_data_without_pypi_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RecipeError) as caught:
        osv.load(Path(), {"demo-package"})
    assert error_text(caught.value) == (
        "error: `.` has no record of PyPI\n\nhint: use the export `PyPI/all.zip` of OSV, or its JSON files\n"
    )


def test_a_file_that_is_not_an_archive_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("all.zip").write_text("<html>")
    with pytest.raises(RecipeError) as caught:
        osv.load(Path("all.zip"), {"demo-package"})
    assert error_text(caught.value) == (
        "error: `all.zip` cannot be read as a zip archive: File is not a zip file\n\n"
        "hint: use the export `all.zip` of OSV, or a directory of its JSON files\n"
    )
