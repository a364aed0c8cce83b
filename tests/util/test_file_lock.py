import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from bakehouse.util.deadline import OverdueError
from bakehouse.util.file_lock import exclusive, join_shared, shared, try_exclusive
from tests.support.programs import started


def test_one_at_a_time_holds_an_exclusive_lock(tmp_path: Path) -> None:
    inside, most = [0], [0]
    guard = threading.Lock()

    def work() -> None:
        for _ in range(50):
            with exclusive(tmp_path / "lock"):
                with guard:
                    inside[0] += 1
                    most[0] = max(most[0], inside[0])
                with guard:
                    inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]


def test_waiting_is_reported_once(tmp_path: Path) -> None:
    messages: list[str] = []
    waits = threading.Event()

    def wait() -> None:
        messages.append("waiting")
        waits.set()

    def second() -> None:
        with exclusive(tmp_path / "lock", wait):
            messages.append("in")

    with exclusive(tmp_path / "lock"):
        thread = threading.Thread(target=second)
        thread.start()
        assert waits.wait(10)
        assert messages == ["waiting"]
    thread.join()
    assert messages == ["waiting", "in"]


def test_a_killed_holder_lets_go(tmp_path: Path) -> None:
    code = (
        "import pathlib, sys, time\n"
        "from bakehouse.util.file_lock import exclusive\n"
        "with exclusive(pathlib.Path(sys.argv[1])):\n"
        "    print('in', flush=True)\n"
        "    time.sleep(60)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "lock")]
    with started(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == "in\n"
        holder.kill()
    with exclusive(tmp_path / "lock"):
        pass


def test_who_shares_a_lock_can_tell_whether_others_do(tmp_path: Path) -> None:
    with shared(tmp_path / "lock") as first_is_alone:
        with shared(tmp_path / "lock") as second_is_alone:
            assert not second_is_alone()
        assert first_is_alone()


def test_a_lock_is_not_waited_for_past_a_deadline(tmp_path: Path) -> None:
    with (
        exclusive(tmp_path / "lock"),
        pytest.raises(OverdueError),
        exclusive(tmp_path / "lock", until=time.monotonic() + 0.2),
    ):
        pytest.fail("two hold it")


def test_who_may_write_in_the_directory_may_take_the_lock(tmp_path: Path) -> None:
    before = os.umask(0o002)
    try:
        with exclusive(tmp_path / "lock"):
            assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o664
    finally:
        os.umask(before)


def test_a_lock_that_others_have_joined_is_not_held_alone(tmp_path: Path) -> None:
    with (
        join_shared(tmp_path / "lock"),
        join_shared(tmp_path / "lock"),
        try_exclusive(tmp_path / "lock") as is_alone,
    ):
        assert not is_alone
    with try_exclusive(tmp_path / "lock") as is_alone:
        assert is_alone


def test_a_lock_that_is_held_alone_is_not_joined(tmp_path: Path) -> None:
    with (
        try_exclusive(tmp_path / "lock") as is_alone,
        pytest.raises(OverdueError),
        join_shared(tmp_path / "lock", until=time.monotonic() + 0.2),
    ):
        pytest.fail("two hold it")
    assert is_alone


def test_who_may_only_read_joins_a_lock_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lock").touch()
    really = os.open

    def open_(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if flags & os.O_RDWR:
            raise PermissionError
        return really(path, flags, mode, dir_fd=dir_fd)

    with monkeypatch.context() as patched:
        patched.setattr("bakehouse.util.file_lock.os.open", open_)
        held = join_shared(tmp_path / "lock")
        held.__enter__()
    with try_exclusive(tmp_path / "lock") as is_alone:
        assert not is_alone
    held.__exit__(None, None, None)
