"""Reader of `images/runs.json`, in which earlier versions recorded smoke tests."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bakehouse.plan.model import Image
from bakehouse.util import file_format
from bakehouse.util.files import is_file, read_bytes
from bakehouse.util.format import format_count
from bakehouse.util.json_reader import decode, parse_json

_FORMAT, _FORMAT_KEY = 1, "$format"


@dataclass(frozen=True, slots=True)
class SmokeRun:
    """Numbers of the results of a smoke test."""

    date: str
    passed: int
    not_tested: int
    failed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Run:
    """Record of an image; without a smoke test it is about a build or a rehearsal."""

    key: str
    smoke: SmokeRun | None = None


def read(images: Path) -> dict[str, Run]:
    """Return the records by image. Raises RecipeError if they cannot be read."""
    path = images / "runs.json"
    if not is_file(path):
        return {}
    with file_format.reading(path):
        document = parse_json(read_bytes(path))
        file_format.require_known(document, _FORMAT, _FORMAT_KEY)
        records = decode(document, dict[str, Any])
        return {name: decode(run, Run, name) for name, run in records.items() if name != _FORMAT_KEY}


def earlier_test(image: Image, records: dict[str, Run]) -> str:
    """Return the recorded smoke test of an image as text. It does not say which checks gave its results."""
    record = records.get(image.name)
    if record is None or record.smoke is None or record.key != image.key:
        return ""
    smoke = record.smoke
    failed = f", {len(smoke.failed)} failed" if smoke.failed else ""
    return f"not known; on {smoke.date} {format_count(smoke.passed, 'check')} passed{failed}"
