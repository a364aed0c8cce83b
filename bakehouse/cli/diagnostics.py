"""Formats diagnostics as text, as GitHub annotations in CI, and as SARIF."""

import json
import os
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO
from urllib.parse import quote

from bakehouse import __version__
from bakehouse.cli.command_name import as_typed
from bakehouse.errors import BakehouseError, Diagnostic, Location, Reason, Table
from bakehouse.util.files import display_path, relative_path
from bakehouse.util.format import format_table
from bakehouse.util.terminal import in_colour

if TYPE_CHECKING:
    from bakehouse.resolve.resolver import Resolution

_RED, _BLUE, _BOLD, _PLAIN = "\033[31;1m", "\033[34m", "\033[1m", "\033[0m"
_LINE_WIDTH = 160
_REASON_WIDTH = 90
_TERMINAL_CODE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, line separators, direction marks and surrogates."""
_SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_KNOWN_PROBLEM = "known-problem"
_NO_LOCATION = Location(Path("pyproject.toml"), 1, 1)
"""Location of a finding without one: GitHub rejects a file if a finding has no location."""


def write_failure(error: BakehouseError, stream: TextIO, environment: Mapping[str, str] = os.environ) -> None:
    """Print every diagnostic of a failure, and their count when there are several."""
    colour = in_colour(stream, environment)
    blocks = [failure_text(diagnostic, colour=colour) for diagnostic in error.diagnostics]
    stream.write(as_typed("\n".join(blocks)))
    if len(blocks) > 1:
        stream.write(f"\n{len(blocks)} errors\n")
    if environment.get("GITHUB_ACTIONS") == "true":
        stream.writelines(annotation(diagnostic) for diagnostic in error.diagnostics)
    stream.flush()


def write_warnings(warnings: Iterable[Diagnostic], stream: TextIO) -> None:
    """Print warnings."""
    for diagnostic in warnings:
        text = failure_text(diagnostic, colour=False).removeprefix("error")
        stream.write(as_typed(f"warning{text}\n"))
    stream.flush()


def failure_text(diagnostic: Diagnostic, *, colour: bool = False) -> str:
    """Format the five parts of a failure: what, where, why, evidence, hint."""
    paint = (lambda text, code: f"{code}{text}{_PLAIN}") if colour else (lambda text, _: text)
    lines = [paint("error", _RED) + ": " + paint(_printable(diagnostic.message), _BOLD)]
    if diagnostic.location:
        lines += _excerpt(diagnostic.location, _printable(diagnostic.label))
    openings = ("  because ", *["  and "] * len(diagnostic.reasons))
    texts = [
        opening + _printable(reason.text)
        for opening, reason in zip(openings, diagnostic.reasons, strict=False)
    ]
    width = min(_widest(texts, diagnostic.reasons), _REASON_WIDTH)
    for text, reason in zip(texts, diagnostic.reasons, strict=True):
        location = f"   {paint(_short(reason.location), _BLUE)}" if reason.location else ""
        lines.append(text.ljust(width) + location if location else text)
    facts = [(name, _printable(value)) for name, value in diagnostic.facts]
    lines += format_table(facts, indent="  ").splitlines()
    lines += [f"    | {_printable(line)}".rstrip() for line in diagnostic.tail]
    for table in diagnostic.tables:
        lines += ["", *_table(table)]
    if diagnostic.hint:
        lines += ["", f"hint: {_printable(diagnostic.hint)}"]
    return "\n".join(lines) + "\n"


def _table(table: Table) -> list[str]:
    """Format the title and the aligned rows."""
    rows = [[_printable(cell) for cell in row] for row in table.rows]
    lines = format_table(rows, indent="  ", max_width=_REASON_WIDTH).splitlines()
    return [_printable(table.title) + (":" if rows else ""), *lines]


def annotation(diagnostic: Diagnostic) -> str:
    """Format a GitHub workflow command that marks the line in a pull request."""
    location = ""
    if (spot := diagnostic.location) and spot.line:
        path = _escaped(display_path(spot.path)).replace(":", "%3A").replace(",", "%2C")
        location = f" file={path},line={spot.line},col={spot.column}"
    text = diagnostic.message + (f"; hint: {diagnostic.hint}" if diagnostic.hint else "")
    return f"::error{location}::{_escaped(_printable(text))}\n"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _widest(texts: list[str], reasons: tuple[Reason, ...]) -> int:
    return max((len(text) for text, reason in zip(texts, reasons, strict=True) if reason.location), default=0)


def _printable(text: str) -> str:
    """Return the text on one line, with control characters escaped."""
    plain = _TERMINAL_CODE.sub("", text).replace("\t", " ")
    return _UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode(), plain)


def _excerpt(spot: Location, label: str) -> list[str]:
    lines = [f"  --> {_short(spot)}"]
    if not spot.text:
        return lines
    gutter = " " * max(2, len(str(spot.line)))
    number = str(spot.line).rjust(len(gutter))
    text, caret = _window(spot)
    return [*lines, f"{gutter} |", f"{number} | {text}", f"{gutter} | {caret}{' ' + label if label else ''}"]


def _window(spot: Location) -> tuple[str, str]:
    """Return the line, or the part of a long line around the spot, and the caret below it."""
    line = _UNPRINTABLE.sub("\ufffd", spot.text.rstrip("\r\n").replace("\t", " "))
    start = min(spot.column - 1, len(line))
    end = min(start + max(1, spot.length), len(line))
    first = max(0, min(start - _LINE_WIDTH // 2, len(line) - _LINE_WIDTH))
    last = first + _LINE_WIDTH
    before = ("…" if first else "") + line[first:start]
    text = before + line[start:last] + ("…" if last < len(line) else "")
    return text, " " * _cells(before) + "^" * max(1, _cells(line[start : min(end, last)]))


def _cells(text: str) -> int:
    """Return the number of terminal cells of a text."""
    return sum(_cell(character) for character in text)


def _cell(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _short(spot: Location) -> str:
    if not spot.line:
        return _printable(str(spot.path))
    return f"{_printable(display_path(spot.path))}:{spot.line}:{spot.column}"


def sarif_text(errors: Sequence[BakehouseError], resolutions: Iterable["Resolution"]) -> str:
    """Return errors, and the known problems of resolved images as warnings, in the format SARIF 2.1.0.

    Code scanning of CI systems reads this format.
    """
    from bakehouse.resolve.phrases import warning_text

    results = [
        _result(_rule(error), "error", diagnostic.message, diagnostic.location, diagnostic.hint)
        for error in errors
        for diagnostic in error.diagnostics
    ]
    results += [
        _result(
            _KNOWN_PROBLEM, "warning", warning_text(*warning, resolution.targets), resolution.recipe.location
        )
        for resolution in resolutions
        for warning in resolution.warnings
    ]
    rules = [{"id": name} for name in dict.fromkeys(result["ruleId"] for result in results)]
    driver = {"name": "Bakehouse", "semanticVersion": __version__, "rules": rules}
    runs = [{"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}]
    return json.dumps({"$schema": _SARIF_SCHEMA, "version": "2.1.0", "runs": runs}, indent=2) + "\n"


def _rule(error: BakehouseError) -> str:
    """Return the kind of an error as the name of a rule, such as `recipe` for RecipeError."""
    name = type(error).__name__.removesuffix("Error")
    return re.sub("(?<!^)(?=[A-Z])", "-", name).lower()


def _result(rule: str, level: str, message: str, spot: Location | None, hint: str = "") -> dict[str, Any]:
    spot = spot if spot and spot.line else _NO_LOCATION
    region = {"startLine": spot.line, "startColumn": spot.column, "endColumn": spot.column + spot.length}
    place = {"artifactLocation": {"uri": _uri(spot.path)}, "region": region}
    return {
        "ruleId": rule,
        "level": level,
        "message": {"text": f"{message}; hint: {hint}" if hint else message},
        "locations": [{"physicalLocation": place}],
    }


def _uri(path: Path) -> str:
    """Return the URI of a file, relative if it is below the current directory."""
    shown = relative_path(path)
    return shown.as_uri() if shown.is_absolute() else quote(os.fsencode(shown))
