"""Reports in the shapes that scanners write."""

import json
from pathlib import Path
from typing import Any

import pytest

from bakehouse.commands.security.findings import Vulnerability
from bakehouse.commands.security.scanner_reports import ScannerReport, load
from bakehouse.errors import RecipeError
from tests.commands.security.scanner_documents import CONFIG, LAYER, MANIFEST, NAME, TRIVY
from tests.support.errors import raised, refusal

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


def test_control_characters_do_not_reach_the_terminal(tmp_path: Path) -> None:
    assert read(tmp_path, {**TRIVY, "Trivy": {"Version": "1\x1b[2J0"}}).tool == "Trivy 1 [2J0"


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({**ECR, "imageScanStatus": {"status": "IN_PROGRESS"}}, "the status of the scan is IN_PROGRESS"),
        ({**ECR, "nextToken": "abc"}, "it is only one page of the findings"),
        ({**GRYPE, "source": {"type": "directory"}}, "`source.type` is `directory`, not `image`"),
        ({**TRIVY, "Results": [{"Vulnerabilities": [{}]}]}, "PkgName"),
        ({**TRIVY, "Results": {"a": 1}}, "`Results` must be a list"),
    ],
)
def test_an_incomplete_or_damaged_report_is_an_error(tmp_path: Path, document: object, reason: str) -> None:
    assert reason in raised(RecipeError, read, tmp_path, document).diagnostics[0].message


def test_an_unknown_format_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert refusal(RecipeError, read, Path(), {"a": 1}) == (
        "error: `report.json` is not a report of a scanner: its format is unknown\n"
        "  --> report.json:1:1\n\n"
        "hint: use JSON of Trivy, Grype or `aws ecr describe-image-scan-findings`\n"
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
    assert raised(RecipeError, load, path).diagnostics[0].message.endswith(f": {reason}")
