"""Build keys: the sha256 over the inputs of a stage, an image or a base."""

import json
from collections.abc import Iterable
from functools import lru_cache
from hashlib import sha256

KEY_LABEL = "org.bakehouse.key"
"""Label of an image with its build key."""


# `json.dumps` makes one of its own for each value that is to be sorted
_ENCODER = json.JSONEncoder(sort_keys=True)


class Json(str):
    """A text that is JSON already."""


def key_of(*inputs: object) -> str:
    """64 hex digits over inputs, as one JSON list with sorted keys."""
    pieces = (one if isinstance(one, Json) else _ENCODER.encode(one) for one in inputs)
    return sha256(f"[{', '.join(pieces)}]".encode()).hexdigest()


@lru_cache(1024)
def text_json(text: str) -> Json:
    """A text as an input: templates are long, enter many keys, and are encoded once."""
    return json_of(text)


@lru_cache(1024)
def text_key(text: str) -> Json:
    """Return the sha256 of a text as an input."""
    return json_of(sha256(text.encode()).hexdigest())


@lru_cache(16)
def texts_json(texts: tuple[tuple[str, str], ...]) -> Json:
    """Texts by name as one input, encoded once."""
    return json_of(dict(texts))


def list_of(inputs: Iterable[Json]) -> Json:
    """Inputs as one that is a list."""
    return Json(f"[{', '.join(inputs)}]")


def json_of(*inputs: object) -> Json:
    """Some inputs that enter many keys beside each other: encoded once."""
    return Json(", ".join(map(_ENCODER.encode, inputs)))
