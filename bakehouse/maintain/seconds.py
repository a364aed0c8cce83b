"""Seconds of slow tests and shared fixtures, recorded in `tests/seconds.json`."""

import json
import os
import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from bakehouse.catalog.project import HOME
from bakehouse.util.files import write_whole

RECORD = HOME / "tests/seconds.json"
PAGE = HOME / "tests/slowest.md"
_KEPT_FROM, _KEPT_TO = 0.7, 1.4
"""Ratios of a new value to the recorded one that keep the recorded one, so that few lines change."""
_GROWN_SECONDS = 2.0
_HEAD = """\
# Slowest tests

`./bake test --record` writes this page. Tests without an engine have seconds of processor time; others have
elapsed seconds. A fixture of several tests has a row of its own.

"""

Record = Mapping[str, Mapping[str, Any]]
"""Results of each tier: commit, date, machine, minutes, number of passed tests, seconds by name."""


def read() -> Record:
    """Return the record; an empty one if there is none."""
    return json.loads(RECORD.read_text())["tiers"] if RECORD.exists() else {}


def merge(record: Record, tier: str, *, seconds: Mapping[str, float], minutes: float, passed: int) -> Record:
    """Return the record with a new run of a tier."""
    before = record.get(tier, {}).get("seconds", {})
    result = {
        "commit": _commit(),
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        "minutes": _rounded(minutes),
        "passed": passed,
        "seconds": {name: _kept(before.get(name), value) for name, value in sorted(seconds.items())},
    }
    return {**record, tier: result}


def write(record: Record) -> None:
    """Write the record and the page of the hundred slowest tests."""
    document = {"format": 1, "tiers": record}
    write_whole(RECORD, json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    write_whole(PAGE, page(record))


def page(record: Record) -> str:
    """Return the page of the hundred slowest tests and fixtures."""
    rows = [(value, tier, name) for tier in record for name, value in record[tier]["seconds"].items()]
    slowest = sorted(rows, key=lambda row: (-row[0], row[2]))[:100]
    lines = ["| seconds | tier | test |", "|---|---|---|"]
    lines += [
        f"| {value:g} | {tier} | `{name.replace('|', chr(92) + '|')}` |" for value, tier, name in slowest
    ]
    runs = [
        f"- {tier}: {run['passed']} passed in {run['minutes']:g} min, {run['date']}, commit {run['commit']}, "
        f"{run['machine']}\n"
        for tier, run in sorted(record.items())
    ]
    return _HEAD + "".join(runs) + "\n" + "\n".join(lines) + "\n"


def grown(record: Record, tier: str, seconds: Mapping[str, float]) -> tuple[str, ...]:
    """Return lines about tests that became slower, the worst first; without a record of the tier, none."""
    if tier not in record:
        return ()
    before = record[tier]["seconds"]
    growth = {name: value - before.get(name, 0.0) for name, value in seconds.items()}
    names = [
        name
        for name in sorted(growth, key=lambda name: -growth[name])
        if growth[name] >= _GROWN_SECONDS and seconds[name] >= 2 * before.get(name, 0.0)
    ]
    was = {name: f"{value:g} s" for name, value in before.items()}
    return tuple(f"{name}: {seconds[name]:.2g} s, was {was.get(name, 'below 0.5 s')}" for name in names[:10])


def seconds_of_files(record: Record, tier: str) -> dict[str, float]:
    """Return the recorded seconds of each test file."""
    files: dict[str, float] = {}
    for name, value in record.get(tier, {}).get("seconds", {}).items():
        # `file::test`, or `file: fixture name`
        file = name.partition(":")[0]
        files[file] = files.get(file, 0.0) + value
    return files


def _kept(before: float | None, value: float) -> float:
    is_similar = before is not None and _KEPT_FROM * before <= value <= _KEPT_TO * before
    return before if before is not None and is_similar else _rounded(value)


def _rounded(value: float) -> float:
    return float(f"{value:.2g}")


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty", "--abbrev=8", "--exclude=*"]
    result = subprocess.run(command, cwd=HOME, capture_output=True, text=True, check=False)
    return result.stdout.strip() or "not known"
