"""Reader of JSON that other programs wrote, or that a merge or a full disk may have damaged."""

import json
import math
import re
import sys
from pathlib import Path
from typing import Any, NoReturn, TypeVar

_Record = TypeVar("_Record")

_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")

_MAX_DIGITS = 20
"""Maximum length of an integer. Much longer ones cannot be converted to floats or to text."""


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text.

    Raises ValueError even if the standard library raises another error or returns a value that cannot be
    printed or converted: too deep nesting, too large numbers, lone surrogates.
    """
    try:
        value = json.loads(
            text, parse_constant=_refuse_constant, parse_float=_finite, parse_int=_bounded_integer
        )
    except RecursionError as error:
        message = "it is nested too deeply"
        raise ValueError(message) from error
    if _ESCAPED_SURROGATE.search(text if isinstance(text, str) else text.decode("latin-1")):
        # A surrogate pair is valid, because json combines it into one character
        json.dumps(value, ensure_ascii=False).encode()
    return value


def json_or_text(text: str) -> object:
    """Return the value of a JSON text, else the text: a hyperparameter as the SDK and toolkits read it."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def parse_large_json(text: str) -> Any:
    """Return the value of a JSON text, several times as fast as `parse_json`, with the same errors."""
    import msgspec

    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return parse_json(text)


def syntax_hint(error: ValueError) -> str:
    """Return a hint for a text that is not JSON; empty if only a value is not accepted."""
    return "keys and strings need double quotes" if isinstance(error, json.JSONDecodeError) else ""


def decode(value: object, kind: type[_Record], path: str = "") -> _Record:
    """Return a JSON value as a dataclass. Fields that the dataclass does not have are ignored.

    Raises ValueError with the path of the first invalid value; `path` is that of `value`.
    """
    # msgspec is fast, has no dependencies, and its errors contain the path of the value.
    # Commands that read no records start without it.
    import msgspec

    try:
        return msgspec.convert(value, kind, dec_hook=_decode_path)
    except msgspec.ValidationError as error:
        raise ValueError(_error_text(str(error), path)) from error


def _decode_path(kind: type, value: object) -> Path:
    if kind is not Path or not isinstance(value, str):
        message = f"expected `{kind.__name__}`, got `{type(value).__name__}`"
        raise ValueError(message)
    return Path(value)


def _error_text(message: str, start: str) -> str:
    """Return a message of msgspec in our style; its form is "Expected `str`, got `int` - at `$.tags[0]`"."""
    text, separator, rest = message.rpartition(" - at `$")
    text = text if separator else message
    path = f"{start}{rest.removesuffix('`') if separator else ''}".removeprefix(".")
    return f"{text[0].lower()}{text[1:]}{f' at `{path}`' if path else ''}"


def _refuse_constant(name: str) -> NoReturn:
    message = f"`{name}` is not JSON"
    raise ValueError(message)


def _bounded_integer(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        message = f"`{text[:_MAX_DIGITS]}…` has {len(text)} characters; a number has at most {_MAX_DIGITS}"
        raise ValueError(message)
    return int(text)


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        message = f"`{text}` is too large; a number is at most {sys.float_info.max:.2g}"
        raise ValueError(message)
    return number
