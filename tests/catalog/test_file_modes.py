"""Executable files on file systems that keep no modes: git's answer, without such a file system."""

from pathlib import Path

import pytest

from bakehouse.catalog import file_modes, source_tree
from bakehouse.catalog.source_tree import Limits
from tests.support.git_repository import commit, git

LIMITS = Limits(files=100, file_bytes=1000, total_bytes=10_000, hint="")


def without_modes(directory: Path, mode: int) -> None:
    """Make files look as on such a file system, where git sets `core.fileMode` itself."""
    git(directory, "config", "core.fileMode", "false")
    for path in directory.glob("src/*"):
        path.chmod(mode)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    commit(tmp_path, {"src/train.py": "", "src/run.sh": "echo", "src/tool": "binary"})
    git(tmp_path, "update-index", "--chmod=+x", "src/run.sh", "src/tool")
    git(tmp_path, "commit", "--quiet", "--message", "modes")
    return tmp_path


def executables(directory: Path) -> list[str]:
    tree = source_tree.read_tree(directory / "src", LIMITS, project=directory)
    return [file.name for file in tree.files if file.is_executable]


@pytest.mark.parametrize("mode", [0o777, 0o644])
def test_modes_are_those_that_git_has(repository: Path, mode: int) -> None:
    without_modes(repository, mode)
    assert executables(repository) == ["run.sh", "tool"]


@pytest.mark.parametrize("mode", [0o777, 0o644])
def test_new_files_are_executable_if_they_name_an_interpreter(repository: Path, mode: int) -> None:
    (repository / "src/new.sh").write_text("#!/bin/sh\n")
    (repository / "src/new.py").write_text("import sys\n")
    without_modes(repository, mode)
    assert executables(repository) == ["new.sh", "run.sh", "tool"]


def test_elsewhere_modes_are_those_of_the_files(repository: Path) -> None:
    (repository / "src/train.py").chmod(0o755)
    assert executables(repository) == ["train.py"]


def test_a_single_file_has_the_mode_that_git_has(repository: Path) -> None:
    without_modes(repository, 0o777)
    for name, is_executable in {"run.sh": True, "train.py": False}.items():
        [file] = source_tree.read_tree(repository / "src" / name, LIMITS).files
        assert file.is_executable is is_executable


def test_a_worktree_has_the_answer_of_its_repository(repository: Path, tmp_path: Path) -> None:
    git(repository, "worktree", "add", "--quiet", "--detach", "other")
    assert file_modes.keeps_modes(repository / "other/src")

    git(repository, "config", "core.fileMode", "false")
    assert not file_modes.keeps_modes(repository / "other/src")


def test_without_a_repository_the_file_system_is_believed(tmp_path: Path) -> None:
    assert file_modes.keeps_modes(tmp_path)
    assert file_modes.executables(tmp_path) is None
