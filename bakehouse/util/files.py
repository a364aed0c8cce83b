"""Atomic writes of files, and checks of paths from users."""

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

_PACKAGE = Path(__file__).resolve().parents[1]
_DATA = _PACKAGE / "data"
"""The catalogue of an installed package; a checkout has none here."""

PROBE = "bakehouse.probe"
"""Audit event of a check whether a path exists, because results may depend on it."""


def write_whole(path: Path, content: str | bytes) -> None:
    """Replace `path` by `content` in one step, and create its directory if needed.

    Readers see either the old or the new content. An interrupted write leaves the old one. Devices and pipes
    are written to, not replaced.
    """
    data = content.encode() if isinstance(content, str) else content
    with named_errors(path):
        if path.exists() and not (path.is_file() or path.is_dir()):
            # As root, replacing /dev/null would succeed
            path.write_bytes(data)
            return
        with temporary_file(path.parent, f".{path.name}.") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            # Some file systems do not support modes.
            with contextlib.suppress(PermissionError):
                os.fchmod(file.fileno(), 0o644)
            Path(file.name).replace(path)


def make_directory(path: Path) -> None:
    """Create a directory and its parents; an existing one is kept."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path)) from error
    except FileNotFoundError as error:
        # Some file systems cannot create directories, such as /proc
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(path)) from error


@contextlib.contextmanager
def temporary_file(directory: Path, prefix: str = ".") -> Iterator[IO[bytes]]:
    """Create a file to be renamed within its directory, which is created if needed; otherwise remove it.

    The next temporary file with the same prefix removes the files of killed runs.
    """
    # Image URI look-ups import this module but never write, so they need not wait for these imports.
    import tempfile

    from bakehouse.util import tempdir

    make_directory(directory)
    for left in tempdir.abandoned(directory, prefix):
        left.unlink(missing_ok=True)
    owner = tempdir.run_id()
    with tempfile.NamedTemporaryFile(dir=directory, prefix=f"{prefix}{owner}.", delete=False) as file:
        try:
            yield file
        finally:
            Path(file.name).unlink(missing_ok=True)


@contextlib.contextmanager
def named_errors(path: Path) -> Iterator[None]:
    """Name `path` in errors that name no file, such as a failed write to a full disk."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def display_path(path: Path) -> str:
    """Return a path for messages: short if it is in the installed catalogue or below the current directory.

    Files of the catalogue are shown as `pip show --files bakehouse` lists them.
    """
    plain = Path(os.path.normpath(path))
    return str(plain.relative_to(_PACKAGE.parent) if plain.is_relative_to(_DATA) else relative_path(plain))


def relative_path(path: Path) -> Path:
    """Return a normalized path, relative to the current directory if it is below that directory."""
    plain = Path(os.path.normpath(path))
    return plain.relative_to(Path.cwd()) if plain.is_relative_to(Path.cwd()) else plain


def expand_home(path: str) -> Path:
    """Return a path with its `~` replaced. The `~` of an unknown user is kept, as in a shell."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def is_file(path: Path) -> bool:
    """Return whether a file exists and is accessible; False also for paths that are too long."""
    sys.audit(PROBE, path)
    try:
        return path.is_file()
    except OSError:
        return False


def is_directory(path: Path) -> bool:
    """Return whether a directory exists and is accessible."""
    sys.audit(PROBE, path)
    try:
        return path.is_dir()
    except OSError:
        return False
