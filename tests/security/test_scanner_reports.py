"""Reports in the shapes that scanners write."""

import json
from pathlib import Path
from typing import Any

import pytest

from bakehouse.errors import RecipeError
from bakehouse.security.findings import Vulnerability
from bakehouse.security.scanner_reports import ScannedPackage, ScannerReport, load
from tests.conftest import error_text

MANIFEST, CONFIG = f"sha256:{'d' * 64}", f"sha256:{'c' * 64}"
LAYER = f"sha256:{'1' * 64}"
NAME = "registry.example.com/bakehouse/small"

TRIVY: dict[str, Any] = {
    "SchemaVersion": 2,
    "Trivy": {"Version": "0.71.0"},
    "CreatedAt": "2026-11-20T13:51:07.592255-07:00",
    "ArtifactName": f"{NAME}@{MANIFEST}",
    "ArtifactType": "container_image",
    "Metadata": {
        "OS": {"Family": "debian", "Name": "12.8"},
        "ImageID": CONFIG,
        "DiffIDs": [LAYER],
        "RepoTags": [f"{NAME}:1"],
        "RepoDigests": [f"{NAME}@{MANIFEST}"],
    },
    "Results": [
        {
            "Target": f"{NAME} (debian 12.8)",
            "Class": "os-pkgs",
            "Type": "debian",
            "Vulnerabilities": [
                {
                    "VulnerabilityID": "CVE-2026-0001",
                    "VendorIDs": ["DSA-6001-1"],
                    "PkgName": "openssl",
                    "InstalledVersion": "1.0",
                    "FixedVersion": "1.2",
                    "Severity": "HIGH",
                },
            ],
        },
        {
            "Target": "Python",
            "Class": "lang-pkgs",
            "Type": "python-pkg",
            "Vulnerabilities": [
                {
                    "VulnerabilityID": "GHSA-aaaa-bbbb-cccc",
                    "PkgName": "Demo.Package",
                    "InstalledVersion": "1.0",
                    "FixedVersion": "1.9.1, 2.0",
                    "Severity": "CRITICAL",
                },
            ],
        },
        {"Target": "Java", "Class": "lang-pkgs", "Type": "jar"},
    ],
}
GRYPE: dict[str, Any] = {
    "matches": [
        {
            "vulnerability": {
                "id": "GHSA-aaaa-bbbb-cccc",
                "severity": "High",
                "fix": {"versions": ["2.0"], "state": "fixed"},
            },
            "relatedVulnerabilities": [{"id": "CVE-2026-1234", "namespace": "nvd:cpe"}],
            "artifact": {
                "name": "demo-package",
                "version": "1.0",
                "type": "python",
                "purl": "pkg:pypi/demo-package@1.0",
            },
        }
    ],
    "ignoredMatches": [],
    "source": {
        "type": "image",
        "target": {
            "userInput": f"{NAME}:1",
            "imageID": CONFIG,
            "manifestDigest": MANIFEST,
            "layers": [{"digest": LAYER, "size": 1}],
            "repoDigests": [],
        },
    },
    "distro": {"name": "debian", "version": "12"},
    "descriptor": {"name": "grype", "version": "0.115.0", "timestamp": "2026-11-21T08:00:00Z"},
}
ECR: dict[str, Any] = {
    "registryId": "123456789012",
    "repositoryName": "bakehouse/small",
    "imageId": {"imageDigest": MANIFEST, "imageTag": "1"},
    "imageScanStatus": {"status": "COMPLETE", "description": "The scan was completed successfully."},
    "imageScanFindings": {
        "imageScanCompletedAt": "2026-11-22T10:15:00+00:00",
        "findingSeverityCounts": {"HIGH": 1},
        "findings": [
            {
                "name": "CVE-2026-0001",
                "severity": "HIGH",
                "attributes": [
                    {"key": "package_version", "value": "1.0"},
                    {"key": "package_name", "value": "openssl"},
                ],
            }
        ],
    },
}
INSPECTOR: dict[str, Any] = {
    **ECR,
    "imageScanStatus": {"status": "ACTIVE", "description": "Continuous scan is selected for image."},
    "imageScanFindings": {
        "imageScanCompletedAt": "2026-11-22T10:15:00+00:00",
        "enhancedFindings": [
            {
                "packageVulnerabilityDetails": {
                    "vulnerabilityId": "CVE-2026-0001",
                    "relatedVulnerabilities": [],
                    "vulnerablePackages": [
                        {
                            "name": "openssh-client",
                            "version": "9.2p1",
                            "release": "2+deb12u6",
                            "epoch": 1,
                            "packageManager": "OS",
                            "fixedInVersion": "1:9.2p1-2+deb12u10",
                        },
                        {
                            "name": "demo-package",
                            "version": "1.0",
                            "epoch": 0,
                            "packageManager": "PYTHONPKG",
                            "fixedInVersion": "NotAvailable",
                        },
                    ],
                },
                "severity": "MEDIUM",
                "status": "ACTIVE",
            },
            {"packageVulnerabilityDetails": {"vulnerabilityId": "CVE-2026-2"}, "status": "SUPPRESSED"},
            {"packageVulnerabilityDetails": {"vulnerabilityId": "CVE-2026-3"}, "status": "CLOSED"},
        ],
    },
}
CYCLONEDX: dict[str, Any] = {
    "bomFormat": "CycloneDX",
    "specVersion": "1.6",
    "metadata": {
        "timestamp": "2026-11-23T10:00:00Z",
        "tools": {"components": [{"type": "application", "name": "trivy", "version": "0.71.0"}]},
        "component": {
            "bom-ref": "subject",
            "type": "container",
            "name": NAME,
            "purl": f"pkg:oci/small@sha256%3A{'d' * 64}?repository_url=registry.example.com%2Fsmall",
            "properties": [{"name": "aquasecurity:trivy:ImageID", "value": CONFIG}],
        },
    },
    "components": [
        {
            "bom-ref": "7",
            "name": "openssl",
            "version": "1.0",
            "purl": "pkg:deb/debian/openssl@1.0?arch=amd64",
        },
    ],
    "vulnerabilities": [
        {
            "id": "GHSA-x",
            "references": [{"id": "CVE-2026-0001", "source": {"name": "NVD"}}],
            "ratings": [{"severity": "high"}],
            "affects": [
                {"ref": "7", "versions": [{"version": "1.2", "status": "unaffected"}]},
                {"ref": "urn:cdx:3e671687-395b-41f5-a30f-a58921a69b79/1#pkg:pypi/demo-package@1.0"},
            ],
        },
        {"id": "CVE-2026-9", "affects": [{"ref": "7"}], "analysis": {"state": "not_affected"}},
    ],
}
SARIF: dict[str, Any] = {
    "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
    "version": "2.1.0",
    "runs": [
        {
            "tool": {"driver": {"name": "Trivy", "version": "0.71.0", "rules": [{"id": "CVE-2026-0001"}]}},
            "properties": {
                "imageName": NAME,
                "imageID": CONFIG,
                "repoDigests": [f"{NAME}@{MANIFEST}"],
                "repoTags": [f"{NAME}:1"],
            },
            "results": [
                {
                    "ruleId": "CVE-2026-0001",
                    "level": "error",
                    "message": {
                        "text": "Package: openssl\nInstalled Version: 1.0\nVulnerability CVE-2026-0001\n"
                        "Severity: HIGH\nFixed Version: 1.2\nLink: [CVE-2026-0001](https://example.com)"
                    },
                },
                {"ruleId": "DS002", "level": "error", "message": {"text": "The user is root"}},
                {"ruleId": "CVE-2026-9", "message": {"text": ""}, "suppressions": [{"kind": "external"}]},
            ],
        }
    ],
}


