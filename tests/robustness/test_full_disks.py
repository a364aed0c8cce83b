"""Commands whose disk becomes full: a clear error, and the next run is as if there had been space."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.support import full_disks, killed_commands
from tests.support.full_disks import SmallDisk
from tests.support.programs import BAKE

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount small file systems")


@pytest.mark.parametrize("count", [1, pytest.param(3, marks=pytest.mark.release)])
def test_the_run_after_a_full_disk_writes_the_same_files(tmp_path: Path, count: int) -> None:
    """`benchmarks/fill_disks.py` fills more."""
    with killed_commands.file_commands(tmp_path) as commands:
        places = full_disks.file_places(commands)[:count]
        rounds = [*full_disks.rounds(places, tmp_path, len(places), seed=1)]

    assert [str(round_) for round_ in rounds if round_.differences] == []
    assert not all(round_.ended_before for round_ in rounds)


def test_a_small_disk_keeps_its_content_and_is_full(tmp_path: Path) -> None:
    directory = tmp_path / "disk"
    directory.mkdir()
    (directory / "file").write_text("content")

    with SmallDisk(directory).mounted(0) as disk:
        assert (directory / "file").read_text() == "content"
        with pytest.raises(OSError, match="No space left"):
            (directory / "other").write_bytes(b"x" * 10_000)
        disk.resize()
        (directory / "other").write_bytes(b"x" * 10_000)

    assert [*tmp_path.iterdir()] == [directory]


def test_a_full_directory_for_temporary_files_is_named(tmp_path: Path) -> None:
    project, temporary = tmp_path / "project", tmp_path / "temporary"
    project.mkdir()
    (project / "Dockerfile").write_text("FROM python:3.11-slim\n")
    words = ("init", "--from-dockerfile", "Dockerfile", "mine")
    temporary.mkdir()
    (temporary / "file").write_bytes(b"x" * 1_000_000)

    with SmallDisk(temporary).mounted(100_000):
        error = run(project, *words, TMPDIR=str(temporary))

    assert error.returncode == 1
    assert error.stderr == (
        f"error: cannot write `{temporary}`: no space left on device\n"
        f"  free  0.1 MB of 1.1 MB in {temporary}\n\n"
        "hint: free space there, or set TMPDIR to another directory\n"
    )
    assert run(project, *words, TMPDIR=str(tmp_path)).returncode == 0


def test_a_full_output_is_not_a_full_disk_of_the_project(tmp_path: Path) -> None:
    for words in (("help",), ("--version",)):
        with Path("/dev/full").open("w") as full:
            error = run(tmp_path, *words, stdout=full.fileno())

        assert error.returncode == 1
        assert error.stderr == (
            "error: cannot write to standard output: no space left on device\n\n"
            "hint: free space on the disk of the file that the output goes to\n"
        )


def run(
    directory: Path, *words: str, stdout: int = subprocess.PIPE, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*BAKE, *words],
        cwd=directory,
        env={**os.environ, **environment},
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
    )
