"""The account: each instruction of a Dockerfile has a row, and no row shows a secret."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from bakehouse.commands.dockerfile_import.account import NO_FATE, Account, AccountRow, Fate, Word, settle
from bakehouse.commands.dockerfile_import.shell import split_words
from bakehouse.util.dockerfile_reader import instructions
from tests.commands.dockerfile_import.translated_dockerfile import Translated

FIXTURES = sorted((Path(__file__).parent / "fixtures").glob("*.Dockerfile"))


def without_comments(script: str) -> str:
    return re.sub(r"(?m)^\s*#.*", "", script)


def plain_words(text: str) -> set[str]:
    """Return the longer parts of all arguments of a Dockerfile, without the parser of shells."""
    arguments = " ".join(
        " ".join((*instruction.flags, instruction.text, *map(without_comments, instruction.heredocs)))
        for instruction in instructions(text)
    )
    return {*re.findall(r"[A-Za-z0-9_.-]{3,}", arguments)} - {"EOF", "EOT"}


def test_there_are_fixtures_of_each_kind() -> None:
    assert len(FIXTURES) >= 11


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_each_word_has_exactly_one_fate(path: Path, translated: Callable[[str], Translated]) -> None:
    text = path.read_text()
    result = translated(text)
    account = result.proposal.account
    counts = account.counts()

    assert sum(counts.values()) == len(account.words) == sum(entry.words for entry in result.entries)
    assert sum(counts.values()) > 5
    assert [word for word in account.words if word.detail == NO_FATE] == []
    assert [entry for entry in result.entries if entry.line < 1 or not entry.detail] == []


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_the_account_contains_the_text_of_the_dockerfile(
    path: Path, translated: Callable[[str], Translated]
) -> None:
    text = path.read_text()
    words = "\n".join(word.raw for word in translated(text).proposal.account.words)
    outside = {"AS", "as", "ONBUILD"}

    assert {word for word in plain_words(text) - outside if word not in words} == set()


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_the_proposal_resolves(path: Path, translated: Callable[[str], Translated]) -> None:
    assert translated(path.read_text()).selection.resolution is not None


def test_the_sums_over_all_fixtures(translated: Callable[[str], Translated]) -> None:
    totals = dict.fromkeys(Fate, 0)
    for path in FIXTURES:
        for fate, count in translated(path.read_text()).proposal.account.counts().items():
            totals[fate] += count

    assert min(totals.values()) > 50
    assert totals[Fate.UNTRANSLATED] < totals[Fate.RECIPE] + totals[Fate.REPLACED]


def test_a_word_without_a_fate_is_not_translated() -> None:
    account = Account()
    first = account.add(Word(3, "a", "a", "RUN"))
    account.add(Word(3, "b", "b", "RUN"))
    settle([first], Fate.RECIPE, "`run`")

    assert account.entries() == (
        AccountRow(3, "RUN a", Fate.RECIPE, "`run`", 1),
        AccountRow(3, "RUN … b", Fate.UNTRANSLATED, "Bakehouse does not know this word", 1),
    )


def test_words_of_instructions_are_split_as_buildkit_does() -> None:
    assert [word.raw for word in split_words('A="x y" B=${C:-a b} d\\ e')] == [
        'A="x y"',
        "B=${C:-a b}",
        "d\\ e",
    ]
