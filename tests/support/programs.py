"""Programs that tests run: `bake` of this checkout or of an installed wheel, and the docker client."""

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from uv import find_uv_bin

from bakehouse.catalog.project import HOME
from bakehouse.cli import main

BAKE = (sys.executable, "-P", "-c", "from bakehouse.cli.main import main; main()")


def bake(*words: str, cwd: Path = HOME) -> "subprocess.CompletedProcess[str]":
    """Run a command line in this process, and return its exit code, output and errors."""
    output, errors = io.StringIO(), io.StringIO()
    with (
        patch.dict(os.environ, {"NO_COLOR": "1", "GITHUB_ACTIONS": ""}),
        contextlib.chdir(cwd),
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(errors),
    ):
        code = main.run(words)
    return subprocess.CompletedProcess(words, code, output.getvalue(), errors.getvalue())


def docker(*arguments: str) -> str:
    """Run the docker client and return its output."""
    return subprocess.run(["docker", *arguments], capture_output=True, text=True, check=True).stdout


def remove_images(image: str) -> None:
    """Remove all names of an image that Bakehouse built."""
    names = docker("image", "ls", "--format={{.Repository}}:{{.Tag}}", f"bakehouse/{image}").split()
    if names:
        docker("image", "rm", *names)


def install(directory: Path, wheel: Path, *options: str, python: str = sys.executable) -> Path:
    """Install a wheel into a new environment; return the directory of its programs."""
    subprocess.run([find_uv_bin(), "venv", "--quiet", "--python", python, directory], check=True)
    programs = directory / "bin"
    into = ("--python", programs / "python")
    subprocess.run([find_uv_bin(), "pip", "install", "--quiet", *into, *options, wheel], check=True)
    return programs


@contextlib.contextmanager
def started(command: Sequence[str | Path], **options: Any) -> Iterator["subprocess.Popen[Any]"]:
    """Run a program; wait for its end, or kill it where the test fails. `Popen` alone would wait for ever."""
    with subprocess.Popen(command, **options) as process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise
