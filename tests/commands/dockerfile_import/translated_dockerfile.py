"""A Dockerfile with its translation."""

from dataclasses import dataclass

from bakehouse.commands.dockerfile_import.account import AccountRow, Fate
from bakehouse.commands.dockerfile_import.choose import ChosenComponents
from bakehouse.commands.dockerfile_import.proposal import Proposal


@dataclass(frozen=True)
class Translated:
    """A Dockerfile with its translation."""

    proposal: Proposal
    selection: ChosenComponents
    entries: tuple[AccountRow, ...]

    def rows(self, fate: Fate) -> list[tuple[int, str, str]]:
        """Return line, text and detail of the entries with a fate."""
        return [(entry.line, entry.text, entry.detail) for entry in self.entries if entry.fate is fate]

    @property
    def untranslated(self) -> list[tuple[int, str, str]]:
        return self.rows(Fate.UNTRANSLATED)

    @property
    def steps(self) -> list[str]:
        return [step for step, _ in self.proposal.run]