def read(directory: Path, document: object) -> ScannerReport:
    path = directory / "report.json"
    path.write_text(json.dumps(document))
    return load(path)


def found(report: ScannerReport) -> list[tuple[str, str, str, Vulnerability]]:
    return [(each.kind, each.name, each.version, found) for each, found in report.findings]


OPENSSL = ("Debian", "openssl", "1.0")


def test_trivy(tmp_path: Path) -> None:
    report = read(tmp_path, TRIVY)
    assert (report.tool, report.day, set(report.digests)) == (
        "Trivy 0.71.0",
        "2026-11-20",
        {MANIFEST, CONFIG},
    )
    assert report.covers == {"Debian", "Python"}
    assert found(report) == [
        (*OPENSSL, Vulnerability("CVE-2026-0001", "1.2", ("DSA-6001-1",), "HIGH")),
        ("Python", "Demo.Package", "1.0", Vulnerability("GHSA-aaaa-bbbb-cccc", "1.9.1, 2.0", (), "CRITICAL")),
    ]


def test_trivy_covers_what_it_scanned(tmp_path: Path) -> None:
    assert read(tmp_path, {**TRIVY, "Results": [TRIVY["Results"][0]]}).covers == {"Debian"}


def test_grype(tmp_path: Path) -> None:
    report = read(tmp_path, GRYPE)
    assert (report.tool, report.day, set(report.digests)) == (
        "Grype 0.115.0",
        "2026-11-21",
        {MANIFEST, CONFIG},
    )
    assert report.covers == {"Debian", "Python"}
    vulnerability = Vulnerability("CVE-2026-1234", "2.0", ("GHSA-aaaa-bbbb-cccc",), "HIGH")
    assert found(report) == [("Python", "demo-package", "1.0", vulnerability)]


