"""JSON that is damaged, or made to break its reader."""

import pytest

from bakehouse.util.json_reader import parse_json


def test_a_value() -> None:
    assert parse_json('{"a": [1, 2.5, null, "\\ud83d\\ude00"]}') == {"a": [1, 2.5, None, "\U0001f600"]}
    assert parse_json(b'"\xc3\xa9"') == "é"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[" * 100_000, "it is nested too deeply"),
        ("[NaN]", "`NaN` is not JSON"),
        ("[-Infinity]", "`-Infinity` is not JSON"),
        ("[1e999]", "`1e999` is too large"),
        ('{"a": "\\ud800"}', "surrogates not allowed"),
        ('{"\\uDfff": 1}', "surrogates not allowed"),
        ("9" * 5_000, "`99999999999999999999…` is too large"),
        ("[-123456789012345678901]", "is too large"),
        (b"\xff", "invalid start byte"),
        ("", "Expecting value"),
    ],
)
def test_everything_else_is_a_value_error(text: str | bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_json(text)
