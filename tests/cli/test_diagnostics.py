"""Diagnostics in words, on a terminal, in a log and on GitHub."""

import io
import sys
from pathlib import Path

import pytest

from bakehouse.cli.diagnostics import annotation, failure_text, write_failure, write_warnings
from bakehouse.cli.tasks.declare import report
from bakehouse.errors import Diagnostic, Location, Reason, RecipeError


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def location_at(text: str, column: int, length: int = 1, line: int = 4) -> Location:
    return Location(Path("recipes/images/train.yaml"), line, column, length, text)


def excerpt(location: Location, label: str = "") -> list[str]:
    """The line and the caret line, without what stands left of the bar."""
    lines = failure_text(Diagnostic("wrong", location, label)).splitlines()
    return [line.partition(" | ")[2] for line in lines[3:5]]


def test_the_five_parts_are_in_order() -> None:
    diagnostic = Diagnostic(
        "no versions satisfy image `train`",
        location_at("  cuda: 12.4", 9, 4),
        "asks for cuda 12.4",
        (
            Reason("the image asks for torch >=2.9", Location(Path("recipes/images/train.yaml"), 6, 10)),
            Reason("torch 2.9.1 needs cuda 12.6", Location(Path("torch.yaml"), 4, 3)),
            Reason("there is nothing else"),
        ),
        (("expected", "sha256:1"), ("got", "sha256:2")),
        ("+ make", "error 2"),
        "ask for `cuda: 12.8`",
    )

    expected = """\
error: no versions satisfy image `train`
  --> recipes/images/train.yaml:4:9
   |
 4 |   cuda: 12.4
   |         ^^^^ asks for cuda 12.4
  because the image asks for torch >=2.9   recipes/images/train.yaml:6:10
  and torch 2.9.1 needs cuda 12.6          torch.yaml:4:3
  and there is nothing else
  expected  sha256:1
  got       sha256:2
    | + make
    | error 2

hint: ask for `cuda: 12.8`
"""
    assert failure_text(diagnostic) == expected


def test_what_is_empty_is_left_out() -> None:
    assert failure_text(Diagnostic("there is no engine")) == "error: there is no engine\n"


def test_a_place_without_its_line_is_only_named() -> None:
    location = Location(Path("a.yaml"), 1, 1)

    assert (
        failure_text(Diagnostic("`a.yaml` is empty", location))
        == "error: `a.yaml` is empty\n  --> a.yaml:1:1\n"
    )


def test_the_gutter_is_as_wide_as_the_line_number() -> None:
    text = failure_text(Diagnostic("wrong", location_at("a: b", 4, line=12345)))

    expected = """\
error: wrong
  --> recipes/images/train.yaml:12345:4
      |
12345 | a: b
      |    ^
"""
    assert text == expected


def test_paths_are_relative_to_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    inside, elsewhere = Location(tmp_path / "a.yaml", 1, 2), Location(Path("/elsewhere/b.yaml"), 1, 2)

    assert "--> a.yaml:1:2\n" in failure_text(Diagnostic("wrong", inside))
    assert "--> /elsewhere/b.yaml:1:2\n" in failure_text(Diagnostic("wrong", elsewhere))


def test_a_tab_takes_one_place_in_the_line_and_above_the_caret() -> None:
    assert excerpt(location_at("\tcuda:\t12.4", 8, 4)) == [" cuda: 12.4", "       ^^^^"]


@pytest.mark.parametrize(
    ("text", "column", "length", "caret"),
    [
        ("a: 漢字 # x", 4, 2, "   ^^^^"),
        ("漢字: value", 5, 5, "      ^^^^^"),
        ("e\u0301tat: value", 8, 5, "      ^^^^^"),
        ("a: b", 9, 1, "    ^"),
        ("a: b", 4, 99, "   ^"),
    ],
    ids=["wide below", "wide before", "combining before", "behind the end", "longer than the line"],
)
def test_the_caret_stands_under_its_characters(text: str, column: int, length: int, caret: str) -> None:
    assert excerpt(location_at(text, column, length)) == [text, caret]


def test_a_long_line_is_cut_at_its_end() -> None:
    line, caret = excerpt(location_at("key: " + "x" * 300, 1, 3))

    assert line == "key: " + "x" * 155 + "…"
    assert caret == "^^^"


def test_of_a_long_line_the_part_around_the_caret_is_shown() -> None:
    line, caret = excerpt(location_at("x" * 300 + "wrong" + "y" * 300, 301, 5), "this")

    assert line == "…" + "x" * 80 + "wrong" + "y" * 75 + "…"
    assert caret == " " * 81 + "^^^^^ this"


