"""The translation of AWS's guides: run with `--update-snapshots` to write it anew."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from bakehouse.commands.dockerfile_import.account import AccountRow
from bakehouse.commands.dockerfile_import.choose import recipe_head
from tests.commands.dockerfile_import.translated_dockerfile import Translated

FIXTURE = Path(__file__).parent / "fixtures/aws-guide.Dockerfile"
PAGE = FIXTURE.with_suffix(".md")


def cell(text: str) -> str:
    """Return a text as a cell of a table, without the middle of long ones."""
    short = text if len(text) <= 90 else f"{text[:60]}…{text[-29:]}"
    return short.replace("|", "\\|")


def row(entry: AccountRow) -> str:
    detail = f"{entry.fate.value}: {entry.detail}"
    return f"| {entry.line} | `{cell(entry.text.replace('`', ''))}` | {detail} |"


def with_part(page: str, name: str, content: str) -> str:
    pattern = rf"(<!-- {name}: [^\n]*-->\n).*?(<!-- end of {name} -->)"
    changed, count = re.subn(pattern, lambda match: f"{match[1]}{content}\n{match[2]}", page, flags=re.DOTALL)
    assert count == 1
    return changed


def test_the_page_shows_the_present_translation(
    translated: Callable[[str], Translated], request: pytest.FixtureRequest
) -> None:
    result = translated(FIXTURE.read_text())
    head = recipe_head("The steps of AWS's guides", result.selection)
    rows = ["| line | instruction | fate |", "|---|---|---|", *map(row, result.table)]
    old = PAGE.read_text()
    page = with_part(old, "recipe", "\n".join(["", "```yaml", *head, "```", ""]))
    page = with_part(page, "table", "\n".join(["", *rows, ""]))
    if request.config.getoption("--update-snapshots"):
        PAGE.write_text(page)

    assert page == PAGE.read_text()
    assert len(rows) > 35
    assert result.steps == []
