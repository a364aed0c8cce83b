"""Clusters that are killed at a moment of their life, and what is left of them."""

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import docker

from bakehouse.catalog.project import HOME
from bakehouse.engine.docker import OWNER_LABEL, connect
from tests.support.data import text_of

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGKILL)
_SCRIPT = text_of(__file__, "script")
"""Ends when both hosts have started: the toolkit of one would wait for the name of another that has ended."""
_BAKE = """\
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from bakehouse.cli.main import main
main()
"""
"""A shell lets what it starts in the background ignore SIGINT, and Python leaves it at that."""
_ENDS_WITHIN = 120.0
_LONGEST = 10.0
"""Seconds: the toolkit may take its time on a busy machine, and nothing new can be struck in it."""
SWEEPS = 5
"""The engine may still be making what a run that was killed had asked for: a later run sweeps that."""


@dataclass(frozen=True)
class Round:
    """A cluster that was started, and killed after some seconds."""

    killed_by: signal.Signals
    after: float
    ended_before: bool
    """It had ended by itself when its time came."""
    signals: int
    """Python's own start can lose a signal: one more is sent then, as a person would."""
    sweeps: int
    """Number of later runs until nothing was left."""
    left: tuple[str, ...]
    """Containers, networks, volumes and processes that were not removed."""


def project(directory: Path) -> Path:
    """A user's own project, with code for a job of a second."""
    (directory / "pyproject.toml").write_text("[tool.bakehouse]\n")
    (directory / "code").mkdir()
    (directory / "code/train.py").write_text(_SCRIPT)
    return directory


def round_text(round_: Round) -> str:
    """One line of a round."""
    parts = [f"{round_.killed_by.name} after {round_.after:.2f} s", *round_.left]
    if round_.ended_before:
        parts.append("had ended by itself")
    if round_.sweeps:
        parts.append(
            f"clean after {round_.sweeps} sweeps"
            if not round_.left
            else f"{round_.sweeps} sweeps did not help"
        )
    if round_.signals > 1:
        parts.append(f"ended by signal number {round_.signals}")
    return ", ".join(parts)


def life(image: str, project: Path) -> float:
    """Return the seconds that a cluster runs if it is not killed."""
    began = time.monotonic()
    with _running(image, project, "life") as run:
        _, output = run.communicate(timeout=_ENDS_WITHIN)
    assert run.returncode == 0, output
    return time.monotonic() - began


def rounds(image: str, project: Path, count: int, seed: int | None) -> Iterator[Round]:
    """Start clusters and kill each at a random moment, by each of the signals in turn."""
    random, longest = Random(seed), min(life(image, project), _LONGEST)
    for number in range(count):
        yield _round(image, project, SIGNALS[number % len(SIGNALS)], random.uniform(0.0, longest))


def _round(image: str, project: Path, killed_by: signal.Signals, after: float) -> Round:
    token = secrets.token_hex(8)
    with _running(image, project, token) as run:
        with contextlib.suppress(subprocess.TimeoutExpired):
            run.wait(after)
        ended_before, signals = run.poll() is not None, 0
        while signals < 2 and (run.poll() is None or not signals):
            signals += 1
            run.send_signal(killed_by)
            with contextlib.suppress(subprocess.TimeoutExpired):
                run.communicate(timeout=_ENDS_WITHIN)
        assert run.poll() is not None, f"{killed_by.name} ended nothing"
    sweeps, left = swept(lambda: _left(run.pid, token), SWEEPS if killed_by == signal.SIGKILL else 0)
    return Round(killed_by, after, ended_before, signals, sweeps, tuple(left))


def swept(look: Callable[[], list[str]], most: int = SWEEPS) -> tuple[int, list[str]]:
    """Return the number of sweeps until nothing was left of a run, and what is left after the last."""
    sweeps, left = 0, look()
    while left and sweeps < most:
        time.sleep(1 + sweeps)
        with contextlib.closing(connect()) as engine:
            engine.sweep()
        sweeps += 1
        left = look()
    return sweeps, left


@contextlib.contextmanager
def _running(image: str, project: Path, token: str) -> Iterator[subprocess.Popen[str]]:
    bake = (sys.executable, "-P", "-c", _BAKE, "run", image)
    code = ("--source-dir", "code", "--entry-point", "train.py", "--instance-count", "2")
    with subprocess.Popen(
        [*bake, *code, "--environment", f"ROUND={token}"],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(HOME)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as run:
        try:
            yield run
        finally:
            run.kill()


def _left(pid: int, token: str) -> list[str]:
    """Return what is left of a run: objects of the engine, and processes of its session and hosts."""
    return [*in_engine(pid), *_processes(pid, f"ROUND={token}".encode())]


def in_engine(pid: int) -> Iterator[str]:
    """Yield the objects of a run in the engine."""
    label = {"label": OWNER_LABEL}
    with contextlib.closing(docker.from_env()) as client:
        kinds: dict[str, Sequence[dict[str, Any]]] = {
            "container": client.api.containers(all=True, filters=label),
            "network": client.api.networks(filters=label),
            "volume": client.api.volumes(filters=label)["Volumes"] or (),
        }
    for kind, objects in kinds.items():
        for item in objects:
            if f"-{pid}-" in (item["Labels"] or {}).get(OWNER_LABEL, ""):
                yield f"{kind} {item.get('Name') or item['Id']}"


def _processes(session: int, variable: bytes) -> Iterator[str]:
    for directory in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            fields = (directory / "stat").read_text().rpartition(")")[2].split()
            if fields[0] in "ZX":
                continue
            if int(fields[3]) == session or variable in (directory / "environ").read_bytes():
                command = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                yield f"process {directory.name} {command}"
