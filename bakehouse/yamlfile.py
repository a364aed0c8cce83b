"""Reads YAML into nodes that know their file, line and column, within limits set before anything is built.

Every scalar stays text, so that version `3.10` is not the number 3.1. PyYAML's events are used, not its
composer: that one recurses in C and ends the process on 100,000 brackets.
"""

import difflib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import yaml

from bakehouse.errors import Diagnostic, Location, Problems, RecipeError

MAX_BYTES = 1_000_000
MAX_DEPTH = 20
MAX_NODES = 50_000

_Parsed = TypeVar("_Parsed")
_Mark = yaml.error.Mark | yaml._yaml.Mark
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Scalar:
    text: str
    location: Location
    is_plain: bool


@dataclass(frozen=True, slots=True)
class Sequence:
    items: tuple["Node", ...]
    location: Location


@dataclass(frozen=True, slots=True)
class Mapping:
    entries: tuple[tuple[Scalar, "Node"], ...]
    location: Location


Node = Scalar | Sequence | Mapping


def load(path: Path) -> Node:
    """The root node of a YAML file.

    Raises RecipeError when the file can't be read, is no YAML, or goes over a limit.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        reason = error.strerror or str(error)
        raise RecipeError(Diagnostic(f"can't read `{path}`: {reason.lower()}")) from error
    return parse(data, path)


def parse(data: bytes, path: Path) -> Node:
    """The root node of YAML text; `path` is what locations name."""
    if len(data) > MAX_BYTES:
        message = f"`{path}` has {len(data):,} bytes; {MAX_BYTES:,} are allowed"
        raise RecipeError(Diagnostic(message, Location(path, 1, 1)))
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise RecipeError(Diagnostic(f"`{path}` is not UTF-8 text", Location(path, line, 1))) from error
    return _Reader(path, text).read()


class _Reader:
    """Builds nodes from events with a stack of its own, so that depth costs no recursion."""

    def __init__(self, path: Path, text: str) -> None:
        self._path = path
        self._text = text
        self._lines = text.splitlines()

    def read(self) -> Node:
        try:
            return self._build(yaml.parse(self._text, Loader=_Loader))
        except yaml.MarkedYAMLError as error:
            raise RecipeError(self._syntax_error(error)) from error
        except yaml.YAMLError as error:
            message = f"`{self._path}` is not YAML: {error}".splitlines()[0]
            raise RecipeError(Diagnostic(message, Location(self._path, 1, 1))) from error

    def _build(self, events: Iterator[yaml.Event]) -> Node:
        stack: list[tuple[yaml.Event, list[Node]]] = []
        root: Node | None = None
        nodes = documents = 0
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise self._refuse(event, "a second YAML document", "one file holds one document")
            elif isinstance(event, yaml.AliasEvent):
                raise self._refuse(event, "a YAML alias", "write the value out: aliases are not read")
            elif isinstance(event, (yaml.SequenceStartEvent, yaml.MappingStartEvent)):
                if len(stack) == MAX_DEPTH:
                    raise self._refuse(event, f"nesting deeper than {MAX_DEPTH} levels", "")
                stack.append((event, []))
            elif isinstance(event, (yaml.ScalarEvent, yaml.SequenceEndEvent, yaml.MappingEndEvent)):
                nodes += 1
                if nodes > MAX_NODES:
                    raise self._refuse(event, f"more than {MAX_NODES:,} values", "split the file")
                node = self._scalar(event) if isinstance(event, yaml.ScalarEvent) else self._close(*stack.pop())
                if stack:
                    stack[-1][1].append(node)
                else:
                    root = node
        if root is None:
            message = f"`{self._path}` is empty"
            raise RecipeError(Diagnostic(message, Location(self._path, 1, 1)))
        return root

    def _scalar(self, event: yaml.ScalarEvent) -> Scalar:
        start, end = event.start_mark, event.end_mark
        is_one_line = start is not None and end is not None and start.line == end.line
        length = end.column - start.column if is_one_line and start and end else 1
        return Scalar(event.value, self._location(event.start_mark, length), event.style is None)

    def _close(self, event: yaml.Event, items: list[Node]) -> Node:
        location = self._location(event.start_mark, 1)
        if isinstance(event, yaml.SequenceStartEvent):
            return Sequence(tuple(items), location)
        entries = []
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, Scalar):
                raise RecipeError(Diagnostic("a key has to be one word or a quoted text", key.location))
            entries.append((key, value))
        return Mapping(tuple(entries), location)

    def _location(self, mark: _Mark | None, length: int) -> Location:
        if mark is None:
            return Location(self._path, 1, 1)
        text = self._lines[mark.line] if mark.line < len(self._lines) else ""
        return Location(self._path, mark.line + 1, mark.column + 1, max(1, length), text)

    def _refuse(self, event: yaml.Event, what: str, hint: str) -> RecipeError:
        return RecipeError(Diagnostic(f"{what} is not allowed here", self._location(event.start_mark, 1), hint=hint))

    def _syntax_error(self, error: yaml.MarkedYAMLError) -> Diagnostic:
        spot = self._location(error.problem_mark or error.context_mark, 1)
        if "\t" in spot.text[: spot.column]:
            return Diagnostic("this is not YAML", spot, "a tab", hint="indent with spaces")
        return Diagnostic("this is not YAML", spot, (error.problem or "").strip())


def suggestion(word: str, known: Iterable[str]) -> str:
    """`did you mean …?` for the nearest known word, or the known words themselves when they are few."""
    candidates = sorted(known)
    near = difflib.get_close_matches(word, candidates, 1, 0.7)
    if near:
        return f"did you mean `{near[0]}`?"
    if 0 < len(candidates) < 8:
        return "known here: " + ", ".join(f"`{name}`" for name in candidates)
    return ""


class Fields:
    """One mapping's fields, read by name; every mistake is collected, and a neutral value goes on.

    Call `finish` last: it reports the keys nobody asked for.
    """

    def __init__(self, node: Node, what: str, problems: Problems) -> None:
        self.what = what
        self.problems = problems
        self.location = node.location
        self._values: dict[str, tuple[Scalar, Node]] = {}
        self._asked: set[str] = set()
        if not isinstance(node, Mapping):
            self.report(f"{what} has to be a mapping of names to values", node.location)
            self._asked = set()
            return
        for key, value in node.entries:
            if key.text in self._values:
                first = self._values[key.text][0].location
                self.report(f"key `{key.text}` stands twice in {what}", key.location, f"first on line {first.line}")
            else:
                self._values[key.text] = (key, value)

    def report(self, message: str, location: Location, label: str = "", hint: str = "") -> None:
        self.problems.add(Diagnostic(message, location, label, hint=hint))

    def has(self, key: str) -> bool:
        return key in self._values

    def place(self, key: str) -> Location:
        """Where the value of `key` stands, or the mapping when it has none."""
        return self._values[key][1].location if key in self._values else self.location

    def node(self, key: str) -> Node | None:
        self._asked.add(key)
        return self._values[key][1] if key in self._values else None

    def require(self, key: str) -> Node | None:
        node = self.node(key)
        if node is None:
            self.report(f"{self.what} has no `{key}`", self.location)
        return node

    def text(self, key: str, default: str = "", *, required: bool = False) -> str:
        node = self.require(key) if required else self.node(key)
        return default if node is None else self._text(node, f"`{key}`")

    def flag(self, key: str, *, default: bool = False) -> bool:
        text = self.text(key, "true" if default else "false")
        if text not in ("true", "false"):
            self.report(f"`{key}` is `true` or `false`", self.place(key))
        return text == "true"

    def number(self, key: str, default: int) -> int:
        text = self.text(key, str(default))
        if not text.isdigit():
            self.report(f"`{key}` has to be a whole number", self.place(key))
            return default
        return int(text)

    def parsed(self, key: str, parse: Callable[[str], _Parsed], neutral: _Parsed, expected: str) -> _Parsed:
        """The text of `key` given to `parse`; a ValueError of its becomes a report."""
        if not self.has(key):
            self._asked.add(key)
            return neutral
        try:
            return parse(self.text(key))
        except ValueError:
            self.report(f"`{self.text(key)}` is no {expected}", self.place(key))
            return neutral

    def choice(self, key: str, allowed: Iterable[str], default: str) -> str:
        text = self.text(key, default)
        if text not in allowed:
            self.report(f"`{text}` is no {key}", self.place(key), hint=suggestion(text, allowed))
            return default
        return text

    def scalars(self, key: str) -> tuple[Scalar, ...]:
        """The texts of a list, with their places."""
        node = self.node(key)
        if node is None:
            return ()
        if not isinstance(node, Sequence):
            self.report(f"`{key}` has to be a list", node.location)
            return ()
        for item in node.items:
            if not isinstance(item, Scalar):
                self._text(item, f"an item of `{key}`")
        return tuple(item for item in node.items if isinstance(item, Scalar))

    def texts(self, key: str) -> tuple[str, ...]:
        return tuple(item.text for item in self.scalars(key))

    def pairs(self, key: str) -> tuple[tuple[Scalar, Node], ...]:
        """The entries of a mapping, in their order; a key that stands twice is reported."""
        node = self.node(key)
        if node is None:
            return ()
        inner = Fields(node, f"`{key}`", self.problems)
        return tuple(inner._values.values())

    def text_pairs(self, key: str) -> tuple[tuple[Scalar, Scalar], ...]:
        found = []
        for name, value in self.pairs(key):
            if isinstance(value, Scalar):
                found.append((name, value))
            else:
                self._text(value, f"`{name.text}` in `{key}`")
        return tuple(found)

    def children(self, key: str, what: str) -> tuple["Fields", ...]:
        """A list of mappings."""
        node = self.node(key)
        if node is None:
            return ()
        if not isinstance(node, Sequence):
            self.report(f"`{key}` has to be a list", node.location)
            return ()
        return tuple(Fields(item, what, self.problems) for item in node.items)

    def child(self, key: str, what: str) -> "Fields | None":
        node = self.node(key)
        return None if node is None else Fields(node, what, self.problems)

    def finish(self) -> None:
        """Report the keys that nothing asked for, with the nearest known one."""
        for name, (key, _) in self._values.items():
            if name not in self._asked:
                hint = suggestion(name, self._asked)
                self.report(f"unknown key `{name}` in {self.what}", key.location, hint=hint)

    def _text(self, node: Node, what: str) -> str:
        if isinstance(node, Scalar):
            return node.text
        kind = "a list" if isinstance(node, Sequence) else "a mapping"
        self.report(f"{what} has to be one text, not {kind}", node.location)
        return ""
