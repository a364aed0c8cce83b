"""YAML as nodes with places, within limits."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bakehouse.errors import RecipeError
from bakehouse.util.suggest import suggestion
from bakehouse.util.yaml_reader import MAX_DEPTH, Mapping, Node, Scalar, Sequence, load, parse
from tests.support.errors import raised
from tests.support.trees import COMPONENTS, IMAGE

PATH = Path("a.yaml")
SAMPLES = [text.encode() for text in (IMAGE, *COMPONENTS.values())]


def refused(data: bytes) -> str:
    [diagnostic] = raised(RecipeError, parse, data, PATH).diagnostics
    return diagnostic.message


def value(text: str) -> Scalar:
    """The one value of a mapping."""
    node = parse(text.encode(), PATH)
    assert isinstance(node, Mapping)
    scalar = node.entries[0][1]
    assert isinstance(scalar, Scalar)
    return scalar


@pytest.mark.parametrize("text", ["3.10", "1e3", "yes", "null", "~", "0x1F", "2026-01-01", "12_000", "NaN"])
def test_every_value_stays_the_text_it_was(text: str) -> None:
    assert value(f"a: {text}").text == text


def test_nothing_is_the_empty_text() -> None:
    assert value("a:").text == ""


def test_quotes_are_not_part_of_a_value() -> None:
    assert value("a: '1'").text == value('a: "1"').text == "1"


def test_values_know_their_place() -> None:
    location = value('# first\n"a b":   "größer"  # why\n').location

    assert (location.line, location.column, location.length) == (2, 10, 8)
    assert location.text == '"a b":   "größer"  # why'


def test_places_are_right_behind_wide_characters_and_unusual_line_ends() -> None:
    location = value("# 漢字 \U0001f600\r\n漢字: x\r\n").location

    assert (location.line, location.column, location.text) == (2, 5, "漢字: x")


def test_a_text_of_several_lines_is_underlined_at_its_start_only() -> None:
    scalar = value("a: |\n  one\n  two\n")

    assert (scalar.text, scalar.location.length) == ("one\ntwo\n", 1)


def test_lists_and_mappings_nest() -> None:
    node = parse(b"a: [1, {b: 2}]\nc:\n  - 3\n", PATH)

    assert plain(node) == {"a": ["1", {"b": "2"}], "c": ["3"]}


def plain(node: Node) -> object:
    match node:
        case Scalar():
            return node.text
        case Sequence():
            return [plain(item) for item in node.items]
        case Mapping():
            return {key.text: plain(item) for key, item in node.entries}


def test_nesting_is_taken_up_to_its_limit() -> None:
    assert isinstance(parse(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH, PATH), Sequence)
    assert refused(b"[" * (MAX_DEPTH + 1)) == "nesting deeper than 20 levels is not allowed here"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "`a.yaml` is empty"),
        (b"---\n---\n", "a second YAML document is not allowed here"),
        (b"{[1]: 2}", "a key must be a word or a quoted text"),
        (b"a: !!python/object/apply:os.system [ls]", "a YAML tag or anchor is not allowed here"),
        (b"&a [*a]", "a YAML tag or anchor is not allowed here"),
        (b"<<: *a", "a YAML alias is not allowed here"),
        (b"a: \x00", "this is not YAML"),
        (b'a: "\\ud800"', "this is not YAML"),
        (b'a: "\\0"', "a text contains the character `\\x00`"),
        (b'a: "\\r"', "a text contains the character `\\r`"),
        (b'a: "\\N"', "a text contains the character `\\x85`"),
        (b'a: "\\L"', "a text contains the character `\\u2028`"),
        ("a: b\u202ec".encode(), "a text contains the character `\\u202e`"),
        (b"\xff\xfea\x00", "`a.yaml` is not UTF-8 text"),
        (b"\xed\xa0\x80", "`a.yaml` is not UTF-8 text"),
        (b"a: 'b", "this is not YAML"),
        (b"%YAML 9.9\n---\na: b", "this is not YAML"),
    ],
)
def test_an_invalid_recipe_is_refused(data: bytes, message: str) -> None:
    assert refused(data) == message


def test_a_directory_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"cannot read `.*`: is a directory"):
        load(tmp_path)


def test_a_dangling_link_is_not_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").symlink_to("nowhere")
    with pytest.raises(RecipeError, match=r"cannot read `a\.yaml`: no such file or directory"):
        load(tmp_path / "a.yaml")


def test_endless_files_are_not_read_to_their_end() -> None:
    with pytest.raises(RecipeError, match="`zero` is larger than 1,000,000 bytes"):
        load(Path("/dev/zero"))


def parses_or_refuses(data: bytes) -> None:
    with contextlib.suppress(RecipeError):
        parse(data, PATH)


@settings(max_examples=150)
@given(st.binary(max_size=200))
def test_no_bytes_do_anything_else(data: bytes) -> None:
    parses_or_refuses(data)


@settings(max_examples=150)
@given(st.text("ab:- \n\t\"'[]{}#&*!|>%@`,?<=0\\~\u2028é", max_size=60))
def test_no_arrangement_of_signs_does(text: str) -> None:
    parses_or_refuses(text.encode())


@settings(max_examples=150)
@given(st.sampled_from(SAMPLES), st.data())
def test_no_damaged_recipe_does(sample: bytes, data: st.DataObject) -> None:
    damaged = bytearray(sample)
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(damaged)))
        end = data.draw(st.integers(start, min(len(damaged), start + 20)))
        damaged[start:end] = data.draw(st.binary(max_size=8))
    parses_or_refuses(bytes(damaged))


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "data",
    [
        b"[" * 400_000,
        b"{a: " * 100_000,
        b"- " * 400_000,
        b"? " * 400_000,
        b"]" * 400_000,
        b"a: b: " * 100_000,
        b"'" * 400_000,
        b"a:\n" * 300_000,
        b"[" + b"a," * 400_000 + b"]",
        b"&a " * 300_000,
        b"!" * 900_000,
        b"|" + b"\n " * 400_000,
        b'"' + b"\\x41" * 200_000 + b'"',
    ],
    ids=lambda data: data[:6].hex(),
)
def test_no_large_file_takes_long(data: bytes) -> None:
    parses_or_refuses(data)


def test_the_nearest_known_word_is_suggested() -> None:
    assert suggestion("toch", ["tensorflow", "torch"]) == "did you mean `torch`?"


def test_few_known_words_are_listed() -> None:
    assert suggestion("x", ["torch", "jit"]) == "use one of `jit`, `torch`"


def test_many_or_no_known_words_suggest_nothing() -> None:
    assert suggestion("x", [f"component-{number}" for number in range(8)]) == ""
    assert suggestion("x", []) == ""
