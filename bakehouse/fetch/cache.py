"""Cache of files by sha256 for all runs on this machine: `<root>/<sha256>/<file>`, like a mirror.

Files are complete or absent. Interrupted downloads are kept separately and resumed later.
"""

import contextlib
import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from bakehouse.fetch.local_mirror import HashCache
from bakehouse.util.deadline import OverdueError
from bakehouse.util.file_lock import exclusive
from bakehouse.util.oci import Sha256
from bakehouse.util.terminal import Reporter

_PARTS, _LOCKS, _MEMORY = ".parts", ".locks", ".hashes.json"
METADATA = ".metadata"
"""Directory of what build backends said about source distributions, by sha256."""
_POLL_SECONDS = 0.5
_CHUNK = 1 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}")


class PartialFile:
    """A partial download. `FileCache.claim` holds the lock of its sha256."""

    def __init__(self, path: Path) -> None:
        self._path, self._from = path, path.with_name(f"{path.name}.from")
        self._digest = hashlib.sha256()
        self.size = 0
        with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                self._digest.update(chunk)
                self.size += len(chunk)

    @property
    def sha256(self) -> Sha256:
        return Sha256(self._digest.hexdigest())

    def validator(self, place: str) -> str:
        """Return the validator of `place` for If-Range; empty if the bytes came from another source."""
        with contextlib.suppress(OSError):
            source, _, validator = self._from.read_text().partition("\n")
            if source == place:
                return validator
        return ""

    @contextlib.contextmanager
    def writing(self, start: int, place: str, validator: str) -> Iterator["PartialFile"]:
        """Open for writing at `start`, which is the current size, or 0 to restart."""
        if start != self.size:
            self.drop()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._from.write_text(f"{place}\n{validator}")
        with self._path.open("ab") as self._file:
            yield self

    def write(self, data: bytes) -> None:
        self._file.write(data)
        self._digest.update(data)
        self.size += len(data)

    def drop(self) -> None:
        for path in (self._path, self._from):
            path.unlink(missing_ok=True)
        self._digest, self.size = hashlib.sha256(), 0

    def move(self, path: Path) -> None:
        """Move the complete file to `path` in one step."""
        with self._path.open("rb") as file:
            os.fsync(file.fileno())
        path.parent.mkdir(parents=True, exist_ok=True)
        # File systems of portable disks may not support permissions.
        with contextlib.suppress(PermissionError):
            self._path.chmod(0o644)
        self._path.replace(path)
        self._from.unlink(missing_ok=True)

    _file: IO[bytes]


class FileCache:
    """A directory of files by sha256, which several runs can use at once."""

    def __init__(self, root: Path, report: Reporter, state: Path | None = None) -> None:
        """`state` is the directory for locks and hashes, if `root` is to be copied to other machines."""
        self.root, self._report = root, report
        self._locks = (state or root) / _LOCKS
        self._hashes = HashCache((state or root) / _MEMORY)

    def find(self, sha256: Sha256, name: str) -> Path | None:
        """Return the file with these bytes; damaged files are reported and removed."""
        named = self.root / sha256 / name
        with contextlib.suppress(FileNotFoundError):
            for path in sorted(named.parent.iterdir(), key=lambda path: path != named):
                if self._hashes.sha256(path) == sha256:
                    return path if path == named else _link(path, named)
                self._report(f"{path} is damaged; removed")
                path.unlink(missing_ok=True)
        return None

    @contextlib.contextmanager
    def claim(self, sha256: Sha256, go_on: Callable[[], None]) -> Iterator[PartialFile]:
        """Lock the partial file of a sha256. `go_on` is called while another run has the lock, and may raise.

        Then look for the complete file again, because the other run may have downloaded it.
        """
        lock = self._locks / sha256
        with contextlib.ExitStack() as stack:
            while True:
                try:
                    stack.enter_context(exclusive(lock, until=time.monotonic() + _POLL_SECONDS))
                    break
                except OverdueError:
                    go_on()
            yield PartialFile(self.root / _PARTS / sha256)

    def keep(self, part: PartialFile, sha256: Sha256, name: str) -> Path:
        """Add a complete file whose sha256 the caller has verified."""
        path = self.root / sha256 / name
        part.move(path)
        self._hashes.remember(path, sha256)
        return path

    def save(self) -> None:
        """Save the computed hashes, and remove empty directories."""
        with contextlib.suppress(OSError):
            self._hashes.save()
        with contextlib.suppress(OSError):
            (self.root / _PARTS).rmdir()

    def weigh(self) -> tuple[int, int]:
        """Return the number of files and the size of the cache in bytes."""
        count = size = 0
        for own in self._own():
            for path in own.rglob("*"):
                with contextlib.suppress(FileNotFoundError):
                    size += path.stat().st_size if path.is_file() else 0
                    count += not own.name.startswith(".")
        return count, size

    def clear(self) -> None:
        """Remove all files of the cache except active downloads and the locks.

        Other runs download their files again. Locks stay, because two runs could hold a recreated lock.
        """
        for path in self._own():
            if path.name == _PARTS:
                self._clear_parts(path)
            elif path.name == _MEMORY:
                path.unlink(missing_ok=True)
            elif path.name != _LOCKS:
                shutil.rmtree(path, ignore_errors=True)

    def _clear_parts(self, parts: Path) -> None:
        for path in sorted(parts.iterdir()):
            lock = self._locks / path.name.partition(".")[0]
            with contextlib.suppress(OverdueError), exclusive(lock, until=time.monotonic()):
                path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            parts.rmdir()

    def _own(self) -> Iterator[Path]:
        """Yield the paths of the cache; a directory that you chose may contain other files."""
        for path in self.root.iterdir() if self.root.is_dir() else ():
            if path.name in (_PARTS, _LOCKS, _MEMORY, METADATA) or _SHA256.fullmatch(path.name):
                yield path


def _link(path: Path, name: Path) -> Path:
    """Add another name for a file, because an index and an artifact may use different names."""
    try:
        name.hardlink_to(path)
    except FileExistsError:
        pass
    except OSError:
        # Some file systems do not support links.
        temporary = name.with_name(f".{name.name}")
        shutil.copyfile(path, temporary)
        temporary.replace(name)
    return name
