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
from bakehouse.util.json_reader import parse_json
from bakehouse.util.oci import Sha256


class HashCache:
    """Cache of the sha256 of files, valid until size, mtime or ctime changes."""

    def __init__(self, memory: Path) -> None:
        self._memory = memory
        self._lock = threading.Lock()
        self._hashes = self._read()
        self._is_new = False

    def sha256(self, path: Path) -> Sha256:
        state = _state(path)
        with self._lock:
            *before, sha256 = self._hashes.get(str(path), [""])
        if before != state:
            with path.open("rb") as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            self._record(path, state, sha256)
        return Sha256(sha256)

    def remember(self, path: Path, sha256: Sha256) -> None:
        """Record the sha256 of a file that the caller has just computed."""
        self._record(path, _state(path), sha256)

    def save(self) -> None:
        """Save new hashes, merged with those that other runs have saved."""
        with self._lock:
            if self._is_new:
                self._hashes = {**self._read(), **self._hashes}
                write_whole(self._memory, json.dumps(self._hashes, sort_keys=True, indent=1) + "\n")
                self._is_new = False

    def _record(self, path: Path, state: list[int], sha256: str) -> None:
        with self._lock:
            self._hashes[str(path)] = [*state, sha256]
            self._is_new = True

    def _read(self) -> dict[str, list[Any]]:
        with contextlib.suppress(OSError, ValueError):
            records = parse_json(self._memory.read_bytes())
            if isinstance(records, dict):
                return {path: record for path, record in records.items() if _is_record(record)}
        return {}


def _state(path: Path) -> list[int]:
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]


def _is_record(record: Any) -> bool:
    """Return whether a record is valid; other versions of Bakehouse may use another format."""
    return isinstance(record, list) and [type(value) for value in record] == [int, int, int, str]


class LocalMirrors:
    """Local directories of files, read at the first request."""

    def __init__(self, directories: Sequence[Path], hashes: HashCache) -> None:
        self._directories, self._hashes = directories, hashes
        self._lock = threading.Lock()
        self._listing: dict[str, list[Path]] | None = None

    def named(self, name: str) -> tuple[Path, ...]:
        """Return the files of that name, in the order of the directories."""
        with self._lock:
            if self._listing is None:
                self._listing = {}
                for path in (path for directory in self._directories for path in _files_below(directory)):
                    self._listing.setdefault(unquote(path.name), []).append(path)
        return tuple(self._listing.get(name, ()))

    def sha256(self, path: Path) -> Sha256:
        return self._hashes.sha256(path)

    def find(self, sha256: str, name: str) -> Path | None:
        """Return the file with these bytes, whose file name must be `name` or the sha256."""
        for path in self._candidates(sha256, name):
            with contextlib.suppress(OSError):
                if self._hashes.sha256(path) == sha256:
                    return path
        return None

    def _candidates(self, sha256: str, name: str) -> Iterator[Path]:
        # Directories of `bake build --download-only` and caches have files by sha256, so they are not listed.
        exact = (directory / sha256 / name for directory in self._directories if "/" not in name)
        yield from (path for path in exact if path.is_file() and not path.is_symlink())
        yield from self.named(name)
        yield from self.named(sha256)


def _files_below(root: Path) -> Iterator[Path]:
    """Yield all files of a directory, except hidden directories and links to files outside."""
    for parent, directories, names in os.walk(root):
        directories[:] = sorted(name for name in directories if not name.startswith("."))
        for path in (Path(parent, name) for name in sorted(names)):
            if not path.is_symlink() or path.resolve().is_relative_to(root.resolve()):
                yield path
