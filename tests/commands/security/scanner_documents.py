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
                }
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
                }
            ],
        },
        {"Target": "Java", "Class": "lang-pkgs", "Type": "jar"},
    ],
}
