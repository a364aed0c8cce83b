import errno
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from bakehouse.util import tempdir
from bakehouse.util.tempdir import private_directory, scratch_directory
from tests.support.programs import started


def test_it_is_private_and_removed_afterwards(tmp_path: Path) -> None:
    with private_directory(tmp_path) as directory:
        assert directory.stat().st_mode & 0o777 == 0o700
        (directory / "secret").write_text("x")
    assert list((tmp_path / "private").iterdir()) == []


def test_what_a_killed_run_left_is_swept_and_a_living_ones_is_not(tmp_path: Path) -> None:
    machine, _, _ = tempdir.run_id().split("-")
    left = tmp_path / "private" / f"{machine}-999999-1.abc"
    (left / "deep").mkdir(parents=True)

    with private_directory(tmp_path) as first, private_directory(tmp_path) as second:
        assert sorted((tmp_path / "private").iterdir()) == sorted((first, second))


def test_a_scratch_directory_of_a_killed_run_is_removed_and_that_of_a_running_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    machine, _, _ = tempdir.run_id().split("-")
    (tmp_path / f"bakehouse-{machine}-999999-1.abc" / "deep").mkdir(parents=True)
    (tmp_path / "bakehouse-other").mkdir()

    with scratch_directory() as first, scratch_directory() as second:
        assert {*tmp_path.iterdir()} == {first, second, tmp_path / "bakehouse-other"}
    assert [*tmp_path.iterdir()] == [tmp_path / "bakehouse-other"]


def test_scratch_directories_of_other_users_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    machine, _, _ = tempdir.run_id().split("-")
    foreign = tmp_path / f"bakehouse-{machine}-999999-1.abc"
    foreign.mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)

    with scratch_directory():
        assert foreign.is_dir()


def test_this_process_s_own_things_are_in_use() -> None:
    assert not tempdir.is_abandoned(tempdir.run_id(), 0.0)


def test_a_process_that_ended_leaves_its_things_behind() -> None:
    result = subprocess.run(
        [sys.executable, "-c", "from bakehouse.util import tempdir; print(tempdir.run_id())"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert tempdir.is_abandoned(result.stdout.strip(), time.time())


def test_a_killed_process_leaves_its_things_behind_before_its_parent_looks() -> None:
    command = [
        sys.executable,
        "-c",
        "from bakehouse.util import tempdir; print(tempdir.run_id(), flush=True); input()",
    ]
    with started(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        owner = process.stdout.readline().strip()

        assert not tempdir.is_abandoned(owner, time.time())

        process.kill()
        if sys.platform == "linux":
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

        assert tempdir.is_abandoned(owner, time.time())


def test_a_pid_that_is_used_again_is_not_the_owner() -> None:
    machine, pid, start = tempdir.run_id().split("-")

    assert tempdir.is_abandoned(f"{machine}-{pid}-{int(start) + 1}", time.time())


def test_files_of_another_machine_are_kept_for_a_day() -> None:
    foreign = f"{'0' * 8}-1-1"

    assert not tempdir.is_abandoned(foreign, time.time() - 3600)
    assert tempdir.is_abandoned(foreign, time.time() - 25 * 3600)


def test_what_is_not_a_run_s_is_never_left_behind() -> None:
    assert not tempdir.is_abandoned("registry", 0.0)
    assert not tempdir.is_abandoned("", 0.0)


def test_a_full_directory_that_python_avoids_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage
    full = tmp_path / "full"
    full.mkdir()
    monkeypatch.setattr(
        shutil, "disk_usage", lambda path: SimpleNamespace(free=0) if path == full else usage(path)
    )
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(full))

    with pytest.raises(OSError, match=f"No space left on device: '{full}'"), scratch_directory():
        pass

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with scratch_directory() as directory:
        assert directory.parent == tmp_path


def test_no_usable_directory_is_a_full_disk_if_it_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_directory() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", no_directory)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=0))
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    with pytest.raises(OSError, match=f"No space left on device: '{tmp_path}'"), scratch_directory():
        pass
