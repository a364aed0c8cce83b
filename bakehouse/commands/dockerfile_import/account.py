"""The account of a Dockerfile: each instruction with its fate."""

import enum
import re
from dataclasses import dataclass, field

from bakehouse.catalog.secrets import kind_of_secret, secret_in
from bakehouse.fetch.connection import redacted

_ADDRESS = re.compile(r"[a-z][a-z0-9+]*://[^\s'\"/]*@[^\s'\"]*")
_SECRET = re.compile(
    r"(?i)--mount=\S+|((?:[\w-]*(?:token|passw(?:or)?d?|secret|api[-_]?key|credentials?|proxy)[\w-]*)(?:\s*[=:]\s*|\s+))"
    r"(\"[^\"]*\"|'[^']*'|[^\s;&|]+)"
)

_LOGIN = re.compile(
    r"\w[\w+]*://(?!git@)[^/\s'\"]*@|(?i:--(?:password|token|passwd)\b|authorization: *\w+ +[^\s$]"
    r"|\b\w+-(?:token|key): *[^\s$]|\blogin\s+\S+\s+password\s+[^\s$])"
    r"|\bcurl\b[^;&|\n]*\s(?:-u|--user)[ =]?[^\s:]+:[^\s$]"
)
"""Logins in URLs, options, headers and .netrc."""


class Fate(enum.Enum):
    """Fates of an instruction; the last one that applies to a part of it."""

    REPLACED = "replaced"
    RECIPE = "in the recipe"
    NOTE = "with advice"
    KEPT = "kept"
    UNTRANSLATED = "to check"


_ORDER = [*Fate]


@dataclass(frozen=True, slots=True)
class AccountRow:
    """An instruction with its fate, or a part of it that the user has to check."""

    line: int
    text: str
    fate: Fate
    details: tuple[str, ...]
    """Fates of its parts, in words."""

    @property
    def detail(self) -> str:
        return "; ".join(self.details)


@dataclass(eq=False, slots=True)
class InstructionEntry:
    """An instruction of a Dockerfile, with what becomes of its parts."""

    line: int
    text: str
    parts: list[tuple[Fate, str, str, int]] = field(default_factory=list)
    """Fate, detail, the text of the part, and its line."""

    def add(self, fate: Fate, detail: str, text: str = "", line: int = 0) -> None:
        part = fate, detail, text or self.text, line or self.line
        if part not in self.parts:
            self.parts.append(part)

    def note(self, detail: str) -> None:
        """Add advice about a kept part, which is in the list to check but not lost."""
        self.add(Fate.NOTE, detail)

    def check(self, detail: str, text: str = "", line: int = 0) -> None:
        """Add a part that the user has to check, with what to do."""
        self.add(Fate.UNTRANSLATED, detail, text, line)

    @property
    def row(self) -> AccountRow:
        if not self.parts:
            return AccountRow(self.line, report_text(self.text), Fate.REPLACED, ("it has no effect",))
        fate = max((part[0] for part in self.parts), key=_ORDER.index)
        details = dict.fromkeys(detail for kind, detail, _, _ in self.parts if kind is not Fate.NOTE)
        return AccountRow(self.line, report_text(self.text), fate, tuple(details))


@dataclass(slots=True)
class Account:
    """All instructions of a Dockerfile in their order."""

    instructions: list[InstructionEntry] = field(default_factory=list)

    def add(self, line: int, text: str) -> InstructionEntry:
        entry = InstructionEntry(line, text)
        self.instructions.append(entry)
        return entry

    def rows(self) -> tuple[AccountRow, ...]:
        """Return one row for each instruction."""
        return tuple(sorted((entry.row for entry in self.instructions), key=lambda row: row.line))

    def checks(self) -> tuple[AccountRow, ...]:
        """Return a row for each part that the user has to check."""
        rows = [
            AccountRow(line, report_text(text), fate, (detail,))
            for entry in self.instructions
            for fate, detail, text, line in entry.parts
            if fate in (Fate.UNTRANSLATED, Fate.NOTE)
        ]
        return tuple(sorted(dict.fromkeys(rows), key=lambda row: row.line))


def has_secret(text: str) -> bool:
    """Return whether a text that everybody could read contains a secret."""
    given = re.findall(r"\b(\w+)=[\"']?([^\s\"';&|$]+)", text)
    return bool(secret_in(text) or _LOGIN.search(text) or any(kind_of_secret(*pair) for pair in given))


def login_variables(text: str) -> list[str]:
    """Return the names of the variables in the logins of URLs."""
    return [
        name for login in re.findall(r"://([^\s/@'\"]+)@", text) for name in re.findall(r"\$\{?(\w+)", login)
    ]


def report_text(text: str) -> str:
    """Return a text for reports, without secrets."""
    shown = _ADDRESS.sub(lambda match: redacted(match[0]), " ".join(text.split()))
    shown = re.sub(r"(?<=\s)(-u|--user)([ =]?)[^\s:'\"]+:(?!/)\S+", r"\1\2…", shown)
    shown = _SECRET.sub(lambda match: f"{match[1]}…" if match[1] else match[0], shown)
    return " ".join("…" if secret_in(word) else word for word in shown.split())
