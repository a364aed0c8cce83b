"""Cache of a loaded catalogue for the next process, valid while no file of it changes.

The cache key covers all files in the component directories, the pins, the code that reads them and the
version of Python, so the cache cannot go stale. It is in the cache directory of the user, and is used only if
no other user can write there. Unpickling calls no classes except those of a catalogue.
"""

import dataclasses
import io
import os
import pickle
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from bakehouse.catalog import pins
from bakehouse.catalog.catalog import Catalog, Links, load_catalog
from bakehouse.errors import Problems
from bakehouse.util.files import write_whole

_CODE = (Path(__file__).parent, Path(__file__).parents[1] / "util")
"""The code that reads a catalogue. The import contract allows it no other imports except the errors."""
_MAX_FILES = 20_000
_MAX_CATALOGS = 8
"""Number of cached catalogues of different projects and checkouts."""
_OTHERS = {("pathlib", "PosixPath"), ("builtins", "frozenset"), ("builtins", "set")}


def cached_catalog(roots: Sequence[Path], problems: Problems) -> Catalog:
    """Load a catalogue, from the cache if possible. A catalogue with mistakes is never cached."""
    key, directory = _key(roots), _cache_directory()
    if key is None or directory is None or problems:
        return load_catalog(roots, problems)
    name = sha256("\0".join(map(str, roots)).encode(errors="surrogateescape")).hexdigest()[:16]
    path = directory / f"catalog-{name}"
    if cached := _read(path, key):
        return cached
    catalog = load_catalog(roots, problems)
    if not problems and _key(roots) == key:
        _write(path, key, catalog)
    return catalog


def _key(roots: Iterable[Path]) -> bytes | None:
    """Return the cache key of a catalogue; None if its files cannot be read."""
    key = sha256(f"{sys.version} {sys.flags.optimize}".encode())
    try:
        directories = (*_CODE, *(root / "components" for root in roots))
        groups = [(str(directory), sorted(_files(directory))) for directory in directories]
        groups.append((pins.FILE, [str(root / pins.FILE) for root in roots]))
        for name, paths in groups:
            key.update(f"\0{name}\0".encode(errors="surrogateescape"))
            for path in paths:
                data = _bytes(path)
                key.update(f"{path}\0{len(data)}\0".encode(errors="surrogateescape"))
                key.update(data)
    except OSError:
        return None
    return key.digest()


def _bytes(path: str) -> bytes:
    try:
        with Path(path).open("rb", buffering=0) as file:
            return file.read()
    except FileNotFoundError:
        # A dangling link, such as in stubs of programs
        return b""


def _files(directory: Path) -> Iterator[str]:
    count = 0
    for parent, directories, names in os.walk(directory, followlinks=True):
        directories[:] = [name for name in directories if name != "__pycache__"]
        for name in names:
            count += 1
            if count > _MAX_FILES:
                message = f"more than {_MAX_FILES} files in {directory}"
                raise OSError(message)
            yield f"{parent}/{name}"


def _cache_directory() -> Path | None:
    """Return the cache directory of the user; None if it is unusable or other users can write to it."""
    try:
        parent = os.environ.get("XDG_CACHE_HOME", "")
        path = (Path(parent) if parent.startswith("/") else Path.home() / ".cache") / "bakehouse"
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path if stat.S_ISDIR(path.lstat().st_mode) and _is_ours(path.lstat()) else None
    except (OSError, RuntimeError):
        return None


def _is_ours(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid() and not status.st_mode & 0o022


def _read(path: Path, key: bytes) -> Catalog | None:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode) or not _is_ours(status) or file.read(len(key)) != key:
                return None
            digest, data = file.read(32), file.read()
    except OSError:
        return None
    if sha256(data).digest() != digest:
        return None
    try:
        catalog = _Unpickler(io.BytesIO(data)).load()
    except (pickle.UnpicklingError, AttributeError, EOFError, ImportError, IndexError, TypeError, ValueError):
        return None
    return catalog if isinstance(catalog, Catalog) else None


def _write(path: Path, key: bytes, catalog: Catalog) -> None:
    # Compute the cached properties, so that they are pickled too.
    _ = catalog.links, catalog.provided_names
    data = pickle.dumps(catalog, protocol=pickle.HIGHEST_PROTOCOL)
    try:
        write_whole(path, key + sha256(data).digest() + data)
        catalogs = sorted(path.parent.glob("catalog-*"), key=lambda file: file.stat().st_mtime)
        for old in catalogs[:-_MAX_CATALOGS]:
            old.unlink()
    except OSError:
        return


class _Unpickler(pickle.Unpickler):
    """Unpickler that only loads classes that hold values, such as the dataclasses of Bakehouse."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _OTHERS:
            return super().find_class(module, name)
        if module.startswith("bakehouse."):
            value = super().find_class(module, name)
            if value is Links or (isinstance(value, type) and dataclasses.is_dataclass(value)):
                return value
        message = f"{module}.{name} does not belong to a catalogue"
        raise pickle.UnpicklingError(message)
