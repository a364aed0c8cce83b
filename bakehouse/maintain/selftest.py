"""The `test` task: linters, types, and tests with and without an engine."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bakehouse.catalog.project import HOME
from bakehouse.engine import docker, provision
from bakehouse.errors import BakehouseError, UsageError
from bakehouse.maintain import seconds
from bakehouse.util.format import format_bytes, format_seconds
from bakehouse.util.terminal import Reporter


class SelfTestError(BakehouseError):
    """A linter, the type checker or a test failed."""

    exit_code = 1


_SIDE_BY_SIDE = ("-n", "auto", "--maxprocesses", "8", "--dist", "worksteal")
_FILE_BY_FILE = ("-n", "3", "--dist", "loadfile", "--no-loadscope-reorder")
"""Engine tests mostly wait, and the tests of a file share fixtures."""
_AT_LOW_PRIORITY = ("nice", "-n", "5")
"""With 19, a command of a test takes a minute to start while the engine is busy."""
_ENGINE_BYTES = 25 * 10**9
"""Disk usage of the tests with an engine that has no images yet: 21 GB were measured."""
_TEMPORARY_BYTES = 3 * 10**9
_ENVIRONMENT = {
    # Registries of tests end with the last process that uses them.
    "BAKEHOUSE_KEEP_REGISTRY": "0",
    # Without bytecode, each of the many processes compiles all modules again: 1.9 s instead of 0.7 s.
    "PYTHONDONTWRITEBYTECODE": "",
}
_PYTHON = (sys.executable, "-m")
_LINTERS = {
    "ruff check": (*_PYTHON, "ruff", "check", "."),
    "ruff format": (*_PYTHON, "ruff", "format", "--check", "."),
    "codespell": (*_PYTHON, "codespell_lib"),
}
_TYPES = {
    "mypy --strict": (*_PYTHON, "mypy"),
    # With separate caches, the two runs do not invalidate each other's. Tests run on Linux only.
    # `--pure` runs the first check alone.
    "mypy --strict --platform darwin": (
        *(*_PYTHON, "mypy", "--platform", "darwin", "--cache-dir", ".mypy_cache/darwin"),
        *("bakehouse", "tasks.py"),
    ),
}
_PYTEST = (*_PYTHON, "pytest")
PURE = "tests without an engine"
ENGINE = "tests with an engine"
RELEASE = "tests before a release"
TIERS: dict[str, Sequence[str]] = {
    PURE: (*_PYTEST, "-q", *_SIDE_BY_SIDE, "--ignore=tests/integration"),
    ENGINE: (*_PYTEST, "-v", *_FILE_BY_FILE, "--durations=15", "tests/integration"),
    RELEASE: (*_PYTEST, "-v", "--release", "-m", "release", "--durations=15", "tests"),
}
"""Commands that together run all tests; `tests/test_collection.py` compares them with the test files."""
_COLLECTION = (*_PYTEST, "-q", "--collect-only", "--release")
"""Command that collects the tests of all tiers."""


@dataclass(frozen=True)
class Counts:
    """Numbers of tests in the report of one pytest run."""

    selected: int
    """Tests that the run began with."""
    passed: int = 0
    failed: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)
    """Number of skipped tests by reason."""
    seconds: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Processor and elapsed seconds of slow tests and fixtures; those of all by an empty name."""

    def measured(self, tier: str) -> dict[str, float]:
        """Return the slow tests: with an engine, most of their work is in other processes."""
        column = 0 if tier == PURE else 1
        named = {name: pair[column] for name, pair in self.seconds.items() if name}
        return {name: value for name, value in named.items() if value >= 0.5}

    @property
    def unfinished(self) -> int:
        return self.selected - self.passed - self.failed - sum(self.skipped.values())


@dataclass(frozen=True)
class Summary:
    """Results of all checks of one run."""

    failed: Sequence[str]
    """Names of checks that failed."""
    counts: Mapping[str, Counts | None]
    """Numbers of each tier; None if its run ended without a report."""
    tests: int | None = None
    """Number of tests in all tiers; None if it is not known."""

    def text(self) -> str:
        """Return the numbers of each tier, and a last line with those of all, for readers of CI logs."""
        lines: list[str] = []
        for name, counts in self.counts.items():
            if counts is None:
                lines.append(f"{name}: not known, because pytest ended without a report")
                continue
            left = "not known" if self.tests is None else self.tests - counts.selected
            lines.append(f"{name}: {_totals([counts])}; in other tiers: {left}")
            lines += [f"  {number} skipped: {reason}" for reason, number in sorted(counts.skipped.items())]
            if counts.unfinished:
                lines.append(f"  {counts.unfinished} not known, because the run ended before they did")
        known = [counts for counts in self.counts.values() if counts and not counts.unfinished]
        # A sum without the missing numbers would look like a complete run.
        total = _totals(known) if len(known) == len(self.counts) else "number of passed tests: not known"
        return "".join(f"{line}\n" for line in (*lines, total))


def _totals(runs: Sequence[Counts]) -> str:
    skipped = sum(sum(counts.skipped.values()) for counts in runs)
    passed, failed = (sum(numbers) for numbers in zip(*((c.passed, c.failed) for c in runs), strict=True))
    return f"{passed} passed, {failed} failed, {skipped} skipped"


