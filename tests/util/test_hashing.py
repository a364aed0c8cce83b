"""A key is the sha256 of its inputs as one JSON list, however they were encoded."""

import json
from dataclasses import dataclass, field
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakehouse.util.hashing import encoded_by, key_of, key_of_fields, spread_by, text_json, texts_json

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
TEXTS = st.text().map(lambda text: (text, text_json(text)))
MAPPINGS = st.dictionaries(st.text(), st.text()).map(lambda texts: (texts, texts_json(tuple(texts.items()))))


@given(st.lists(PLAIN.map(lambda value: (value, value)) | TEXTS | MAPPINGS, max_size=5))
def test_inputs_that_were_encoded_before_make_the_same_key(inputs: list[tuple[object, object]]) -> None:
    whole = json.dumps([value for value, _ in inputs], sort_keys=True)

    assert key_of(*(part for _, part in inputs)) == sha256(whole.encode()).hexdigest()


@dataclass
class Inputs:
    name: str = "a"
    size: complex = field(default=2j, metadata=encoded_by(abs))
    options: tuple[str, ...] = field(default=("x", "y"), metadata=spread_by(tuple))


def test_a_key_of_fields_has_all_fields_in_their_order() -> None:
    assert key_of_fields(Inputs()) == key_of("a", 2.0, "x", "y")
    assert key_of_fields(Inputs(options=())) == key_of("a", 2.0)
    assert key_of_fields(Inputs(), omitted={"size"}) == key_of("a", "x", "y")


def test_a_field_that_json_does_not_know_cannot_be_forgotten() -> None:
    @dataclass
    class WithField(Inputs):
        new: object = field(default_factory=object)

    with pytest.raises(TypeError):
        key_of_fields(WithField())
