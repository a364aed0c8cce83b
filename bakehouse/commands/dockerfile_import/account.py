"""The account of a Dockerfile: each word with its fate."""

import enum
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from bakehouse.catalog.secrets import secret_in
from bakehouse.fetch.connection import redacted


class Fate(enum.Enum):
    """Fates of a word. A word without one counts as not translated."""

    RECIPE = "in the recipe"
    REPLACED = "replaced"
    UNTRANSLATED = "not translated"


NO_FATE = "Bakehouse does not know this word"


@dataclass(eq=False, slots=True)
class Word:
    """A word of a Dockerfile, with the fate that its translation decides."""

    line: int
    raw: str
    """As written, with quotes."""
    text: str
    """Without quotes, and with the values of variables."""
    keyword: str
    """Its instruction, such as RUN."""
    command: int = 0
    """Words of one command have the same number."""
    fate: Fate | None = None
    detail: str = ""
    """Place in the recipe, name of the replacement with the reason, or what to do."""
    shown: str = ""
    """Text for reports if it must hide a part of the word."""

    @property
    def report_text(self) -> str:
        """The word for reports, without secrets."""
        text = self.shown or self.text or self.raw
        if "://" in text and "@" in text.partition("://")[2].partition("/")[0]:
            start = text.index("://")
            scheme = len(text[:start]) - len(text[:start].rstrip("abcdefghijklmnopqrstuvwxyz+"))
            text = text[: start - scheme] + redacted(text[start - scheme :])
        return "…" if secret_in(text) else text


@dataclass(frozen=True, slots=True)
class AccountRow:
    """Neighbouring words with the same fate."""

    line: int
    text: str
    fate: Fate
    detail: str
    words: int


@dataclass(slots=True)
class Account:
    """All words of a Dockerfile in their order, and notes about lines."""

    words: list[Word] = field(default_factory=list)
    notes: list[AccountRow] = field(default_factory=list)
    """Further findings that are not the fate of one word."""

    def add(self, word: Word) -> Word:
        self.words.append(word)
        return word

    def note(self, line: int, text: str, detail: str) -> None:
        """Add something that is not in the recipe although each word has a fate."""
        self.notes.append(AccountRow(line, text, Fate.UNTRANSLATED, detail, 0))

    def entries(self) -> tuple[AccountRow, ...]:
        """Return the words with their fates. Words without a fate are not translated."""
        for word in self.words:
            if word.fate is None:
                word.fate, word.detail = Fate.UNTRANSLATED, NO_FATE
        groups: Iterator[tuple[tuple[object, ...], Iterator[Word]]] = groupby(
            self.words, key=lambda word: (word.keyword, word.command, word.fate, word.detail)
        )
        entries: list[AccountRow] = []
        command: object = None
        for key, words in groups:
            group = [*words]
            entries.append(_entry(group, is_continued=key[0] == "RUN" and key[:2] == command))
            command = key[:2]
        return tuple(sorted([*entries, *self.notes], key=lambda entry: entry.line))

    def counts(self) -> dict[Fate, int]:
        """Return the number of words of each fate."""
        self.entries()
        return {fate: sum(word.fate is fate for word in self.words) for fate in Fate}


def settle(words: Iterable[Word], fate: Fate, detail: str) -> None:
    """Decide the fate of words that have none yet."""
    for word in words:
        if word.fate is None:
            word.fate, word.detail = fate, detail


def _entry(words: Sequence[Word], *, is_continued: bool) -> AccountRow:
    first = words[0]
    assert first.fate is not None
    head = (first.keyword, "…") if is_continued else (first.keyword,)
    text = " ".join((*head, *(word.report_text for word in words)))
    return AccountRow(first.line, " ".join(text.split()), first.fate, first.detail, len(words))
