"""Plugin for pytest: numbers of a run as JSON, for `./bake test`, and tests that only its options run."""

import json
from collections import Counter
from collections.abc import Set
from pathlib import Path
from typing import Any

import pytest
from _pytest.terminal import TerminalReporter


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--counts", type=Path, help="write the numbers of tests to this file")
    parser.addoption("--tests", type=Path, help="write the collected and the selected tests to this file")
    parser.addoption("--projects", action="store_true", help="take all projects of customers to a release")
    parser.addoption("--docs", action="store_true", help="run the slow commands of the guides")


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Any:
    """Leave slow tests to their own commands; note the tests before any are deselected."""
    collected = [item.nodeid for item in items]
    left = {marker for marker in ("projects", "docs") if not config.getoption(marker)}
    config.hook.pytest_deselected(items=[item for item in items if _has_marker(item, left)])
    items[:] = [item for item in items if not _has_marker(item, left)]
    yield
    if path := config.getoption("tests"):
        document = {"collected": collected, "selected": [item.nodeid for item in items]}
        path.write_text(json.dumps(document))


def _has_marker(item: pytest.Item, names: Set[str]) -> bool:
    return any(marker.name in names for marker in item.iter_markers())


def pytest_terminal_summary(terminalreporter: TerminalReporter, config: pytest.Config) -> None:
    if path := config.getoption("counts"):
        assert terminalreporter._session
        path.write_text(json.dumps(counts(terminalreporter.stats, terminalreporter._session.testscollected)))


def counts(stats: dict[str, list[Any]], selected: int) -> dict[str, Any]:
    """Return the numbers of the terminal's report. A test with several results has the worst one."""
    failed = _names(stats, "failed", "error")
    passed = _names(stats, "passed", "xpassed") - failed
    reasons = {
        report.nodeid: _reason(report) for kind in ("skipped", "xfailed") for report in stats.get(kind, ())
    }
    skipped = {name: reason for name, reason in reasons.items() if name not in failed | passed}
    # Modules that cannot be collected, or skip themselves, have no tests.
    modules = sum("::" not in name for name in failed | skipped.keys())
    return {
        "selected": selected + modules,
        "passed": len(passed),
        "failed": len(failed),
        "skipped": Counter(skipped.values()),
    }


def _names(stats: dict[str, list[Any]], *kinds: str) -> set[str]:
    return {report.nodeid for kind in kinds for report in stats.get(kind, ())}


def _reason(report: Any) -> str:
    if hasattr(report, "wasxfail"):
        return f"expected to fail: {report.wasxfail}"
    return str(report.longrepr[2]).removeprefix("Skipped: ")
