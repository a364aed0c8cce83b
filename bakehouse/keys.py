"""Keys that cover inputs: the sha256 of what goes into a stage, an image or a base."""

import json
from functools import lru_cache
from hashlib import sha256
from itertools import groupby

KEY_LABEL = "org.bakehouse.key"
"""The label that tells of an image which plan it was built from."""


class Json(str):
    """A text that is JSON already."""


def key_of(*inputs: object) -> str:
    """64 hex digits over inputs, as one JSON list with sorted keys."""
    pieces: list[str] = []
    for is_json, group in groupby(inputs, lambda one: isinstance(one, Json)):
        some = list(group)
        pieces += map(str, some) if is_json else [_json(some)[1:-1]]
    return sha256(f"[{', '.join(pieces)}]".encode()).hexdigest()


@lru_cache(1024)
def text_json(text: str) -> Json:
    """A text as an input: templates are long, enter many keys, and are encoded once."""
    return Json(_json(text))


@lru_cache(16)
def texts_json(texts: tuple[tuple[str, str], ...]) -> Json:
    """Texts by name as one input, encoded once."""
    return Json(_json(dict(texts)))


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True)
