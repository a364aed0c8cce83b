"""JSON Schemas of recipes and components, for editors: what the reading code asks of a file is written down.

The readers are run over fields that hold nothing and remember every question. So a key that is read is in
the schema, with its shape, and one that is not read is not.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bakehouse.catalog.catalog import Catalog, read_component
from bakehouse.catalog.matrix import EXCLUDE, INCLUDE, MATRIX, VARIABLE_NAME
from bakehouse.catalog.recipe import read_recipe
from bakehouse.errors import Location, Problems
from bakehouse.util.yaml_fields import Fields, Key
from bakehouse.util.yaml_reader import Mapping, Node, Scalar

Schema = dict[str, Any]

FOLDER = Path("schema")
"""Directory of the committed schemas, below the Bakehouse directory."""
_NOWHERE = Location(Path("schema"), 1, 1)
_ANSWER = "1"
"""A version, a name and a number: with it the readers go on."""
_SHORT = 150
"""In characters: shorter shapes are repeated instead of named."""
_VARIABLE = r"\$\{"
"""A variable of a `matrix`, which may stand for any text."""

TEXT: Schema = {"type": ["string", "number", "boolean", "null"]}
"""Editors take a version such as 3.10 for a number; Bakehouse reads every value as it is written."""
_FILLED: Schema = {"type": ["string", "number", "boolean"], "minLength": 1}
_TEXTS: Schema = {"type": "object", "additionalProperties": TEXT}
_LISTED: Schema = {**_TEXTS, "minProperties": 1}


def write(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for name, text in texts().items():
        (folder / name).write_text(text, encoding="utf-8")


def texts() -> dict[str, str]:
    """Both schemas as they are committed, by their file names."""
    found = {"recipe.schema.json": recipe(), "component.schema.json": component()}
    return {name: json.dumps(schema, indent=2, sort_keys=True) + "\n" for name, schema in found.items()}


def component() -> Schema:
    """The schema of a `component.yaml`."""
    asked = _Questions("A component of Bakehouse", Problems())
    read_component(asked, Path("a-component"))
    asked.below("releases").below("variants").shapes[MATRIX] = _AXES
    return _document(asked)


def recipe() -> Schema:
    """The schema of a recipe, with or without a matrix."""
    asked = _Questions("An image recipe of Bakehouse", Problems())
    read_recipe(asked, Path("an-image.yaml"), _ANSWER, Catalog({}), locked=True)
    cells = {"type": "array", "items": _LISTED}
    asked.shapes[MATRIX] = {**_AXES, "properties": {EXCLUDE: cells, INCLUDE: cells}}
    return {**_document(asked), "dependencies": {MATRIX: ["name"]}}


def _document(asked: "_Questions") -> Schema:
    """The whole schema; a shape that stands in several places is written down once."""
    found = asked.schema()
    names = {json.dumps(TEXT): "text", json.dumps(_FILLED): "filled_text", json.dumps(_TEXTS): "texts"}
    _name(found, "", names, set())
    definitions: Schema = {}
    short = _short(found, names, definitions)
    draft = "http://json-schema.org/draft-07/schema#"
    return {"$schema": draft, "title": asked.title, **short, "definitions": definitions}


def _name(value: object, key: str, names: dict[str, str], seen: set[str]) -> None:
    """Give shapes that come twice a name: the first key they stand for."""
    if isinstance(value, dict):
        text = json.dumps(value)
        is_property = key not in ("items", "additionalProperties")
        if "type" in value and text in seen and len(text) > _SHORT and is_property:
            names.setdefault(text, key)
        seen.add(text)
        for inner, one in value.items():
            _name(one, inner, names, seen)


def _short(value: Any, names: dict[str, str], definitions: Schema) -> Any:
    """A schema with references in place of the shapes that have names."""
    if isinstance(value, list):
        return [_short(one, names, definitions) for one in value]
    if not isinstance(value, dict):
        return value
    name = names.get(json.dumps(value))
    short = {key: _short(one, names, definitions) for key, one in value.items()}
    if name is None:
        return short
    definitions[name] = short
    return {"$ref": f"#/definitions/{name}"}


def _whole(pattern: re.Pattern[str]) -> str:
    return f"^(?:{pattern.pattern})$"


def _or_variable(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "string", "pattern": _VARIABLE}]}


_AXES: Schema = {
    "type": "object",
    "minProperties": 1,
    "propertyNames": {"pattern": _whole(VARIABLE_NAME)},
    "additionalProperties": {"type": "array", "minItems": 1, "items": {"anyOf": [TEXT, _LISTED]}},
}


class _Questions(Fields):
    """Fields that hold nothing: whatever is asked of them is answered, and remembered as a shape."""

    def __init__(self, what: str, problems: Problems) -> None:
        super().__init__(Mapping((), _NOWHERE), what, problems)
        self.shapes: dict[str, Schema] = {}
        self.title = what
        self._required: set[str] = set()
        self._optional: set[str] = set()
        self._alternatives: list[list[str]] = []
        self._is_closed = False
        self._inner: dict[str, _Questions] = {}
        self._keys: list[tuple[Node, str]] = []

    def below(self, key: str) -> "_Questions":
        """Return the questions about the mappings of a key."""
        return self._inner[key]

    def schema(self) -> Schema:
        """Return the questions as a schema."""
        properties = {key: self._shape(key) for key in self.shapes}
        found: Schema = {"type": "object", "properties": properties}
        if required := sorted(self._required - self._optional):
            found["required"] = required
        if self._alternatives:
            found["allOf"] = [{"oneOf": [{"required": [key]} for key in keys]} for keys in self._alternatives]
        if self._is_closed:
            found["additionalProperties"] = False
        return found

    def _shape(self, key: str) -> Schema:
        shape = self.shapes[key]
        place = {"array": "items", "object": "additionalProperties"}.get(str(shape.get("type")))
        if key not in self._inner:
            return shape
        inner = self._inner[key].schema()
        return {**shape, place: inner} if place else inner

    def _remember(self, key: str, shape: Schema) -> None:
        """The narrowest of several answers counts: a key may be asked for in more than one way."""
        if len(shape) > len(self.shapes.get(key, {})) or key not in self.shapes:
            self.shapes[key] = shape

    def has(self, key: str) -> bool:
        self._optional.add(key)
        return True

    def lacks(self, key: str) -> bool:
        self._required.add(key)
        return False

    def node(self, key: str) -> Node | None:
        self._remember(key, {})
        node = Scalar(_ANSWER, _NOWHERE)
        self._keys.append((node, key))
        return node

    def require(self, key: str) -> Node | None:
        self._required.add(key)
        return self.node(key)

    def text(self, key: str, default: str = "", *, required: bool = False) -> str:
        if required:
            self._required.add(key)
        self._remember(key, _FILLED if required and key not in self._optional else TEXT)
        return default or _ANSWER

    def flag(self, key: str, *, default: bool = False) -> bool:
        self._remember(key, _or_variable({"enum": [True, False, "true", "false"]}))
        return default

    def number(self, key: str, default: int) -> int:
        limits = {"minimum": 0, "maximum": 999_999_999, "pattern": "^[0-9]{1,9}$"}
        self._remember(key, _or_variable({"type": ["integer", "string"], **limits}))
        return default

    def size(self, key: str, unknown: str) -> int | None:
        limits = {"minimum": 1, "pattern": f"^(?:[1-9][0-9]{{0,17}}|{unknown})$"}
        self._remember(key, _or_variable({"type": ["integer", "string"], **limits}))
        return None

    def choice(self, key: str, allowed: Iterable[str], default: str) -> str:
        self._remember(key, _or_variable({"enum": list(allowed)}))
        return default

    def choice_or_choices(
        self, key: str, words: Iterable[str], items: Iterable[str], default: str
    ) -> str | tuple[str, ...]:
        listed = {"type": "array", "items": _or_variable({"enum": list(items)})}
        self._remember(key, {"anyOf": [*_or_variable({"enum": list(words)})["anyOf"], listed]})
        return default

    def one_of(self, keys: Iterable[Key]) -> Key | None:
        names = list(keys)
        self._alternatives.append([str(name) for name in names])
        for name in names:
            self.text(name)
        return names[0]

    def scalars(self, key: str) -> tuple[Scalar, ...]:
        self._remember(key, {"type": "array", "items": TEXT})
        return (Scalar(_ANSWER, _NOWHERE),)

    def matching(self, key: str, pattern: re.Pattern[str], what: str) -> tuple[str, ...]:
        item = {**TEXT, "pattern": f"{_whole(pattern)}|{_VARIABLE}"}
        self._remember(key, {"type": "array", "items": item, "description": f"each is a {what}"})
        return (_ANSWER,)

    def pairs(self, key: str) -> tuple[tuple[Scalar, Node], ...]:
        node = self.node(key)
        self._remember(key, {"type": "object"})
        return ((Scalar(_ANSWER, _NOWHERE), node),) if node else ()

    def text_pairs(self, key: str) -> tuple[tuple[Scalar, Scalar], ...]:
        self._remember(key, _TEXTS)
        return ((Scalar(_ANSWER, _NOWHERE), Scalar(_ANSWER, _NOWHERE)),)

    def name_or_pair(self, key: str, form: str) -> tuple[Scalar, Scalar | None] | None:
        self._required.add(key)
        pair = {**_TEXTS, "minProperties": 1, "maxProperties": 1}
        self._remember(key, {"anyOf": [_FILLED, pair], "description": form})
        return Scalar(_ANSWER, _NOWHERE), None

    def nodes(self, key: str) -> tuple[Node, ...]:
        node = self.node(key)
        self._remember(key, {"type": "array"})
        return (node,) if node else ()

    def inner(self, node: Node, what: str) -> Fields:
        """Asked of a node that was given for a key: what it is asked belongs to that key's shape."""
        key = next(key for given, key in self._keys if given is node)
        return self._inner.setdefault(key, _Questions(what, self.problems))

    def finish(self) -> None:
        self._is_closed = True
