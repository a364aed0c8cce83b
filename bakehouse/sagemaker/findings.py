"""What is wrong with a training job before it is sent: findings, each by a rule that says how it is known."""

from collections.abc import Iterator
from dataclasses import dataclass

from bakehouse.errors import Diagnostic, UsageError


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing that a job must not be, or should not be."""

    name: str
    source: str
    """Where it is known from."""
    beyond: str = ""
    """What would come of it where the SDK takes it; empty: the SDK refuses all of it."""
    is_error: bool = True
    """Else the job would run, but hardly as it was meant."""


@dataclass(frozen=True, slots=True)
class Finding:
    """That a job is against a rule."""

    rule: Rule
    message: str
    """One clause, no period."""
    hint: str = ""

    @property
    def is_error(self) -> bool:
        return self.rule.is_error

    @property
    def diagnostic(self) -> Diagnostic:
        """The finding as it is told, with its rule."""
        told = (("rule", self.rule.name), ("known from", self.rule.source))
        return Diagnostic(self.message, facts=told, hint=self.hint)


class Findings:
    """Collects findings, each once, in the order in which they are met."""

    def __init__(self) -> None:
        self._found: dict[Finding, None] = {}

    def add(self, rule: Rule, message: str, hint: str = "") -> None:
        self._found[Finding(rule, message, hint)] = None

    def at(self, rule: Rule, path: str, message: str, hint: str = "") -> None:
        """The same, of a setting that is named by the path of its key."""
        self.add(rule, f"`{path}` {message}", hint)

    def __iter__(self) -> Iterator[Finding]:
        return iter(tuple(self._found))

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(one for one in self._found if one.is_error)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        return tuple(one for one in self._found if not one.is_error)

    def raise_errors(self) -> None:
        """Raise UsageError with every error, or do nothing where there is none."""
        if self.errors:
            raise UsageError(*(Diagnostic(one.message, hint=one.hint) for one in self.errors))
