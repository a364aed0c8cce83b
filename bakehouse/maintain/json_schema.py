"""JSON Schemas of recipes and components, for editors, recorded from the readers.

The readers run over empty fields that record every key and its type. So the schema contains exactly the keys
that are read.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bakehouse.catalog.catalog import Catalog, read_component
from bakehouse.catalog.matrix import EXCLUDE, INCLUDE, MATRIX, VARIABLE_NAME
from bakehouse.catalog.project import HOME
from bakehouse.catalog.recipe import read_recipe
from bakehouse.catalog.window import GROUP, NEWEST
from bakehouse.errors import Location, Problems
from bakehouse.util.yaml_fields import NO_HINTS, Fields, Hints, Key
from bakehouse.util.yaml_reader import Mapping, Node, Scalar

Schema = dict[str, Any]

DIRECTORY = Path("schema")
"""Directory of the committed schemas, below the Bakehouse directory."""
_NOWHERE = Location(Path("schema"), 1, 1)
_SAMPLE = "1"
"""Value of all recorded fields: a valid version, name and number."""
_SHORT = 150
"""Shapes below this number of characters are repeated instead of named."""
_LEVELS = re.compile("(?:(?:release|variant|artifact)(?:, )?)+")
"""A cell that says where a key may stand."""
_VARIABLE = r"\$\{"
"""A variable of a `matrix`, which can have any value."""

TEXT: Schema = {"type": ["string", "number", "boolean", "null"]}
"""Editors read a version such as 3.10 as a number; Bakehouse reads all values as text."""
_FILLED: Schema = {"type": ["string", "number", "boolean"], "minLength": 1}
_TEXTS: Schema = {"type": "object", "additionalProperties": TEXT}
_LISTED: Schema = {**_TEXTS, "minProperties": 1}


def write(directory: Path) -> None:
    directory.mkdir(exist_ok=True)
    for name, text in texts().items():
        (directory / name).write_text(text, encoding="utf-8")


def texts() -> dict[str, str]:
    """Return the text of both schemas by file name."""
    schemas = {"recipe.schema.json": recipe(), "component.schema.json": component()}
    for schema, page in zip(schemas.values(), ("recipes.md", "components.md"), strict=True):
        _describe(schema, _meanings(HOME / "docs" / "reference" / page))
    return {name: json.dumps(schema, indent=2, sort_keys=True) + "\n" for name, schema in schemas.items()}


def _meanings(page: Path) -> dict[str, str]:
    """Return what a page says of each key, in the row of its tables with the fewest keys."""
    rows: dict[str, list[tuple[bool, int, str]]] = {}
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("| `"):
            first, *cells = re.split(r" *(?<!\\)\| *", line.strip("| "))
            keys = re.findall("`([a-z_]+)`", first)
            text = next((cell for cell in cells if " " in cell and not _LEVELS.fullmatch(cell)), "")
            for key in keys if text else ():
                plain = re.sub(r"\[([^]]+)\]\([^)]*\)", r"\1", text)
                rows.setdefault(key, []).append((text.startswith("see "), len(keys), plain))
    return {key: min(found, key=lambda row: row[:2])[2] for key, found in rows.items()}


def _describe(value: Any, meanings: dict[str, str]) -> None:
    """Add what the page says to all keys, for the editor's hover."""
    for key, shape in value.get("properties", {}).items():
        if text := meanings.get(key):
            shape["description"] = text
    for inner in value.values():
        for item in inner if isinstance(inner, list) else [inner]:
            if isinstance(item, dict):
                _describe(item, meanings)


def component() -> Schema:
    """Return the schema of a `component.yaml`."""
    fields = _RecordedFields("A component of Bakehouse", Problems())
    read_component(fields, Path("a-component"))
    fields.children_of["releases"].children_of["variants"].shapes[MATRIX] = _AXES
    return _document(fields)


def recipe() -> Schema:
    """Return the schema of a recipe, with or without a matrix."""
    fields = _RecordedFields("An image recipe of Bakehouse", Problems())
    read_recipe(fields, Path("an-image.yaml"), _SAMPLE, Catalog({}), locked=True)
    cells = {"type": "array", "items": _LISTED}
    axis = {"anyOf": [_AXES["additionalProperties"], _WINDOW]}
    fields.shapes[MATRIX] = {
        **_AXES,
        "additionalProperties": axis,
        "properties": {EXCLUDE: cells, INCLUDE: cells},
    }
    return {**_document(fields), "dependencies": {MATRIX: ["name"]}}


