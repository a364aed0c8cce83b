"""Checks of Open MPI."""

import os
import re
import subprocess
import sys


def installed() -> str:
    text = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"\(Open MPI\) (\S+)", text)
    assert found, text
    return found[1]


def check_daemon_runs_without_environment() -> None:
    """Programs that ssh starts on another host have neither PATH nor library path of the image."""
    process = subprocess.run(
        ["/opt/openmpi/bin/orted", "--help"],
        env={"HOME": "/root"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Usage" in process.stdout + process.stderr, f"exit {process.returncode}: {process.stderr.strip()}"


def check_starts_ranks_on_all_cores() -> None:
    """Root can start ranks, and mpirun does not bind them."""
    # One write, because ranks without a buffer mix their lines
    code = "import os; os.write(1, f'{sorted(os.sched_getaffinity(0))}\\n'.encode())"
    command = ["mpirun", "-np", "2", "--oversubscribe", sys.executable, "-c", code]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert text.splitlines() == [str(sorted(os.sched_getaffinity(0)))] * 2, text
