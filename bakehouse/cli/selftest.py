"""The `test` task: linters, types, and tests with and without an engine."""

import os
import subprocess
import sys
import time

from bakehouse.catalog.project import HOME, IS_CHECKOUT
from bakehouse.engine import provision
from bakehouse.errors import BakehouseError, Diagnostic, UsageError
from bakehouse.util.format import format_seconds
from bakehouse.util.terminal import Reporter


class SelfTestError(BakehouseError):
    """A linter, the type checker or a test failed."""

    exit_code = 1


_SIDE_BY_SIDE = ("-n", "auto", "--maxprocesses", "8", "--dist", "worksteal")
_FILE_BY_FILE = ("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")
"""Engine tests mostly wait, and the tests of a file share fixtures."""
_ENVIRONMENT = {"BAKEHOUSE_KEEP_REGISTRY": "0"}
"""Registries of tests end with the last process that uses them."""
_CHECKS = {
    "ruff check": ("ruff", "check", "."),
    "ruff format": ("ruff", "format", "--check", "."),
    "mypy --strict": ("mypy",),
    "tests without an engine": ("pytest", "-q", *_SIDE_BY_SIDE, "--ignore=tests/integration"),
}
_ENGINE_TESTS = {
    "tests with an engine": ("pytest", "-v", *_FILE_BY_FILE, "--durations=15", "tests/integration")
}
_PROJECT_TESTS = {
    "projects of customers": (
        *("pytest", "-v", "--projects", "--durations=15", "tests/integration/test_projects.py"),
    )
}


def run(report: Reporter, *, pure: bool, projects: bool) -> None:
    """Run all checks, the fast ones first. A failed check does not stop the others. Raises UsageError."""
    if not IS_CHECKOUT:
        message = "the tests of Bakehouse are not part of the installed package"
        raise UsageError(Diagnostic(message, hint="run `./bake test` in a checkout of Bakehouse"))
    if pure and projects:
        message = "`--pure` cannot be combined with `--projects`"
        raise UsageError(Diagnostic(message, hint="the projects of customers need an engine"))
    failed = []
    checks = _PROJECT_TESTS if projects else _CHECKS if pure else _CHECKS | _ENGINE_TESTS
    for name, (tool, *words) in checks.items():
        if name not in _CHECKS:
            provision.ensure(provision.ask_at_terminal, report)
            provision.ensure_tools(provision.ask_at_terminal, report, "mmdebstrap", "docker-registry")
        report(f"--- {name}")
        began = time.monotonic()
        command = [sys.executable, "-m", tool, *words]
        if subprocess.run(command, cwd=HOME, env=os.environ | _ENVIRONMENT, check=False).returncode:
            failed.append(name)
        result = "failed" if name in failed else "passed"
        report(f"--- {name}: {result} in {format_seconds(time.monotonic() - began)}")
    if failed:
        raise SelfTestError(Diagnostic("failed: " + ", ".join(failed)))
