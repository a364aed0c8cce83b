"""OpenVEX documents of a project, and the findings that they waive."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from bakehouse.commands.security import waivers
from bakehouse.commands.security.findings import PackageFinding, PackageKind, Usage, Vulnerability
from bakehouse.errors import RecipeError
from tests.support.errors import error_text, raised
from tests.support.vex_documents import OPENSSL, TODAY, statement, write

DEBIAN: tuple[PackageKind, ...] = ("Debian",)


def openssl(*images: str, version: str = "1.0") -> PackageFinding:
    return PackageFinding(
        kind="Debian",
        name="openssl",
        version=version,
        newer="1.2",
        source="sid-security",
        packages=("libssl3", "openssl"),
        vulnerabilities=(
            Vulnerability("CVE-2026-0001", "1.2", ("DSA-1",)),
            Vulnerability("CVE-2026-0002", "1.2"),
        ),
        usages=tuple(Usage(image, "base debian 12", True) for image in images or ("small",)),
    )


def waived(root: Path, *statements: object, finding: PackageFinding | None = None) -> PackageFinding:
    write(root, *statements)
    [applied], _ = waivers.apply(waivers.load(root), [finding or openssl()], TODAY)
    return applied


def open_ids(finding: PackageFinding) -> list[str]:
    return [each.id for each in finding.open_vulnerabilities]


def test_a_waived_vulnerability_is_not_open(tmp_path: Path) -> None:
    finding = waived(tmp_path, statement())
    assert open_ids(finding) == ["CVE-2026-0002"]
    [waiver] = finding.waivers
    assert (waiver.owner, waiver.expires) == ("platform@example.com", "2027-01-31")


def test_a_finding_whose_vulnerabilities_are_waived_is_not_open(tmp_path: Path) -> None:
    assert not waived(tmp_path, statement(), statement(name="CVE-2026-0002")).is_open


def test_an_expired_waiver_leaves_the_vulnerability_open(tmp_path: Path) -> None:
    finding = waived(tmp_path, statement(status_notes="expires: 2026-11-24; asked upstream"))
    assert open_ids(finding) == ["CVE-2026-0001", "CVE-2026-0002"]
    assert [waiver.is_expired for waiver in finding.waivers] == [True]


def test_a_waiver_counts_on_the_day_of_its_expiry(tmp_path: Path) -> None:
    assert open_ids(waived(tmp_path, statement(status_notes="expires: 2026-11-25"))) == ["CVE-2026-0002"]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ("not affected", "vulnerable_code_not_in_execute_path")),
        (
            {"status": "affected", "action_statement": "Jobs run without a network"},
            ("accepted", "Jobs run without a network"),
        ),
        (
            {"status": "fixed", "status_notes": "Fixed by our patch. expires: 2027-01-31"},
            ("fixed", "Fixed by our patch."),
        ),
    ],
)
def test_statuses_and_their_reasons(
    tmp_path: Path, fields: dict[str, Any], expected: tuple[str, str]
) -> None:
    [waiver] = waived(tmp_path, statement(**fields)).waivers
    assert (waiver.status, waiver.reason) == expected


def test_a_vulnerability_under_investigation_is_open(tmp_path: Path) -> None:
    investigated = {"vulnerability": {"name": "CVE-2026-0001"}, "status": "under_investigation"}
    assert waived(tmp_path, investigated).waivers == ()


@pytest.mark.parametrize("vulnerability", [{"name": "DSA-1"}, {"name": "X-1", "aliases": ["CVE-2026-0001"]}])
def test_other_names_of_a_vulnerability(tmp_path: Path, vulnerability: dict[str, Any]) -> None:
    assert open_ids(waived(tmp_path, statement(vulnerability=vulnerability))) == ["CVE-2026-0002"]


@pytest.mark.parametrize(
    ("product", "expected"),
    [
        ({"@id": "pkg:deb/debian/openssl@1.0?arch=amd64"}, True),
        ({"@id": "urn:x", "identifiers": {"purl": "pkg:deb/debian/openssl"}}, True),
        ({"@id": "pkg:oci/small"}, True),
        ({"@id": "pkg:oci/small", "subcomponents": [OPENSSL]}, True),
        ({"@id": "pkg:deb/debian/openssl@0.9"}, False),
        ({"@id": "pkg:deb/debian/zlib1g"}, False),
        ({"@id": "pkg:pypi/openssl"}, False),
        ({"@id": "pkg:oci/large"}, False),
        ({"@id": "pkg:oci/small", "subcomponents": [{"@id": "pkg:deb/debian/zlib1g"}]}, False),
    ],
)
def test_products(tmp_path: Path, product: dict[str, Any], expected: bool) -> None:
    assert bool(waived(tmp_path, statement(product)).waivers) is expected


def test_a_waiver_of_one_image_leaves_others_open(tmp_path: Path) -> None:
    of_small = statement({"@id": "pkg:oci/small", "subcomponents": [OPENSSL]})
    finding = waived(tmp_path, of_small, finding=openssl("small", "large"))
    assert open_ids(finding) == ["CVE-2026-0001", "CVE-2026-0002"]
    of_large = statement({"@id": "pkg:oci/large"})
    assert open_ids(waived(tmp_path, of_small, of_large, finding=openssl("small", "large"))) == [
        "CVE-2026-0002"
    ]


def warned(root: Path, *statements: object, scanned: Collection[PackageKind] = DEBIAN) -> list[str]:
    write(root, *statements)
    loaded = waivers.load(root)
    _, used = waivers.apply(loaded, [openssl()], TODAY)
    made = list(waivers.warnings(loaded, used, ["small"], scanned))
    assert all(each.location and each.location.line == 10 for each in made)
    return [each.message for each in made]


def test_a_waiver_that_matches_no_finding_is_a_warning(tmp_path: Path) -> None:
    assert warned(tmp_path, statement(name="CVE-2026-7")) == ["the waiver of `CVE-2026-7` matches no finding"]
    other = statement({"@id": "pkg:deb/debian/opensl"})
    assert warned(tmp_path, other) == ["the waiver of `CVE-2026-0001` matches no finding"]


def test_a_waiver_of_an_unknown_image_is_a_warning(tmp_path: Path) -> None:
    message = "the waiver of `CVE-2026-0001` names an unknown image `smal`"
    assert warned(tmp_path, statement({"@id": "pkg:oci/smal"}), scanned=()) == [message]


def test_waivers_of_packages_that_were_not_scanned_are_no_warning(tmp_path: Path) -> None:
    assert warned(tmp_path, statement({"@id": "pkg:pypi/demo"}), scanned=DEBIAN) == []
    assert warned(tmp_path, statement(name="CVE-2026-7"), scanned=()) == []


def refusal(root: Path, monkeypatch: pytest.MonkeyPatch, *statements: object, **fields: Any) -> str:
    monkeypatch.chdir(root)
    write(Path(), *statements, **fields)
    return error_text(raised(RecipeError, waivers.load, Path()))


def test_a_waiver_without_expiry_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert refusal(tmp_path, monkeypatch, statement(status_notes="expires: 2027-02-30")) == (
        "error: the waiver of `CVE-2026-0001` has no valid expiry\n"
        "  --> .vex/waivers.json:10:14\n"
        "   |\n"
        '10 |     "name": "CVE-2026-0001"\n'
        "   |              ^^^^^^^^^^^^^\n"
        "\n"
        'hint: add it to `status_notes`, such as "expires: 2027-01-31"\n'
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"justification": ""}, "the waiver of `CVE-2026-0001` has no reason"),
        ({"status": "affected"}, "the waiver of `CVE-2026-0001` has no reason"),
        ({"status": "fixed"}, "the waiver of `CVE-2026-0001` has no reason"),
        ({"products": []}, "the waiver of `CVE-2026-0001` has no products"),
        ({"status": "accepted"}, "`accepted` is not a status of OpenVEX"),
        (
            {"products": [{"@id": "openssl"}]},
            "`.vex/waivers.json` is not a valid OpenVEX document: "
            "`statements[0].products[0]` has no valid package URL",
        ),
        (
            {"products": [{"@id": f"pkg:oci/small@sha256:{'0' * 64}"}]},
            "`.vex/waivers.json` is not a valid OpenVEX document: "
            "`statements[0].products[0]` names a digest, but every build has a different digest",
        ),
    ],
)
def test_an_invalid_waiver_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], message: str
) -> None:
    assert refusal(tmp_path, monkeypatch, statement(**fields)).startswith(f"error: {message}\n")


def test_a_document_of_another_format_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert refusal(tmp_path, monkeypatch, **{"@context": "https://example.com"}) == (
        "error: `.vex/waivers.json` is not a valid OpenVEX document: "
        "`@context` must start with `https://openvex.dev/ns`\n"
        "  --> .vex/waivers.json:1:1\n"
    )


def test_a_waiver_of_a_whole_image_may_be_of_packages_that_were_not_scanned(tmp_path: Path) -> None:
    assert warned(tmp_path, statement({"@id": "pkg:oci/small"}, name="CVE-2026-7")) == []
