"""Atomic writes of files, and checks of paths from users."""

import os
from pathlib import Path


def write_whole(path: Path, content: str | bytes) -> None:
    """Replace `path` by `content` in one step, and create its directory if needed.

    Readers see either the old or the new content. An interrupted write leaves the old one. The next write
    removes the temporary file of one that was killed.
    """
    # Image URI look-ups import this module but never write, so they need not wait for these imports.
    import tempfile

    from bakehouse.util import tempdir

    data = content.encode() if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{path.name}."
    for left in tempdir.abandoned(path.parent, prefix):
        left.unlink(missing_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f"{prefix}{tempdir.run_id()}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def display_path(path: Path) -> str:
    """Return a path below the current directory relative to it, others as they are, without `..`."""
    plain = Path(os.path.normpath(path))
    return str(plain.relative_to(Path.cwd()) if plain.is_relative_to(Path.cwd()) else plain)


def expand_home(path: str) -> Path:
    """Return a path with its `~` replaced; that of an unknown user stays, as in a shell."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def is_file(path: Path) -> bool:
    """Return whether a file exists and is accessible; False also for paths that are too long."""
    try:
        return path.is_file()
    except OSError:
        return False


def is_directory(path: Path) -> bool:
    """Return whether a directory exists and is accessible."""
    try:
        return path.is_dir()
    except OSError:
        return False
