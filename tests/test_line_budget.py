"""Lines of each package and of the tests, and kilobytes of docs: a number falls, or rises with a reason.

`.venv/bin/python -m pytest tests/test_line_budget.py --update-snapshots` writes the numbers of today.
A commit that raises one says why.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping

import pytest

from bakehouse.catalog.project import HOME
from bakehouse.util.files import write_whole

BUDGET = HOME / "tests/line_budget.json"


def measured() -> dict[str, int]:
    """Return the lines of each package and of the tests, and the kilobytes of the docs."""
    sizes: Counter[str] = Counter()
    for path in HOME.glob("bakehouse/**/*.py"):
        package = re.sub(r"^((?:commands/)?[^/]+).*", r"\1", str(path.relative_to(HOME / "bakehouse")))
        sizes[f"bakehouse/{package}"] += path.read_bytes().count(b"\n")
    for path in HOME.glob("tests/**/*.py"):
        sizes["tests"] += path.read_bytes().count(b"\n")
    size = sum(path.stat().st_size for path in HOME.glob("docs/**/*.md"))
    return {**sizes, "docs, in KB": round(size / 1000)}


def differences(budget: Mapping[str, int], sizes: Mapping[str, int]) -> list[str]:
    """Return a line for each number above its budget, or so far below that others could use the rest."""
    lines = []
    for name in sorted({*budget, *sizes}):
        allowed, size = budget.get(name, 0), sizes.get(name, 0)
        if size > allowed:
            lines.append(f"{name}: {size}, {size - allowed} more than its budget")
        elif size < 0.98 * allowed - 20:
            lines.append(f"{name}: {size}, {allowed - size} less than its budget: lower it")
    return lines


def test_each_package_keeps_its_budget(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-snapshots"):
        write_whole(BUDGET, json.dumps(measured(), indent=2, sort_keys=True) + "\n")

    assert differences(json.loads(BUDGET.read_text()), measured()) == []


def test_growth_and_a_budget_that_was_not_lowered_are_found() -> None:
    assert differences({"a": 10, "b": 1000, "c": 1000}, {"a": 11, "b": 959, "c": 970, "d": 1}) == [
        "a: 11, 1 more than its budget",
        "b: 959, 41 less than its budget: lower it",
        "d: 1, 1 more than its budget",
    ]
