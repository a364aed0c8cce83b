"""Requests of CreateTrainingJob that break one constraint of the API's model each."""

import re
from collections.abc import Iterator
from functools import cache
from random import Random
from typing import Any, NamedTuple

from hypothesis import Phase, find, settings
from hypothesis import strategies as st

from bakehouse.jobs.api_fields import python_pattern
from bakehouse.jobs.api_model import Shape, request_shape

Path = tuple[str | int, ...]
_ALPHABET = st.characters(min_codepoint=32, max_codepoint=126)
_ALPHABET = st.characters(min_codepoint=32, max_codepoint=126)
_STRANGE = ("\n", "!", " ", "é", "-", "/", "a\nb", "x y", ";", "{", "_", "0", "aws:")
_WRONG_TYPES: dict[str, tuple[object, ...]] = {
    "string": (1, True, ["a"], {"a": "b"}),
    "integer": ("1", True, 1.5),
    "long": ("1", True, 1.5),
    "boolean": ("true", 1),
    "list": ("a", {}),
    "map": ("a", []),
    "structure": ("a", []),
}


class BrokenRequest(NamedTuple):
    path: Path
    """Field with the value that is wrong."""
    constraint: str
    request: dict[str, Any]


@cache
def _text(pattern: str, least: int, most: int) -> str:
    if not pattern:
        return "a" * least
    return find(
        st.from_regex(python_pattern(pattern), fullmatch=True, alphabet=_ALPHABET),
        lambda text: least <= len(text) <= most,
        settings=settings(phases=[Phase.generate], max_examples=300, database=None),
        random=Random(1),
    )


def value_of(shape: Shape) -> Any:
    """Return the smallest valid value of a type."""
    limits = shape.metadata
    least, most = limits.get("min", 0), limits.get("max", 10**9)
    match shape.type_name:
        case "string":
            return shape.enum[0] if shape.enum else _text(limits.get("pattern", ""), max(least, 1), most)
        case "integer" | "long":
            return least
        case "boolean":
            return True
        case "list":
            return [value_of(shape.member) for _ in range(max(least, 1))]
        case "map":
            return {value_of(shape.key): value_of(shape.value)}
    return {name: value_of(shape.members[name]) for name in shape.required_members}


def fields(shape: Shape, path: Path = ()) -> Iterator[tuple[Path, Shape]]:
    """Yield all fields of a request, the first element of lists and one entry of maps included."""
    yield path, shape
    if shape.type_name == "structure":
        for name, member in shape.members.items():
            yield from fields(member, (*path, name))
    elif shape.type_name == "list":
        yield from fields(shape.member, (*path, 0))
    elif shape.type_name == "map":
        yield from fields(shape.value, (*path, value_of(shape.key)))


def valid_request(path: Path = (), value: Any = None) -> dict[str, Any]:
    """Return a request with what the API needs, and a value at a path."""
    return _with(request_shape(), _BASE, path, value) if path else _BASE


_BASE: dict[str, Any] = {
    "TrainingJobName": "job",
    "RoleArn": "arn:aws:iam::123456789012:role/Role",
    "AlgorithmSpecification": {"TrainingImage": "image", "TrainingInputMode": "File"},
    "OutputDataConfig": {"S3OutputPath": "s3://bucket/a"},
    "ResourceConfig": {"InstanceType": "ml.c5.xlarge", "InstanceCount": 1, "VolumeSizeInGB": 30},
    "StoppingCondition": {"MaxRuntimeInSeconds": 60},
}


def _with(shape: Shape, old: Any, path: Path, value: Any) -> Any:
    if not path:
        return value
    name, *rest = path
    if shape.type_name == "list":
        elements = old if isinstance(old, list) and old else value_of(shape)
        return [_with(shape.member, elements[0], tuple(rest), value), *elements[1:]]
    if shape.type_name == "map":
        return {name: _with(shape.value, None, tuple(rest), value)}
    base = old if isinstance(old, dict) else value_of(shape)
    member = shape.members.get(str(name))
    inner = value if member is None else _with(member, base.get(name), tuple(rest), value)
    return {**base, name: inner}


def broken_requests() -> Iterator[BrokenRequest]:
    """Yield one request for each constraint of each field."""
    for name in request_shape().required_members:
        yield BrokenRequest((), f"missing {name}", {key: _BASE[key] for key in _BASE if key != name})
    for path, shape in fields(request_shape()):
        for constraint, value in _broken_values(shape) if path else ():
            yield BrokenRequest(path, constraint, valid_request(path, value))


def _broken_values(shape: Shape) -> Iterator[tuple[str, Any]]:
    limits, kind = shape.metadata, shape.type_name
    for wrong in _WRONG_TYPES[kind]:
        yield "type", wrong
    least, most = limits.get("min"), limits.get("max")
    if kind == "string":
        if shape.enum:
            yield "enum", "Nothing-of-it"
        pattern = limits.get("pattern", "")
        if least:
            yield "min", ""
        if most is not None and most < 100_000:
            yield "max", "a" * (most + 1)
        texts = (text for text in _STRANGE if (least or 0) <= len(text) <= (most or 10**9))
        if pattern and (broken := next((t for t in texts if not _matches(pattern, t)), None)) is not None:
            yield "pattern", broken
    elif kind in ("integer", "long"):
        yield from (("min", least - 1),) if least is not None else ()
        yield from (("max", most + 1),) if most is not None else ()
    elif kind == "list":
        yield from (("min", []),) if least else ()
        yield from (
            (("max", [value_of(shape.member)] * (most + 1)),) if most is not None and most < 1000 else ()
        )
    elif kind == "map":
        entries = {f"a{number}": value_of(shape.value) for number in range((most or 0) + 1)}
        yield from (("max", entries),) if most is not None and most < 1000 else ()
        for constraint, key in _broken_values(shape.key):
            if isinstance(key, str):
                yield f"key {constraint}", {key: value_of(shape.value)}
    elif kind == "structure":
        whole: dict[str, Any] = value_of(shape)
        yield "unknown", {**whole, "Nothing": 1}
        for name in shape.required_members:
            yield f"missing {name}", {key: value for key, value in whole.items() if key != name}


def _matches(pattern: str, text: str) -> bool:
    return bool(re.fullmatch(python_pattern(pattern), text))
