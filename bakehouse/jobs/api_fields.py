"""Fields of a CreateTrainingJob request, checked with the API's model in botocore.

The classes of the SDK pass most of their arguments on to fields, under names of their own. botocore itself
checks neither maxima nor patterns nor enumerations.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from bakehouse.jobs.api_model import request_shape

CHANNELS = "InputDataConfig"
LINE_ENDS = "\n\r\x85\u2028\u2029"
_TYPES: Mapping[str, tuple[type, str]] = {
    "string": (str, "a string"),
    "integer": (int, "a whole number"),
    "long": (int, "a whole number"),
    "boolean": (bool, "true or false"),
    "list": (list, "a list"),
    "map": (dict, "a mapping"),
    "structure": (dict, "a mapping"),
}
_CHARACTERS = {
    r"\p{Alnum}": "a-zA-Z0-9",
    r"\p{L}": r"\w",
    r"\p{N}": r"\w",
    r"\p{Z}": r" \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000",
}
r"""Java's character classes in Python's syntax within brackets. `\w` adds `_`, as the model does."""
_TOKEN = re.compile(r"\\.|\[(?:\\.|[^\]])*\]|\.")
_ANY = "[^" + LINE_ENDS + "]"
"""Java's `.`, which no end of a line matches."""
_INSTANCE_TYPE = "TrainingInstanceType"
"""AWS adds instance types faster than botocore is updated, so an unknown one is a warning of its own rule."""

_COMPLETED = ("AlgorithmSpecification", "ResourceConfig", "OutputDataConfig", "StoppingCondition")
"""Structures whose required fields Bakehouse adds to those of the user."""


@dataclass(frozen=True, slots=True)
class ApiField:
    """Field of a request, under the name that the user gave it."""

    path: str
    """For example `StoppingCondition.MaxRuntimeInSeconds`. Paths of list elements have no index."""
    name: str
    value: object


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """Value that the API's model does not allow."""

    message: str
    hint: str
    is_type: bool = False
    """The value has another type, which botocore checks as well."""


def find_shape(path: str) -> Any:
    """Return the shape of a field, or of the whole request for an empty path."""
    shape: Any = request_shape()
    for name in path.split(".") if path else ():
        shape = (shape.member if shape.type_name == "list" else shape).members[name]
    return shape


def flatten(
    content: Mapping[str, object], path: str = "", name: str = "", *, snake_case: bool = False
) -> Iterator[ApiField]:
    """Yield the fields in a structure at a path and under a name. Lists and maps are fields themselves."""
    for member, inner in find_shape(path).members.items():
        own_name = member_name(member, snake_case=snake_case)
        value = content.get(own_name)
        if value is None:
            continue
        inner_path, inner_name = (
            f"{path}.{member}" if path else member,
            f"{name}.{own_name}" if name else own_name,
        )
        if inner.type_name == "structure" and isinstance(value, dict):
            yield from flatten(value, inner_path, inner_name, snake_case=snake_case)
        else:
            yield ApiField(inner_path, inner_name, value)


def unknown_names(content: object, path: str = "") -> Iterator[tuple[tuple[str | int, ...], tuple[str, ...]]]:
    """Yield the keys of each name that the API does not have, with the names that are valid there."""
    yield from _unknown(find_shape(path), content, ())


def _unknown(
    shape: Any, value: object, keys: tuple[str | int, ...]
) -> Iterator[tuple[tuple[str | int, ...], tuple[str, ...]]]:
    if shape.type_name == "list" and isinstance(value, list):
        for index, element in enumerate(value):
            yield from _unknown(shape.member, element, (*keys, index))
    elif shape.type_name == "structure" and isinstance(value, dict):
        for name, inner in value.items():
            if name in shape.members:
                yield from _unknown(shape.members[name], inner, (*keys, name))
            else:
                yield (*keys, name), tuple(shape.members)


