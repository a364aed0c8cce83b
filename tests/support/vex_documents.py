"""VEX documents, which waive vulnerabilities."""

import json
from datetime import date
from pathlib import Path
from typing import Any

TODAY = date(2026, 11, 25)
OPENSSL: dict[str, Any] = {"@id": "pkg:deb/debian/libssl3"}


def statement(*products: dict[str, Any], name: str = "CVE-2026-0001", **fields: Any) -> dict[str, Any]:
    return {
        "vulnerability": {"name": name},
        "products": list(products or (OPENSSL,)),
        "status": "not_affected",
        "justification": "vulnerable_code_not_in_execute_path",
        "status_notes": "expires: 2027-01-31",
        **fields,
    }


def write(root: Path, *statements: object, **fields: Any) -> None:
    document = {
        "@context": "https://openvex.dev/ns/v0.2.0",
        "@id": "https://example.com/vex/1",
        "author": "platform@example.com",
        "timestamp": "2026-11-20T00:00:00Z",
        "version": 1,
        "statements": statements,
        **fields,
    }
    (root / ".vex").mkdir(exist_ok=True)
    (root / ".vex/waivers.json").write_text(json.dumps(document, indent=1))
