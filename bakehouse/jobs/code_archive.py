"""Training code of jobs: an archive as the SDK uploads it to S3, or its files."""

import contextlib
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import IO

from bakehouse.catalog import project, source_tree
from bakehouse.catalog.source_tree import Limits, SourceTree
from bakehouse.catalog.user_files import hint_of
from bakehouse.errors import UsageError
from bakehouse.jobs import rules
from bakehouse.jobs.rules import RuleViolation
from bakehouse.util.files import is_directory, open_file, read_bytes
from bakehouse.util.format import format_names
from bakehouse.util.terminal import Reporter

_HINT = "use a directory with training code only, and a channel for data"
LIMITS = Limits(files=50_000, file_bytes=500_000_000, total_bytes=500_000_000, hint=_HINT)
IGNORED_BY_V3 = (".env", ".git", "__pycache__", ".DS_Store", ".cache", ".ipynb_checkpoints")
"""Default `ignore_patterns` of SourceCode in SDK v3."""
_MAX_NAMES = 3
_SECRET_HINT = (
    "remove `{name}`, or name it in `.dockerignore`; if it is harmless, end the line with `# gitleaks:allow`"
)


def select(source: Path, entry_point: str, report: Reporter) -> SourceTree:
    """Return the files of a directory, or a single file, that are sent with a job; report those that are not.

    Raises UsageError if it contains secrets, is too big to be code, or does not send the entry point.
    """
    tree = _tree(source)
    if tree.problems:
        raise UsageError.of(*tree.problems)
    if entry_point and (rule := tree.rule_of(entry_point)):
        raise UsageError(f"`{entry_point}` is not sent with the job: {rule}", hint=hint_of(rule, entry_point))
    for line in tree.left_out_lines:
        report(f"not sent: {line}")
    return tree


def _tree(source: Path) -> SourceTree:
    root = project.root_of(source.absolute())
    real = source.resolve()
    inside = (real,) if root is None else (real, root.resolve())
    return source_tree.read_tree(source, LIMITS, project=root, inside=inside, hint=_SECRET_HINT)


def sdk_findings(source_dir: str, patterns: Sequence[str] = ()) -> tuple[RuleViolation, ...]:
    """Return warnings about files that the SDK uploads from a local directory and `bake launch` does not.

    `patterns` are the `ignore_patterns` of SDK v3.
    """
    source = Path(source_dir)
    if not source_dir or not is_directory(source):
        return ()

    def is_sent(path: str) -> bool:
        return not any(fnmatch(part, pattern) for part in path.split("/") for pattern in patterns)

    tree = _tree(source)
    findings = []
    if left_out := [path for path in sorted(tree.left_out) if is_sent(path)]:
        names = format_names(f"{source_dir}/{path}" for path in left_out[:_MAX_NAMES])
        more = f" and {len(left_out) - _MAX_NAMES} more" if left_out[_MAX_NAMES:] else ""
        hint = "move them, or use `bake launch`, which does not send them"
        findings.append(RuleViolation(rules.UPLOADED, f"the SDK also uploads {names}{more}", hint))
    for problem in tree.problems:
        spot = problem.location
        if spot is None or is_sent(spot.path.relative_to(source.absolute()).as_posix()):
            place = f" on line {spot.line}" if spot else ""
            message = f"the SDK uploads `{source_dir}`, in which {problem.message}{place}"
            findings.append(RuleViolation(rules.UPLOADED, message, "move it out of the directory"))
    return tuple(findings)


@contextlib.contextmanager
def pack(tree: SourceTree) -> Iterator[IO[bytes]]:
    """Yield selected files as a gzipped tar archive like the SDK's, in a temporary file."""
    archive = tempfile.TemporaryFile()  # noqa: SIM115
    try:
        with _translate_errors(tree.source):
            # Targets of links do not exist in the image.
            with tarfile.open(fileobj=archive, mode="w:gz", compresslevel=1, dereference=True) as tar:
                for file in tree.files:
                    with open_file(file.path) as content:
                        tar.addfile(tar.gettarinfo(arcname=file.name, fileobj=content), content)
            archive.seek(0)
        yield archive
    finally:
        # A file on a full disk can't be closed without an error.
        with contextlib.suppress(OSError):
            archive.close()


def read_files(tree: SourceTree) -> dict[str, bytes]:
    """Return the content of selected files by relative path."""
    with _translate_errors(tree.source):
        return {file.name: read_bytes(file.path) for file in tree.files}


@contextlib.contextmanager
def _translate_errors(source: Path) -> Iterator[None]:
    """Raise UsageError if a file can't be read, or the archive can't be written."""
    try:
        yield
    except OSError as error:
        message, hint = f"can't read `{error.filename}`: {error.strerror or error}", _HINT
        if not error.filename:
            message = f"can't write an archive of `{source}`: {error.strerror or error}"
            hint = "set `TMPDIR` to a directory with more space"
        raise UsageError(message, hint=hint) from error
