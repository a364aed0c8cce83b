"""JSON that is damaged, or made to break its reader."""

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import pytest

from bakehouse.util.json_reader import decode, parse_json


class Color(StrEnum):
    RED = "red"


@dataclass(frozen=True, slots=True)
class Part:
    name: str
    color: Color = Color.RED
    log: Path | None = None


@dataclass(frozen=True, slots=True)
class Record:
    parts: tuple[Part, ...]


def test_a_value() -> None:
    assert parse_json('{"a": [1, 2.5, null, "\\ud83d\\ude00"]}') == {"a": [1, 2.5, None, "\U0001f600"]}
    assert parse_json(b'"\xc3\xa9"') == "é"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[" * 100_000, "it is nested too deeply"),
        ("[NaN]", "`NaN` is not JSON"),
        ("[-Infinity]", "`-Infinity` is not JSON"),
        ("[1e999]", "`1e999` is too large; a number is at most 1.8e.308"),
        ('{"a": "\\ud800"}', "surrogates not allowed"),
        ('{"\\uDfff": 1}', "surrogates not allowed"),
        ("9" * 5_000, "`99999999999999999999…` has 5000 characters; a number has at most 20"),
        ("[-123456789012345678901]", "has 22 characters; a number has at most 20"),
        (b"\xff", "invalid start byte"),
        ("", "Expecting value"),
    ],
)
def test_everything_else_is_a_value_error(text: str | bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_json(text)


def test_a_record_is_decoded_without_unknown_fields() -> None:
    value = {"parts": [{"name": "a", "log": "x/y", "newer": 1}], "newer": {}}

    assert decode(value, Record) == Record((Part("a", Color.RED, Path("x/y")),))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "expected `object`, got `array` at `record`"),
        ({}, "object missing required field `parts` at `record`"),
        ({"parts": [{"name": 3}]}, "expected `str`, got `int` at `record.parts[0].name`"),
        (
            {"parts": [{"name": "", "color": "- at `$"}]},
            "invalid enum value '- at `$' at `record.parts[0].color`",
        ),
        ({"parts": [{"name": "", "log": 3}]}, "expected `Path`, got `int` at `record.parts[0].log`"),
    ],
)
def test_an_invalid_record_is_reported_with_the_path_of_its_value(value: object, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        decode(value, Record, "record")
    with pytest.raises(
        ValueError, match=f"^{re.escape(message.replace(' at `record`', '').replace('`record.', '`'))}$"
    ):
        decode(value, Record)
