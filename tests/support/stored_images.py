"""Documents of images in the form in which BuildKit stores them."""

import json
from pathlib import Path
from typing import Any

from bakehouse.engine.content_store import StoredFiles
from bakehouse.registry.manifest import digest_of
from bakehouse.util.oci import Digest

DIFF = "application/vnd.docker.image.rootfs.diff.tar"


def digest(number: int) -> Digest:
    return Digest(f"sha256:{number:064x}")


def stored(steps: dict[str, int], indent: int | None = 2, label: str = "") -> StoredFiles:
    """An image whose steps give layers with these numbers; 0 stands for none."""
    history: list[dict[str, Any]] = [
        {"created": "2026", "created_by": step, **({} if number else {"empty_layer": True})}
        for step, number in steps.items()
    ]
    numbers = [number for number in steps.values() if number]
    config = json.dumps(
        {
            "config": {"Labels": {"a": label}},
            "history": history,
            "rootfs": {"diff_ids": [digest(number) for number in numbers], "type": "layers"},
        },
        separators=(",", ":"),
        ensure_ascii=False,
    )
    content = config.replace("&", "\\u0026").encode()
    manifest = {
        "schemaVersion": 2,
        "config": {"digest": digest_of(content), "size": len(content)},
        "layers": [{"mediaType": DIFF, "digest": digest(number), "size": number} for number in numbers],
    }
    return StoredFiles(json.dumps(manifest, indent=indent).encode(), content, Path("/missing"))
