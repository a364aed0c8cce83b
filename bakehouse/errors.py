"""Failures as data: one class with its own exit code for each kind of failure.

`cli/diagnostics` turns them into text.
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Self

_LOGIN = re.compile(
    r"""(?<=://)
    (?: [^\s/?\#"'<>`]{0,256}
      # Passwords with a slash, but not a port and a path
      | [^\s/:@"'<>`]{1,256} : (?![0-9]{1,5}[/?\#]) [^\s"'<>`]{0,256} )
    (?=@)""",
    re.VERBOSE,
)
"""User and password of a URL. Limits keep the time linear."""


@dataclass(frozen=True, slots=True, order=True)
class Location:
    """A position in a file of the user. Lines and columns count from 1."""

    path: Path
    line: int
    """0 for arguments of the command line, which are then the path."""
    column: int
    length: int = 1
    """Number of characters that the caret underlines."""
    text: str = ""
    """The complete line of the file."""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}" if self.line else str(self.path)


@dataclass(frozen=True, slots=True)
class Reason:
    """One verified cause of a failure, with its location."""

    text: str
    location: Location | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """A title, and rows of cells to be aligned."""

    title: str
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One mistake or failure: the fact, its location, its reasons and a hint."""

    message: str
    """One clause without a period."""
    location: Location | None = None
    label: str = ""
    """A short reason, printed next to the caret."""
    reasons: tuple[Reason, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    """Aligned name-value lines, such as ("expected", "sha256:…")."""
    tail: tuple[str, ...] = ()
    """The last lines of a log, printed behind a bar."""
    hint: str = ""
    """One action that the user can take now."""
    tables: tuple[Table, ...] = ()
    """Printed before the hint."""

    def __post_init__(self) -> None:
        """Hide logins in URLs: these texts are printed, and parts of reports."""
        hidden = {
            "message": without_logins(self.message),
            "location": _without_logins(self.location),
            "label": without_logins(self.label),
            "reasons": tuple(
                Reason(without_logins(reason.text), _without_logins(reason.location))
                for reason in self.reasons
            ),
            "facts": tuple((name, without_logins(value)) for name, value in self.facts),
            "tail": tuple(map(without_logins, self.tail)),
            "hint": without_logins(self.hint),
            "tables": tuple(
                Table(table.title, tuple(tuple(map(without_logins, row)) for row in table.rows))
                for table in self.tables
            ),
        }
        for name, value in hidden.items():
            object.__setattr__(self, name, value)


def without_logins(text: str) -> str:
    """Return a text with asterisks in place of the user and the password of URLs.

    The length stays the same, so that columns stay right. Users of SSH without a password are not secret.
    """
    if "@" not in text or "://" not in text:
        return text
    return _LOGIN.sub(lambda login: login[0] if _is_ssh_user(login) else "*" * len(login[0]), text)


def _is_ssh_user(login: re.Match[str]) -> bool:
    return login.string.endswith("ssh://", 0, login.start()) and ":" not in login[0]


def _without_logins(location: Location | None) -> Location | None:
    return replace(location, text=without_logins(location.text)) if location else None


def one_per_cause(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Return the diagnostics without those that differ from another one only in the names of their hints."""
    hints: dict[Diagnostic, dict[str, None]] = {}
    for diagnostic in diagnostics:
        hints.setdefault(replace(diagnostic, hint=""), {})[diagnostic.hint] = None
    return tuple(replace(cause, hint=hint) for cause, texts in hints.items() for hint in _joined(texts))


def _joined(hints: Collection[str]) -> Collection[str]:
    """Return one hint for several that differ in one word, such as the image that a command names."""
    columns = [tuple(dict.fromkeys(column)) for column in zip(*map(str.split, hints), strict=False)]
    changing = [column for column in columns if len(column) > 1]
    if len(changing) != 1 or len({len(hint.split()) for hint in hints}) > 1:
        return hints
    words = [" ".join([*(word.rstrip("`") for word in column[:-1]), column[-1]]) for column in columns]
    return (" ".join(words),)


class BakehouseError(Exception):
    """A failure that is reported to the user without a traceback."""

    exit_code: ClassVar[int] = 1

    def __init__(
        self,
        message: str,
        location: Location | None = None,
        label: str = "",
        *,
        reasons: tuple[Reason, ...] = (),
        facts: tuple[tuple[str, str], ...] = (),
        tail: tuple[str, ...] = (),
        hint: str = "",
        tables: tuple[Table, ...] = (),
    ) -> None:
        """Report one mistake, with the fields of its `Diagnostic`."""
        self._report(Diagnostic(message, location, label, reasons, facts, tail, hint, tables))

    @classmethod
    def of(cls, *diagnostics: Diagnostic) -> Self:
        """Return one failure with several mistakes, or with those of another failure."""
        failure = cls.__new__(cls)
        failure._report(*diagnostics)
        return failure

    def _report(self, *diagnostics: Diagnostic) -> None:
        self.diagnostics = one_per_cause(diagnostics)
        super().__init__("; ".join(diagnostic.message for diagnostic in self.diagnostics))

    def annotate(self) -> None:
        """Add the places, facts, reasons and hints as notes: a traceback prints them after the message."""
        for diagnostic in self.diagnostics:
            if diagnostic.location:
                self.add_note(f"  --> {diagnostic.location}")
            for name, value in diagnostic.facts:
                self.add_note(f"  {name}: {value}")
            for reason in diagnostic.reasons:
                self.add_note(f"  {reason.text}")
            if diagnostic.hint:
                self.add_note(f"hint: {diagnostic.hint}")


class RecipeError(BakehouseError):
    """A recipe, component or project file is invalid."""

    exit_code = 2


class ConflictError(BakehouseError):
    """No versions satisfy an image."""

    exit_code = 3


class StaleError(BakehouseError):
    """Rendered files or locks are out of date."""

    exit_code = 4


class BuildError(BakehouseError):
    """BuildKit failed, or the verification of the built image."""

    exit_code = 5


class SmokeError(BakehouseError):
    """A built image failed a check, or a check ran out of time."""

    exit_code = 6


class PublishError(BakehouseError):
    """An image or its documents could not be published or checked, or a registry, AWS or a ledger failed."""

    exit_code = 7


class RegistryAuthError(PublishError):
    """A registry rejected the credentials, or they do not permit a push."""

    exit_code = 8


class TagTakenError(PublishError):
    """An immutable tag belongs to another image."""

    exit_code = 9


class NotReleasableError(PublishError):
    """An image may not be released: it did not pass its required checks, or is not pinned."""

    exit_code = 13


class EngineError(BakehouseError):
    """There is no container engine, or it lacks what the task needs."""

    exit_code = 10


class LaunchError(BakehouseError):
    """SageMaker rejected a job, or its API was unreachable."""

    exit_code = 11


class DifferenceError(BakehouseError):
    """A second build from the same lock differs from the first one."""

    exit_code = 12


class VulnerableError(BakehouseError):
    """Images contain packages with known vulnerabilities or pending security updates."""

    exit_code = 14


class NotScannedError(BakehouseError):
    """Nothing was found, but the vulnerabilities of some contents are unknown."""

    exit_code = 15


class TrustError(BakehouseError):
    """The policy does not accept an image, or a key cannot be used."""

    exit_code = 16


class UndecidedError(BakehouseError):
    """It is not known whether versions satisfy an image, or whether a job is valid."""

    exit_code = 17


class ReplayError(BakehouseError):
    """A job that failed on SageMaker fails on this machine for another reason."""

    exit_code = 18


class UsageError(BakehouseError):
    """The command line is invalid, or the settings of a job are."""

    exit_code = 64


_MAX_OF_ONE_KIND = 10
_QUOTED = re.compile("`[^`]*`")


class Problems:
    """Collects diagnostics so that one run reports every mistake, each once."""

    def __init__(self) -> None:
        self._diagnostics: dict[Diagnostic, None] = {}

    def add(self, diagnostic: Diagnostic) -> None:
        self._diagnostics[diagnostic] = None

    def extend(self, diagnostics: Iterable[Diagnostic]) -> None:
        self._diagnostics |= dict.fromkeys(diagnostics)

    def __bool__(self) -> bool:
        return bool(self._diagnostics)

    @property
    def all(self) -> tuple[Diagnostic, ...]:
        """The collected diagnostics in file order, at most ten of one kind in a file."""
        kinds: dict[tuple[Path, str], list[Diagnostic]] = {}
        for diagnostic in sorted(self._diagnostics, key=_file_order):
            spot = diagnostic.location
            kind = _QUOTED.sub("", diagnostic.message) if spot else diagnostic.message
            kinds.setdefault((spot.path if spot else Path(), kind), []).append(diagnostic)
        shown: list[Diagnostic] = []
        for (path, _), diagnostics in kinds.items():
            shown += diagnostics[:_MAX_OF_ONE_KIND]
            if left := diagnostics[_MAX_OF_ONE_KIND:]:
                message = f"{len(left)} more errors like this in `{path.name}`"
                shown.append(Diagnostic(message, left[0].location))
        return tuple(sorted(shown, key=_file_order))

    def raise_as(self, error: type[BakehouseError]) -> None:
        """Raise the collected diagnostics in file order. Do nothing if there are none."""
        if self._diagnostics:
            raise error.of(*self.all)


def _file_order(diagnostic: Diagnostic) -> tuple[str, int, int]:
    location = diagnostic.location
    return (str(location.path), location.line, location.column) if location else ("", 0, 0)
