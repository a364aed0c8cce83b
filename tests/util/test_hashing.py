"""A key is the sha256 of its inputs as one JSON list, however they were encoded."""

import json
from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st

from bakehouse.util.hashing import key_of, text_json, texts_json

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
