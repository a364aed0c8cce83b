"""Rows at the end of a terminal that are redrawn in place, output callbacks, and the verbosity."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TextIO

Reporter = Callable[[str], None]
"""Prints one line of progress."""

_is_verbose = False
_DIM, _PLAIN = "\033[2m", "\033[0m"


def set_verbose(value: bool) -> None:
    """Set whether this process prints details, as with `--verbose`."""
    global _is_verbose
    _is_verbose = value


def is_verbose() -> bool:
    return _is_verbose


def detail(report: Reporter) -> Reporter:
    """Return a reporter of lines that are printed only with `--verbose`."""
    return lambda line: report(line) if _is_verbose else None


def asked(question: str) -> bool:
    """Return whether a person at a terminal says yes."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


class Redrawn:
    """Rows at the end of a terminal. Erase them before you write other lines."""

    def __init__(self, stream: TextIO, *, colour: bool = False, width: int | None = None) -> None:
        self._stream, self._colour, self._width = stream, colour, width
        self._count = 0

    def draw(self, rows: Sequence[str]) -> None:
        """Draw each row on one line, clipped, because wrapped rows cannot be erased completely."""
        self.erase()
        width = (self._width or _width(self._stream)) - 1
        for row in rows:
            line = clip(row, width)
            self._stream.write(f"{_DIM}{line}{_PLAIN}\n" if self._colour else f"{line}\n")
        self._count = len(rows)
        self._stream.flush()

    def erase(self) -> None:
        if self._count:
            self._stream.write(f"\033[{self._count}F\033[J")
            self._count = 0


def printable(text: str) -> str:
    """Return a text with spaces in place of line ends and control characters."""
    return "".join(character if character.isprintable() else " " for character in text)


def clip(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"


def _width(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def in_colour(stream: TextIO, environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether the stream is a terminal and NO_COLOR is unset or empty (no-color.org)."""
    return stream.isatty() and not environment.get("NO_COLOR")
