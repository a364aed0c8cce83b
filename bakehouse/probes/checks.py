"""Report the installed versions of components from inside the image, and run their checks.

`checks.py [--checks] [--long NAME] [--seconds N] COMPONENT=SMOKE_FILE …` prints one JSON object per line to
standard output. The output of components goes to standard error. Each component runs in its own process, so a
crash or hang does not affect the others.
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


def write(out: TextIO, component: str, **fields: object) -> None:
    out.write(json.dumps({"component": component, **fields}, sort_keys=True) + "\n")
    out.flush()


def describe(error: BaseException) -> str:
    """Return the text of an error with its class, which says nothing in an assertion."""
    if isinstance(error, AssertionError) and str(error):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def line_of(path: str, error: BaseException) -> int:
    """Return the line of the smoke file that raised `error`, or 0."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    return (lines[-1] if lines else 0) or 0


def load(path: str) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("smoke", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look up the module of their annotations.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def check_component(component: str, path: str, options: argparse.Namespace, out: TextIO) -> None:
    """Load a smoke file and report its answers."""
    try:
        module = load(path)
        version = module.installed() if hasattr(module, "installed") else None
        provided = module.provided() if hasattr(module, "provided") else {}
    except BaseException as error:
        traceback.print_exc()
        write(out, component, error=describe(error), line=line_of(path, error))
        return
    more = {"provided": provided} if provided else {}
    write(out, component, installed=None if version is None else str(version), **more)
    sources: dict[str, str] = getattr(module, "sources", {})
    for function, check in list(vars(module).items()):
        prefix, _, name = function.partition("check_")
        if not name or not callable(check) or prefix not in ("", "long_"):
            continue
        if options.long and (prefix, name) == ("long_", options.long):
            run_check(component, name, path, check, out, {})
        elif options.checks and prefix:
            reason = f"it can take longer than 30 s; run it with `--check components.{component}.{name}`"
            write(out, component, check=name, outcome="not tested", reason=reason)
        elif options.checks:
            run_check(component, name, path, check, out, {"source": sources[name]} if name in sources else {})


def run_check(
    component: str,
    name: str,
    path: str,
    check: Callable[[], object],
    out: TextIO,
    more: dict[str, str],
) -> None:
    write(out, component, check=name, outcome="started", **more)
    started, outcome, reason, line = time.monotonic(), "passed", "", 0
    try:
        evidence = check()
        reason = evidence if isinstance(evidence, str) else ""
    except unittest.SkipTest as skip:
        # With an empty reason, the check can never apply to this image.
        outcome, reason = "not tested" if str(skip) else "not applicable", str(skip)
    except BaseException as error:
        traceback.print_exc()
        outcome, reason, line = "failed", describe(error), line_of(path, error)
    seconds = round(time.monotonic() - started, 2)
    write(out, component, check=name, outcome=outcome, reason=reason, line=line, seconds=seconds, **more)


def check_in_process(component: str, path: str, options: argparse.Namespace) -> None:
    """Check a component in its own process, and report if that process did not end normally."""
    command = [sys.executable, os.path.realpath(__file__), "--here"]
    command += (["--checks"] if options.checks else []) + ["--long", options.long, f"{component}={path}"]
    print(f"--- {component}", file=sys.stderr, flush=True)
    process = subprocess.Popen(command)
    try:
        code = process.wait(timeout=options.seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        write(sys.stdout, component, ended=f"no answer within {options.seconds:g} s")
        return
    if code < 0:
        write(sys.stdout, component, ended=f"killed by {signal.Signals(-code).name}")
    elif code:
        write(sys.stdout, component, ended=f"exited with {code}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--here", action="store_true")
    parser.add_argument("--checks", action="store_true")
    parser.add_argument("--long", default="", help="run this long check")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("components", nargs="*")
    options = parser.parse_args()
    for component, path in (entry.split("=", 1) for entry in options.components):
        if options.here:
            # Output of the component must not mix with the answers.
            out = os.fdopen(os.dup(1), "w")
            os.dup2(2, 1)
            check_component(component, path, options, out)
        else:
            check_in_process(component, path, options)


if __name__ == "__main__":
    main()
