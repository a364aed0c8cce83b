"""Fields of a mapping, read by name."""

from pathlib import Path

import pytest

from bakehouse.errors import Problems, RecipeError
from bakehouse.util.yaml_fields import Fields
from bakehouse.util.yaml_reader import parse
from tests.support.errors import raised


def reading(text: str) -> tuple[Fields, Problems]:
    problems = Problems()
    return Fields(parse(text.encode(), Path("a.yaml")), "the part", problems), problems


def messages(problems: Problems) -> list[str]:
    error = raised(RecipeError, problems.raise_as, RecipeError)
    return [diagnostic.message for diagnostic in error.diagnostics]


def test_fields_are_read_by_name_with_defaults() -> None:
    fields, problems = reading("a: one\nb: 'true'\nc: 7\nd: [x, y]\ne: {k: v}\n")

    assert (fields.text("a"), fields.text("z", "none")) == ("one", "none")
    assert (fields.flag("b"), fields.flag("y", default=True)) == (True, True)
    assert (fields.number("c", 1), fields.number("x", 1)) == (7, 1)
    assert (fields.texts("d"), fields.texts("w")) == (("x", "y"), ())
    assert [(key.text, item.text) for key, item in fields.text_pairs("e")] == [("k", "v")]
    fields.finish()
    assert not problems


def test_an_unknown_key_is_reported_with_the_nearest_known_key() -> None:
    fields, problems = reading("summry: x\n")
    fields.text("summary")
    fields.finish()

    [diagnostic] = raised(RecipeError, problems.raise_as, RecipeError).diagnostics
    assert (diagnostic.message, diagnostic.hint) == (
        "unknown key `summry` in the part",
        "did you mean `summary`?",
    )


def test_a_missing_field_is_reported_once_and_an_empty_one_too() -> None:
    fields, problems = reading("b:\n")
    fields.text("a", required=True)
    fields.text("a", required=True)
    fields.text("b", required=True)

    assert messages(problems) == ["the part has no `a`", "the part has an empty `b`"]


def test_of_no_mapping_nothing_is_missing() -> None:
    fields, problems = reading("- a\n")
    fields.text("a", required=True)
    fields.finish()

    assert messages(problems) == ["the part must be a mapping of names to values"]


@pytest.mark.parametrize("text", ["-1", "1.5", "²", "٣", "1e3", "", "9" * 5000, "0x1", "1_0"])
def test_only_digits_are_a_number(text: str) -> None:
    fields, problems = reading(f"n: '{text}'\n")

    assert fields.number("n", 5) == 5
    assert messages(problems) == ["`n` must be a whole number"]


@pytest.mark.parametrize("text", ["yes", "True", "1", ""])
def test_a_flag_is_true_or_false(text: str) -> None:
    fields, problems = reading(f"f: '{text}'\n")

    assert fields.flag("f") is False
    assert messages(problems) == ["`f` must be `true` or `false`"]


def test_a_value_of_the_wrong_shape_is_reported_once() -> None:
    fields, problems = reading("a: [x]\nb: {x: 1}\nc: x\nd: [[x]]\ne: [x]\nf: {g: [x]}\nh: x\n")
    fields.number("a", 1)
    fields.choice("b", ("x", "y"), "x")
    fields.texts("c")
    fields.texts("d")
    fields.pairs("e")
    fields.text_pairs("f")
    fields.children("h", "a child")

    assert messages(problems) == [
        "`a` must be one text, not a list",
        "`b` must be one text, not a mapping",
        "`c` must be a list",
        "an item of `d` must be one text, not a list",
        "`e` must be a mapping of names to values",
        "`g` in `f` must be one text, not a list",
        "`h` must be a list",
    ]
