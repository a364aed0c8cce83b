"""Kept steps write the same files as RUN, and end with the same status."""

import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands.dockerfile_import.random_programs import program
from tests.commands.dockerfile_import.translated_dockerfile import Translated

SHELLS = (("/bin/sh", "-c"), ("/bin/bash", "-o", "pipefail", "-c"))


def files_after(command: list[str], directory: Path) -> tuple[bool, list[tuple[str, int, str]]]:
    """Return whether a program ends well in an empty directory, and what it wrote there."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/root"}
    status = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, check=False
    ).returncode
    written = []
    for path in sorted(directory.rglob("*")):
        link = path.readlink() if path.is_symlink() else ""
        content = path.read_text() if path.is_file() and not link else str(link)
        written.append((str(path.relative_to(directory)), path.lstat().st_mode, content))
    return status == 0, written


@pytest.mark.parametrize(
    "seed", [*range(5), *(pytest.param(seed, marks=pytest.mark.release) for seed in range(5, 12))]
)
def test_a_step_does_what_the_run_did(
    seed: int, tmp_path: Path, translated: Callable[[str], Translated]
) -> None:
    source = random.Random(seed)
    directory = tmp_path / "w"
    for _ in range(10):
        text, shell = program(source), source.choice(SHELLS)
        run = f"RUN <<END\n{text}\nEND" if "\n" in text else f"RUN {text}"
        given = "[" + ", ".join(f'"{word}"' for word in shell) + "]"
        [kept] = translated(f"FROM debian:12\nSHELL {given}\nWORKDIR {directory}\n{run}\n").proposal.run
        # As the template of a Dockerfile starts it
        command = [*(kept.step.shell or ("/bin/sh", "-c"))]
        command.append(kept.step.command if kept.step.shell else f"set -e\n{kept.step.command}")

        assert files_after(command, directory) == files_after([*shell, text], directory), run
