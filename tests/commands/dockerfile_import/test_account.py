"""The account: each instruction of a Dockerfile has a row, and no row shows a secret."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bakehouse.commands.dockerfile_import.account import Fate, InstructionEntry, report_text
from bakehouse.util.dockerfile_reader import instructions
from tests.commands.dockerfile_import.translated_dockerfile import Translated

FIXTURES = sorted((Path(__file__).parent / "fixtures").glob("*.Dockerfile"))


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_each_instruction_has_one_row_and_each_proposal_resolves(
    path: Path, translated: Callable[[str], Translated]
) -> None:
    text = path.read_text()
    result = translated(text)

    assert [row.line for row in result.table] == sorted(step.line for step in instructions(text))
    assert [row for row in result.table if row.detail in ("", "it has no effect")] == []
    assert result.selection.resolution is not None


def test_the_fate_of_an_instruction_is_that_of_its_worst_part() -> None:
    entry = InstructionEntry(3, "RUN a && b")
    assert entry.row.detail == "it has no effect"

    entry.add(Fate.RECIPE, "`packages`")
    entry.add(Fate.KEPT, "step 1 of `run`")

    assert (entry.row.fate, entry.row.detail) == (Fate.KEPT, "`packages`; step 1 of `run`")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("RUN TOKEN=swordfish pip install x", "RUN TOKEN=… pip install x"),
        ("RUN cli login --token swordfish --password='sword fish' x",
         "RUN cli login --token … --password=… x"),
        ("RUN git clone https://ada:swordfish@x.example/a.git", "RUN git clone https://x.example/a.git"),
        ("RUN apt-get -o Acquire::http::Proxy=http://a:swordfish@b x",
         "RUN apt-get -o Acquire::http::Proxy=… x"),
        ("RUN echo hf_" + "abcdefghij" * 4, "RUN echo …"),
    ],
)  # fmt: skip
def test_reports_hide_secrets(text: str, shown: str) -> None:
    assert report_text(text) == shown
