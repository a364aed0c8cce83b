"""The comparison of what a page shows with what a command printed."""

import pytest

from tests.support.guides import differences


@pytest.mark.parametrize(
    "printed",
    [
        "churn  450.1 MB as pushed, 8 files",
        "churn  455.9 MB as pushed, 8 files",
        "churn  0.46 GB as pushed, 8 files",
    ],
)
def test_sizes_may_differ_a_little(printed: str) -> None:
    assert differences("churn  451.8 MB as pushed, 8 files", printed) == []


@pytest.mark.parametrize(
    "printed",
    ["churn  480.0 MB as pushed, 8 files", "churn  451.8 kB as pushed, 8 files", "churn  451.8 MB, 8 files"],
)
def test_other_sizes_and_texts_are_differences(printed: str) -> None:
    shown = "churn  451.8 MB as pushed, 8 files"

    assert differences(shown, printed) == [shown]


def test_dots_stand_for_any_lines_and_any_text() -> None:
    assert differences("a 1\n…\nc … d\n", "a 1\nb\nb\nc 5 MB d\n") == []
    assert differences("a 1\nc … d\n", "a 1\nb\nc 5 MB d\n") == ["c … d"]
