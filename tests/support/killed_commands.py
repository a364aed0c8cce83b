"""Commands that are killed at random moments, and the files after the next run of the same command."""

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from bakehouse.catalog.project import HOME

_BAKE = "from bakehouse.cli.main import main; main()"
_ENDS_WITHIN = 300.0
_PROJECT = HOME / "tests" / "projects" / "tabular"

COMMANDS: dict[str, tuple[str, ...]] = {
    "render": ("render",),
    "report": ("report", "--to", "page"),
    "ci": ("ci", "github"),
}
"""Commands that need no engine and no network, and that write files."""


@dataclass(frozen=True)
class Round:
    """A command that was killed after some seconds, and then run again."""

    command: str
    after: float
    ended_before: bool
    differences: tuple[str, ...]
    """Files that differ from those of a run that was not killed, and processes that were left."""

    def __str__(self) -> str:
        end = ", had ended before" if self.ended_before else ""
        return f"{self.command} killed after {self.after:.2f} s{end}: {', '.join(self.differences) or 'same'}"


def rounds(directory: Path, count: int, seed: int) -> Iterator[Round]:
    """Kill each command in turn, `count` times in all, at random moments of its life."""
    random = Random(seed)
    expected, lives = {}, {}
    for name, words in COMMANDS.items():
        began = time.monotonic()
        expected[name] = _files(_run(_project(directory / f"{name}-whole"), words))
        lives[name] = time.monotonic() - began
    for number in range(count):
        name = [*COMMANDS][number % len(COMMANDS)]
        # Most files are written at the end
        after = lives[name] * random.choice((random.random(), random.uniform(0.6, 1.0)))
        project = _project(directory / f"{name}-{number}")
        ended_before, left = _kill(project, COMMANDS[name], after)
        files = _files(_run(project, COMMANDS[name]))
        yield Round(name, after, ended_before, (*left, *_differences(files, expected[name])))
        shutil.rmtree(project)


def _project(directory: Path) -> Path:
    """Return a copy of a project of a customer, without its rendered files."""
    shutil.copytree(_PROJECT, directory)
    for name in ("images", "build"):
        shutil.rmtree(directory / name, ignore_errors=True)
    pyproject = directory / "pyproject.toml"
    settings = '[tool.bakehouse.ci]\nrequirement = "bakehouse==1.0"\nrepository = "owner/name"\n'
    pyproject.write_text(f"{pyproject.read_text()}\n{settings}")
    return directory


def _started(project: Path, words: Sequence[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", "-c", _BAKE, *words],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(HOME), "BAKEHOUSE_STATE": ""},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def _run(project: Path, words: Sequence[str]) -> Path:
    with _started(project, words) as process:
        _, errors = process.communicate(timeout=_ENDS_WITHIN)
    assert process.returncode == 0, errors.decode()
    return project


def _kill(project: Path, words: Sequence[str], after: float) -> tuple[bool, tuple[str, ...]]:
    """Return whether the command had ended before, and the processes that it left."""
    with _started(project, words) as process:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(after)
        ended_before = process.poll() is not None
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=_ENDS_WITHIN)
    return ended_before, tuple(_processes(process.pid))


def _processes(session: int) -> Iterator[str]:
    for directory in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            fields = (directory / "stat").read_text().rpartition(")")[2].split()
            if fields[0] not in "ZX" and int(fields[3]) == session:
                yield f"process {directory.name}"


def _files(project: Path) -> dict[str, str]:
    """Return the sha256 of each file, except in the state, of which only the names count."""
    files = {}
    for path in sorted(path for path in project.rglob("*") if path.is_file()):
        name = path.relative_to(project).as_posix()
        is_state = name.startswith("build/")
        files[name] = "" if is_state else hashlib.sha256(path.read_bytes()).hexdigest()
    return files


def _differences(files: dict[str, str], expected: dict[str, str]) -> Iterator[str]:
    for name in sorted({*files, *expected}):
        if name not in expected:
            yield f"{name} was left"
        elif files.get(name) != expected[name]:
            yield f"{name} differs" if name in files else f"{name} is missing"
