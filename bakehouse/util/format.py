"""Format of numbers, durations and tables in all output."""

import re
import sys
from collections.abc import Iterable, Sequence

_LEAST_WIDTH = 40
_HEAD = re.compile(r" *(?:\S+(?: \S+)*  +)?(?=\S)")
"""The indentation of a line and its first cells, up to the last text."""


def fit_lines(text: str, width: int = 0) -> str:
    """Wrap lines that are longer than the terminal, or than 80 columns without one, below their last cell."""
    # Look-ups of image URIs import this module, and these imports take longer than a look-up
    import shutil

    width = max(width or shutil.get_terminal_size().columns, _LEAST_WIDTH)
    return "".join(f"{_fit(line, width)}\n" for line in text.splitlines())


def _fit(line: str, width: int) -> str:
    if len(line) <= width:
        return line
    if line.startswith("  ") and " --" in line and "  " not in line.strip():
        # A command stays one that a shell takes
        return " \\\n".join(_wrap(line, width - 2, "      "))
    head = _HEAD.match(line)
    indent = len(head[0]) if head and len(head[0]) < width // 2 else len(line) - len(line.lstrip()) + 4
    return "\n".join(_wrap(line, width, " " * indent))


def _wrap(line: str, width: int, indent: str) -> list[str]:
    import textwrap

    return textwrap.wrap(
        line,
        width,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
        replace_whitespace=False,
    )


def format_bytes(count: float) -> str:
    """Format bytes in decimal units: `1.24 GB`, `83.2 MB`, `5 kB`, `191 bytes`."""
    size = abs(count)
    if size < 1e3:
        return format_count(round(count), "byte")
    if size < 1e5:
        return f"{count / 1e3:.0f} kB"
    # Print 1.00 GB instead of 1000.0 MB.
    return f"{count / 1e6:.1f} MB" if size < 999.95e6 else f"{count / 1e9:.2f} GB"


def format_seconds(seconds: float) -> str:
    """Format a duration: `0.4 s`, `83 s`, `2:05` for minutes, `1:02:05` for hours."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    # Round first, so that 179.7 seconds are 3:00, not 2:60.
    whole = round(seconds)
    if whole < 100:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def format_count(count: int, noun: str, plural: str = "") -> str:
    """Format a number with its noun: `1 file`, `6,394 files`."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def in_images(names: Sequence[str]) -> str:
    """Return a text about images: ` in churn`, ` in 11 images`; empty without names."""
    if not names:
        return ""
    return f" in {names[0]}" if len(names) == 1 else f" in {format_count(len(names), 'image')}"


def version_change(name: str, before: str | None, after: str | None) -> str:
    """Return the change of a package as text: changed, added or removed; empty if it is the same."""
    if before == after:
        return ""
    if before is None or after is None:
        return f"{name} {before or after} {'added' if after else 'removed'}"
    return f"{name} {before} -> {after}"


def format_names(names: Iterable[str], separator: str = ", ") -> str:
    """Names in backquotes, joined: `` `a`, `b` ``."""
    return separator.join(f"`{name}`" for name in names)


def first_names(names: Sequence[str], count: int = 4) -> str:
    """Names in backquotes, only the first ones of a long list: `` `a`, `b` and 7 more``."""
    more = len(names) - count
    return format_names(names) if more <= 1 else f"{format_names(names[:count])} and {more} more"


def format_table(
    rows: Iterable[Sequence[str]], *, align: str = "", indent: str = "", max_width: int | None = None
) -> str:
    """Format rows of cells as aligned lines, each with a newline; empty without rows.

    `align` has `l` (default) or `r` for each column. A cell longer than `max_width` moves the rest of its
    line, but does not widen its column. At a terminal, lines are not longer than that.
    """
    cells = [[*row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    if max_width is not None:
        widths = [min(width, max_width) for width in widths]
    sides = align.ljust(len(widths), "l")
    lines = (
        "  ".join(
            cell.rjust(width) if side == "r" else cell.ljust(width)
            for cell, width, side in zip(row, widths, sides, strict=True)
        )
        for row in cells
    )
    table = "".join(f"{indent}{line.rstrip()}\n" for line in lines)
    return fit_lines(table) if sys.stdout.isatty() else table
