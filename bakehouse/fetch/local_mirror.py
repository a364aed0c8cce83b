"""Local directories whose files are found by sha256, cached until a file changes."""

import contextlib
import hashlib
import json
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from bakehouse.util.files import write_whole
from bakehouse.util.oci import Sha256


class HashCache:
    """Cache of the sha256 of files, valid until size, mtime or ctime changes."""

    def __init__(self, memory: Path) -> None:
        self._memory = memory
        self._lock = threading.Lock()
        self._known = self._read()
        self._is_new = False

    def sha256(self, path: Path) -> Sha256:
        state = _state(path)
        with self._lock:
            *before, known = self._known.get(str(path), [""])
        if before != state:
            with path.open("rb") as file:
                known = hashlib.file_digest(file, "sha256").hexdigest()
            with self._lock:
                self._known[str(path)] = [*state, known]
                self._is_new = True
        return Sha256(known)

    def remember(self, path: Path, sha256: Sha256) -> None:
        """Take a file's sha256 from somebody who has just computed it."""
        state = _state(path)
        with self._lock:
            self._known[str(path)] = [*state, sha256]
            self._is_new = True

    def save(self) -> None:
        """Write down what was learnt, beside what others have written meanwhile."""
        with self._lock:
            if self._is_new:
                self._known = {**self._read(), **self._known}
                write_whole(self._memory, json.dumps(self._known, sort_keys=True, indent=1) + "\n")
                self._is_new = False

    def _read(self) -> dict[str, list[Any]]:
        with contextlib.suppress(OSError, ValueError):
            known = json.loads(self._memory.read_text())
            if isinstance(known, dict):
                return {path: found for path, found in known.items() if _is_record(found)}
        return {}


def _state(path: Path) -> list[int]:
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]


def _is_record(found: Any) -> bool:
    """Another version may have written something else."""
    return isinstance(found, list) and [type(one) for one in found] == [int, int, int, str]


class LocalMirrors:
    """Local directories of files, read at the first request."""

    def __init__(self, folders: Sequence[Path], hashes: HashCache) -> None:
        self._folders, self._hashes = folders, hashes
        self._lock = threading.Lock()
        self._listing: dict[str, list[Path]] | None = None

    def named(self, name: str) -> tuple[Path, ...]:
        """The files of that name, in the order of the folders."""
        with self._lock:
            if self._listing is None:
                self._listing = {}
                for path in (path for folder in self._folders for path in _files_below(folder)):
                    self._listing.setdefault(unquote(path.name), []).append(path)
        return tuple(self._listing.get(name, ()))

    def sha256(self, path: Path) -> Sha256:
        return self._hashes.sha256(path)

    def find(self, sha256: str, name: str) -> Path | None:
        """The file with those bytes, among those called `name` or as their hash."""
        for path in self._candidates(sha256, name):
            with contextlib.suppress(OSError):
                if self._hashes.sha256(path) == sha256:
                    return path
        return None

    def _candidates(self, sha256: str, name: str) -> Iterator[Path]:
        # A folder that `fetch` has filled, or a store, need not be read whole.
        placed = (folder / sha256 / name for folder in self._folders if "/" not in name)
        yield from (path for path in placed if path.is_file() and not path.is_symlink())
        yield from self.named(name)
        yield from self.named(sha256)


def _files_below(folder: Path) -> Iterator[Path]:
    """Every file of a folder, those in hidden folders and links that lead out of it left out."""
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for path in (Path(place, name) for name in sorted(names)):
            if not path.is_symlink() or path.resolve().is_relative_to(folder.resolve()):
                yield path
