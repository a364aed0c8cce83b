"""Writes the recipe that replaces a Dockerfile, and the table with the fate of each word."""

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from bakehouse.catalog.catalog import Catalog
from bakehouse.commands.dockerfile_import.account import AccountRow, Fate
from bakehouse.commands.dockerfile_import.choose import recipe_head, select
from bakehouse.commands.dockerfile_import.proposal import Proposal
from bakehouse.commands.dockerfile_import.translate import translate
from bakehouse.util.files import read_text
from bakehouse.util.format import format_count, format_table

_MAX_CELL = 60
"""Characters of a text in the table of all words."""
_MAX_LISTED = 300


@dataclass(frozen=True, slots=True)
class ImportedDockerfile:
    """The recipe for a Dockerfile."""

    files: dict[Path, str]
    """Content by path: the recipe, and its requirements if they need a file of their own."""
    entries: tuple[AccountRow, ...]
    region: str
    """Region of the registry of an AWS base; empty for other bases."""
    image: str
    line: int
    """Line of the FROM with the image."""
    needs_lock: bool


def import_dockerfile(dockerfile: Path, name: str, recipe: Path, catalog: Catalog) -> ImportedDockerfile:
    """Return the recipe for a Dockerfile. `name` is the Dockerfile in messages."""
    text = read_text(dockerfile, errors="replace")
    context = dockerfile.parent
    proposal = translate(text, context, catalog)
    selection = select(proposal, catalog)
    lines = recipe_head(f"Replaces the Dockerfile from {proposal.image or 'scratch'}", selection)
    resolution = selection.resolution
    packages = proposal.dnf if resolution and resolution.base.spec.manager == "dnf" else proposal.apt
    if packages:
        lines.append(f"packages: [{', '.join(map(_quoted, packages))}]")
    files: dict[Path, str] = {}
    requirements = _requirements(proposal, context, recipe)
    if requirements:
        path, content = requirements
        if content:
            files[path] = content
        lines.append(f"requirements: {_quoted(_relative(path, recipe))}")
    lines += _content(proposal, context, recipe)
    entries = proposal.account.entries()
    untranslated = [entry for entry in entries if entry.fate is Fate.UNTRANSLATED]
    if untranslated:
        lines += ["", "# Not in this recipe:"]
        lines += [_comment(f"{name}:{entry.line}: {entry.text}: {entry.detail}") for entry in untranslated]
    return ImportedDockerfile(
        {**files, recipe: "\n".join(lines) + "\n"},
        entries,
        proposal.base.region,
        proposal.image,
        proposal.line,
        bool(requirements),
    )


def _requirements(proposal: Proposal, context: Path, recipe: Path) -> tuple[Path, str] | None:
    """Return the requirements file, and its content if it is a new one."""
    named, constraints = [*proposal.requirement_files], [*proposal.constraint_files]
    if not named and not proposal.requirements:
        return None
    if len(named) == 1 and not proposal.requirements and not constraints:
        return context / named[0], ""
    path = recipe.with_name(f"{recipe.stem}.requirements.txt")
    lines = [
        *(f"-r {_relative(context / file, path)}" for file in named),
        *(f"-c {_relative(context / file, path)}" for file in constraints),
        *proposal.requirements,
    ]
    return path, "\n".join(lines) + "\n"


def _content(proposal: Proposal, context: Path, recipe: Path) -> list[str]:
    """Return the lines of a recipe with the user's own files, variables and steps."""
    lines: list[str] = []
    if proposal.code:
        directory, entry_point = proposal.code
        place = _quoted(_relative(context / directory, recipe))
        script = f", entry_point: {_quoted(entry_point)}" if entry_point else ""
        lines.append(f"code: {{directory: {place}{script}}}")
    if proposal.files:
        lines.append("files:")
        lines += [
            f"  - {{from: {_quoted(_relative(context / file.source, recipe))}, to: {_quoted(file.target)}}}"
            for file in proposal.files
        ]
    if proposal.environment:
        lines.append("environment:")
        lines += [f"  {name}: {json.dumps(value)}" for name, (value, _) in proposal.environment.items()]
    if proposal.run:
        lines.append("run:")
        lines += [f"  - {json.dumps(step)}" for step, _ in proposal.run]
    return lines


def account_table(entries: Sequence[AccountRow]) -> list[str]:
    """Return the rows of a table with instruction, line and fate, and the numbers of words."""
    rows = [
        (str(entry.line), _short(entry.text, _MAX_CELL), entry.fate.value, _short(entry.detail, 100))
        for entry in entries
        if entry.words
    ]
    head = ("line", "instruction", "fate", "where, by what, or what to do")
    counts = [
        f"{format_count(sum(entry.words for entry in entries if entry.fate is fate), 'word')} {fate.value}"
        for fate in Fate
    ]
    return [*format_table([head, *rows], indent="  ").rstrip("\n").split("\n"), ", ".join(counts)]


def untranslated_rows(entries: Sequence[AccountRow], dockerfile: str) -> list[str]:
    """Return the rows of a table with what is not in the recipe."""
    rows = [
        (f"{dockerfile}:{entry.line}", _short(entry.text, _MAX_LISTED), entry.detail)
        for entry in entries
        if entry.fate is Fate.UNTRANSLATED
    ]
    return [f"  {line}  {text}: {detail}" for line, text, detail in rows]


def _short(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _comment(text: str) -> str:
    return "# " + " ".join(text.split())


def _relative(path: Path, file: Path) -> str:
    """Return a path relative to the directory of a file."""
    return PurePosixPath(os.path.relpath(path, file.parent)).as_posix()


def _quoted(text: str) -> str:
    return text if re.fullmatch(r"[A-Za-z0-9._/+@-]+", text) else json.dumps(text)
