"""Documents of vulnerability scanners about one image."""

from typing import Any

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
