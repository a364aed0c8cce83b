"""Files that images can omit: components list them with reason and evidence, recipes choose."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bakehouse.catalog.component import Trim
from bakehouse.util.suggest import suggestion
from bakehouse.util.yaml_fields import Fields

HEADERS, CUDA_HEADERS, STATIC = "headers", "cuda-headers", "static"
KINDS = (HEADERS, CUDA_HEADERS, STATIC, "tests", "tools", "documentation", "libraries")
SAFE, NONE, ALL = "safe", "none", "all"
_NEVER_LOADED, _GPU, _CPU = "never-loaded", "gpu", "cpu"
_EVIDENCE = (_NEVER_LOADED, _GPU, _CPU)
"""No program loads such files while a job runs; or jobs were seen to run without them, on GPUs or on CPUs."""
_PATTERN = re.compile(r"[A-Za-z0-9_*][A-Za-z0-9._*?\[\]+@-]*(/[A-Za-z0-9_*][A-Za-z0-9._*?\[\]+@-]*)*")
_ALL_STATIC = ("**/*.a", "**/*.la")
"""Patterns that every stage drops by default."""


@dataclass(frozen=True, slots=True)
class TrimChoice:
    """Files that an image can go without, and whether it does."""

    trim: Trim
    is_taken: bool


def read_trims(fields: Fields, above: Mapping[str, Trim]) -> dict[str, Trim]:
    """The `trim` of a component, release or variant: what it leaves unsaid the level above says."""
    found = dict(above)
    for name, node in fields.pairs("trim"):
        child = fields.inner(node, f"`{name.text}` in `trim`")
        inherited = above.get(name.text, Trim(name.text, location=name.location))
        files = child.matching("files", _PATTERN, "pattern of files")
        says_files = child.has("files")
        trim = Trim(
            name.text,
            files if says_files else inherited.files,
            child.text("reason") or inherited.reason,
            child.choice("evidence", _EVIDENCE, inherited.evidence),
            name.location,
        )
        child.text("source")
        child.finish()
        if name.text not in KINDS:
            hint = suggestion(name.text, KINDS) or f"they are {', '.join(KINDS)}"
            child.report(f"`{name.text}` is not a kind of file to trim", name.location, hint=hint)
        elif trim.files and not trim.reason:
            label = "here, or for all the component's releases"
            child.report(f"`{name.text}` in `trim` has no `reason`", name.location, label)
        else:
            found[name.text] = trim
    return found


def read_kinds(fields: Fields) -> tuple[str, ...] | None:
    """The kinds that a recipe's `trim` names; None where it leaves it to the evidence."""
    found = fields.choice_or_choices("trim", (SAFE, NONE, ALL), KINDS, SAFE)
    if isinstance(found, tuple):
        return found
    return {SAFE: None, NONE: (), ALL: KINDS}[found]


def trim_choices(
    found: Iterable[Trim], wanted: tuple[str, ...] | None, *, gpu: bool
) -> tuple[TrimChoice, ...]:
    """The trims of a component: those that the recipe names, else those that are safe."""
    safe = (_NEVER_LOADED, _GPU) if gpu else _EVIDENCE
    return tuple(
        TrimChoice(trim, trim.evidence in safe if wanted is None else trim.kind in wanted)
        for trim in found
        if trim.files
    )


def drop_patterns(found: Iterable[TrimChoice], wanted: tuple[str, ...] | None) -> tuple[str, ...]:
    """Arguments of `finish-layer`: patterns of files to drop, and with `!` static libraries to keep."""
    taken: list[str] = []
    kept: list[str] = []
    for one in found:
        if one.trim.kind != STATIC:
            taken += one.trim.files if one.is_taken else ()
        elif not one.is_taken:
            kept += one.trim.files
    if wanted is not None and STATIC not in wanted:
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
