"""Reader of YAML into nodes with file, line and column, within size limits.

Every scalar stays text, so that version `3.10` is not the number 3.1. The reader uses the events of PyYAML,
because its composer recurses in C and crashes on 100,000 brackets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bakehouse.errors import Diagnostic, Location, RecipeError
from bakehouse.util.files import open_file

if TYPE_CHECKING:
    # Cached files need no parser
    import yaml

MAX_BYTES = 1_000_000
MAX_DEPTH = 20
MAX_NODES = 10_000
MAX_TEXT = 16_000
"""BuildKit rejects lines of a Dockerfile that are longer than 65,535 bytes."""

_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that escapes in double quotes can hide: controls, line separators, changes of direction."""
_UNQUOTED = re.compile(r"""(?:[:,\[{]|-\s)\s*(?P<value>[>*!&%@`|][^\s,"'\]}#]*)""")
"""A value that starts with an indicator character of YAML, like a version range."""
_SECOND_MAPPING = "mapping values are not allowed in this context"
_COLON_IN_TEXT = re.compile(r"""\s*(?P<start>-|[\w.-]+:)\s+(?P<value>[^\s"'\[{>|&*!#-].*:\s.*?)\s*""")
"""An item, or a key and its value, whose text has a colon and a space, which YAML reads as another key."""
_OPEN = {
    "while parsing a flow mapping": "not closed, or a comma is missing after it",
    "while parsing a flow sequence": "not closed, or a comma is missing after it",
    "while scanning a quoted scalar": "this quote is not closed",
}
"""Mistakes reported where they start, because the parser fails much later."""


def _quoted(text: str) -> str:
    """Return a text in double quotes for YAML, or in single ones if it contains `"` or a backslash."""
    return "'" + text.replace("'", "''") + "'" if {'"', "\\"} & {*text} else f'"{text}"'


@dataclass(frozen=True, slots=True)
class Scalar:
    text: str
    location: Location
    is_plain: bool = field(default=False, compare=False)
    """Written without quotes."""


@dataclass(frozen=True, slots=True)
class Sequence:
    items: tuple[Node, ...]
    location: Location


@dataclass(frozen=True, slots=True)
class Mapping:
    entries: tuple[tuple[Scalar, Node], ...]
    location: Location


Node = Scalar | Sequence | Mapping


def load(path: Path) -> Node:
    """Return the root node of a YAML file.

    Raises RecipeError if the file is unreadable, is not valid YAML, or exceeds a limit.
    """
    try:
        with open_file(path) as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        reason = error.strerror or str(error)
        raise RecipeError(f"cannot read `{path.name}`: {reason.lower()}", Location(path, 1, 1)) from error
    return parse(data, path)


def parse(data: bytes, path: Path) -> Node:
    """Return the root node of YAML text; `path` is the path in locations."""
    if len(data) > MAX_BYTES:
        raise RecipeError(f"`{path.name}` is larger than {MAX_BYTES:,} bytes", Location(path, 1, 1))
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line, column = data[: error.start].count(b"\n"), error.start - data.rfind(b"\n", 0, error.start)
        text = data.split(b"\n")[line].decode(errors="replace")
        spot = Location(path, line + 1, column, 1, text)
        raise RecipeError(f"`{path.name}` is not UTF-8 text", spot) from error
    return _Reader(path, text).read()


def is_in_flow(text: str, line: int, column: int) -> bool:
    """Return whether the value at a position is inside braces or brackets, possibly on other lines."""
    import yaml

    around = [False]
    for event in _events(text):
        mark = event.start_mark
        if isinstance(event, yaml.CollectionStartEvent):
            around.append(bool(event.flow_style))
        elif isinstance(event, yaml.CollectionEndEvent):
            around.pop()
        elif mark and (mark.line + 1, mark.column + 1) == (line, column):
            break
    return around[-1]


