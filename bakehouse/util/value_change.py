"""Named values that differ between two states: versions of components and packages, settings, results."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ValueChange:
    """A named value in two states; None in a state that lacks it."""

    name: str
    """Empty if the states have only one value of the kind."""
    before: str | None
    after: str | None

    @property
    def text(self) -> str:
        """The change, such as `nccl 2.28 → 2.29`, `+ nccl 2.29` or `- nccl 2.28`."""
        if self.before is None or self.after is None:
            sign, value = ("+", self.after) if self.before is None else ("-", self.before)
            return " ".join(filter(None, (sign, self.name, value)))
        return f"{self.name} {self.before or 'none'} → {self.after or 'none'}".lstrip()

    @property
    def words(self) -> str:
        """The change where signs have another meaning, such as `nccl 2.29 added` in a list of Markdown."""
        if self.before is None or self.after is None:
            verb, value = ("added", self.after) if self.before is None else ("removed", self.before)
            return " ".join(filter(None, (self.name, value, verb)))
        return self.text


def value_changes(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[ValueChange, ...]:
    """Return the values that differ, those of the first state first."""
    return tuple(
        ValueChange(name, before.get(name), after.get(name))
        for name in dict.fromkeys([*before, *after])
        if before.get(name) != after.get(name)
    )
