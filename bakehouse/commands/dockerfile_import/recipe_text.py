"""Writes the recipe that replaces a Dockerfile, and the table with the fate of each instruction."""

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.names import FRAMEWORKS
from bakehouse.catalog.run_steps import RunStep
from bakehouse.commands.dockerfile_import.account import AccountRow, Fate
from bakehouse.commands.dockerfile_import.bases import python_of
from bakehouse.commands.dockerfile_import.choose import ChosenComponents, import_and_select, recipe_head
from bakehouse.commands.dockerfile_import.proposal import Proposal
from bakehouse.commands.dockerfile_import.translate import DockerfileBuild
from bakehouse.util.files import read_text
from bakehouse.util.format import format_count, format_table

_MAX_CELL = 60
"""Characters of a text in the table of all instructions."""
_EXAMPLES = (
    "# Run it in smoke tests.",
    "# smoke: {{hosts: 1, hyperparameters: {{epochs: 1}}}}",
    "",
    "# Packages of the distribution, environment variables, other files, and last build steps.",
    "# packages: [libgomp1]",
    '# environment: {{TOKENIZERS_PARALLELISM: "false"}}',
    "# files:",
    "#   - {{from: {to_root}/tools/, to: /opt/tools/}}",
    "# run: [\"echo 'umask 027' >> /etc/profile\"]",
)
_MAX_LISTED = 300
_VERSIONS = (*FRAMEWORKS, "python", "cuda")
"""Versions that another base changes."""


def import_dockerfile(
    build: DockerfileBuild, name: str, recipe: Path, catalog: Catalog
) -> tuple[dict[Path, str], Proposal, str]:
    """Return the recipe for a Dockerfile, what it has, and the versions that another base changes.

    `name` is the Dockerfile in messages.
    """
    proposal, selection = import_and_select(read_text(build.path, errors="replace"), build, catalog)
    summary = _summary(proposal.image or "scratch")
    files = recipe_files(summary, proposal, selection, build.context, recipe, name)
    return files, proposal, _change(proposal, selection)


def recipe_files(
    summary: str,
    proposal: Proposal,
    selection: ChosenComponents,
    context: Path,
    recipe: Path,
    dockerfile: str = "",
) -> dict[Path, str]:
    """Return the content by path: of the recipe, and of its requirements if they need a file of their own.

    Without a Dockerfile, the recipe has examples as comments.
    """
    lines = recipe_head(summary, selection)
    resolution = selection.resolution
    packages = proposal.dnf if resolution and resolution.base.spec.manager == "dnf" else proposal.apt
    if packages:
        lines.append(f"packages: [{', '.join(map(_quoted, packages))}]")
    files: dict[Path, str] = {}
    requirements = requirements_of(proposal, context, recipe)
    if requirements:
        path, content = requirements
        files |= {path: content} if content else {}
        lines += [] if dockerfile else ["", f"# After a change, run `bake lock {recipe.stem}`."]
        lines.append(f"requirements: {_quoted(_relative(path, recipe))}")
    lines += content_of(proposal, context, recipe)
    if not dockerfile:
        absent = [] if requirements else ["# requirements: {to_root}/requirements.txt"]
        absent += [] if proposal.code else ["# code: {{directory: {to_root}/src, entry_point: train.py}}"]
        lines += [line.format(to_root=_relative(context, recipe)) for line in (*absent, *_EXAMPLES)]
    if checks := proposal.account.checks():
        lines += ["", "# To check:"]
        places = (f"{dockerfile}:{row.line}: " if dockerfile else "" for row in checks)
        lines += [
            _comment(f"{place}{row.text}: {row.detail}") for place, row in zip(places, checks, strict=True)
        ]
    return {**files, recipe: "\n".join(lines) + "\n"}


def _summary(image: str) -> str:
    text = f"Replaces the Dockerfile from {image}"
    return text if re.fullmatch(r"[\w ./:@-]+", text, re.ASCII) and ": " not in text else json.dumps(text)


