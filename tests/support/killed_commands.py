"""Commands that are struck at random moments, and what differs after the next run of the same command."""

import contextlib
import hashlib
import os
import re
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from bakehouse.catalog.project import HOME
from tests.support.file_server import serving
from tests.support.index_server import metadata, put_index, wheel_file
from tests.support.programs import BAKE

_TABULAR = HOME / "tests" / "projects" / "tabular"
_TOKEN = "BAKEHOUSE_CAMPAIGN"
"""Environment variable that all processes of a round inherit."""
_TEMPORARY = "tmp"
_ENDS_WITHIN = 300.0
_SETTLES_WITHIN = 20.0
"""Children of a killed command, such as uv, may finish their work."""
_DIGEST = re.compile(r"sha256:[0-9a-f]+")
_COMPONENT = """\
summary: A fast library
stage_order: 90
upstream: {pypi: [fast-lib]}
releases:
  - version: "1.0.0"
    source: https://example.org/fast
    requires: {python: "3.11"}
    requirements: ["fast-lib==1.0.0"]
    lock: locks/1.0.0.txt
"""
_WHEEL = "py3-none-any"
_INDEX: dict[str, dict[str, Any]] = {
    "fast-lib": {
        "files": [wheel_file("fast_lib", version, _WHEEL) for version in ("1.0.0", "1.1.0", "1.2.0")],
        "metadata": {
            version: metadata("fast-lib", version, "grid-lib") for version in ("1.0.0", "1.1.0", "1.2.0")
        },
    },
    "grid-lib": {
        "files": [wheel_file("grid_lib", "2.1.0", _WHEEL)],
        "metadata": {"2.1.0": metadata("grid-lib", "2.1.0")},
    },
}


@dataclass(frozen=True)
class Command:
    """A command line, and the project that it runs in."""

    name: str
    words: tuple[str, ...]
    prepare: Callable[[Path], object]
    """Makes the project as it is before the command, in a directory that does not exist."""
    environment: Mapping[str, str] = field(default_factory=dict)
    finish: tuple[str, ...] = ()
    """A command line that ends services which are meant to run on."""
    remains: Callable[[int], Iterable[str]] = lambda process: ()
    """Returns what an ended process left outside the project."""


@dataclass(frozen=True)
class Result:
    """The exit code and the output of a command line."""

    process: int
    code: int
    output: str
    errors: str


@dataclass(frozen=True)
class Round:
    """A command that was struck after some seconds, and then run again."""

    command: str
    strike: str
    after: float
    ended_before: bool
    differences: tuple[str, ...]
    """Differences from a run that was not struck, and leftovers."""
    message: str = ""
    """First line of the error of the struck command."""

    def __str__(self) -> str:
        end = ", had ended before" if self.ended_before else ""
        different = ", ".join(self.differences) or "same"
        message = f" ({self.message})" if self.message else ""
        return f"{self.command} {self.strike} after {self.after:.2f} s{end}{message}: {different}"


Strike = Callable[["subprocess.Popen[bytes]", Random], str]
"""Strikes a running command, and returns in what way."""


@contextlib.contextmanager
def file_commands(directory: Path) -> Iterator[tuple[Command, ...]]:
    """Yield commands that write files and need no engine; their package index is a local server."""
    with serving() as server:
        put_index(server, _INDEX)
        environment = {
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_INDEX_URL": f"{server.url}/simple",
            "PIP_EXTRA_INDEX_URL": "",
            "NO_PROXY": "127.0.0.1",
            "UV_CACHE_DIR": str(directory / "uv"),
        }
        lock = Command("lock", ("lock", "fast"), _make_component, environment)
        locked = directory / "locked"
        _make_component(locked)
        assert (result := run(lock, locked, lock.words)).code == 0, result.errors
        make_locked = partial(shutil.copytree, locked)
        yield (
            Command("render", ("render",), _make_user_project),
            Command("report", ("report", "--to", "page"), _make_user_project),
            Command("ci", ("ci", "github"), _make_user_project),
            lock,
            Command("update", ("update", "fast", "--write"), make_locked, environment),
        )


def rounds(
    commands: Sequence[Command], directory: Path, count: int, seed: int, strike: "Strike | None" = None
) -> Iterator[Round]:
    """Strike each command in turn, `count` times in all, at random moments; the default strike kills it."""
    random, expected, lives = Random(seed), {}, {}
    for command in commands:
        project = fresh(command, directory)
        began = time.monotonic()
        result = run(command, project, command.words)
        assert result.code == 0, result.errors
        lives[command.name] = time.monotonic() - began
        finish(command, project)
        expected[command.name] = digests_of(result.output), files_of(project)
    for number in range(count):
        command = commands[number % len(commands)]
        # Most files are written at the end
        after = lives[command.name] * random.choice((random.random(), random.uniform(0.6, 1.0)))
        project, token = fresh(command, directory), secrets.token_hex(8)
        with _started(command, project, command.words, token) as process:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(after)
            ended_before = process.poll() is not None
            way = (strike or kill)(process, random)
            process.wait(_ENDS_WITHIN)
        errors = (project.parent / "errors").read_text()
        differences = []
        if process.returncode not in (0, -signal.SIGKILL):
            differences += unclear(process.returncode, errors)
        digests, files = expected[command.name]
        again = run(command, project, command.words, token)
        if again.code:
            differences.append(f"the next run failed: {again.errors}")
        elif (printed := digests_of(again.output)) != digests:
            differences.append(f"the next run printed {printed}")
        finish(command, project, token)
        differences += [
            *differences_of(files_of(project), files),
            *left_of(command, token, process.pid, again.process),
        ]
        yield Round(command.name, way, after, ended_before, tuple(differences), error_of(errors))


