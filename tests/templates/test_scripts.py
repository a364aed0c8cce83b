"""Scripts of build steps are files, so linters read them as they are."""

import subprocess
import sys
from pathlib import Path

import pytest

from bakehouse.catalog.project import HOME

SCRIPTS = sorted(
    path
    for directory in (HOME / "templates" / "bin", *(HOME / "recipes" / "components").glob("*/files"))
    for path in directory.rglob("*")
    if path.is_file() and path.read_bytes().startswith(b"#!")
)
NAMES = [str(path.relative_to(HOME)) for path in SCRIPTS]


def interpreter(path: Path) -> str:
    return path.read_text(encoding="utf-8").partition("\n")[0]


def test_there_are_scripts_of_both_languages() -> None:
    lines = {interpreter(path) for path in SCRIPTS}
    assert {"#!/bin/sh", "#!/usr/bin/env python3"} <= lines


@pytest.mark.parametrize("path", SCRIPTS, ids=NAMES)
def test_a_script_is_executable(path: Path) -> None:
    assert path.stat().st_mode & 0o111 == 0o111


@pytest.mark.parametrize("path", [path for path in SCRIPTS if interpreter(path) == "#!/bin/sh"], ids=str)
def test_shellcheck_accepts_shell_scripts(path: Path) -> None:
    program = Path(sys.executable).with_name("shellcheck")
    run = subprocess.run([program, path], capture_output=True, text=True, check=False)
    assert run.stdout == ""
    assert run.returncode == 0


@pytest.mark.parametrize("path", [path for path in SCRIPTS if "python" in interpreter(path)], ids=str)
def test_ruff_accepts_python_scripts(path: Path) -> None:
    program = Path(sys.executable).with_name("ruff")
    for command in (["check", "--quiet"], ["format", "--check", "--quiet"]):
        name = ["--stdin-filename", f"{path}.py", "-"]
        run = subprocess.run(
            [program, *command, *name], input=path.read_bytes(), capture_output=True, check=False
        )
        assert (run.returncode, run.stdout.decode()) == (0, "")
