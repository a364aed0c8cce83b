"""Records of the OSV database."""

import json
import zipfile
from pathlib import Path
from typing import Any

RANGE: dict[str, Any] = {"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "2.0"}]}


def record(id: str = "GHSA-aaaa-bbbb-cccc", package: str = "Demo.Package", **fields: Any) -> dict[str, Any]:
    """A record with the fields that the export of PyPI has."""
    affected = {
        "package": {"name": package, "ecosystem": "PyPI", "purl": f"pkg:pypi/{package}"},
        "ranges": fields.pop("ranges", [RANGE]),
        "versions": fields.pop("versions", []),
    }
    return {
        "schema_version": "1.7.3",
        "id": id,
        "modified": "2026-11-20T04:12:31.5Z",
        "published": "2026-11-01T00:00:00Z",
        "summary": "A demonstration",
        "affected": [affected],
        **fields,
    }


def written(directory: Path, *records: object) -> Path:
    """Write a snapshot as the export is published."""
    path = directory / "all.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for number, content in enumerate(records):
            archive.writestr(f"{number}.json", json.dumps(content))
    return path


def events(*pairs: tuple[str, str]) -> list[dict[str, Any]]:
    return [{"type": "ECOSYSTEM", "events": [{kind: version} for kind, version in pairs]}]
