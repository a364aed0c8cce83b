"""Files that images can omit: components list them with reason and evidence, recipes choose."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bakehouse.catalog.component import Trim
from bakehouse.util.suggest import suggestion
from bakehouse.util.yaml_fields import Fields

HEADERS, CUDA_HEADERS, STATIC, CONFLICTING = "headers", "cuda-headers", "static", "conflicting"
KINDS = (HEADERS, CUDA_HEADERS, STATIC, "tests", "tools", "documentation", "libraries", CONFLICTING)
SAFE, NONE, ALL = "safe", "none", "all"
_NEVER_LOADED, _GPU, _CPU = "never-loaded", "gpu", "cpu"
_EVIDENCE = (_NEVER_LOADED, _GPU, _CPU)
"""In this order: jobs never load such files, jobs passed without them on GPUs, and on CPUs."""
_PATTERN = re.compile(r"[A-Za-z0-9_*][A-Za-z0-9._*?\[\]+@-]*(/[A-Za-z0-9_*][A-Za-z0-9._*?\[\]+@-]*)*")
_ALL_STATIC = ("**/*.a", "**/*.la")
"""Patterns that every stage drops by default."""


@dataclass(frozen=True, slots=True)
class TrimChoice:
    """Files that an image can omit, and whether it does."""

    trim: Trim
    is_taken: bool


def read_trims(fields: Fields, above: Mapping[str, Trim]) -> dict[str, Trim]:
    """Read the `trim` of a component, release or variant; missing fields come from the level above."""
    trims = dict(above)
    for name, node in fields.pairs("trim"):
        child = fields.inner(node, f"`{name.text}` in `trim`")
        inherited = above.get(name.text, Trim(name.text, location=name.location))
        files = child.matching("files", _PATTERN, "pattern of files")
        trim = Trim(
            name.text,
            files if child.has("files") else inherited.files,
            child.text("reason") or inherited.reason,
            child.choice("evidence", _EVIDENCE, inherited.evidence),
            name.location,
        )
        child.text("source")
        child.finish()
        if name.text not in KINDS:
            hint = suggestion(name.text, KINDS) or f"use one of {', '.join(KINDS)}"
            child.report(f"`{name.text}` is not a kind of file to trim", name.location, hint=hint)
        elif trim.files and not trim.reason:
            label = "add it here, or for all releases of the component"
            child.report(f"`{name.text}` in `trim` has no `reason`", name.location, label)
        else:
            trims[name.text] = trim
    return trims


def read_kinds(fields: Fields) -> tuple[str, ...] | None:
    """Read the kinds in the `trim` of a recipe; None if they depend on the evidence."""
    kinds = fields.choice_or_choices("trim", (SAFE, NONE, ALL), KINDS, SAFE)
    if isinstance(kinds, tuple):
        return kinds
    return {SAFE: None, NONE: (), ALL: KINDS}[kinds]


def trim_choices(
    trims: Iterable[Trim], kinds: tuple[str, ...] | None, *, gpu: bool
) -> tuple[TrimChoice, ...]:
    """Return the trims of a component with the decision of the recipe, else the safe default."""
    safe = (_NEVER_LOADED, _GPU) if gpu else _EVIDENCE
    return tuple(
        # Wheels with different files of one path cannot be laid out, whatever a recipe keeps
        TrimChoice(
            trim,
            trim.kind == CONFLICTING or (trim.evidence in safe if kinds is None else trim.kind in kinds),
        )
        for trim in trims
        if trim.files
    )


def drop_patterns(choices: Iterable[TrimChoice], kinds: tuple[str, ...] | None) -> tuple[str, ...]:
    """Return arguments of `finish-layer`: patterns of files to drop, and with `!` libraries to keep."""
    taken: list[str] = []
    kept: list[str] = []
    for choice in choices:
        if choice.trim.kind != STATIC:
            taken += choice.trim.files if choice.is_taken else ()
        elif not choice.is_taken:
            kept += choice.trim.files
    if kinds is not None and STATIC not in kinds:
        kept = [*_ALL_STATIC]
    return (*taken, *(f"!{pattern}" for pattern in kept))


def path_pattern(pattern: str) -> re.Pattern[str]:
    """Return the regular expression for the paths of a pattern and everything below them."""
    parts = ("(?:[^/]+/)*" if part == "**" else _part(part) + "/" for part in pattern.split("/"))
    return re.compile("/" + "".join(parts).removesuffix("/") + "(?:/.*)?")


def _part(part: str) -> str:
    """Return the regular expression for one name of a glob."""
    words = {"*": "[^/]*", "?": "[^/]"}
    pieces = re.split(r"(\*|\?|\[[^]]*\])", part)
    return "".join(
        words.get(piece) or (piece if piece.startswith("[") else re.escape(piece)) for piece in pieces
    )
