"""The only reads, writes and removals of files of a project, and checks of paths from users.

Below a repository, reads follow links only within it, and nothing is written or removed through links.
"""

import contextlib
import errno
import fnmatch
import io
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from bakehouse.util.directory_handles import NO_LINK, LinkError, opened_parent, repository_of

_PACKAGE = Path(__file__).resolve().parents[1]
_DATA = _PACKAGE / "data"
"""The catalogue of an installed package; a checkout has none here."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

READ = "bakehouse.read"
"""Audit event of a read, with the path: the events of Python have names in an open directory."""
PROBE = "bakehouse.probe"
"""Audit event of a check whether a path exists, because results may depend on it."""


def open_file(path: Path, *, within: Path | None = None) -> io.BufferedReader:
    """Open a file to read it.

    Raises LinkError if it is in a repository, and a link leads out of it, or it is a pipe, a device or a
    socket. A path that a file of a repository names must be `within` that repository.
    """
    sys.audit(READ, path)
    with opened_parent(path, follow=True, within=within) as (directory, name):
        if directory is None:
            return path.open("rb")
        _require_file(path, os.stat(name, dir_fd=directory, follow_symlinks=False))
        # If it has become a pipe since, opening it must not wait
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        file = os.fdopen(os.open(name, flags, dir_fd=directory), "rb")
        try:
            _require_file(path, os.fstat(file.fileno()))
        except OSError:
            file.close()
            raise
        return file


def _require_file(path: Path, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(status.st_mode):
        raise LinkError(path, "it is not a regular file")


def read_bytes(path: Path, *, within: Path | None = None) -> bytes:
    """Return the content of a file. Raises LinkError like `open_file`."""
    with open_file(path, within=within) as file:
        return file.read()


def read_text(
    path: Path, *, encoding: str = "utf-8", errors: str = "strict", within: Path | None = None
) -> str:
    """Return the text of a file with `\\n` as line ends. Raises LinkError like `open_file`."""
    with io.TextIOWrapper(open_file(path, within=within), encoding, errors) as file:
        return file.read()


def names_in(directory: Path) -> list[str]:
    """Return the sorted names in a directory. Raises LinkError if a link leads out of its repository."""
    sys.audit(READ, directory)
    with opened_parent(directory, follow=True) as (parent, name):
        flags = os.O_DIRECTORY | os.O_CLOEXEC | (os.O_NOFOLLOW if parent is not None else 0)
        handle = os.open(name, flags, dir_fd=parent)
    try:
        return sorted(os.listdir(handle))  # noqa: PTH208  # Path takes no handle
    finally:
        os.close(handle)


def matching_paths(directory: Path, pattern: str) -> list[Path]:
    """Return the sorted paths in a directory whose names match a glob; none if it does not exist.

    After a slash, the glob continues with the path of a file.
    """
    pattern, _, file = pattern.partition("/")
    try:
        names = names_in(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []
    paths = [directory / name for name in names if fnmatch.fnmatchcase(name, pattern)]
    return [path / file for path in paths if is_file(path / file)] if file else paths


def files_below(directory: Path) -> list[Path]:
    """Return the sorted files below a directory. Links to directories are not followed."""
    paths = [directory / name for name in names_in(directory)] if is_directory(directory) else []
    below = [files_below(path) if path.is_dir() and not path.is_symlink() else [path] for path in paths]
    return [path for part in below for path in part if not path.is_dir()]


def write_whole(path: Path, content: str | bytes) -> None:
    """Replace `path` by `content` in one step, and create its directory if needed.

    Readers see either the old or the new content. An interrupted write leaves the old one. Devices and pipes
    are written to, not replaced. Raises LinkError if the path is in a repository and contains a link.
    """
    data = content.encode() if isinstance(content, str) else content
    with named_errors(path):
        if repository_of(path) is None:
            if path.exists() and not (path.is_file() or path.is_dir()):
                # As root, replacing /dev/null would succeed
                path.write_bytes(data)
                return
            make_directory(path.parent)
        with opened_parent(path, follow=False, create=True) as (handle, name):
            directory = os.open(path.parent, _DIRECTORY) if handle is None else handle
            try:
                _replace(path, directory, Path(name).name, data, is_guarded=handle is not None)
            finally:
                if handle is None:
                    os.close(directory)


def _replace(path: Path, directory: int, name: str, data: bytes, *, is_guarded: bool) -> None:
    """Replace a file in an open directory."""
    # Image URI look-ups import this module but never write, so they need not wait for this import.
    from bakehouse.util import tempdir

    if is_guarded:
        with contextlib.suppress(FileNotFoundError):
            mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
            if stat.S_ISLNK(mode):
                raise LinkError(path, f"{NO_LINK}: `{name}`")
            if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
                raise LinkError(path, "it is not a regular file")
    prefix = f".{name}."
    for left in tempdir.abandoned(path.parent, prefix):
        os.unlink(left.name, dir_fd=directory)
    temporary = f"{prefix}{tempdir.run_id()}.{os.urandom(4).hex()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(temporary, flags, 0o600, dir_fd=directory), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            # Some file systems do not support modes.
            with contextlib.suppress(PermissionError):
                os.fchmod(file.fileno(), 0o644)
        os.replace(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=directory)


def open_handle(path: Path, flags: int) -> int:
    """Open a file to write to it in place, and return its handle. Raises LinkError like `write_whole`."""
    with opened_parent(path, follow=False) as (directory, name):
        guard = os.O_NOFOLLOW if directory is not None else 0
        return os.open(name, flags | guard | os.O_CLOEXEC, 0o666, dir_fd=directory)


def set_mode(path: Path, mode: int) -> None:
    """Set the permissions of a file. Raises LinkError like `write_whole`."""
    with opened_parent(path, follow=False) as (directory, name):
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (os.O_NOFOLLOW if directory is not None else 0)
        handle = os.open(name, flags, dir_fd=directory)
        try:
            os.fchmod(handle, mode)
        finally:
            os.close(handle)


def remove_file(path: Path, *, missing_ok: bool = False) -> None:
    """Remove a file, or a link itself. Raises LinkError like `write_whole`."""
    try:
        with opened_parent(path, follow=False) as (directory, name):
            os.unlink(name, dir_fd=directory)
    except FileNotFoundError:
        if not missing_ok:
            raise


def remove_directory(path: Path) -> None:
    """Remove a directory, which must be empty. Raises LinkError like `write_whole`."""
    with opened_parent(path, follow=False) as (directory, name):
        os.rmdir(name, dir_fd=directory)


def remove_tree(path: Path) -> None:
    """Remove a directory as far as possible. Raises LinkError like `write_whole`."""
    # Its import takes long
    import shutil

    with contextlib.suppress(FileNotFoundError), opened_parent(path, follow=False) as (directory, name):
        shutil.rmtree(name, ignore_errors=True, dir_fd=directory)


def make_directory(path: Path) -> None:
    """Create a directory and its parents; an existing one is kept. Raises LinkError like `write_whole`."""
    try:
        if repository_of(path / "_"):
            with opened_parent(path / "_", follow=False, create=True):
                return
        path.mkdir(parents=True, exist_ok=True)
    except LinkError as error:
        error.filename = str(path)
        raise
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