def missing_names(content: object) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield the keys of incomplete structures, each with a missing name; skip `_COMPLETED`."""
    for keys, name in _missing(request_shape(), content, ()):
        if keys and keys[-1] not in _COMPLETED:
            yield keys, name


def _missing(
    shape: Any, value: object, keys: tuple[str | int, ...]
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    if shape.type_name == "list" and isinstance(value, list):
        for index, element in enumerate(value):
            yield from _missing(shape.member, element, (*keys, index))
    elif shape.type_name == "structure" and isinstance(value, dict):
        yield from ((keys, name) for name in shape.required_members if value.get(name) is None)
        for name, inner in shape.members.items():
            yield from _missing(inner, value.get(name), (*keys, name))


def member_name(member: str, *, snake_case: bool) -> str:
    """Return the name of a field in the API, or in SDK v3."""
    from botocore import xform_name  # type: ignore[import-untyped]

    return str(xform_name(member)) if snake_case else member


def api_names(shape: Any, value: object) -> Any:
    """Return a value with the API's names of its fields, which may be those of SDK v3."""
    if shape.type_name == "list" and isinstance(value, list):
        return [api_names(shape.member, element) for element in value]
    if shape.type_name != "structure" or not isinstance(value, dict):
        return value
    members = {member_name(member, snake_case=True): member for member in shape.members}
    names = {name: members.get(name, name) for name in value}
    return {
        names[name]: api_names(shape.members[names[name]], item) if names[name] in shape.members else item
        for name, item in value.items()
    }


def field_problems(field: ApiField, *, snake_case: bool = False) -> Iterator[FieldProblem]:
    """Yield the problems that the model has with the value of a field."""
    yield from _problems(find_shape(field.path), field.value, field.name, snake_case)


def _problems(shape: Any, value: object, name: str, snake_case: bool) -> Iterator[FieldProblem]:
    kind, noun = _TYPES[shape.type_name]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        # botocore takes true and false for numbers.
        yield FieldProblem(f"`{name}` must be {noun}", "", is_type=not (kind is int and value in (0, 1)))
        return
    yield from _limit_problems(shape, value, name)
    if isinstance(value, list):
        for index, element in enumerate(value):
            yield from _problems(shape.member, element, f"{name}[{index}]", snake_case)
    elif isinstance(value, dict) and shape.type_name == "map":
        for key, element in value.items():
            yield from _problems(shape.key, key, f"{name} (name)", snake_case)
            yield from _problems(shape.value, element, f"{name}.{key}", snake_case)
    elif isinstance(value, dict):
        for member, inner in shape.members.items():
            own_name = member_name(member, snake_case=snake_case)
            if value.get(own_name) is not None and inner.name != _INSTANCE_TYPE:
                yield from _problems(inner, value[own_name], f"{name}.{own_name}", snake_case)


_LARGEST = {"integer": 2**31 - 1, "long": 2**63 - 1}
"""Largest numbers of the API's types (smithy.io/2.0/spec/simple-types.html), for fields without a limit."""


def _limit_problems(shape: Any, value: Any, name: str) -> Iterator[FieldProblem]:
    """Yield the violated limits of a value itself."""
    limits = shape.metadata
    noun = {"string": "characters", "list": "elements", "map": "entries"}.get(shape.type_name, "")
    size = len(value) if noun else value
    is_number = shape.type_name in ("integer", "long")
    minimum, maximum = limits.get("min"), limits.get("max", _LARGEST.get(shape.type_name))
    if noun or is_number:
        text = f"has {size} {noun}" if noun else f"is {size}"
        if minimum is not None and size < minimum:
            yield FieldProblem(f"`{name}` {text}", f"use at least {minimum}")
        if maximum is not None and size > maximum:
            yield FieldProblem(f"`{name}` {text}", f"use at most {maximum}")
    if shape.type_name != "string":
        return
    if shape.enum and value not in shape.enum:
        yield FieldProblem(f"`{name}` is `{value}`, which the API does not have", _choices(shape.enum))
    pattern = limits.get("pattern")
    if pattern and not python_pattern(pattern).fullmatch(value):
        yield FieldProblem(f"`{name}` is `{value}`, which is not a valid {shape.name}", f"match `{pattern}`")


def _choices(values: list[str]) -> str:
    most = 8
    return f"use {', '.join(values[:most])}" + (
        " or another of the API's model" if len(values) > most else ""
    )


@cache
def python_pattern(pattern: str) -> re.Pattern[str]:
    """Convert a pattern of the model from Java's syntax to Python's."""
    for java, python in _CHARACTERS.items():
        pattern = pattern.replace(java, python)
    return re.compile(_TOKEN.sub(lambda token: _ANY if token[0] == "." else token[0], pattern))
