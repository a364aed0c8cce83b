"""Runs what has to hold before anything lands: lint, types, and the tests with and without an engine."""

import subprocess
import sys
import time

from bakehouse.catalog.project import HOME
from bakehouse.engine import provision
from bakehouse.errors import BakehouseError, Diagnostic
from bakehouse.util.format import format_seconds
from bakehouse.util.terminal import Reporter


class SelfTestError(BakehouseError):
    """A linter, the type checker or a test failed."""

    exit_code = 1


_SIDE_BY_SIDE = ("-n", "auto", "--maxprocesses", "8", "--dist", "worksteal")
_FILE_BY_FILE = ("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")
"""Tests with an engine mostly wait, and those of a file share what they wait for."""
_CHECKS = {
    "ruff check": ("ruff", "check", "."),
    "ruff format": ("ruff", "format", "--check", "."),
    "mypy --strict": ("mypy",),
    "tests without an engine": ("pytest", "-q", *_SIDE_BY_SIDE, "--ignore=tests/integration"),
}
_ENGINE_TESTS = {
    "tests with an engine": ("pytest", "-v", *_FILE_BY_FILE, "--durations=15", "tests/integration")
}


def run(say: Reporter, *, pure: bool) -> None:
    """Run all checks, the cheap ones first; a failed one does not keep the others from running."""
    failed = []
    for name, (tool, *words) in (_CHECKS if pure else _CHECKS | _ENGINE_TESTS).items():
        if name in _ENGINE_TESTS:
            provision.ensure(provision.ask_at_terminal, say)
            provision.ensure_tools(provision.ask_at_terminal, say, "mmdebstrap", "docker-registry")
        say(f"--- {name}")
        began = time.monotonic()
        if subprocess.run([sys.executable, "-m", tool, *words], cwd=HOME, check=False).returncode:
            failed.append(name)
        result = "failed" if name in failed else "passed"
        say(f"--- {name}: {result} in {format_seconds(time.monotonic() - began)}")
    if failed:
        raise SelfTestError(Diagnostic("failed: " + ", ".join(failed)))
