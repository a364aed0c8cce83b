"""Build keys: the sha256 over the inputs of a stage, an image or a base."""

import json
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import fields
from functools import lru_cache
from hashlib import sha256
from typing import Any

KEY_LABEL = "org.bakehouse.key"
"""Label of an image with its build key."""


# `json.dumps` creates a new encoder for each call with `sort_keys`
_ENCODER = json.JSONEncoder(sort_keys=True)


class Json(str):
    """A text that is already JSON."""


def key_of(*inputs: object) -> str:
    """Return the sha256 of inputs, encoded as one JSON list with sorted keys, as 64 hex digits."""
    pieces = (value if isinstance(value, Json) else _ENCODER.encode(value) for value in inputs)
    return sha256(f"[{', '.join(pieces)}]".encode()).hexdigest()


_INPUTS = "key_inputs"


def encoded_by(encode: Callable[[Any], object]) -> dict[str, Any]:
    """Return the metadata of a dataclass field that is one input of a key, encoded by a function."""
    return {_INPUTS: lambda value: (encode(value),)}


def spread_by(encode: Callable[[Any], Iterable[object]]) -> dict[str, Any]:
    """Return the metadata of a dataclass field that a function turns into any number of inputs of a key."""
    return {_INPUTS: encode}


def key_of_fields(inputs: Any, omitted: Collection[str] = ()) -> str:
    """Return the key over all fields of a dataclass in their order, except `omitted` ones.

    A field without metadata is encoded unchanged. Raises TypeError if JSON cannot represent it, so that no
    field can be forgotten.
    """
    return key_of(*_field_inputs(inputs, omitted))


def _field_inputs(inputs: Any, omitted: Collection[str]) -> Iterator[object]:
    for item in fields(inputs):
        if item.name in omitted:
            continue
        value = getattr(inputs, item.name)
        if encode := item.metadata.get(_INPUTS):
            yield from encode(value)
        else:
            yield value


@lru_cache(1024)
def text_json(text: str) -> Json:
    """Return a text as an input, cached because templates are long and enter many keys."""
    return json_of(text)


@lru_cache(1024)
def text_key(text: str) -> Json:
    """Return the sha256 of a text as an input."""
    return json_of(sha256(text.encode()).hexdigest())


@lru_cache(16)
def texts_json(texts: tuple[tuple[str, str], ...]) -> Json:
    """Return texts by name as one input, cached."""
    return json_of(dict(texts))


@lru_cache(1024)
def bytes_digest(content: bytes) -> str:
    """Return the sha256 of the content of a file, cached because components enter many keys."""
    return sha256(content).hexdigest()


def list_of(inputs: Iterable[Json]) -> Json:
    """Return inputs as one input that is a list."""
    return Json(f"[{', '.join(inputs)}]")


def json_of(*inputs: object) -> Json:
    """Encode consecutive inputs, so that inputs of many keys are encoded only once."""
    return Json(", ".join(map(_ENCODER.encode, inputs)))
