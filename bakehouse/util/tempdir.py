"""Temporary directories, and run ids that identify the leftovers of killed runs."""

import contextlib
import errno
import functools
import glob
import hashlib
import os
import platform
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bakehouse.util.files import make_directory

_ID = re.compile(r"(?P<machine>[0-9a-f]{8})-(?P<pid>\d+)-(?P<start>\d+)")
_SCRATCH = "bakehouse-"
_MIN_FREE = 2**20
"""Bytes. A disk with less free space counts as full."""
_NO_SPACE = os.strerror(errno.ENOSPC)
_FOREIGN_SECONDS = 24 * 3600
"""Leftovers of other machines count as in use for this time, because their processes cannot be checked."""


@contextlib.contextmanager
def private_directory(state: Path) -> Iterator[Path]:
    """Make a directory that only this user can read, and remove it at the end.

    The next run removes it if this one is killed.
    """
    parent = state / "private"
    make_directory(parent)
    for left in abandoned(parent):
        shutil.rmtree(left, ignore_errors=True)
    directory = Path(tempfile.mkdtemp(prefix=f"{run_id()}.", dir=parent))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def scratch_directory() -> Iterator[Path]:
    """Make a directory among the temporary files of the system, and remove it at the end.

    The next run of the same user removes it if this one is killed.
    """
    parent = temporary_directory()
    for left in abandoned(parent, _SCRATCH):
        with contextlib.suppress(FileNotFoundError):
            if left.lstat().st_uid == os.geteuid():
                shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"{_SCRATCH}{run_id()}.", dir=parent) as directory:
        yield Path(directory)


def temporary_directory() -> Path:
    """Return the directory of the system for temporary files. Raises OSError if its disk is full.

    Otherwise Python would silently use another directory, but the programs that it starts would not.
    """
    named = os.environ.get("TMPDIR", "")
    try:
        used = Path(tempfile.gettempdir())
    except FileNotFoundError:
        # No directory was usable
        used = Path(named or "/tmp")
    for directory in (Path(named or used), used):
        if directory.is_dir() and shutil.disk_usage(directory).free < _MIN_FREE:
            raise OSError(errno.ENOSPC, _NO_SPACE, str(directory))
    return used


def is_temporary(path: Path) -> bool:
    """Return whether a path is the directory for temporary files, or one that Bakehouse made there."""
    parents = {*filter(None, (os.environ.get("TMPDIR"), tempfile.tempdir)), "/tmp"}
    return str(path) in parents or any(
        str(part.parent) in parents and part.name.startswith(_SCRATCH) for part in (path, *path.parents)
    )


def require_space(output: str, directory: Path) -> None:
    """Raise OSError if a program reports that the disk of the directory that it writes to is full."""
    if _NO_SPACE in output:
        raise OSError(errno.ENOSPC, _NO_SPACE, str(directory))


def abandoned(parent: Path, prefix: str = "") -> Iterator[Path]:
    """Yield files and directories named `<prefix><run id>.<anything>` of runs that have ended."""
    for path in parent.glob(f"{glob.escape(prefix)}*.*"):
        with contextlib.suppress(FileNotFoundError):
            if is_abandoned(path.name.removeprefix(prefix).partition(".")[0], path.stat().st_mtime):
                yield path


def run_id() -> str:
    """Return the id of this process: machine, pid and start time, because pids are reused."""
    return f"{_machine()}-{os.getpid()}-{_start(os.getpid()) or 0}"


def is_abandoned(owner: str, created: float) -> bool:
    """Return whether the run that made something at `created` (seconds since the epoch) has ended.

    Owners that are not run ids, such as a service that outlives its run, are never abandoned. A run on
    another machine, boot or process namespace counts as ended after a day.
    """
    parts = _ID.fullmatch(owner)
    if parts is None:
        return False
    if parts["machine"] != _machine():
        return time.time() - created > _FOREIGN_SECONDS
    return _start(int(parts["pid"])) != int(parts["start"])


@functools.cache
def _machine() -> str:
    """Return an id of the process namespace of this boot of this machine."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        namespace = f"{boot}{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        namespace = platform.node()
    return hashlib.sha256(namespace.encode()).hexdigest()[:8]


def _start(pid: int) -> int | None:
    """Return the start time of a process in ticks since boot, 0 if it is unknown, None if it has ended."""
    if not Path("/proc/self/stat").exists():
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return None
        except PermissionError:
            return 0
        return 0
    try:
        # The name is in parentheses and may itself contain spaces and parentheses.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])