def _change(proposal: Proposal, selection: ChosenComponents) -> str:
    """Return what the recipe starts from, with the versions before and after, if that is another image."""
    if selection.choice is None or not selection.choice.note:
        return ""
    before = {
        name: specifier.removeprefix("==").removesuffix(".*") for name, specifier, _ in proposal.base.wishes
    }
    tag = proposal.image.rpartition(":")[2]
    for name, pattern in (("cuda", r"cu(?:da)?(\d\d)\.?(\d)"), ("python", r"py(\d)\.?(\d+)")):
        if match := re.search(pattern, tag):
            before.setdefault(name, f"{match[1]}.{match[2]}")
    if version := python_of(proposal.image):
        before.setdefault("python", version)
    if known := re.match(r"(?:.*/)?(pytorch|tensorflow)(?:-training)?:(\d+\.\d+\.\d+)", proposal.image):
        before.setdefault(known[1], known[2])
    after = (
        {name: selection.resolution.version_of(name) for name in _VERSIONS} if selection.resolution else {}
    )
    parts = [
        f"{name} {before.get(name) or 'not known'} → {after.get(name) or 'none'}"
        for name in _VERSIONS
        if before.get(name) != after.get(name)
    ]
    return f"{proposal.image} → {' '.join(selection.base)}: {', '.join(parts)}".rstrip(": ")


def requirements_of(proposal: Proposal, context: Path, recipe: Path) -> tuple[Path, str] | None:
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


def content_of(proposal: Proposal, context: Path, recipe: Path) -> list[str]:
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
    for kept in proposal.run:
        lines += _step(kept.step)
    return lines


def _step(step: RunStep) -> list[str]:
    """Return the lines of a step of `run`."""
    given: dict[str, object] = {"before": step.before, "user": step.user, "shell": [*step.shell]}
    options = [f"{name}: {json.dumps(value)}" for name, value in given.items() if value]
    options += [] if step.network else ["network: false"]
    text = step.command.rstrip("\n")
    # A block keeps lines that people can read; YAML cannot hold all texts in one.
    is_block = text.isprintable() or all(line.isprintable() for line in text.split("\n"))
    if "\n" in text and is_block and not text.startswith(" "):
        command = ["command: |", *(f"    {line}" if line else "" for line in text.split("\n"))]
    else:
        command = [f"command: {json.dumps(text, ensure_ascii=False)}"]
    if not options:
        first = command[0].removeprefix("command: ")
        return [f"  - {first}", *command[1:]]
    return [
        f"  - {options[0]}",
        *(f"    {line}" for line in options[1:]),
        f"    {command[0]}",
        *(f"  {line}" if line else "" for line in command[1:]),
    ]


def account_table(rows: Sequence[AccountRow]) -> list[str]:
    """Return a table with a row for each instruction, and the number of instructions of each fate."""
    cells = [
        (str(row.line), _short(row.text, _MAX_CELL), row.fate.value, _short(row.detail, 100)) for row in rows
    ]
    head = ("line", "instruction", "fate", "where, by what, or what to do")
    counts = [
        f"{sum(row.fate is fate for row in rows)} {fate.value}" for fate in Fate if fate is not Fate.NOTE
    ]
    total = format_count(len(rows), "instruction")
    table = format_table([head, *cells], indent="  ").rstrip("\n").split("\n")
    return [*table, f"{total}: {', '.join(counts)}"]


def check_rows(checks: Sequence[AccountRow], dockerfile: str) -> list[str]:
    """Return a line for each part that the user has to check."""
    return [f"  {dockerfile}:{row.line}  {_short(row.text, _MAX_LISTED)}: {row.detail}" for row in checks]


def _short(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _comment(text: str) -> str:
    return "# " + " ".join(text.split())


def _relative(path: Path, file: Path) -> str:
    """Return a path relative to the directory of a file."""
    return PurePosixPath(os.path.relpath(path, file.parent)).as_posix()


def _quoted(text: str) -> str:
    return text if re.fullmatch(r"[A-Za-z0-9._/+@-]+", text) else json.dumps(text)
