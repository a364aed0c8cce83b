"""Reader of the fields of a YAML mapping by name, which collects all mistakes."""

import json
import re
from collections import abc
from collections.abc import Iterable
from typing import TypeVar

from bakehouse.errors import Diagnostic, Location, Problems
from bakehouse.util.suggest import suggestion
from bakehouse.util.yaml_reader import Mapping, Node, Scalar, Sequence

Key = TypeVar("Key", bound=str)
Hints = abc.Mapping[str, str]
NO_HINTS: Hints = {}
_PAIR = re.compile(r"(?P<name>[\w.-]+)\s*(?:==|[=:@])?\s*(?P<value>.*)")
"""A name with a value as other formats write it: `a=b`, `a==1.0`, `a>=1.0`."""
_PLAIN = re.compile(r"[\w./+-]+")
"""Texts that need no quotes in a YAML list."""


class Fields:
    """The fields of a mapping, read by name. Every mistake is collected and replaced by a neutral value.

    Call `finish` last. It reports the keys that were not read.
    """

    def __init__(self, node: Node, what: str, problems: Problems, hint: str = "") -> None:
        """`hint` is for the error if the node is not a mapping."""
        self.what = what
        self.problems = problems
        self.location = node.location
        self._is_mapping = isinstance(node, Mapping)
        self._values: dict[str, tuple[Scalar, Node]] = {}
        self._read: set[str] = set()
        if not isinstance(node, Mapping):
            self.report(f"{what} must be a mapping of names to values", node.location, hint=hint)
            return
        for key, value in node.entries:
            if key.text in self._values:
                first = self._values[key.text][0].location
                message = f"duplicate key `{key.text}` in {what}"
                self.report(message, key.location, f"first on line {first.line}")
            else:
                self._values[key.text] = (key, value)

    @property
    def names(self) -> tuple[str, ...]:
        """The keys in file order."""
        return tuple(self._values)

    def report(self, message: str, location: Location, label: str = "", hint: str = "") -> None:
        self.problems.add(Diagnostic(message, location, label, hint=hint))

    def has(self, key: str) -> bool:
        return key in self._values

    def lacks(self, key: str) -> bool:
        """Return whether a required key is missing; the caller reports it."""
        return key not in self._values

    def place(self, key: str) -> Location:
        """Return the location of the value of `key`, or of the mapping if the key is missing."""
        return self._values[key][1].location if key in self._values else self.location

    def node(self, key: str) -> Node | None:
        self._read.add(key)
        return self._values[key][1] if key in self._values else None

    def require(self, key: str) -> Node | None:
        node = self.node(key)
        if node is None and self._is_mapping:
            self.report(f"{self.what} has no `{key}`", self.location)
        return node

    def text(self, key: str, default: str = "", *, required: bool = False) -> str:
        node = self.require(key) if required else self.node(key)
        if not isinstance(node, Scalar):
            if node is not None:
                self._text(node, f"`{key}`")
            return default
        if required and not node.text:
            self.report(f"{self.what} has an empty `{key}`", node.location)
        return node.text

    def flag(self, key: str, *, default: bool = False) -> bool:
        text = self.text(key, "true" if default else "false")
        if text not in ("true", "false"):
            self.report(f"`{key}` must be `true` or `false`", self.place(key))
        return text == "true"

    def number(self, key: str, default: int) -> int:
        text = self.text(key, str(default))
        if not re.fullmatch("[0-9]{1,9}", text):
            self.report(f"`{key}` must be a whole number", self.place(key))
            return default
        return int(text)

    def key_place(self, key: str) -> Location:
        """Return the location of `key` itself, or of the mapping if the key is missing."""
        return self._values[key][0].location if key in self._values else self.location

    def size(self, key: str, unknown: str) -> int | None:
        """Read a number of bytes; None if it is missing or the word `unknown`."""
        text = self.text(key, unknown)
        if text == unknown:
            return None
        if not re.fullmatch("[1-9][0-9]{0,17}", text):
            label = "a whole number above 0"
            hint = f"write `{unknown}` or remove `{key}` if it is unknown"
            self.report(f"`{text}` is not a valid number of bytes", self.place(key), label, hint)
            return None
        return int(text)

    def choice(self, key: str, allowed: Iterable[str], default: str) -> str:
        text = self.text(key, default)
        if text not in allowed:
            self.report(f"`{text}` is not a valid `{key}`", self.place(key), hint=suggestion(text, allowed))
            return default
        return text

    def choice_or_choices(
        self, key: str, words: Iterable[str], items: Iterable[str], default: str
    ) -> str | tuple[str, ...]:
        """Read one of `words`, or a list of `items`."""
        if not isinstance(self.node(key), Sequence):
            if (text := self.text(key, default)) not in items:
                return self.choice(key, words, default)
            self.report(
                f"`{text}` is not a valid `{key}`", self.place(key), hint=f"write a list: `{key}: [{text}]`"
            )
            return default
        kinds = self.scalars(key)
        for kind in kinds:
            if kind.text not in items:
                hint = suggestion(kind.text, items) or f"use one of {', '.join(items)}"
                self.report(f"`{kind.text}` in `{key}` is not a kind of file", kind.location, hint=hint)
        return tuple(kind.text for kind in kinds if kind.text in items)

    def one_of(self, keys: Iterable[Key]) -> Key | None:
        """Return which of some keys is set; report a mistake unless it is exactly one."""
        given = [key for key in keys if self.has(key)]
        if len(given) == 1:
            return given[0]
        self.report(f"{self.what} needs one of {', '.join(f'`{key}`' for key in keys)}", self.location)
        return None

    def scalars(self, key: str) -> tuple[Scalar, ...]:
        """Read a list of texts with their locations."""
        given = self.node(key)
        hint = f"write a list: `{key}: [{_quoted(given.text)}]`" if isinstance(given, Scalar) else ""
        items = self.nodes(key, hint)
        for item in items:
            if not isinstance(item, Scalar):
                self._text(item, f"an item of `{key}`")
        return tuple(item for item in items if isinstance(item, Scalar))

    def texts(self, key: str) -> tuple[str, ...]:
        return tuple(item.text for item in self.scalars(key))

    def text_or_texts(self, key: str) -> tuple[Scalar, ...]:
        """Read a text, or a list of texts."""
        node = self.node(key)
        return (node,) if isinstance(node, Scalar) else self.scalars(key)

    def matching(self, key: str, pattern: re.Pattern[str], what: str) -> tuple[str, ...]:
        """Read a list of texts that must match a pattern."""
        items = self.scalars(key)
        for item in items:
            if not pattern.fullmatch(item.text):
                self.report(f"`{item.text}` is not a valid {what}", item.location)
        return tuple(item.text for item in items)

    def shared_or_named_lists(
        self, key: str, patterns: dict[Key, re.Pattern[str]], shared: re.Pattern[str], what: str
    ) -> dict[Key, tuple[Scalar, ...]]:
        """Read a list that all names of `patterns` share, or a mapping of some of these names to lists."""
        if isinstance(self.node(key), Mapping):
            child = self.inner(self._values[key][1], f"`{key}`")
            named = [name for name in patterns if child.has(name)]
            for name in patterns:
                child.matching(name, patterns[name], f"{what} of {name}")
            child.finish()
            return {name: child.scalars(name) for name in named}
        items = self.scalars(key)
        for item in items:
            if not shared.fullmatch(item.text):
                others = (name for name, pattern in patterns.items() if pattern.fullmatch(item.text))
                hint = next((f"write `{key}: {{{name}: [{item.text}]}}`" for name in others), "")
                self.report(f"`{item.text}` is not a valid {what}", item.location, hint=hint)
        return dict.fromkeys(patterns, items)

    def pairs(self, key: str) -> tuple[tuple[Scalar, Node], ...]:
        """Read the entries of a mapping in file order; duplicate keys are reported."""
        node = self.node(key)
        if node is None:
            return ()
        return tuple(Fields(node, f"`{key}`", self.problems, _pairs_hint(node))._values.values())

    def text_pairs(self, key: str) -> tuple[tuple[Scalar, Scalar], ...]:
        pairs = []
        for name, value in self.pairs(key):
            if isinstance(value, Scalar):
                pairs.append((name, value))
            else:
                self._text(value, f"`{name.text}` in `{key}`")
        return tuple(pairs)

    def name_or_pair(self, key: str, form: str) -> tuple[Scalar, Scalar | None] | None:
        """Read a required text, or a mapping of one text to another; `form` describes both in messages."""
        node = self.require(key)
        if isinstance(node, Scalar):
            return node, None
        if isinstance(node, Mapping) and len(node.entries) == 1 and isinstance(node.entries[0][1], Scalar):
            return node.entries[0][0], node.entries[0][1]
        if node is not None:
            self.report(f"`{key}` must be {form}", node.location)
        return None

    def nodes(self, key: str, hint: str = "") -> tuple[Node, ...]:
        """Read a list of any items; `hint` is for the error if the node is not a list."""
        node = self.node(key)
        if node is None:
            return ()
        if not isinstance(node, Sequence):
            self.report(f"`{key}` must be a list", node.location, hint=hint)
            return ()
        return node.items

    def children(self, key: str, what: str) -> tuple["Fields", ...]:
        """Read a list of mappings."""
        return tuple(self.inner(item, what) for item in self.nodes(key))

    def named_files(self, key: str, what: str) -> tuple["Fields", ...]:
        """Read a path, a mapping with the path as `file`, or a list of these."""
        node = self.node(key)
        if node is None:
            return ()
        items = node.items if isinstance(node, Sequence) else (node,)
        if not items or (isinstance(node, Scalar) and not node.text):
            self.report(f"`{key}` is empty", node.location, hint="name a file, or remove the key")
            return ()
        return tuple(self._named(item, "file", what) for item in items)

    def texts_or_children(self, key: str, name: str, what: str, hint: str) -> tuple["Fields", ...]:
        """Read a list of mappings, or of texts, which stand for mappings with the text as `name`."""
        return tuple(self._named(item, name, what) for item in self.nodes(key, hint))

    def _named(self, item: Node, name: str, what: str) -> "Fields":
        named = ((Scalar(name, item.location), item),)
        return self.inner(Mapping(named, item.location) if isinstance(item, Scalar) else item, what)

    def child(self, key: str, what: str, hint: str = "") -> "Fields | None":
        node = self.node(key)
        return None if node is None else self.inner(node, what, hint)

    def inner(self, node: Node, what: str, hint: str = "") -> "Fields":
        """Return the fields of a mapping inside this one."""
        return Fields(node, what, self.problems, hint)

    def finish(self, hints: Hints = NO_HINTS) -> None:
        """Report the keys that were not read, each with its hint or the nearest known key."""
        for name, (key, _) in self._values.items():
            if name not in self._read:
                hint = hints.get(name) or suggestion(name, self._read)
                self.report(f"unknown key `{name}` in {self.what}", key.location, hint=hint)

    def _text(self, node: Node, what: str) -> str:
        if isinstance(node, Scalar):
            return node.text
        kind = "a list" if isinstance(node, Sequence) else "a mapping"
        self.report(f"{what} must be one text, not {kind}", node.location)
        return ""


def _pairs_hint(node: Node) -> str:
    """Return a hint if the first item of a list looks like a pair of name and value; otherwise empty."""
    first = node.items[0] if isinstance(node, Sequence) and node.items else node
    if isinstance(first, Mapping) and len(first.entries) == 1:
        name, value = first.entries[0]
        return f"remove the hyphen before `{name.text}`" if isinstance(value, Scalar) else ""
    if isinstance(first, Scalar) and (pair := _PAIR.fullmatch(first.text)):
        hint = f'write `{pair["name"]}: "{pair["value"] or "*"}"`'
        return f"{hint}, not a list item" if first is not node else hint
    return ""


def _quoted(text: str) -> str:
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)
