"""Requirements files."""

from pathlib import Path

import pytest

from bakehouse.cli.diagnostics import failure_text
from bakehouse.errors import RecipeError
from bakehouse.lock.lock import read_requirements

FILE = Path("requirements.txt")


def test_comments_and_empty_lines_are_left_out() -> None:
    data = b"# what we need\nsix>=1  # of old\n\ntiny @ https://x.example/tiny-1.whl#sha256=0\n"
    assert read_requirements(FILE, data) == ["six>=1", "tiny @ https://x.example/tiny-1.whl#sha256=0"]


def test_options_are_reported_where_they_stand() -> None:
    with pytest.raises(RecipeError) as caught:
        read_requirements(FILE, b"six\n  -r more.txt\n--index-url https://x.example\n")
    first, second = map(failure_text, caught.value.diagnostics)
    assert first == (
        "error: pip options are not supported here\n"
        "  --> requirements.txt:2:3\n"
        "   |\n"
        " 2 |   -r more.txt\n"
        "   |   ^^^^^^^^^^^\n"
        "\n"
        "hint: list packages only; indexes and proxies come from this machine's pip configuration\n"
    )
    assert "requirements.txt:3:1" in second


def test_bytes_that_are_not_text_are_reported_with_their_position() -> None:
    with pytest.raises(RecipeError) as caught:
        read_requirements(FILE, b"six\ntiny\xff\n")
    assert failure_text(caught.value.diagnostics[0]).splitlines()[:2] == [
        "error: `requirements.txt` is not UTF-8 text",
        "  --> requirements.txt:2:1",
    ]
