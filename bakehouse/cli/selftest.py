"""The `test` task: linters, types, and tests with and without an engine."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bakehouse.catalog.project import HOME, IS_CHECKOUT
from bakehouse.engine import daemon_info, provision
from bakehouse.errors import BakehouseError, Diagnostic, UsageError
from bakehouse.util.format import format_bytes, format_seconds
from bakehouse.util.terminal import Reporter


class SelfTestError(BakehouseError):
    """A linter, the type checker or a test failed."""

    exit_code = 1


_SIDE_BY_SIDE = ("-n", "auto", "--maxprocesses", "8", "--dist", "worksteal")
_FILE_BY_FILE = ("-n", "3", "--dist", "loadfile", "--no-loadscope-reorder")
"""Engine tests mostly wait, and the tests of a file share fixtures."""
_AT_LOW_PRIORITY = ("nice", "-n", "5")
"""At 19 a command of a test takes a minute to start while the engine is busy."""
_ENGINE_BYTES = 25 * 10**9
"""Disk usage of the tests with an engine that has no images yet: 21 GB were measured."""
_TEMPORARY_BYTES = 3 * 10**9
"""Disk usage of temporary files."""
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
    "mypy --strict": (*_PYTHON, "mypy"),
}
_PURE = "tests without an engine"
_PURE_TESTS = (*_PYTHON, "pytest", "-q", *_SIDE_BY_SIDE, "--ignore=tests/integration")
_ENGINE = "tests with an engine"
_ENGINE_TESTS = (*_PYTHON, "pytest", "-v", *_FILE_BY_FILE, "--durations=15", "tests/integration")
_PROJECT_TESTS = (
    *(*_PYTHON, "pytest", "-v", "--projects", "--durations=15"),
    *("tests/integration/test_projects.py", "tests/integration/test_extend_aws.py"),
)


def run(report: Reporter, *, pure: bool, projects: bool) -> None:
    """Run all checks, the fast ones first. A failed check does not stop the others. Raises UsageError."""
    if not IS_CHECKOUT:
        message = "the tests of Bakehouse are not part of the installed package"
        raise UsageError(Diagnostic(message, hint="run `./bake test` in a checkout of Bakehouse"))
    if pure and projects:
        message = "`--pure` cannot be combined with `--projects`"
        raise UsageError(Diagnostic(message, hint="the projects of customers need an engine"))
    checks = _Checks(report)
    _check_space(report, Path(tempfile.gettempdir()), _TEMPORARY_BYTES)
    if projects:
        _provide_engine(report)
        checks.run("projects of customers", _PROJECT_TESTS)
    else:
        for name, command in _LINTERS.items():
            checks.run(name, command)
        if pure:
            checks.run(_PURE, _PURE_TESTS)
        else:
            _provide_engine(report)
            # Engine tests leave much of the processors idle.
            with checks.running_beside(_PURE, (*_AT_LOW_PRIORITY, *_PURE_TESTS)):
                checks.run(_ENGINE, _ENGINE_TESTS)
    if checks.failed:
        raise SelfTestError(Diagnostic("failed: " + ", ".join(checks.failed)))


def _provide_engine(report: Reporter) -> None:
    provision.ensure(provision.ask_at_terminal, report)
    provision.ensure_tools(provision.ask_at_terminal, report, "mmdebstrap", "docker-registry")
    engine = daemon_info.probe()
    if isinstance(engine, daemon_info.Daemon) and not engine.remote:
        _check_space(report, Path(engine.data_root), _ENGINE_BYTES)


def _check_space(report: Reporter, directory: Path, needed: int) -> None:
    """Warn if a disk has little space. An engine that has the images already needs less."""
    free = shutil.disk_usage(directory).free
    if free < needed:
        report(
            f"warning: {directory} has {format_bytes(free)} of free space, but these tests need up to "
            f"{format_bytes(needed)}"
        )


class _Checks:
    """Runs checks and remembers the failed ones."""

    def __init__(self, report: Reporter) -> None:
        self._report = report
        self.failed: list[str] = []

    def run(self, name: str, command: Sequence[str]) -> None:
        self._report(f"--- {name}")
        began = time.monotonic()
        code = subprocess.run(command, cwd=HOME, env=os.environ | _ENVIRONMENT, check=False).returncode
        self._finish(name, code, began)

    @contextlib.contextmanager
    def running_beside(self, name: str, command: Sequence[str]) -> Iterator[None]:
        """Run a check in the meantime; its output follows at the end."""
        self._report(f"--- {name}: started, the output follows")
        began = time.monotonic()
        with tempfile.TemporaryFile("w+", errors="replace") as output:
            environment = os.environ | _ENVIRONMENT
            process = subprocess.Popen(
                command, cwd=HOME, env=environment, stdout=output, stderr=subprocess.STDOUT
            )
            try:
                yield
                code = process.wait()
            finally:
                process.terminate()
                process.wait()
            self._report(f"--- {name}")
            output.seek(0)
            shutil.copyfileobj(output, sys.stdout)
            sys.stdout.flush()
        self._finish(name, code, began)

    def _finish(self, name: str, code: int, began: float) -> None:
        if code:
            self.failed.append(name)
        result = "failed" if code else "passed"
        self._report(f"--- {name}: {result} in {format_seconds(time.monotonic() - began)}")
