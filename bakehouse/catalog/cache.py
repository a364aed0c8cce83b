"""Cache of a loaded catalogue for the next process, valid while no file of it changes.

Its key is over the bytes of every file in the components' folders, of Bakehouse's own code, and Python's
version, so it can't go stale. It lies in the user's own cache folder, is used only where nobody else may
write there, and is read without calling anything but the classes that a catalogue is made of.
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

from bakehouse.catalog.catalog import Catalog, Links, load_catalog
from bakehouse.errors import Problems
from bakehouse.util.files import write_whole

_CODE = (Path(__file__).parent, Path(__file__).parents[1] / "util")
"""The code that reads a catalogue: the import contract lets it use nothing else but the errors."""
_MOST_FILES = 20_000
_MOST_KEPT = 8
"""Catalogues of other projects and checkouts."""
_OTHERS = {("pathlib", "PosixPath"), ("builtins", "frozenset"), ("builtins", "set")}


def cached_catalog(roots: Sequence[Path], problems: Problems) -> Catalog:
    """Load a catalogue, from the cache if possible. A catalogue with mistakes is never cached."""
    key, folder = _key(roots), _folder()
    if key is None or folder is None or problems:
        return load_catalog(roots, problems)
    name = sha256("\0".join(map(str, roots)).encode(errors="surrogateescape")).hexdigest()[:16]
    path = folder / f"catalog-{name}"
    if found := _read(path, key):
        return found
    catalog = load_catalog(roots, problems)
    if not problems and _key(roots) == key:
        _write(path, key, catalog)
    return catalog


def _key(roots: Iterable[Path]) -> bytes | None:
    """Return the cache key of a catalogue; None if its files cannot be read."""
    told = sha256(f"{sys.version} {sys.flags.optimize}".encode())
    try:
        for folder in (*_CODE, *(root / "components" for root in roots)):
            told.update(f"\0{folder}\0".encode(errors="surrogateescape"))
            for path in sorted(_files(folder)):
                data = _bytes(path)
                told.update(f"{path}\0{len(data)}\0".encode(errors="surrogateescape"))
                told.update(data)
    except OSError:
        return None
    return told.digest()


def _bytes(path: str) -> bytes:
    try:
        with Path(path).open("rb", buffering=0) as file:
            return file.read()
    except FileNotFoundError:
        # A link to nowhere, such as stand-ins of programs have
        return b""


def _files(folder: Path) -> Iterator[str]:
    count = 0
    for parent, folders, names in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in names:
            count += 1
            if count > _MOST_FILES:
                message = f"more than {_MOST_FILES} files in {folder}"
                raise OSError(message)
            yield f"{parent}/{name}"


def _folder() -> Path | None:
    """The user's own cache folder; None where there is none, or where others may write to it."""
    try:
        above = os.environ.get("XDG_CACHE_HOME", "")
        folder = (Path(above) if above.startswith("/") else Path.home() / ".cache") / "bakehouse"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder if stat.S_ISDIR(folder.lstat().st_mode) and _is_ours(folder.lstat()) else None
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
        found = _Unpickler(io.BytesIO(data)).load()
    except (pickle.UnpicklingError, AttributeError, EOFError, ImportError, IndexError, TypeError, ValueError):
        return None
    return found if isinstance(found, Catalog) else None


def _write(path: Path, key: bytes, catalog: Catalog) -> None:
    # What it works out of all components once is kept with them.
    for worked_out in ("links", "provided_names"):
        getattr(catalog, worked_out)
    data = pickle.dumps(catalog, protocol=pickle.HIGHEST_PROTOCOL)
    try:
        write_whole(path, key + sha256(data).digest() + data)
        kept = sorted(path.parent.glob("catalog-*"), key=lambda one: one.stat().st_mtime)
        for old in kept[:-_MOST_KEPT]:
            old.unlink()
    except OSError:
        return


class _Unpickler(pickle.Unpickler):
    """Finds the dataclasses of Bakehouse, and nothing that could do more than hold a value."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _OTHERS:
            return super().find_class(module, name)
        if module.startswith("bakehouse."):
            found = super().find_class(module, name)
            if found is Links or (isinstance(found, type) and dataclasses.is_dataclass(found)):
                return found
        message = f"{module}.{name} is no part of a catalogue"
        raise pickle.UnpicklingError(message)
