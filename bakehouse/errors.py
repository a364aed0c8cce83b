"""What can go wrong, as data: every failure a user can meet, each class with an exit code of its own.

The words are made in `report`; here a failure is only facts.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar


@dataclass(frozen=True, slots=True, order=True)
class Location:
    """A spot in a file a person wrote; line and column count from 1."""

    path: Path
    line: int
    """0 for what was asked for on the command line: the path is then those words."""
    column: int
    length: int = 1
    """How many characters the caret underlines."""
    text: str = ""
    """The whole line, as it stands in the file."""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}" if self.line else str(self.path)


@dataclass(frozen=True, slots=True)
class Reason:
    """One checked fact behind a failure, with the place it was read from."""

    text: str
    location: Location | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """A title, and rows of cells to be aligned."""

    title: str
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One mistake or failure: what, where, why and what to do now."""

    message: str
    """One clause, in the reader's words, no period."""
    location: Location | None = None
    label: str = ""
    """Why this spot, in a few words; printed beside the caret."""
    reasons: tuple[Reason, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    """Aligned name-value lines, such as ("expected", "sha256:…")."""
    tail: tuple[str, ...] = ()
    """The last lines of a log, printed behind a bar."""
    hint: str = ""
    """One action the reader can take now."""
    tables: tuple[Table, ...] = ()
    """Printed before the hint."""


class BakehouseError(Exception):
    """A failure to be told to the user without a traceback."""

    exit_code: ClassVar[int] = 1

    def __init__(self, *diagnostics: Diagnostic) -> None:
        super().__init__("; ".join(diagnostic.message for diagnostic in diagnostics))
        self.diagnostics = diagnostics


class RecipeError(BakehouseError):
    """A recipe, component or project file says something that can't be."""

    exit_code = 2


class ConflictError(BakehouseError):
    """No versions satisfy an image."""

    exit_code = 3


class StaleError(BakehouseError):
    """Rendered files or locks are out of date."""

    exit_code = 4


class BuildError(BakehouseError):
    """BuildKit, or the check of what it built, failed."""

    exit_code = 5


class SmokeError(BakehouseError):
    """A built image failed a check, or a check ran out of time."""

    exit_code = 6


class PublishError(BakehouseError):
    """A registry did not take the image."""

    exit_code = 7


class RegistryAuthError(PublishError):
    """A registry does not accept the credentials, or they may not push."""

    exit_code = 8


class TagTakenError(PublishError):
    """An immutable tag names a different image already."""

    exit_code = 9


class EngineError(BakehouseError):
    """There is no container engine, or it lacks what the task needs."""

    exit_code = 10


class LaunchError(BakehouseError):
    """SageMaker did not take a job, or could not be asked about it."""

    exit_code = 11


class DifferenceError(BakehouseError):
    """What was built again from the same lock is not the same."""

    exit_code = 12


class UsageError(BakehouseError):
    """The command line names something that does not exist."""

    exit_code = 64


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

    def raise_as(self, error: type[BakehouseError]) -> None:
        """Raise what was collected, in file order, or do nothing when there is nothing."""
        if self._diagnostics:
            raise error(*sorted(self._diagnostics, key=_file_order))


def _file_order(diagnostic: Diagnostic) -> tuple[str, int, int]:
    spot = diagnostic.location
    return (str(spot.path), spot.line, spot.column) if spot else ("", 0, 0)
