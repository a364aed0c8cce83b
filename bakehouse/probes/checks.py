"""Asks components, inside the image, which version is really there, and runs their checks.

`checks.py [--checks] [--seconds N] COMPONENT=SMOKE_FILE …` prints one JSON object a line to standard output;
what components print goes to standard error. Each component is asked in a process of its own, so that one
which crashes or hangs doesn't silence the others.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
import traceback
import types
import unittest
from collections.abc import Callable
from typing import TextIO


def tell(out: TextIO, component: str, **fields: object) -> None:
    out.write(json.dumps({"component": component, **fields}, sort_keys=True) + "\n")
    out.flush()


def words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def line_in(path: str, error: BaseException) -> int:
    """The line of the smoke file in which `error` was raised, or 0."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    return (lines[-1] if lines else 0) or 0


def load(path: str) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("smoke", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def ask(component: str, path: str, with_checks: bool, out: TextIO) -> None:
    """Load one smoke file, and tell what it answers."""
    try:
        module = load(path)
        version = module.installed() if hasattr(module, "installed") else None
        provided = module.provided() if hasattr(module, "provided") else {}
    except BaseException as error:
        traceback.print_exc()
        tell(out, component, error=words(error), line=line_in(path, error))
        return
    more = {"provided": provided} if provided else {}
    tell(out, component, installed=None if version is None else str(version), **more)
    if not with_checks:
        return
    for name, check in list(vars(module).items()):
        if name.startswith("check_") and callable(check):
            run_check(component, name[len("check_") :], path, check, out)


def run_check(component: str, name: str, path: str, check: Callable[[], object], out: TextIO) -> None:
    tell(out, component, check=name, outcome="started")
    started, outcome, reason, line = time.monotonic(), "passed", "", 0
    try:
        check()
    except unittest.SkipTest as skip:
        outcome, reason = "not tested", str(skip)
    except BaseException as error:
        traceback.print_exc()
        outcome, reason, line = "failed", words(error), line_in(path, error)
    seconds = round(time.monotonic() - started, 2)
    tell(out, component, check=name, outcome=outcome, reason=reason, line=line, seconds=seconds)


def ask_apart(component: str, path: str, options: argparse.Namespace) -> None:
    """Ask one component in a process of its own; tell when that process did not end by itself."""
    command = [sys.executable, os.path.realpath(__file__), "--here"]
    command += (["--checks"] if options.checks else []) + [f"{component}={path}"]
    print(f"--- {component}", file=sys.stderr, flush=True)
    process = subprocess.Popen(command)
    try:
        code = process.wait(timeout=options.seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        tell(sys.stdout, component, ended=f"no answer within {options.seconds:g} s")
        return
    if code < 0:
        tell(sys.stdout, component, ended=f"killed by {signal.Signals(-code).name}")
    elif code:
        tell(sys.stdout, component, ended=f"exited with {code}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--here", action="store_true")
    parser.add_argument("--checks", action="store_true")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("components", nargs="*")
    options = parser.parse_args()
    for component, path in (entry.split("=", 1) for entry in options.components):
        if options.here:
            # What a component prints must not come between the answers.
            out = os.fdopen(os.dup(1), "w")
            os.dup2(2, 1)
            ask(component, path, options.checks, out)
        else:
            ask_apart(component, path, options)


if __name__ == "__main__":
    main()
