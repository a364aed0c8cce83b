"""Every test is run by a command of `./bake test`."""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path

import pytest

from bakehouse.catalog.project import HOME
from bakehouse.maintain import selftest

PYTEST = (sys.executable, "-m", "pytest", "-p", "tests.support.counts")
NESTED = "tests/build/test_nested.py"


_COLLECTIONS = """
import json, sys, pytest
for arguments in json.loads(sys.argv[1]):
    if code := pytest.main(arguments):
        sys.exit(code)
"""
"""One process for all commands, which imports each test module once."""


def left_out(root: Path, commands: Collection[Sequence[str]]) -> set[str]:
    """Return test files, and tests of other files, that pytest selects with none of the commands."""
    environment = {**os.environ, "PYTHONPATH": str(HOME), "PYTEST_ADDOPTS": ""}
    with tempfile.TemporaryDirectory() as directory:
        files = [Path(directory, str(number)) for number in range(len(commands))]
        arguments = []
        for command, file in zip(commands, files, strict=True):
            assert tuple(command[:3]) == PYTEST[:3]
            arguments.append([*command[3:], "-n0", "--collect-only", "-q", f"--tests={file}"])
        result = subprocess.run(
            [sys.executable, "-c", _COLLECTIONS, json.dumps(arguments)],
            cwd=root,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert result.returncode == 0, result.stdout[-2000:]
        documents = [json.loads(file.read_text()) for file in files]
    collected, selected = (
        # pytest escapes the names of parameters once more in each collection of one process.
        {re.sub(r"\\+", r"\\", test) for document in documents for test in document[key]}
        for key in ("collected", "selected")
    )
    return (collected - selected) | (files_of_tests(root) - {test.partition("::")[0] for test in selected})


def files_of_tests(root: Path) -> set[str]:
    """Return the paths of all test files of a checkout."""
    # State of this machine
    directories = [path for path in root.iterdir() if path.is_dir() and path.name != "build"]
    return {
        str(path.relative_to(root))
        for directory in directories
        if not directory.name.startswith(".")
        for path in directory.rglob("test_*.py")
    }


def test_each_test_file_is_where_the_commands_look() -> None:
    files = files_of_tests(HOME)

    assert len(files) > 300
    assert {file for file in files if not file.startswith("tests/") or "/." in file} == set()
    assert [path for path in HOME.glob("tests/**/conftest.py") if "collect_ignore" in path.read_text()] == []


def test_the_commands_run_tests_of_each_kind(root: Path) -> None:
    """A small checkout with the settings of this one: to collect all tests would take long."""
    settings = (HOME / "pyproject.toml").read_text()
    (root / "pyproject.toml").write_text(settings[settings.index("[tool.pytest") :])
    for name in ("plan", "integration"):
        (root / "tests" / name).mkdir()
        (root / "tests" / name / f"test_{name}.py").write_text(
            "import pytest\n"
            "def test_a(): ...\n"
            "@pytest.mark.engine\ndef test_b(): ...\n"
            "@pytest.mark.release\ndef test_c(): ...\n"
            "@pytest.mark.engine\n@pytest.mark.release\ndef test_d(): ...\n"
        )
    commands = [(*PYTEST, *command[3:]) for command in selftest.TIERS.values()]

    assert left_out(root, commands) == set()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout with tests in a directory that pytest skips by default."""
    (tmp_path / "pyproject.toml").write_text('[tool.pytest.ini_options]\nmarkers = ["release: others"]\n')
    (tmp_path / NESTED).parent.mkdir(parents=True)
    (tmp_path / NESTED).write_text("def test_a(): ...\n")
    (tmp_path / "tests/test_other.py").write_text(
        "import pytest\ndef test_b(): ...\n@pytest.mark.release\ndef test_c(): ...\n"
    )
    return tmp_path


def test_a_test_that_is_left_to_no_command_is_reported(root: Path) -> None:
    assert left_out(root, [PYTEST]) == {NESTED, "tests/test_other.py::test_c"}
