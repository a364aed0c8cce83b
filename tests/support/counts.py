"""Plugin for pytest: numbers and seconds of a run as JSON, for `./bake test`, and its tests of releases."""

import contextlib
import json
import os
import time
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from _pytest.terminal import TerminalReporter

_SHORTEST = 0.5
"""Seconds of a test or fixture that are reported by its name."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--counts", type=Path, help="write the numbers of tests to this file")
    parser.addoption("--tests", type=Path, help="write the collected and the selected tests to this file")
    parser.addoption("--release", action="store_true", help="run the tests of releases: campaigns, projects")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Stopwatch(), "stopwatch")


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Any:
    """Leave slow tests to their own command; note the tests before any are deselected."""
    collected = [item.nodeid for item in items]
    if not config.getoption("release"):
        config.hook.pytest_deselected(items=[item for item in items if _is_of_releases(item)])
        items[:] = [item for item in items if not _is_of_releases(item)]
    yield
    if path := config.getoption("tests"):
        document = {"collected": collected, "selected": [item.nodeid for item in items]}
        path.write_text(json.dumps(document))


def _is_of_releases(item: pytest.Item) -> bool:
    return item.get_closest_marker("release") is not None


class Stopwatch:
    """Processor and elapsed seconds of each test and each shared fixture; inner ones do not count twice."""

    def __init__(self) -> None:
        self.seconds: dict[str, tuple[float, float]] = {}
        self._running: list[str] = []
        self._last = _now()

    @contextlib.contextmanager
    def measuring(self, name: str) -> Iterator[None]:
        self._charge()
        self._running.append(name)
        try:
            yield
        finally:
            self._charge()
            self._running.pop()

    def _charge(self) -> None:
        now = _now()
        if self._running:
            self.add({self._running[-1]: (now[0] - self._last[0], now[1] - self._last[1])})
        self._last = now

    def add(self, seconds: dict[str, tuple[float, float]]) -> None:
        for name, (processor, elapsed) in seconds.items():
            before = self.seconds.get(name, (0.0, 0.0))
            self.seconds[name] = (before[0] + processor, before[1] + elapsed)

    def document(self) -> dict[str, list[float]]:
        """Return the slow tests and fixtures by name, and the sum of all by an empty name."""
        total = [sum(column) for column in zip(*self.seconds.values(), strict=True)] or [0.0, 0.0]
        slow = {name: list(pair) for name, pair in self.seconds.items() if max(pair) >= _SHORTEST}
        return {"": total, **slow}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        with self.measuring(item.nodeid):
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
        is_shared = fixturedef.scope != "function"
        name = f"{fixturedef.baseid}: fixture {fixturedef.argname}"
        with self.measuring(name) if is_shared else contextlib.nullcontext():
            return (yield)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["seconds"] = self.seconds

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self.add(getattr(node, "workeroutput", {}).get("seconds", {}))


def _now() -> tuple[float, float]:
    """Processor seconds of this process and its ended children, and elapsed seconds."""
    return sum(os.times()[:4]), time.monotonic()


def pytest_terminal_summary(terminalreporter: TerminalReporter, config: pytest.Config) -> None:
    if path := config.getoption("counts"):
        assert terminalreporter._session
        numbers = counts(terminalreporter.stats, terminalreporter._session.testscollected)
        stopwatch: Any = config.pluginmanager.get_plugin("stopwatch")
        path.write_text(json.dumps(numbers | {"seconds": stopwatch.document()}))


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