def run(report: Reporter, *, pure: bool = False, release: bool = False, record: bool = False) -> Summary:
    """Run all checks, the fast ones first. A failed check does not stop the others. Raises UsageError."""
    if pure and release:
        raise UsageError("`--pure` and `--release` cannot be combined", hint="run `test` once for each")
    temporary = tempfile.gettempdir()
    _check_space(report, temporary, shutil.disk_usage(temporary).free, _TEMPORARY_BYTES)
    with tempfile.TemporaryDirectory() as directory:
        checks = _Checks(report, Path(directory))
        with checks.collecting():
            if release:
                _provide_engine(report)
                checks.run_tier(RELEASE)
            else:
                for name, command in _LINTERS.items():
                    checks.run(name, command)
                types = list(_TYPES.items())
                # A type checker uses one processor, and engine tests leave much of the processors idle.
                with contextlib.ExitStack() as stack:
                    if pure:
                        stack.enter_context(checks.running_beside(*types[0]))
                        checks.run_tier(PURE)
                    else:
                        _provide_engine(report)
                        for check in ((PURE, ()), *reversed(types)):
                            stack.enter_context(checks.running_beside(*check))
                        checks.run_tier(ENGINE)
        checks.compare(record=record)
        # Checks that run at the same time end in any order.
        return Summary(tuple(sorted(checks.failed)), dict(sorted(checks.counts.items())), checks.all_tests())


def _provide_engine(report: Reporter) -> None:
    provision.ensure(provision.ask_or_agree, report)
    with contextlib.closing(docker.connect()) as engine:
        free = engine.host().free
    if free is not None:
        _check_space(report, "the engine's disk", free, _ENGINE_BYTES)


def _check_space(report: Reporter, disk: str, free: int, needed: int) -> None:
    """Warn if a disk has little space. An engine that has the images already needs less."""
    if free < needed:
        report(
            f"warning: {disk} has {format_bytes(free)} of free space, but these tests need up to "
            f"{format_bytes(needed)}"
        )


class _Checks:
    """Runs checks and remembers the failed ones and the numbers of tests."""

    def __init__(self, report: Reporter, directory: Path) -> None:
        self._report = report
        self._directory = directory
        """For the reports of pytest."""
        self.failed: list[str] = []
        self.counts: dict[str, Counts | None] = {}
        self._minutes: dict[str, float] = {}
        self._printing = threading.Lock()

    def run(self, name: str, command: Sequence[str]) -> None:
        self._report(f"--- {name}")
        began = time.monotonic()
        code = subprocess.run(command, cwd=HOME, env=os.environ | _ENVIRONMENT, check=False).returncode
        self._finish(name, code, began)

    def run_tier(self, name: str) -> None:
        self._report(f"--- {name}")
        began = time.monotonic()
        command = self._counted(name, TIERS[name])
        code = subprocess.run(command, cwd=HOME, env=os.environ | _ENVIRONMENT, check=False).returncode
        self._finish_tier(name, code, began)

    @contextlib.contextmanager
    def running_beside(self, name: str, command: Sequence[str] = ()) -> Iterator[None]:
        """Run a tier, or a command, in the meantime; its output follows when it ends."""
        self._report(f"--- {name}: started, the output follows")
        began = time.monotonic()
        with tempfile.TemporaryFile("w+", errors="replace") as output:
            process = subprocess.Popen(
                (*_AT_LOW_PRIORITY, *(command or self._counted(name, TIERS[name]))),
                cwd=HOME,
                env=os.environ | _ENVIRONMENT,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

            def finish() -> None:
                code = process.wait()
                with self._printing:
                    self._report(f"--- {name}")
                    output.seek(0)
                    shutil.copyfileobj(output, sys.stdout)
                    sys.stdout.flush()
                    if command:
                        self._finish(name, code, began)
                    else:
                        self._finish_tier(name, code, began)

            follower = threading.Thread(target=finish)
            follower.start()
            try:
                yield
                follower.join()
            finally:
                process.terminate()
                follower.join()

    @contextlib.contextmanager
    def collecting(self) -> Iterator[None]:
        """Collect the tests of all tiers in the meantime."""
        process = subprocess.Popen(
            (*_AT_LOW_PRIORITY, *self._counted("all", _COLLECTION)),
            cwd=HOME,
            env=os.environ | _ENVIRONMENT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield
            process.wait()
        finally:
            process.terminate()
            process.wait()

    def compare(self, *, record: bool) -> None:
        """Report tests that became slower; on request, record tiers that passed."""
        recorded = seconds.read()
        for name, counts in self.counts.items():
            if counts is None:
                continue
            measured = counts.measured(name)
            for line in seconds.grown(recorded, name, measured):
                self._report(f"slower than recorded: {line}")
            if record and name not in self.failed:
                minutes = self._minutes[name]
                recorded = seconds.merge(
                    recorded, name, seconds=measured, minutes=minutes, passed=counts.passed
                )
        if record:
            seconds.write(recorded)

    def all_tests(self) -> int | None:
        """Return the number of tests that pytest collected for all tiers; None if it failed."""
        counts = self._read("all")
        return counts.selected if counts else None

    def _counted(self, name: str, command: Sequence[str]) -> tuple[str, ...]:
        return (*command, f"--counts={self._directory / name}")

    def _read(self, name: str) -> Counts | None:
        path = self._directory / name
        return Counts(**json.loads(path.read_text())) if path.is_file() else None

    def _finish_tier(self, name: str, code: int, began: float) -> None:
        self.counts[name] = counts = self._read(name)
        self._finish(name, code or counts is None, began)

    def _finish(self, name: str, failed: int, began: float) -> None:
        if failed:
            self.failed.append(name)
        elapsed = time.monotonic() - began
        self._minutes[name] = elapsed / 60
        self._report(f"--- {name}: {'failed' if failed else 'passed'} in {format_seconds(elapsed)}")
