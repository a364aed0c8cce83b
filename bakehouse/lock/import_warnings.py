"""Packages of a lock that cannot be imported with the others, as far as their files show it."""

from collections.abc import Iterable, Iterator
from datetime import date

from packaging.utils import parse_wheel_filename
from packaging.version import Version

from bakehouse.errors import BuildError, ConflictError
from bakehouse.lock import python as pylock
from bakehouse.lock.python import Index, LockedFile

LAST_NUMPY_1 = date(2024, 2, 6)
"""Day of NumPy 1.26.4, the last release before the first test releases of NumPy 2."""


def import_warnings(image: str, files: Iterable[LockedFile], numpy: str, index: Index) -> Iterator[str]:
    """Yield a line for each wheel that was compiled for NumPy 1, if NumPy 2 or newer is in the image.

    `numpy` is the version in the image; empty without NumPy.
    """
    if not numpy or Version(numpy).major < 2:
        return
    for file in files:
        is_older = file.name != "numpy" and file.uploaded and file.uploaded <= LAST_NUMPY_1
        if is_older and _is_compiled(file) and _needs_numpy(file, index):
            yield (
                f"{image}: {file.name} {file.version} cannot be imported with NumPy {numpy}: its wheel of "
                f"{file.uploaded} was compiled for NumPy 1; ask for `numpy<2`, or a newer `{file.name}`"
            )


def _is_compiled(file: LockedFile) -> bool:
    """Return whether a wheel has extensions for Python, not only programs or libraries."""
    if not file.file.endswith(".whl"):
        return False
    return any(tag.interpreter.startswith("cp") for tag in parse_wheel_filename(file.file)[3])


def _needs_numpy(file: LockedFile, index: Index) -> bool:
    try:
        return "numpy" in pylock.versions([f"{file.name}=={file.version}"], (), index)
    except (BuildError, ConflictError):
        return False
