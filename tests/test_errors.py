"""Failures as data."""

from pathlib import Path

import pytest

from bakehouse import errors
from bakehouse.errors import BakehouseError, Diagnostic, Location, Problems, RecipeError


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

    with pytest.raises(RecipeError) as caught:
        problems.raise_as(RecipeError)

    assert [diagnostic.message for diagnostic in caught.value.diagnostics] == [
        "of no file",
        "first",
        "second",
        "third",
    ]


def test_no_problems_raise_nothing() -> None:
    problems = Problems()
    problems.raise_as(RecipeError)

    assert not problems


def test_a_failure_reads_as_its_messages() -> None:
    assert str(RecipeError(Diagnostic("one"), Diagnostic("two"))) == "one; two"


def test_a_location_reads_as_editors_take_it() -> None:
    assert str(Location(Path("recipes/images/a.yaml"), 4, 10)) == "recipes/images/a.yaml:4:10"
