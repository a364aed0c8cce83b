"""Runs a registry while it is used or kept: `python registry_keeper.py LOCK KEEP NAME MACHINE OPTIONS…`.

Every user of the embedded registry holds the lock shared. This process waits for the exclusive lock, which
the kernel grants once the last user has ended, even if it was killed. Then it stops the registry, unless the
file KEEP exists: that registry runs until `bake registry stop` removes the file, or until its directory is
removed. It runs as a script, so it does not import Bakehouse.

NAME is that of the registry's container and of its network. Both are removed at the end. OPTIONS are those of
`docker run`, with the image. MACHINE begins the id of this process, which both have as a label: after a crash
of this process, the next run of Bakehouse removes what has the id of an ended process.
"""

import ctypes
import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

SERVICE = "bakehouse.service=registry"
"""Label of a container that belongs to no job."""
_CHECK_SECONDS = 0.1
_STOP_SECONDS = 10
_ABSENT_CHECKS = 3
_PR_SET_PDEATHSIG = 1


def keep(lock_path: str, keep_path: str, command: list[str]) -> int:
    """Run `command` until no other process holds the lock and the file `keep_path` is gone.

    Keeps the lock until the command has stopped.
    """
    lock = os.open(lock_path, os.O_RDWR)
    registry = subprocess.Popen(command, preexec_fn=_die_with_parent)
    while registry.poll() is None:
        if Path(keep_path).exists():
            time.sleep(_CHECK_SECONDS)
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_CHECK_SECONDS)
        else:
            registry.terminate()
            try:
                registry.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                registry.kill()
            return 0
    return registry.returncode


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _remove(name: str) -> None:
    """Remove the container and the network, also if a stopped client leaves them a moment later."""
    deadline, absent = time.monotonic() + _STOP_SECONDS, 0
    while absent < _ABSENT_CHECKS and time.monotonic() < deadline:
        is_left = False
        for kind, options in (("container", ("--force",)), ("network", ())):
            _docker(kind, "rm", *options, name)
            is_left |= _docker(kind, "inspect", name) == 0
        absent = 0 if is_left else absent + 1
        time.sleep(_CHECK_SECONDS)


def _docker(*words: str) -> int:
    return subprocess.run(["docker", *words], capture_output=True, check=False).returncode


def _owner(machine: str) -> str:
    """Return the id of this process as `bakehouse.util.tempdir.run_id` forms it."""
    stat = Path("/proc/self/stat")
    start = stat.read_text().rpartition(")")[2].split()[19] if stat.exists() else "0"
    return f"{machine}-{os.getpid()}-{start}"


def main(lock_path: str, keep_path: str, name: str, machine: str, *options: str) -> int:
    labels = ["--label", f"bakehouse={_owner(machine)}", "--label", SERVICE]
    try:
        # Both exist already if the last keeper was killed
        _docker("container", "rm", "--force", name)
        _docker("network", "rm", name)
        _docker("network", "create", *labels, name)
        run = ["docker", "run", "--rm", "--name", name, *labels, "--network", name, *options]
        return keep(lock_path, keep_path, run)
    finally:
        _remove(name)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
