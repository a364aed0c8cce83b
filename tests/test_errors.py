"""Failures as data."""

import time
from pathlib import Path

import pytest

from bakehouse import errors
from bakehouse.errors import (
    BakehouseError,
    Diagnostic,
    Location,
    Problems,
    Reason,
    RecipeError,
    Table,
    without_logins,
)
from tests.support.errors import raised


def every_class(root: type[BakehouseError] = BakehouseError) -> list[type[BakehouseError]]:
    return [root, *(subclass for child in root.__subclasses__() for subclass in every_class(child))]


def test_each_failure_class_has_an_exit_code_of_its_own() -> None:
    codes = {
        subclass.__name__: subclass.exit_code
        for subclass in every_class()
        if subclass.__module__ == errors.__name__
    }

    assert len(codes) == len(set(codes.values()))
    assert all(0 < code < 126 for code in codes.values())


def test_problems_are_raised_in_file_order_each_once() -> None:
    problems = Problems()
    late = Diagnostic("third", Location(Path("b.yaml"), 2, 1))
    problems.add(late)
    problems.add(Diagnostic("second", Location(Path("a.yaml"), 10, 1)))
    problems.extend([Diagnostic("first", Location(Path("a.yaml"), 9, 30)), late])
    problems.add(Diagnostic("of no file"))

    assert [
        diagnostic.message for diagnostic in raised(RecipeError, problems.raise_as, RecipeError).diagnostics
    ] == ["of no file", "first", "second", "third"]


def test_no_problems_raise_nothing() -> None:
    problems = Problems()
    problems.raise_as(RecipeError)

    assert not problems


def test_a_failure_reads_as_its_messages() -> None:
    assert str(RecipeError.of(Diagnostic("one"), Diagnostic("two"))) == "one; two"


def test_a_location_reads_as_editors_take_it() -> None:
    assert str(Location(Path("recipes/images/a.yaml"), 4, 10)) == "recipes/images/a.yaml:4:10"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("`https://me:secret@host/x`", "`https://*********@host/x`"),
        ("https://token@host", "https://*****@host"),
        ("https://me:s@cret@host", "https://*********@host"),
        ("https://me:se/ret@host:80/x", "https://*********@host:80/x"),
        ("git+ssh://me:secret@host", "git+ssh://*********@host"),
        ("ssh://me@host", "ssh://me@host"),
        ("git+https://host:8443/own.git@main", "git+https://host:8443/own.git@main"),
        ("https://host/a: mail me@host", "https://host/a: mail me@host"),
        ("127.0.0.1:5050/a:1@sha256:ab", "127.0.0.1:5050/a:1@sha256:ab"),
    ],
)
def test_logins_in_urls_are_hidden_in_all_parts_of_a_diagnostic(text: str, shown: str) -> None:
    location = Location(Path("x"), 1, 3, 4, text)
    diagnostic = Diagnostic(
        text,
        location,
        text,
        (Reason(text, location),),
        (("from", text),),
        (text,),
        text,
        (Table("x", ((text,),)),),
    )

    assert diagnostic.message == diagnostic.label == diagnostic.hint == diagnostic.tail[0] == shown
    assert diagnostic.location == diagnostic.reasons[0].location == Location(Path("x"), 1, 3, 4, shown)
    assert diagnostic.reasons[0].text == diagnostic.facts[0][1] == diagnostic.tables[0].rows[0][0] == shown


@pytest.mark.parametrize("text", ["://a:" * 8_000 + "@", "://a" * 10_000 + "@", "@" * 40_000 + "://"])
def test_hiding_logins_takes_linear_time(text: str) -> None:
    began = time.process_time()
    without_logins(text)

    assert time.process_time() - began < 1.5


def test_a_file_has_at_most_ten_errors_of_one_kind() -> None:
    problems = Problems()
    for line in range(1, 31):
        problems.add(Diagnostic(f"`line {line}` is not a requirement", Location(Path("a.txt"), line, 1)))
        problems.add(Diagnostic(f"`{line}` without a place"))
    problems.add(Diagnostic("another kind", Location(Path("a.txt"), 40, 1)))
    problems.add(Diagnostic("`line 1` is not a requirement", Location(Path("b.txt"), 1, 1)))

    texts = [(str(each.location), each.message) for each in problems.all if each.location]

    assert len(texts) == 13
    assert texts[9:] == [
        ("a.txt:10:1", "`line 10` is not a requirement"),
        ("a.txt:11:1", "20 more errors like this in `a.txt`"),
        ("a.txt:40:1", "another kind"),
        ("b.txt:1:1", "`line 1` is not a requirement"),
    ]
    assert len(problems.all) == 43


def test_failures_of_one_cause_are_one_with_all_their_names() -> None:
    def failure(image: str) -> Diagnostic:
        return Diagnostic("`req.txt` has no lock", hint=f"run `bake lock {image}` and commit it")

    other, unlike = Diagnostic("another"), Diagnostic("another", hint="a hint of other words")
    error = RecipeError.of(failure("a"), other, failure("b"), unlike, failure("a"))

    assert error.diagnostics == (failure("a b"), other, unlike)
