"""Reader of the files of a recipe, including training code."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath

from bakehouse.errors import Location
from bakehouse.util.files import is_directory, is_file
from bakehouse.util.yaml_fields import Fields

CODE_DIRECTORY = "/opt/ml/code"
MAX_FILES = 10_000
MAX_BYTES = 200_000_000
"""Limits of files that are copied to `images/` and kept in memory while images are planned."""
_MOST_LEVELS = 3
"""Directories above the recipe in which a missing path is searched for a hint."""
_PART = r"(?!\.\.?(?:/|$))[A-Za-z0-9._+@-]+"
_PATH = re.compile(f"{_PART}(?:/{_PART})*")
"""A relative path that needs no quoting and cannot leave its directory."""
_LINKS = {
    **{f"/{name}": f"/usr/{name}" for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32")},
    "/var/run": "/run",
    "/var/lock": "/run/lock",
}
"""Links in every base with a merged /usr, which copied directories would replace."""


@dataclass(frozen=True, slots=True)
class File:
    """A file that is copied into the image."""

    target: str
    """Absolute path in the image."""
    content: bytes
    is_executable: bool


Placed = list[tuple[File, Location]]
"""Files with their locations in the recipe."""


def read_files(fields: Fields, directory: Path, inside: Sequence[Path] = ()) -> Placed:
    """Read the files of `files`, each with its location in the recipe."""
    placed: Placed = []
    for child in fields.children("files", "a file"):
        source = beside(child, "from", directory, inside)
        target = child.text("to", required=True)
        child.finish()
        if not target or source is None:
            continue
        spot = child.place("to")
        if not _PATH.fullmatch(target.removeprefix("/").removesuffix("/")) or not target.startswith("/"):
            label = "letters, digits and `._+@-` between slashes"
            child.report(f"`{target}` is not a plain absolute path", spot, label)
        elif is_directory(source):
            placed += _directory(source, target.rstrip("/"), child, spot)
        elif is_file(source):
            name = f"{target}{source.name}" if target.endswith("/") else target
            placed += _file(source, name, child, spot)
        else:
            report_missing(child, "from", "", directory)
    return placed


def read_code(fields: Fields, directory: Path, inside: Sequence[Path] = ()) -> tuple[Placed, str | None]:
    """Read the training code of `code`, and its entry point, if any, relative to its directory."""
    child = fields.child("code", "`code`", "write `code: {directory: ../../src, entry_point: train.py}`")
    if child is None:
        return [], None
    source = beside(child, "directory", directory, inside)
    entry_point = child.text("entry_point", required=child.has("entry_point"))
    child.finish()
    if source is None:
        return [], entry_point or None
    if not is_directory(source):
        report_missing(child, "directory", "directory ", directory)
        return [], entry_point or None
    if entry_point and not _PATH.fullmatch(entry_point):
        label = "a path below `directory`, of letters, digits and `._+@-`"
        child.report(f"`{entry_point}` is not a plain relative path", child.place("entry_point"), label)
    elif entry_point and not is_file(source / entry_point):
        child.report(
            f"`{child.text('directory')}` does not contain `{entry_point}`", child.place("entry_point")
        )
    return _directory(source, CODE_DIRECTORY, child, child.place("directory")), entry_point or None


def beside(fields: Fields, key: str, directory: Path, inside: Sequence[Path] = ()) -> Path | None:
    """Read a path, which must be relative because recipes are read on other machines too.

    It must be in one of `inside`, if there are any, as must the targets of links below it.
    """
    text = fields.text(key, required=True)
    if text.startswith("/"):
        fields.report(f"`{key}` must be relative to the recipe's directory", fields.place(key))
        return None
    path = directory / text if text else None
    if path and inside and (real := _outside(path, inside)):
        label = f"this is `{real}`" if real != Path(os.path.normpath(path)) else ""
        hint = "copy it into the project, or set `outside_project: true` in the recipe"
        fields.report(f"`{text}` is outside the project", fields.place(key), label, hint)
        return None
    return path


def report_missing(fields: Fields, key: str, kind: str, directory: Path) -> None:
    """Report a path that does not exist, with the path from the recipe if it exists further up."""
    text = fields.text(key)
    upwards = (f"{'../' * levels}{text}" for levels in range(1, _MOST_LEVELS + 1))
    existing = (path for path in upwards if is_file(directory / path) or is_directory(directory / path))
    hint = next((f"did you mean `{path}`?" for path in existing), "")
    fields.report(f"{kind}`{text}` does not exist next to the recipe", fields.place(key), hint=hint)


def _outside(source: Path, inside: Sequence[Path]) -> Path | None:
    """Return the path that a file or directory, or a link below it, refers to outside of some directories."""
    try:
        paths = islice(source.rglob("*"), MAX_FILES) if is_directory(source) else ()
        for path in (source, *(path for path in paths if path.is_symlink())):
            real: Path = path.resolve()
            if not any(real.is_relative_to(directory) for directory in inside):
                return real
    except (OSError, RuntimeError):
        # Reading the file reports it.
        return None
    return None


def _directory(source: Path, target: str, fields: Fields, spot: Location) -> Placed:
    try:
        paths = sorted(islice(source.rglob("*"), MAX_FILES + 1))
    except OSError as error:
        fields.report(f"cannot read `{source.name}`: {(error.strerror or str(error)).lower()}", spot)
        return []
    if len(paths) > MAX_FILES:
        message = f"`{source.name}` contains more than {MAX_FILES:,} files"
        fields.report(message, spot, hint="name a smaller directory")
        return []
    placed: Placed = []
    for path in paths:
        if is_file(path) and "__pycache__" not in path.parts:
            placed += _file(path, f"{target}/{path.relative_to(source).as_posix()}", fields, spot)
    return placed


def _file(source: Path, target: str, fields: Fields, spot: Location) -> Placed:
    try:
        status = source.stat()
        if status.st_size > MAX_BYTES:
            message = f"`{source.name}` is larger than {MAX_BYTES // 1_000_000} MB"
            fields.report(message, spot, hint="download it in a `run` step or when the job starts")
            return []
        return [(File(target, source.read_bytes(), bool(status.st_mode & 0o100)), spot)]
    except OSError as error:
        fields.report(f"cannot read `{source.name}`: {(error.strerror or str(error)).lower()}", spot)
        return []


def check_targets(placed: Placed, fields: Fields) -> None:
    """Report files whose path is that of another file, of a directory, or below a link of the base."""
    taken: set[str] = set()
    directories = {str(parent) for file, _ in placed for parent in PurePosixPath(file.target).parents}
    for file, spot in placed:
        if file.target in taken:
            fields.report(f"two files have the target `{file.target}`", spot)
        elif file.target in directories:
            fields.report(f"`{file.target}` is the path of a file and of a directory", spot)
        taken.add(file.target)
        for link, directory in _LINKS.items():
            if PurePosixPath(file.target).is_relative_to(link):
                message = f"`{file.target}` is below `{link}`, a link in every base"
                fields.report(message, spot, hint=f"write `{directory}{file.target.removeprefix(link)}`")
