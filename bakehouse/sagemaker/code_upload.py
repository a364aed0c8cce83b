"""Training code of jobs: an archive as the SDK uploads it to S3, or its files."""

import contextlib
import io
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

from bakehouse.errors import Diagnostic, UsageError

MAX_BYTES = 500_000_000
_HINT = "use a directory with training code only, and a channel for data"
_IGNORED = ("__pycache__", ".git", ".venv")


def pack(source: Path) -> bytes:
    """Return a directory, or a single file, as a gzipped tar archive like the SDK's.

    Raises UsageError if it is too big to be code.
    """
    buffer = io.BytesIO()
    # Targets of links do not exist in the image.
    with (
        _translate_errors(source),
        tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1, dereference=True) as archive,
    ):
        for name, path in _files(source).items():
            archive.add(path, name, recursive=False)
    return buffer.getvalue()


def read_files(source: Path) -> dict[str, bytes]:
    """Return the files of a directory by relative path; raise UsageError if it is too big to be code."""
    with _translate_errors(source):
        return {name: path.read_bytes() for name, path in _files(source).items()}


@contextlib.contextmanager
def _translate_errors(source: Path) -> Iterator[None]:
    """Raise UsageError if a file can't be read."""
    try:
        yield
    except OSError as error:
        message = f"can't read `{error.filename or source}`: {error.strerror or error}"
        raise UsageError(Diagnostic(message, hint=_HINT)) from error


def _files(source: Path) -> dict[str, Path]:
    size, files = 0, {}
    paths, root = ([source], source.parent) if source.is_file() else (sorted(_walk(source)), source)
    for path in paths:
        name = path.relative_to(root)
        if not path.is_file():
            continue
        size += path.stat().st_size
        if size > MAX_BYTES:
            message = f"`{source}` contains more than {MAX_BYTES // 1_000_000} MB"
            raise UsageError(Diagnostic(message, hint=_HINT))
        files[str(name)] = path
    return files


def _walk(root: Path) -> Iterator[Path]:
    """Yield the files in a directory, following links. Links to a parent directory are skipped."""

    def fail(error: OSError) -> None:
        raise error

    parents = {root: {root.resolve()}}
    for path, directories, names in os.walk(root, onerror=fail, followlinks=True):
        directory = Path(path)
        ancestors = parents.pop(directory)
        targets = {name: (directory / name).resolve() for name in directories if name not in _IGNORED}
        directories[:] = [name for name, target in targets.items() if target not in ancestors]
        parents |= {directory / name: ancestors | {targets[name]} for name in directories}
        yield from (directory / name for name in names if name not in _IGNORED)
