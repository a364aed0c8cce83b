"""Child processes: those that end with this process, and services that may outlive it."""

import contextlib
import functools
import os
import selectors
import shutil
import signal
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

MISSING_PROGRAM = (FileNotFoundError, PermissionError)
"""Errors for programs that are not on PATH. The second one occurs if a directory of PATH is not readable."""
_SERVICE_VARIABLES = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "TMPDIR", "TZ", "USER")
_GRACE_SECONDS = 15.0
_TICK_SECONDS = 0.25


@contextlib.contextmanager
def running(
    command: Sequence[str],
    *,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    stdin: int = subprocess.DEVNULL,
    stdout: int = subprocess.DEVNULL,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program in its own process group with standard error piped, and stop it at the end.

    Ctrl-C at the terminal does not reach it directly. The stop gives it time to clean up.
    """
    process = subprocess.Popen(
        [*_dying_with_parent(), *command],
        cwd=cwd,
        env=with_environment(environment or {}),
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        _stop(process)
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


def start_service(
    command: Sequence[str], output: IO[bytes] | int, variables: Collection[str], path: str = ""
) -> subprocess.Popen[bytes]:
    """Start a program that may outlive this process. Ctrl-C does not reach it.

    Other programs can read its environment in /proc for as long as it runs, so it gets only `variables`, and
    those that each program needs. `path` replaces its PATH.
    """
    names = (*_SERVICE_VARIABLES, *variables)
    environment = {name: os.environ[name] for name in names if name in os.environ}
    return subprocess.Popen(
        command,
        cwd="/",
        env={**environment, **({"PATH": path} if path else {})},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
    )


def read(sinks: Mapping[IO[bytes], Callable[[bytes], None]], tick: Callable[[], None]) -> None:
    """Pass the output of pipes to their sinks until all end; call `tick` at least four times a second."""
    with selectors.DefaultSelector() as selector:
        for pipe, sink in sinks.items():
            selector.register(pipe, selectors.EVENT_READ, sink)
        while selector.get_map():
            for key, _ in selector.select(_TICK_SECONDS):
                if chunk := os.read(key.fd, 1 << 20):
                    key.data(chunk)
                else:
                    selector.unregister(key.fileobj)
            tick()


def with_environment(more: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of this process with more variables."""
    return {**os.environ, **more}


def _dying_with_parent() -> tuple[str, ...]:
    """Return a prefix that ends the program when this process is killed; empty without such a tool."""
    return ("setpriv", "--pdeathsig", "TERM", "--") if _has_setpriv() else ()


@functools.cache
def _has_setpriv() -> bool:
    """Return whether `setpriv` exists and has `--pdeathsig`."""
    if shutil.which("setpriv") is None:
        return False
    return subprocess.run(["setpriv", "--pdeathsig", "TERM", "true"], capture_output=True).returncode == 0


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    try:
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(_GRACE_SECONDS)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
