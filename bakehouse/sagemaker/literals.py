"""Writes values as Python code, the way a person would."""

import json
import math
from collections.abc import Mapping


class Code(str):
    """An expression instead of a text."""

    __slots__ = ()


def literal(value: object) -> str:
    """A value as it stands in code."""
    if isinstance(value, Code):
        return str(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{literal(key)}: {literal(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(literal(item) for item in value) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return json.dumps(value) if isinstance(value, str) else repr(value)


def call(name: str, *positional: object, **named: object) -> Code:
    """A call with its arguments."""
    words = [*map(literal, positional), *(f"{key}={literal(value)}" for key, value in named.items())]
    return Code(f"{name}({', '.join(words)})")
