"""Reader of `.dockerignore`, with the rules of Docker.

The patterns match as those of BuildKit do, in https://github.com/moby/patternmatcher. The docker SDK has a
matcher too, but it doesn't name the pattern that matched, differs in details, and is slow to import.
"""

import posixpath
import re
import warnings
from dataclasses import dataclass
from pathlib import Path

from bakehouse.errors import Diagnostic, Location, Problems, RecipeError
from bakehouse.util.files import display_path, read_bytes

NAME = ".dockerignore"
_MAX_BYTES = 1_000_000

State = tuple[bool, ...]
"""For each pattern, whether it matched a directory. Its files match too."""


@dataclass(frozen=True, slots=True)
class _Pattern:
    rule: str
    """The pattern with its file and line."""
    is_exception: bool
    regex: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class IgnoreFile:
    """The patterns of a file, or of a list. Paths are relative to the directory of the file."""

    path: Path
    patterns: tuple[_Pattern, ...]

    @property
    def has_exceptions(self) -> bool:
        return any(pattern.is_exception for pattern in self.patterns)

    def match(self, path: str, parent: State = ()) -> tuple[str, State]:
        """Return the pattern by which a path stays out, with its line, and the state for paths below it.

        `parent` is the state of the directory of the path; empty at the top. The pattern is empty if the path
        does not stay out.
        """
        rule, matches = "", []
        for index, pattern in enumerate(self.patterns):
            matched = bool(parent) and parent[index]
            if not matched and pattern.is_exception == bool(rule):
                matched = pattern.regex.fullmatch(path) is not None
            matches.append(matched)
            if matched:
                rule = "" if pattern.is_exception else pattern.rule
        return rule, tuple(matches)

    def state_below(self, directory: str) -> tuple[str, State]:
        """Return what `match` returns for a directory at any depth."""
        rule = ""
        state: State = ()
        parts = directory.split("/")
        for depth in range(len(parts)):
            rule, state = self.match("/".join(parts[: depth + 1]), state)
        return rule, state


def read(path: Path) -> IgnoreFile:
    """Read a file; raise RecipeError with all invalid patterns, or if the file can't be read."""
    try:
        content = read_bytes(path)
    except OSError as error:
        raise RecipeError(
            f"cannot read `{path.name}`: {(error.strerror or str(error)).lower()}", Location(path, 1, 1)
        ) from error
    if len(content) > _MAX_BYTES:
        raise RecipeError(f"`{path.name}` is larger than {_MAX_BYTES:,} bytes", Location(path, 1, 1))
    lines = content.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape").split("\n")
    patterns = []
    problems = Problems()
    for number, line in enumerate(lines, 1):
        # Docker recognizes comments only at the start of a line.
        if not line.startswith("#") and (text := line.strip()):
            pattern = _pattern(text, f"{display_path(path)}:{number} {text}")
            if pattern is None:
                spot = Location(path, number, 1 + line.index(text), len(text), line.rstrip("\r"))
                message = f"`{text}` is not a valid pattern of `{path.name}`"
                hint = "write a bracket as `\\[`, and an exception as `!path`"
                problems.add(Diagnostic(message, spot, hint=hint))
            else:
                patterns.append(pattern)
    problems.raise_as(RecipeError)
    return IgnoreFile(path, tuple(patterns))


def from_globs(globs: tuple[str, ...]) -> IgnoreFile:
    """Return patterns of a list; invalid ones match nothing."""
    patterns = (_pattern(text, text) for text in globs)
    return IgnoreFile(Path(), tuple(pattern for pattern in patterns if pattern))


def _pattern(text: str, rule: str) -> _Pattern | None:
    is_exception = text.startswith("!")
    path = _clean(text[1:].strip() if is_exception else text)
    if not path or (is_exception and path == "/"):
        return None
    try:
        with warnings.catch_warnings():
            # `[[` may mean something else in a later Python.
            warnings.simplefilter("ignore", FutureWarning)
            regex = re.compile(_regex(path), re.DOTALL)
        # Unreadable bytes are in the regular expression, but not in messages.
        return _Pattern(rule.encode("utf-8", "backslashreplace").decode(), is_exception, regex)
    except re.error:
        return None


def _clean(path: str) -> str:
    """Return a path without `.`, `..` and repeated slashes, and without a slash at its start."""
    if not path:
        return ""
    # Two slashes at the start are special in POSIX, but not in Go.
    clean = posixpath.normpath(re.sub("^//+", "/", path))
    return clean[1:] if len(clean) > 1 and clean.startswith("/") else clean


def _regex(pattern: str) -> str:
    """Return the regular expression of a pattern."""
    if re.fullmatch(r"\*\*[^*?\[\]\\]*", pattern):
        # Docker compares the end of the path: `**foo` also matches `afoo`.
        end = pattern[2:]
        return f".*{re.escape(end)}" + (f"|{re.escape(end[1:])}" if end.startswith("/") else "")
    expression, position = "", 0
    while position < len(pattern):
        character = pattern[position]
        position += 1
        if pattern.startswith("**", position - 1):
            position += 1
            if pattern.startswith("/", position):
                position += 1
            expression += ".*" if position == len(pattern) else "(?:.*/)?"
        elif character == "*":
            expression += "[^/]*"
        elif character == "?":
            expression += "[^/]"
        elif character == "\\":
            expression += f"\\{pattern[position : position + 1]}"
            position += 1
        elif character in "[]^-":
            expression += character
        else:
            expression += re.escape(character)
    return expression
