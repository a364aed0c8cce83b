"""Which run made something, and whether it lives."""

import os
import subprocess
import sys
import time

from bakehouse.util import owners


def test_this_process_s_own_things_are_in_use() -> None:
    assert not owners.is_left_behind(owners.mine(), 0.0)


def test_a_process_that_ended_leaves_its_things_behind() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", "from bakehouse.util import owners; print(owners.mine())"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert owners.is_left_behind(ended.stdout.strip(), time.time())


def test_a_killed_process_leaves_its_things_behind_before_its_parent_looks() -> None:
    command = [
        sys.executable,
        "-c",
        "from bakehouse.util import owners; print(owners.mine(), flush=True); input()",
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        owner = process.stdout.readline().strip()

        assert not owners.is_left_behind(owner, time.time())

        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

        assert owners.is_left_behind(owner, time.time())


def test_a_pid_that_is_used_again_is_not_the_owner() -> None:
    machine, pid, start = owners.mine().split("-")

    assert owners.is_left_behind(f"{machine}-{pid}-{int(start) + 1}", time.time())


def test_another_machine_s_things_are_left_alone_for_a_day() -> None:
    foreign = f"{'0' * 8}-1-1"

    assert not owners.is_left_behind(foreign, time.time() - 3600)
    assert owners.is_left_behind(foreign, time.time() - 25 * 3600)


def test_what_is_not_a_run_s_is_never_left_behind() -> None:
    assert not owners.is_left_behind("registry", 0.0)
    assert not owners.is_left_behind("", 0.0)
