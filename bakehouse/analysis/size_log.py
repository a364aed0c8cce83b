"""Sizes of built images as `bake sizes` last read them, for the fleet report."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from bakehouse.analysis.sizes import ImageSize, OwnedDirectory, PartSize
from bakehouse.plan.model import ImageKey
from bakehouse.util import file_format
from bakehouse.util.files import read_bytes, write_whole
from bakehouse.util.json_reader import decode, parse_json

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class SizeRecord:
    """The size of a built image, by component and by directory of a component, largest first."""

    key: ImageKey
    """Build key of the image."""
    stored: int
    unpacked: int
    parts: tuple[PartSize, ...]
    directories: tuple[OwnedDirectory, ...]


def record_size(size: ImageSize, key: ImageKey, state: Path) -> None:
    """Record the size of an image with this build key."""
    record = SizeRecord(key, size.stored, size.unpacked, tuple(size.parts), tuple(size.owned))
    document = file_format.numbered(asdict(record), _FORMAT)
    write_whole(_path(size.image, state), json.dumps(document, indent=1) + "\n")


def load_size(image: str, key: ImageKey, state: Path) -> SizeRecord | None:
    """Return the recorded size of an image with this build key; None if there is none."""
    try:
        document = parse_json(read_bytes(_path(image, state)))
        file_format.require_known(document, _FORMAT)
        record = decode(document, SizeRecord)
    except (OSError, ValueError):
        # Missing, damaged or of a newer Bakehouse: `bake sizes` writes it again
        return None
    return record if record.key == key else None


def _path(image: str, state: Path) -> Path:
    return state / "sizes" / f"{image}.json"