def _document(fields: "_RecordedFields") -> Schema:
    """Return the complete schema; repeated shapes become definitions."""
    schema = fields.schema()
    names = {json.dumps(TEXT): "text", json.dumps(_FILLED): "filled_text", json.dumps(_TEXTS): "texts"}
    _name(schema, "", names, set())
    definitions: Schema = {}
    short = _short(schema, names, definitions)
    draft = "http://json-schema.org/draft-07/schema#"
    return {"$schema": draft, "title": fields.title, **short, "definitions": definitions}


def _name(value: object, key: str, names: dict[str, str], seen: set[str]) -> None:
    """Name repeated shapes after their first key."""
    if isinstance(value, dict):
        text = json.dumps(value)
        is_property = key not in ("items", "additionalProperties")
        if "type" in value and text in seen and len(text) > _SHORT and is_property:
            names.setdefault(text, key)
        seen.add(text)
        for inner_key, inner_value in value.items():
            _name(inner_value, inner_key, names, seen)


def _short(value: Any, names: dict[str, str], definitions: Schema) -> Any:
    """Return a schema with references in place of named shapes."""
    if isinstance(value, list):
        return [_short(item, names, definitions) for item in value]
    if not isinstance(value, dict):
        return value
    name = names.get(json.dumps(value))
    short = {key: _short(item, names, definitions) for key, item in value.items()}
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


_WINDOW: Schema = {
    "type": "object",
    "additionalProperties": False,
    "required": [NEWEST],
    "properties": {NEWEST: TEXT, GROUP: TEXT},
}

_FILES: Schema = {"anyOf": []}
"""A path, a mapping with the path, or a list of these."""
_LIST: Schema = {"type": "array", "items": {}}
"""A list of texts and of mappings."""


