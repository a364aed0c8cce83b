"""Commands whose disk becomes full: a clear error, and the next run is as if there had been space."""

import os
from pathlib import Path

import pytest

from tests.support import full_disks, killed_commands
from tests.support.full_disks import SmallDisk

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount small file systems")


def test_the_run_after_a_full_disk_writes_the_same_files(tmp_path: Path) -> None:
    """`benchmarks/fill_disks.py` fills more."""
    with killed_commands.file_commands(tmp_path) as commands:
        places = full_disks.file_places(commands)
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
