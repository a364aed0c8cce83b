"""Says which run of Bakehouse made something, and whether that run still lives."""

import hashlib
import os
import platform
import re
import time
from pathlib import Path

_ID = re.compile(r"(?P<machine>[0-9a-f]{8})-(?P<pid>\d+)-(?P<start>\d+)")
FOREIGN_SECONDS = 24 * 3600
"""How long something made where processes can't be looked up from here counts as in use."""


def mine() -> str:
    """This process's own id: where it runs, its pid and when it started, since pids are used again."""
    return f"{_machine()}-{os.getpid()}-{_start(os.getpid()) or 0}"


def is_left_behind(owner: str, created: float) -> bool:
    """Whether the run that made something at `created` (seconds since the epoch) is gone.

    An owner of another shape (a service that outlives its run) is never gone; one of another machine, boot or
    process namespace can't be asked, and is taken for gone after a day.
    """
    parts = _ID.fullmatch(owner)
    if parts is None:
        return False
    if parts["machine"] != _machine():
        return time.time() - created > FOREIGN_SECONDS
    return _start(int(parts["pid"])) != int(parts["start"])


def _machine() -> str:
    """Where pids mean what they mean here: this boot of this machine, and this namespace of processes."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        place = f"{boot}{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        place = platform.node()
    return hashlib.sha256(place.encode()).hexdigest()[:8]


def _start(pid: int) -> int | None:
    """When a living process started, in ticks since boot; 0 where nobody can tell, None if it is dead."""
    if not Path("/proc/self/stat").exists():
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return None
        except PermissionError:
            return 0
        return 0
    try:
        # The name, in parentheses, may itself hold spaces and parentheses.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])