def _events(text: str) -> Iterator[yaml.Event]:
    """Yield events like `yaml.parse`, which requests each event twice."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
    try:
        yield from iter(loader.get_event, None)
    finally:
        loader.dispose()


class _Reader:
    """Builder of nodes from events, with its own stack so that deep nesting needs no recursion."""

    def __init__(self, path: Path, text: str) -> None:
        self._path = path
        self._text = text
        self._lines = text.splitlines()
        # Forbidden characters appear literally, or as an escape in double quotes.
        self._may_hide = "\\" in text or _HIDDEN.search(text) is not None

    def read(self) -> Node:
        import yaml

        try:
            return self._build(_events(self._text))
        except yaml.MarkedYAMLError as error:
            raise RecipeError.of(self._syntax_error(error)) from error
        except yaml.YAMLError as error:
            # The only error without marks is a character that YAML forbids.
            spot = self._unreadable()
            raise RecipeError("this is not YAML", spot, "a control character") from error

    def _build(self, events: Iterator[yaml.Event]) -> Node:
        import yaml

        stack: list[tuple[yaml.Event, list[Node]]] = []
        items: list[Node] = []
        nodes = documents = 0
        for event in events:
            if isinstance(event, yaml.ScalarEvent):
                if event.tag or event.anchor:
                    raise self._refuse_tag(event)
                items.append(self._scalar(event))
            elif isinstance(event, (yaml.SequenceEndEvent, yaml.MappingEndEvent)):
                start, above = stack.pop()
                above.append(self._close(start, items))
                items = above
            elif isinstance(event, (yaml.SequenceStartEvent, yaml.MappingStartEvent)):
                if event.tag or event.anchor:
                    raise self._refuse_tag(event)
                if len(stack) == MAX_DEPTH:
                    raise self._refuse(event, f"nesting deeper than {MAX_DEPTH} levels", "")
                stack.append((event, items))
                items = []
                continue
            elif isinstance(event, yaml.AliasEvent):
                hint = "write the value out; put quotes around a value that starts with `*`"
                raise self._refuse(event, "a YAML alias", hint)
            else:
                documents += isinstance(event, yaml.DocumentStartEvent)
                if documents > 1:
                    raise self._refuse(event, "a second YAML document", "use one file for each document")
                continue
            nodes += 1
            if nodes > MAX_NODES:
                raise self._refuse(event, f"a file of more than {MAX_NODES:,} values", "split it")
        if not items:
            raise RecipeError(f"`{self._path.name}` is empty", Location(self._path, 1, 1))
        return items[0]

    def _refuse_tag(self, event: yaml.Event) -> RecipeError:
        return self._refuse(
            event, "a YAML tag or anchor", "put quotes around a value that starts with `!` or `&`"
        )

    def _scalar(self, event: yaml.ScalarEvent) -> Scalar:
        value, start, end = event.value, event.start_mark, event.end_mark
        is_one_line = start is not None and end is not None and start.line == end.line
        length = end.column - start.column if is_one_line and start and end else 1
        location = self._location(start, length)
        if self._may_hide and (hidden := _HIDDEN.search(value)):
            name = hidden[0].encode("unicode_escape").decode()
            raise RecipeError(f"a text contains the character `{name}`", location)
        if len(value) > MAX_TEXT:
            raise RecipeError(
                f"a text has more than {MAX_TEXT:,} characters", location, hint="move it to a file"
            )
        return Scalar(value, location, is_plain=bool(event.implicit and event.implicit[0]))

    def _close(self, event: yaml.Event, items: list[Node]) -> Node:
        import yaml

        location = self._location(event.start_mark, 1)
        if isinstance(event, yaml.SequenceStartEvent):
            return Sequence(tuple(items), location)
        entries = []
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, Scalar):
                raise RecipeError("a key must be a word or a quoted text", key.location)
            entries.append((key, value))
        return Mapping(tuple(entries), location)

    def _location(self, mark: yaml.error.Mark | yaml._yaml.Mark | None, length: int) -> Location:
        if mark is None:
            return Location(self._path, 1, 1)
        text = self._lines[mark.line] if mark.line < len(self._lines) else ""
        return Location(self._path, mark.line + 1, mark.column + 1, max(1, length), text)

    def _refuse(self, event: yaml.Event, what: str, hint: str) -> RecipeError:
        spot = self._location(event.start_mark, 1)
        return RecipeError(f"{what} is not allowed here", spot, hint=hint)

    def _syntax_error(self, error: yaml.MarkedYAMLError) -> Diagnostic:
        spot = self._location(error.problem_mark or error.context_mark, 1)
        if error.context_mark and error.context in _OPEN:
            return Diagnostic("this is not YAML", self._location(error.context_mark, 1), _OPEN[error.context])
        if "\t" in spot.text[: spot.column]:
            return Diagnostic("this is not YAML", spot, "a tab", hint="indent with spaces")
        hint = ""
        for match in _UNQUOTED.finditer(spot.text):
            if match.start("value") < spot.column <= match.end("value") + 1:
                hint = f'put quotes around it: "{match["value"]}"'
        if error.problem == _SECOND_MAPPING and (line := _COLON_IN_TEXT.fullmatch(spot.text)):
            hint = f"put quotes around the text: `{line['start']} {_quoted(line['value'])}`"
        return Diagnostic("this is not YAML", spot, (error.problem or "").strip(), hint=hint)

    def _unreadable(self) -> Location:
        for number, line in enumerate(self._text.split("\n"), 1):
            if match := _HIDDEN.search(line):
                return Location(self._path, number, match.start() + 1, 1, line)
        return Location(self._path, 1, 1)
