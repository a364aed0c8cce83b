"""Cache of files by sha256 for all runs on this machine: `<root>/<sha256>/<file>`, like a mirror.

A file is there whole or not at all. What a download left when it was interrupted is kept for the next one.
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
_POLL_SECONDS = 0.5
_CHUNK = 1 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}")


class PartialFile:
    """A partial download; the lock of its sha256 is held while it exists."""

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
            known, _, validator = self._from.read_text().partition("\n")
            if known == place:
                return validator
        return ""

    @contextlib.contextmanager
    def writing(self, start: int, place: str, validator: str) -> Iterator["PartialFile"]:
        """Go on at `start`, which is the end of what is there, or 0 to begin anew."""
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
        """Let it be the file at `path`, in one step."""
        with self._path.open("rb") as file:
            os.fsync(file.fileno())
        path.parent.mkdir(parents=True, exist_ok=True)
        # Disks that are carried about may know nothing of who may read.
        with contextlib.suppress(PermissionError):
            self._path.chmod(0o644)
        self._path.replace(path)
        self._from.unlink(missing_ok=True)

    _file: IO[bytes]


class FileCache:
    """A folder of files by their sha256, which any number of runs may use at once."""

    def __init__(self, root: Path, say: Reporter, aside: Path | None = None) -> None:
        """`aside` has what other machines have no use for: locks, and what is known of the files."""
        self.root, self._say = root, say
        self._locks = (aside or root) / _LOCKS
        self._hashes = HashCache((aside or root) / _MEMORY)

    def find(self, sha256: Sha256, name: str) -> Path | None:
        """The file with those bytes; one that was damaged since it came is removed, and that is told."""
        folder = self.root / sha256
        wanted = folder / name
        with contextlib.suppress(FileNotFoundError):
            for path in sorted(folder.iterdir(), key=lambda path: path != wanted):
                if self._hashes.sha256(path) == sha256:
                    return path if path == wanted else _also(path, wanted)
                self._say(f"{path} is damaged; removed")
                path.unlink(missing_ok=True)
        return None

    @contextlib.contextmanager
    def claim(self, sha256: Sha256, go_on: Callable[[], None]) -> Iterator[PartialFile]:
        """Be the one that receives a file; `go_on` is called while another one is, and may raise.

        Look again then whether the file is there.
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
        """Take in a part that is complete. The caller has compared its sha256."""
        path = self.root / sha256 / name
        part.move(path)
        self._hashes.remember(path, sha256)
        return path

    def save(self) -> None:
        """Write down which files were looked at, and leave no empty folder."""
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
        """Remove what a store has put there, but what is being received and the locks.

        Runs that use it meanwhile fetch their files again. Two may hold a lock whose file was removed.
        """
        for path in self._own():
            if path.name == _PARTS:
                self._clear_parts(path)
            elif path.name == _MEMORY:
                path.unlink(missing_ok=True)
            elif path.name != _LOCKS:
                shutil.rmtree(path, ignore_errors=True)

    def _clear_parts(self, folder: Path) -> None:
        for path in sorted(folder.iterdir()):
            lock = self._locks / path.name.partition(".")[0]
            with contextlib.suppress(OverdueError), exclusive(lock, until=time.monotonic()):
                path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            folder.rmdir()

    def _own(self) -> Iterator[Path]:
        """A folder that somebody names may hold other things too."""
        for path in self.root.iterdir() if self.root.is_dir() else ():
            if path.name in (_PARTS, _LOCKS, _MEMORY) or _SHA256.fullmatch(path.name):
                yield path


def _also(path: Path, wanted: Path) -> Path:
    """The same file under another name, such as an index and an artifact have for it."""
    try:
        wanted.hardlink_to(path)
    except FileExistsError:
        pass
    except OSError:
        # Not every disk has links.
        temporary = wanted.with_name(f".{wanted.name}")
        shutil.copyfile(path, temporary)
        temporary.replace(wanted)
    return wanted
