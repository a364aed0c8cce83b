"""Sizes of built images as `bake sizes` last read them, for the fleet report."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bakehouse.analysis.sizes import ImageSize, OwnedDirectory, PartSize
from bakehouse.plan.model import ImageKey
from bakehouse.util.files import write_whole
from bakehouse.util.json_reader import parse_json


@dataclass(frozen=True, slots=True)
class SizeRecord:
    """The size of a built image, by component and by directory of a component, largest first."""

    stored: int
    unpacked: int
    parts: Sequence[PartSize]
    directories: Sequence[OwnedDirectory]


def record_size(size: ImageSize, key: ImageKey, state: Path) -> None:
    """Record the size of an image with this build key."""
    record = SizeRecord(size.stored, size.unpacked, size.parts, size.owned)
    content = {"key": key, **asdict(record)}
    write_whole(_path(size.image, state), json.dumps(content, indent=1) + "\n")


def load_size(image: str, key: ImageKey, state: Path) -> SizeRecord | None:
    """Return the recorded size of an image with this build key; None if there is none."""
    try:
        content = parse_json(_path(image, state).read_bytes())
        if content["key"] != key:
            return None
        parts = tuple(
            PartSize(str(part["name"]), int(part["layers"]), int(part["stored"]), int(part["unpacked"]))
            for part in content["parts"]
        )
        directories = tuple(
            OwnedDirectory(str(row["owner"]), str(row["path"]), int(row["bytes"]), int(row["files"]))
            for row in content["directories"]
        )
        return SizeRecord(int(content["stored"]), int(content["unpacked"]), parts, directories)
    except (OSError, ValueError, KeyError, TypeError):
        # Missing or damaged: `bake sizes` writes it again
        return None


def _path(image: str, state: Path) -> Path:
    return state / "sizes" / f"{image}.json"
