"""Reader of JSON that other programs wrote, or that a merge or a full disk may have damaged."""

import json
import math
import re
from typing import Any, NoReturn

_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")

_MAX_DIGITS = 20
"""Length of an integer. Longer ones cannot be converted to floats or to text."""


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text.

    Raises ValueError also where the standard library raises another error, or where its value could not be
    printed or converted: nesting that is too deep, numbers without limit, lone surrogates.
    """
    try:
        value = json.loads(
            text, parse_constant=_refuse_constant, parse_float=_finite, parse_int=_bounded_integer
        )
    except RecursionError as error:
        message = "it is nested too deeply"
        raise ValueError(message) from error
    if _ESCAPED_SURROGATE.search(text if isinstance(text, str) else text.decode("latin-1")):
        # A pair is one character; json combines it
        json.dumps(value, ensure_ascii=False).encode()
    return value


def _refuse_constant(name: str) -> NoReturn:
    message = f"`{name}` is not JSON"
    raise ValueError(message)


def _bounded_integer(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        message = f"`{text[:_MAX_DIGITS]}…` is too large"
        raise ValueError(message)
    return int(text)


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        message = f"`{text}` is too large"
        raise ValueError(message)
    return number
