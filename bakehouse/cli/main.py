"""The `bake` command: runs tasks, and turns every failure into a message and an exit code."""

import contextlib
import errno
import io
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

from bakehouse import __version__
from bakehouse.catalog import project
from bakehouse.catalog.consent import ConsentRequest
from bakehouse.catalog.project import HOME
from bakehouse.cli import command_line, diagnostics, help_text
from bakehouse.cli.command_name import as_typed
from bakehouse.cli.tasks.collection import GROUPS
from bakehouse.cli.tasks.declare import Exit
from bakehouse.errors import BakehouseError, Diagnostic, RecipeError
from bakehouse.util import terminal
from bakehouse.util.directory_handles import LinkError
from bakehouse.util.format import fit_lines, format_bytes
from bakehouse.util.tempdir import is_temporary

_MACHINE_ERRORS = (
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENOTDIR, errno.EISDIR),
)
"""Errors that the user has to fix: permissions, disks, and files where directories should be."""

_OUTPUT = "standard output"
_PASSPHRASE = "BAKEHOUSE_SIGNING_PASSPHRASE"
_FREE_SPACE = "free disk space, such as with `bake clean`, and run the same command again"


def run(words: Sequence[str]) -> int:
    """Run a command line without its first word, and return the exit code."""
    own = command_line.own_words(words)
    terminal.set_verbose(command_line.VERBOSE in own)
    try:
        _run([*(word for word in own if word != command_line.VERBOSE), *words[len(own) :]])
        print(end="", flush=True)
    except Exit as end:
        return end.exit_code
    except BakehouseError as error:
        diagnostics.write_failure(error, sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        # A terminal that was closed takes no message
        with contextlib.suppress(OSError):
            print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader, such as `head`, has ended.
        _discard_output()
        return 141
    except LinkError as error:
        message = f"cannot use `{error.filename}`: {error.strerror}"
        hint = "replace the link with a file or a directory of the repository"
        failure = RecipeError(message, hint=hint if "link" in str(error.strerror) else "")
        diagnostics.write_failure(failure, sys.stderr)
        return failure.exit_code
    except OSError as error:
        if error.errno not in _MACHINE_ERRORS:
            raise
        if error.filename == _OUTPUT:
            _discard_output()
        diagnostics.write_failure(BakehouseError.of(_machine_error(error)), sys.stderr)
        return BakehouseError.exit_code
    return 0


class _Output(io.FileIO):
    """Standard output, whose errors have a name."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            error.filename = _OUTPUT
            raise


def _named_output(output: io.TextIOWrapper) -> io.TextIOWrapper:
    raw = _Output(output.fileno(), "w", closefd=False)
    return io.TextIOWrapper(
        cast(BinaryIO, raw) if output.write_through else io.BufferedWriter(raw),
        output.encoding,
        output.errors,
        line_buffering=output.line_buffering,
        write_through=output.write_through,
    )


def _discard_output() -> None:
    """Discard what was printed: Python's own flush at exit must not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(words: list[str]) -> None:
    match words:
        case [] | ["help" | "-h" | "--help"]:
            _print_help(help_text.daily(GROUPS))
        case ["help", "--all"] | ["-l" | "--list"]:
            _print_help(help_text.overview(GROUPS))
        case ["-V" | "--version"]:
            print(f"bake {__version__}")
        case ["help" | "-h" | "--help", name] if not name.startswith("-"):
            _print_help(help_text.command_help(command_line.find_command(name)))
        case [name, *rest] if {"-h", "--help"} & {*command_line.own_words(rest)} and not name.startswith("-"):
            _print_help(help_text.command_help(command_line.find_command(name)))
        case _:
            task, values = command_line.parse(words)
            _ask_for_consent()
            task(**values)


def _print_help(text: str) -> None:
    print(fit_lines(as_typed(text)), end="")


def _ask_for_consent() -> None:
    """Ask at a terminal, once, for consent to the project's settings that widen trust."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    requests: list[ConsentRequest] = []
    with contextlib.suppress(BakehouseError, OSError):
        # The command reports mistakes
        requests += project.find(Path.cwd()).unconfirmed.values()
    if not requests:
        return
    for request in requests:
        sys.stderr.write(f"{terminal.printable(request.text)}\n")
    if terminal.asked("Allow this, until a value changes?"):
        for request in requests:
            request.grant()


def _machine_error(error: OSError) -> Diagnostic:
    reason = (error.strerror or str(error)).lower()
    # An error with two files, such as that of a rename, is about the second, the final one.
    name = error.filename2 or error.filename
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    if name is None and is_full:
        # The error of a write to an open file
        name = str(_fullest_directory())
    if name == _OUTPUT:
        hint = "free space on the disk of the file that the output goes to" if is_full else ""
        return Diagnostic(f"cannot write to {_OUTPUT}: {reason}", hint=hint)
    if name is None:
        return Diagnostic(f"cannot continue: {reason}")
    path = os.fsdecode(name)
    settings = ((name, os.environ.get(name, "")) for name in ("BAKEHOUSE_STATE", "BAKEHOUSE_CACHE"))
    if error.errno in (errno.EACCES, errno.EROFS) and Path(path).is_relative_to(HOME):
        message = f"cannot use `{path}`: you may not write in this checkout of Bakehouse"
        hint = "run it in a project of your own, or set BAKEHOUSE_STATE to a directory of your own"
        return Diagnostic(message, hint=hint)
    hint = next((f"{name} is `{value}`" for name, value in settings if value and path.startswith(value)), "")
    if is_full:
        if is_temporary(Path(path)):
            return _full_disk(Path(path), reason, "", "free space there, or set TMPDIR to another directory")
        return _full_disk(Path(path), reason, hint)
    return Diagnostic(f"cannot use `{path}`: {reason}", hint=hint)


def _fullest_directory() -> Path:
    """Return the directory that Bakehouse writes to on the disk with the least free space."""
    directories = [Path.cwd(), Path(os.environ.get("TMPDIR") or "/tmp")]
    with contextlib.suppress(BakehouseError, OSError):
        present = project.find(Path.cwd())
        directories += [present.state, present.cache]
    directories = [directory for directory in directories if directory.is_dir()]
    return min(directories, key=lambda directory: shutil.disk_usage(directory).free)


def _full_disk(path: Path, reason: str, setting: str, hint: str = _FREE_SPACE) -> Diagnostic:
    directory = next(parent for parent in (path.absolute(), *path.absolute().parents) if parent.is_dir())
    disk = shutil.disk_usage(directory)
    facts = (
        ("free", f"{format_bytes(disk.free)} of {format_bytes(disk.total)} in {directory}"),
        *([("setting", setting)] if setting else ()),
    )
    return Diagnostic(f"cannot write `{path}`: {reason}", facts=facts, hint=hint)


def main() -> None:
    """Run the command line of this process."""
    # SIGTERM, as CI systems send it, cleans up like Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if _PASSPHRASE in os.environ:
        # Most commands use no keys, whose module takes long to import.
        from bakehouse.trust import keys

        keys.hide_passphrase()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout = _named_output(sys.stdout)
    sys.exit(run(sys.argv[1:]))