def kill(process: "subprocess.Popen[bytes]", random: Random) -> str:
    """Kill a command, and in half of the cases also the programs that it started."""
    if random.random() < 0.5:
        process.kill()
        return "killed"
    # Its number is not used again before it is waited for
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return "killed with its children"


def unclear(code: int, errors: str) -> list[str]:
    """Return what a failed command does not report as it should."""
    last = errors.strip().splitlines()[-1:]
    if "Traceback (most recent call last)" in errors:
        return [f"failed with a traceback: {last}"]
    if "error: " not in errors:
        return [f"failed with exit code {code} and without a message: {last}"]
    return []


def error_of(errors: str) -> str:
    """Return the first line of a reported error."""
    return next((line for line in errors.splitlines() if line.startswith("error: ")), "")


def run(command: Command, project: Path, words: Sequence[str], token: str = "") -> Result:
    """Run a command line to its end."""
    with _started(command, project, words, token) as process:
        process.wait(_ENDS_WITHIN)
    output, errors = ((project.parent / name).read_text() for name in ("output", "errors"))
    return Result(process.pid, process.returncode, output, errors)


def finish(command: Command, project: Path, token: str = "") -> None:
    """End the services of a command that are meant to run on."""
    if command.finish:
        run(command, project, command.finish, token)


@contextlib.contextmanager
def _started(
    command: Command, project: Path, words: Sequence[str], token: str
) -> Iterator["subprocess.Popen[bytes]"]:
    """Start a command line; its output goes to files, because services that run on would hold a pipe open."""
    with (
        (project.parent / "output").open("wb") as output,
        (project.parent / "errors").open("wb") as errors,
        subprocess.Popen(
            [*BAKE, *words],
            cwd=project,
            env={
                **os.environ,
                "PYTHONPATH": str(HOME),
                "BAKEHOUSE_STATE": "",
                "XDG_STATE_HOME": str(state_of(project)),
                "TMPDIR": str(project / _TEMPORARY),
                **command.environment,
                _TOKEN: token,
            },
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            start_new_session=True,
        ) as process,
    ):
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def state_of(project: Path) -> Path:
    """Return the directory of the user's state of a project, which follows from its path."""
    return project.with_name(f"{project.name}.state")


def copy(source: Path, project: Path) -> None:
    """Copy a project with its state."""
    for original, target in ((source, project), (state_of(source), state_of(project))):
        if original.exists():
            shutil.copytree(original, target)


def fresh(command: Command, directory: Path) -> Path:
    """Return the project of a command as it is before the command."""
    project = directory / "project"
    for left in (project, state_of(project)):
        shutil.rmtree(left, ignore_errors=True)
    command.prepare(project)
    (project / _TEMPORARY).mkdir(exist_ok=True)
    return project


def _make_user_project(directory: Path) -> None:
    """Copy a project of a customer, without its rendered files."""
    shutil.copytree(_TABULAR, directory)
    for name in ("images", "build"):
        shutil.rmtree(directory / name, ignore_errors=True)
    pyproject = directory / "pyproject.toml"
    requirement = "git+https://git.example/bakehouse.git@0123456789abcdef0123456789abcdef01234567"
    settings = f'[tool.bakehouse.ci]\nrequirement = "{requirement}"\nrepository = "owner/name"\n'
    pyproject.write_text(f"{pyproject.read_text()}\n{settings}")


def _make_component(directory: Path) -> None:
    """Make a project with a component that is not locked, and that has newer releases."""
    component = directory / "recipes/components/fast"
    component.mkdir(parents=True)
    (component / "component.yaml").write_text(_COMPONENT)
    (directory / "pyproject.toml").write_text('[tool.bakehouse]\nrecipes = ["recipes"]\n')


def left_of(command: Command, token: str, *ended: int) -> list[str]:
    """Return what the processes of a round left outside the project, and those that still run."""
    until = time.monotonic() + _SETTLES_WITHIN
    while (running := [*_processes(token)]) and time.monotonic() < until:
        time.sleep(0.2)
    return [*running, *(remains for process in ended for remains in command.remains(process))]


def _processes(token: str) -> Iterator[str]:
    """Yield the processes that inherited the token of a round."""
    for directory in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"{_TOKEN}={token}".encode() in (directory / "environ").read_bytes():
                command = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                yield f"process {directory.name} {command}"


def digests_of(output: str) -> list[str]:
    """Return the digests that a command printed."""
    return _DIGEST.findall(output)


def files_of(project: Path) -> dict[str, str]:
    """Return the sha256 of each file, except in the state, of which only the names count."""
    files = {}
    paths = (path for top in (project, state_of(project)) for path in top.rglob("*") if path.is_file())
    for path in sorted(paths):
        name = os.path.relpath(path, project)
        files[name] = (
            "" if name.startswith(("build/", "../")) else hashlib.sha256(path.read_bytes()).hexdigest()
        )
    return files


def differences_of(files: Mapping[str, str], expected: Mapping[str, str]) -> Iterator[str]:
    """Yield the files that differ from the expected ones."""
    for name in sorted({*files, *expected}):
        if name not in expected:
            yield f"{name} was left"
        elif files.get(name) != expected[name]:
            yield f"{name} differs" if name in files else f"{name} is missing"
