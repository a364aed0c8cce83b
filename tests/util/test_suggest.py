"""Suggestions for misspelt words."""

import pytest

from bakehouse.util.suggest import nearest_glob, suggestion


@pytest.mark.parametrize(
    ("word", "known", "text"),
    [
        ("pytroch", ["pytorch", "tensorflow"], "did you mean `pytorch`?"),
        ("int", ["init", "lint"], "did you mean `init`?"),
        ("PYTORCH", ["pytorch", "tensorflow"], "did you mean `pytorch`?"),
        ("x", ["pytorch", "tensorflow"], "use one of `pytorch`, `tensorflow`"),
        ("x", ["pytorch"], "use `pytorch`"),
        ("x", [], ""),
        ("x", [f"name-{number}" for number in range(8)], ""),
    ],
)
def test_the_nearest_word_is_suggested_or_few_words_are_listed(
    word: str, known: list[str], text: str
) -> None:
    assert suggestion(word, known) == text


@pytest.mark.parametrize(
    ("glob", "corrected"), [("pytroch-*", "pytorch-*"), ("PyTorch-*", "pytorch-*"), ("keras-*", "")]
)
def test_a_suggested_glob_matches_a_name(glob: str, corrected: str) -> None:
    assert nearest_glob(glob, ["pytorch-cpu", "tensorflow-cpu"]) == corrected