class _RecordedFields(Fields):
    """Empty fields that return a sample for every key, and record its shape."""

    def __init__(self, what: str, problems: Problems) -> None:
        super().__init__(Mapping((), _NOWHERE), what, problems)
        self.shapes: dict[str, Schema] = {}
        self.title = what
        self._required: set[str] = set()
        self._optional: set[str] = set()
        self._alternatives: list[list[str]] = []
        self._is_closed = False
        self.children_of: dict[str, _RecordedFields] = {}
        """The recorded fields of the mappings at a key."""
        self._keys: list[tuple[Node, str]] = []

    def schema(self) -> Schema:
        """Return the recorded fields as a schema."""
        properties = {key: self._shape(key) for key in self.shapes}
        schema: Schema = {"type": "object", "properties": properties}
        if required := sorted(self._required - self._optional):
            schema["required"] = required
        if self._alternatives:
            schema["allOf"] = [
                {"oneOf": [{"required": [key]} for key in keys]} for keys in self._alternatives
            ]
        if self._is_closed:
            schema["additionalProperties"] = False
        return schema

    def _shape(self, key: str) -> Schema:
        shape = self.shapes[key]
        if key not in self.children_of:
            return shape
        child = self.children_of[key].schema()
        if shape is _LIST:
            return {"type": "array", "items": {"anyOf": [_FILLED, child]}}
        if shape is _FILES:
            return {"anyOf": [_FILLED, child, {"type": "array", "items": {"anyOf": [_FILLED, child]}}]}
        keyword = {"array": "items", "object": "additionalProperties"}.get(str(shape.get("type")))
        return {**shape, keyword: child} if keyword else child

    def _record(self, key: str, shape: Schema) -> None:
        """Record the most specific shape of a key, which may be read in several ways."""
        if len(shape) > len(self.shapes.get(key, {})) or key not in self.shapes:
            self.shapes[key] = shape

    def has(self, key: str) -> bool:
        self._optional.add(key)
        return True

    def lacks(self, key: str) -> bool:
        self._required.add(key)
        return False

    def node(self, key: str) -> Node | None:
        self._record(key, {})
        node = Scalar(_SAMPLE, _NOWHERE)
        self._keys.append((node, key))
        return node

    def require(self, key: str) -> Node | None:
        self._required.add(key)
        return self.node(key)

    def text(self, key: str, default: str = "", *, required: bool = False) -> str:
        if required:
            self._required.add(key)
        self._record(key, _FILLED if required and key not in self._optional else TEXT)
        return default or _SAMPLE

    def flag(self, key: str, *, default: bool = False) -> bool:
        self._record(key, _or_variable({"enum": [True, False, "true", "false"]}))
        return default

    def number(self, key: str, default: int) -> int:
        limits = {"minimum": 0, "maximum": 999_999_999, "pattern": "^[0-9]{1,9}$"}
        self._record(key, _or_variable({"type": ["integer", "string"], **limits}))
        return default

    def size(self, key: str, unknown: str) -> int | None:
        limits = {"minimum": 1, "pattern": f"^(?:[1-9][0-9]{{0,17}}|{unknown})$"}
        self._record(key, _or_variable({"type": ["integer", "string"], **limits}))
        return None

    def choice(self, key: str, allowed: Iterable[str], default: str) -> str:
        self._record(key, _or_variable({"enum": list(allowed)}))
        return default

    def choice_or_choices(
        self, key: str, words: Iterable[str], items: Iterable[str], default: str
    ) -> str | tuple[str, ...]:
        listed = {"type": "array", "items": _or_variable({"enum": list(items)})}
        self._record(key, {"anyOf": [*_or_variable({"enum": list(words)})["anyOf"], listed]})
        return default

    def one_of(self, keys: Iterable[Key]) -> Key | None:
        names = list(keys)
        self._alternatives.append([str(name) for name in names])
        for name in names:
            self.text(name)
        return names[0]

    def scalars(self, key: str) -> tuple[Scalar, ...]:
        self._record(key, {"type": "array", "items": TEXT})
        return (Scalar(_SAMPLE, _NOWHERE),)

    def text_or_texts(self, key: str) -> tuple[Scalar, ...]:
        self._record(key, {"anyOf": [TEXT, {"type": "array", "items": TEXT}]})
        return (Scalar(_SAMPLE, _NOWHERE),)

    def matching(self, key: str, pattern: re.Pattern[str], what: str) -> tuple[str, ...]:
        item = {**TEXT, "pattern": f"{_whole(pattern)}|{_VARIABLE}"}
        self._record(key, {"type": "array", "items": item, "description": f"each is a {what}"})
        return (_SAMPLE,)

    def shared_or_named_lists(
        self, key: str, patterns: dict[Key, re.Pattern[str]], shared: re.Pattern[str], what: str
    ) -> dict[Key, tuple[Scalar, ...]]:
        named = _RecordedFields(f"`{key}`", self.problems)
        for name in patterns:
            named.matching(name, patterns[name], f"{what} of {name}")
        named.finish()
        self.matching(key, shared, what)
        self.shapes[key] |= {**named.schema(), "type": ["array", "object"]}
        return {name: (Scalar(_SAMPLE, _NOWHERE),) for name in patterns}

    def pairs(self, key: str) -> tuple[tuple[Scalar, Node], ...]:
        node = self.node(key)
        self._record(key, {"type": "object"})
        return ((Scalar(_SAMPLE, _NOWHERE), node),) if node else ()

    def text_pairs(self, key: str) -> tuple[tuple[Scalar, Scalar], ...]:
        self._record(key, _TEXTS)
        return ((Scalar(_SAMPLE, _NOWHERE), Scalar(_SAMPLE, _NOWHERE)),)

    def name_or_pair(self, key: str, form: str) -> tuple[Scalar, Scalar | None] | None:
        self._required.add(key)
        pair = {**_TEXTS, "minProperties": 1, "maxProperties": 1}
        self._record(key, {"anyOf": [_FILLED, pair], "description": form})
        return Scalar(_SAMPLE, _NOWHERE), None

    def nodes(self, key: str, hint: str = "") -> tuple[Node, ...]:
        node = self.node(key)
        self._record(key, {"type": "array"})
        return (node,) if node else ()

    def named_files(self, key: str, what: str) -> tuple[Fields, ...]:
        self._record(key, _FILES)
        return (self.children_of.setdefault(key, _RecordedFields(what, self.problems)),)

    def texts_or_children(self, key: str, name: str, what: str, hint: str) -> tuple[Fields, ...]:
        self._record(key, _LIST)
        return (self.children_of.setdefault(key, _RecordedFields(what, self.problems)),)

    def inner(self, node: Node, what: str, hint: str = "") -> Fields:
        """Return the fields of a returned node; their shape is part of the shape of its key."""
        key = next(key for returned, key in self._keys if returned is node)
        return self.children_of.setdefault(key, _RecordedFields(what, self.problems))

    def finish(self, hints: Hints = NO_HINTS) -> None:
        self._is_closed = True
