"""Rules for training jobs, and the findings where a job violates them.

Each rule names its source. Many rules are stricter than the SageMaker SDK and say why.
"""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bakehouse.errors import Diagnostic, UsageError
from bakehouse.util.files import read_text


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule for the settings of a job."""

    name: str
    source: str
    """Program or document that the rule comes from."""
    beyond: str = ""
    """Reason for a rule that the SDK does not enforce; empty if it does."""
    is_error: bool = True
    """A violation stops the job. Otherwise it is a warning: the job runs, but probably not as intended."""
    is_known: bool = True
    """False if it is not known whether the job violates it."""


@dataclass(frozen=True, slots=True)
class RuleViolation:
    """A violation of a rule."""

    rule: Rule
    message: str
    """One clause without a period."""
    hint: str = ""

    @property
    def is_error(self) -> bool:
        return self.rule.is_error

    @property
    def diagnostic(self) -> Diagnostic:
        """The finding with its rule and source, for the user."""
        facts = (("rule", self.rule.name), ("source", self.rule.source))
        return Diagnostic(self.message, facts=facts, hint=self.hint)


class Findings:
    """Collects findings in order, without duplicates."""

    def __init__(self) -> None:
        self._findings: dict[RuleViolation, None] = {}

    def add(self, rule: Rule, message: str, hint: str = "") -> None:
        self._findings[RuleViolation(rule, message, hint)] = None

    def at(self, rule: Rule, path: str, message: str, hint: str = "") -> None:
        """Add a finding about the setting at `path`."""
        self.add(rule, f"`{path}` {message}", hint)

    def extend(self, findings: "Findings") -> None:
        self._findings |= findings._findings

    @property
    def errors(self) -> tuple[RuleViolation, ...]:
        return tuple(finding for finding in self._findings if finding.is_error)

    @property
    def warnings(self) -> tuple[RuleViolation, ...]:
        return tuple(finding for finding in self._findings if not finding.is_error)

    def raise_errors(self) -> None:
        """Raise UsageError if there are errors."""
        if self.errors:
            raise UsageError.of(*(Diagnostic(error.message, hint=error.hint) for error in self.errors))


def _read() -> dict[str, Rule]:
    """Return the rules of `rules.toml`, by their names in code."""
    document = tomllib.loads(read_text(Path(__file__).with_suffix(".toml")))

    def expanded(value: str | bool) -> Any:
        for name, text in document["texts"].items():
            value = value.replace(f"{{{name}}}", text) if isinstance(value, str) else value
        return value

    return {
        name: Rule(**{field: expanded(value) for field, value in fields.items()})
        for name, fields in document["rules"].items()
    }


_RULES = _read()
ALL = tuple(_RULES.values())
RELEASE = _RULES["LAUNCHER"].source


def __getattr__(name: str) -> Rule:
    """Return a rule by its name in code, such as `rules.RDMA`."""
    if name not in _RULES:
        message = f"`{name}` is not a rule of rules.toml"
        raise AttributeError(message)
    return _RULES[name]