def test_a_basic_scan_of_ecr_covers_debian_packages(tmp_path: Path) -> None:
    report = read(tmp_path, ECR)
    assert (report.tool, report.day, set(report.digests)) == (
        "Amazon ECR basic scan",
        "2026-11-22",
        {MANIFEST},
    )
    assert report.covers == {"Debian"}
    assert found(report) == [(*OPENSSL, Vulnerability("CVE-2026-0001", "", (), "HIGH"))]


def test_an_enhanced_scan_of_ecr(tmp_path: Path) -> None:
    report = read(tmp_path, INSPECTOR)
    assert (report.tool, report.dismissed) == ("Amazon ECR enhanced scan", 1)
    assert report.covers == {"Debian", "Python"}
    fixed = Vulnerability("CVE-2026-0001", "1:9.2p1-2+deb12u10", (), "MEDIUM")
    assert found(report) == [
        ("Debian", "openssh-client", "1:9.2p1-2+deb12u6", fixed),
        ("Python", "demo-package", "1.0", Vulnerability("CVE-2026-0001", "", (), "MEDIUM")),
    ]


def test_cyclonedx(tmp_path: Path) -> None:
    report = read(tmp_path, CYCLONEDX)
    assert (report.tool, report.day) == ("CycloneDX of trivy 0.71.0", "2026-11-23")
    assert (set(report.digests), set(report.covers), report.dismissed) == ({MANIFEST, CONFIG}, set(), 1)
    assert found(report) == [
        (*OPENSSL, Vulnerability("CVE-2026-0001", "1.2", ("GHSA-x",), "HIGH")),
        ("Python", "demo-package", "1.0", Vulnerability("CVE-2026-0001", "", ("GHSA-x",), "HIGH")),
    ]


def test_sarif(tmp_path: Path) -> None:
    report = read(tmp_path, SARIF)
    assert (report.tool, set(report.digests), report.dismissed) == ("Trivy 0.71.0", {MANIFEST, CONFIG}, 1)
    assert report.covers == frozenset()
    assert report.findings == (
        (ScannedPackage("other", "openssl", "1.0"), Vulnerability("CVE-2026-0001", "1.2")),
        (ScannedPackage("other", "contents of the image", ""), Vulnerability("DS002", "")),
    )


def test_control_characters_do_not_reach_the_terminal(tmp_path: Path) -> None:
    driver = {"name": "Tri\x1b[2Jvy", "version": "1"}
    run = {**SARIF["runs"][0], "tool": {"driver": driver}}
    assert read(tmp_path, {**SARIF, "runs": [run]}).tool == "Tri [2Jvy 1"


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({**ECR, "imageScanStatus": {"status": "IN_PROGRESS"}}, "the status of the scan is IN_PROGRESS"),
        ({**ECR, "nextToken": "abc"}, "it is only one page of the findings"),
        (
            {key: value for key, value in CYCLONEDX.items() if key != "vulnerabilities"},
            "it has no `vulnerabilities`: it is a bill of materials without a scan",
        ),
        ({**SARIF, "runs": []}, "it has 0 runs, not one"),
        ({**GRYPE, "source": {"type": "directory"}}, "`source.type` is `directory`, not `image`"),
        ({**TRIVY, "Results": [{"Vulnerabilities": [{}]}]}, "PkgName"),
        ({**TRIVY, "Results": {"a": 1}}, "`Results` must be a list"),
    ],
)
def test_an_incomplete_or_damaged_report_is_an_error(tmp_path: Path, document: object, reason: str) -> None:
    with pytest.raises(RecipeError) as caught:
        read(tmp_path, document)
    assert reason in caught.value.diagnostics[0].message


def test_an_unknown_format_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RecipeError) as caught:
        read(Path(), {"a": 1})
    assert error_text(caught.value) == (
        "error: `report.json` is not a report of a scanner: its format is unknown\n"
        "  --> report.json:1:1\n\n"
        "hint: use JSON of Trivy, Grype or `aws ecr describe-image-scan-findings`, CycloneDX or SARIF\n"
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"runs": [}', "it is not valid JSON: Expecting value: line 1 column 11 (char 10)"),
        ("[" * 100_000, "it is not valid JSON: it is nested too deeply"),
    ],
)
def test_a_text_that_is_not_json_is_an_error(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "report.json"
    path.write_text(text)
    with pytest.raises(RecipeError) as caught:
        load(path)
    assert caught.value.diagnostics[0].message.endswith(f": {reason}")