def test_a_caret_at_the_end_of_a_long_line_is_shown() -> None:
    line, caret = excerpt(location_at("x" * 300 + "wrong", 301, 5))

    assert line == "…" + "x" * 155 + "wrong"
    assert caret == " " * 156 + "^^^^^"


def test_a_caret_longer_than_what_is_shown_ends_with_it() -> None:
    line, caret = excerpt(location_at("x" * 400, 201, 200))

    assert line == "…" + "x" * 160 + "…"
    assert caret == " " * 81 + "^" * 80


def test_what_a_file_says_moves_no_cursor_and_starts_no_line() -> None:
    location = location_at("a: \x1b[2J\x07b", 4)
    text = failure_text(Diagnostic("`a\nerror: b\r\x1b[31mc\u202e\ud800`", location, hint="do\nthis"))

    expected = """\
error: `a\\nerror: b\\rc\\u202e\\ud800`
  --> recipes/images/train.yaml:4:4
   |
 4 | a: �[2J�b
   |    ^

hint: do\\nthis
"""
    assert text == expected


def test_credentials_of_urls_are_not_printed() -> None:
    line = "--extra-index-url https://ci:s3cret@host/simple"
    spot = Location(Path("requirements.txt"), 1, 19, 29, line)

    assert failure_text(Diagnostic("`https://ci:s3cret@host/simple` is not a requirement", spot)) == (
        "error: `https://*********@host/simple` is not a requirement\n"
        "  --> requirements.txt:1:19\n"
        "   |\n"
        " 1 | --extra-index-url https://*********@host/simple\n"
        "   |                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n"
    )


def test_colours_of_a_log_are_dropped_from_its_tail() -> None:
    expected = """\
error: wrong
    | failed badly
    |
"""
    assert failure_text(Diagnostic("wrong", tail=("\x1b[1;31mfailed\x1b[0m\tbadly", ""))) == expected


def test_several_failures_end_with_their_count() -> None:
    stream = io.StringIO()
    write_failure(RecipeError.of(Diagnostic("one"), Diagnostic("two", hint="act")), stream, {})

    assert stream.getvalue() == "error: one\n\nerror: two\n\nhint: act\n\n2 errors\n"


def test_one_failure_has_no_count() -> None:
    stream = io.StringIO()
    write_failure(RecipeError("one"), stream, {})

    assert stream.getvalue() == "error: one\n"


def test_a_terminal_gets_colour() -> None:
    stream = Terminal()
    location = Location(Path("a.yaml"), 1, 1)
    write_failure(RecipeError("one", reasons=(Reason("two", location),)), stream, {})

    assert stream.getvalue() == (
        "\033[31;1merror\033[0m: \033[1mone\033[0m\n  because two   \033[34ma.yaml:1:1\033[0m\n"
    )


@pytest.mark.parametrize(
    ("stream", "environment"),
    [(io.StringIO(), {}), (Terminal(), {"NO_COLOR": "1"})],
    ids=["no terminal", "NO_COLOR"],
)
def test_others_get_none(stream: io.StringIO, environment: dict[str, str]) -> None:
    write_failure(RecipeError("one"), stream, environment)

    assert stream.getvalue() == "error: one\n"


def test_an_empty_no_color_asks_for_nothing() -> None:
    stream = Terminal()
    write_failure(RecipeError("one"), stream, {"NO_COLOR": ""})

    assert "\033[31;1m" in stream.getvalue()


def test_github_gets_an_annotation_for_each() -> None:
    stream = io.StringIO()
    error = RecipeError.of(Diagnostic("one", location_at("a: b", 4)), Diagnostic("two"))
    write_failure(error, stream, {"GITHUB_ACTIONS": "true"})

    assert stream.getvalue().splitlines()[-2:] == [
        "::error file=recipes/images/train.yaml,line=4,col=4::one",
        "::error::two",
    ]


def test_an_annotation_can_not_be_left() -> None:
    location = Location(Path("a,line=1::b%.yaml"), 3, 1)

    assert annotation(Diagnostic("50 %\n::error::x", location, hint="y")) == (
        "::error file=a%2Cline=1%3A%3Ab%25.yaml,line=3,col=1::50 %25\\n::error::x; hint: y\n"
    )


def test_a_warning_has_the_format_of_a_failure() -> None:
    stream = io.StringIO()
    write_warnings([Diagnostic("it is slow", hint="take another")], stream)
    assert stream.getvalue() == "warning: it is slow\n\nhint: take another\n\n"


def test_a_line_of_progress_is_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    # Concurrent pushes report lines; the parts of two of them would mix
    writes: list[str] = []

    class Stream(io.StringIO):
        def write(self, text: str) -> int:
            writes.append(text)
            return len(text)

    monkeypatch.setattr(sys, "stderr", Stream())

    report("churn: pushed")

    assert writes == ["churn: pushed\n"]
