"""Turns Diagnostics into the text a person reads, or into GitHub annotations for CI."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

from bakehouse.errors import BakehouseError, Diagnostic, Location

_RED, _BLUE, _BOLD, _PLAIN = "\033[31;1m", "\033[34m", "\033[1m", "\033[0m"


def write_failure(error: BakehouseError, stream: TextIO, environment: Mapping[str, str] = os.environ) -> None:
    """Print every diagnostic of a failure, and their count when there are several."""
    colour = stream.isatty() and "NO_COLOR" not in environment
    blocks = [failure_text(diagnostic, colour=colour) for diagnostic in error.diagnostics]
    stream.write("\n".join(blocks))
    if len(blocks) > 1:
        stream.write(f"\n{len(blocks)} errors\n")
    if environment.get("GITHUB_ACTIONS") == "true":
        stream.writelines(annotation(diagnostic) for diagnostic in error.diagnostics)
    stream.flush()


def failure_text(diagnostic: Diagnostic, *, colour: bool = False) -> str:
    """The five parts of a failure in their fixed order: what, where, why, evidence, hint."""
    paint = (lambda text, code: f"{code}{text}{_PLAIN}") if colour else (lambda text, _: text)
    lines = [paint("error", _RED) + ": " + paint(diagnostic.message, _BOLD)]
    if diagnostic.location:
        lines += _excerpt(diagnostic.location, diagnostic.label)
    places = [len(reason.text) for reason in diagnostic.reasons if reason.location]
    width = min(max(places, default=0), 72)
    for position, reason in enumerate(diagnostic.reasons):
        opening = "because" if position == 0 else "and"
        place = f"   {paint(_short(reason.location), _BLUE)}" if reason.location else ""
        text = reason.text.ljust(width) if reason.location else reason.text
        lines.append(f"  {opening} {text}{place}")
    name_width = max((len(name) for name, _ in diagnostic.facts), default=0)
    lines += [f"  {name.ljust(name_width)}  {value}" for name, value in diagnostic.facts]
    lines += [f"    | {line}" for line in diagnostic.tail]
    if diagnostic.hint:
        lines += ["", f"hint: {diagnostic.hint}"]
    return "\n".join(lines) + "\n"


def annotation(diagnostic: Diagnostic) -> str:
    """One GitHub workflow command that marks the line in a pull request."""
    place = ""
    if spot := diagnostic.location:
        place = f" file={_short_path(spot.path)},line={spot.line},col={spot.column}"
    text = diagnostic.message + (f"; hint: {diagnostic.hint}" if diagnostic.hint else "")
    escaped = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return f"::error{place}::{escaped}\n"


def _excerpt(spot: Location, label: str) -> list[str]:
    lines = [f"  --> {_short(spot)}"]
    if not spot.text:
        return lines
    gutter = " " * max(2, len(str(spot.line)))
    text = spot.text.rstrip("\n").replace("\t", " ")
    caret = " " * (spot.column - 1) + "^" * max(1, min(spot.length, len(text) - spot.column + 1))
    number = str(spot.line).rjust(len(gutter))
    return [
        *lines,
        f"{gutter} |",
        f"{number} | {_clip(text)}",
        f"{gutter} | {_clip(caret)}{' ' + label if label else ''}",
    ]


def _clip(text: str, width: int = 160) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _short(spot: Location) -> str:
    return f"{_short_path(spot.path)}:{spot.line}:{spot.column}"


def _short_path(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
