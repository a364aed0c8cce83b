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

    @property
    def table(self) -> tuple[AccountRow, ...]:
        return self.proposal.account.rows()

    def rows(self, fate: Fate) -> list[tuple[int, str, str]]:
        """Return line, text and detail of the instructions with a fate."""
        return [(row.line, row.text, row.detail) for row in self.table if row.fate is fate]

    @property
    def checks(self) -> list[tuple[int, str, str]]:
        return [(row.line, row.text, row.detail) for row in self.proposal.account.checks()]

    @property
    def steps(self) -> list[str]:
        return [kept.step.command for kept in self.proposal.run]
