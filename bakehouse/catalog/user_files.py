"""Reader of the files of a recipe, including training code."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path, PurePosixPath

from bakehouse.catalog import ignore_file, spelling
from bakehouse.catalog.source_tree import Limits, SourceTree, read_tree
from bakehouse.errors import Diagnostic, Location, Reason, RecipeError
from bakehouse.util.files import display_path, is_directory, is_file, read_bytes
from bakehouse.util.suggest import suggestion
from bakehouse.util.yaml_fields import Fields
from bakehouse.util.yaml_reader import Scalar

CODE_DIRECTORY = "/opt/ml/code"
LIMITS = Limits(
    files=10_000,
    file_bytes=200_000_000,
    total_bytes=500_000_000,
    hint="name data in `.dockerignore`, and download it in a `run` step or when the job starts",
)
"""Limits of files that are copied to `images/` and kept in memory while images are planned."""
_SECRET_HINT = (
    "remove `{name}`, name it in `.dockerignore`, or add it to `allow` in the recipe if it is harmless"
)
_MAX_LEVELS = 3
"""Directories above the recipe in which a missing path is searched for a hint."""
_PART = r"(?!\.\.?(?:/|$))[A-Za-z0-9._+@-]+"
_PATH = re.compile(f"{_PART}(?:/{_PART})*")
"""A relative path that needs no quoting and cannot leave its directory."""
_LINKS = {
    **{f"/{name}": f"/usr/{name}" for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32")},
    "/var/run": "/run",
    "/var/lock": "/run/lock",
}
"""Links in every base with a merged /usr, which copied directories would replace."""


@dataclass(frozen=True, slots=True)
class File:
    """A file that is copied into the image."""

    target: str
    """Absolute path in the image."""
    sha256: str
    size: int
    """In bytes."""
    is_executable: bool
    source: Path = field(compare=False)

    def read(self) -> bytes:
        """Return the content. Raises RecipeError if the file has changed since the recipe was read."""
        content = read_bytes(self.source)
        if sha256(content).hexdigest() != self.sha256:
            message = f"`{display_path(self.source)}` changed while it was read"
            raise RecipeError(message, hint="run the command again")
        return content


Placed = list[tuple[tuple[File, ...], Location]]
"""The files of each item, with the location of the item in the recipe."""


@dataclass(frozen=True, slots=True)
class Reach:
    """The directories in which a recipe's files may be."""

    project: Path | None = None
    """Its `.dockerignore` applies to directories without their own."""
    inside: tuple[Path, ...] = ()
    """Real paths; empty allows all directories."""
    read: dict[tuple[object, ...], tuple[SourceTree, tuple[File, ...]]] | None = field(
        default=None, compare=False, repr=False
    )
    """Directories that other recipes named, which are read once; None reads each again."""


ANYWHERE = Reach()


@dataclass(frozen=True, slots=True)
class UserFiles:
    """The selected files of a recipe, and the effects of its rules."""

    placed: Placed = field(default_factory=list)
    left_out: tuple[str, ...] = ()
    """The rules that exclude files, with counts."""
    allowed: tuple[str, ...] = ()
    """Targets of files whose secrets are allowed."""


def read_files(fields: Fields, directory: Path, reach: Reach = ANYWHERE) -> UserFiles:
    """Read the files of `files`, each with its location in the recipe."""
    parts = []
    for child in fields.children("files", "a file"):
        source = beside(child, "from", directory, reach)
        target = child.text("to", required=True)
        allow = child.scalars("allow")
        child.finish()
        if not target or source is None:
            continue
        spot = child.place("to")
        if not _PATH.fullmatch(target.removeprefix("/").removesuffix("/")) or not target.startswith("/"):
            label = "letters, digits and `._+@-` between slashes"
            child.report(f"`{target}` is not a plain absolute path", spot, label)
        elif is_directory(source) or is_file(source):
            is_alone = not is_directory(source)
            name = f"{target}{source.name}" if target.endswith("/") else target
            copy = name if is_alone else f"{target.rstrip('/')}/{{name}}"
            tree, copies = _tree(child, "from", source, reach, allow, copy)
            names = tuple(copy.replace("{name}", path) for path in tree.allowed)
            parts.append(UserFiles([(copies, spot)], tree.left_out_lines, names))
            if tree.left_out and not tree.files:
                message = f"all files of `{child.text('from')}` stay out of the image"
                label = "; ".join(tree.left_out_lines)
                child.report(
                    message, child.place("from"), label, "change `.dockerignore`, or remove this item"
                )
        else:
            report_missing(child, "from", "", directory)
    return UserFiles(
        [file for part in parts for file in part.placed],
        tuple(dict.fromkeys(line for part in parts for line in part.left_out)),
        tuple(target for part in parts for target in part.allowed),
    )


def read_code(fields: Fields, directory: Path, reach: Reach = ANYWHERE) -> tuple[UserFiles, str | None]:
    """Read the training code of `code`, and its entry point, if any, relative to its directory."""
    child = fields.child("code", "`code`", "write `code: {directory: ../../src, entry_point: train.py}`")
    if child is None:
        return UserFiles(), None
    source = beside(child, "directory", directory, reach)
    entry_point = child.text("entry_point", required=child.has("entry_point"))
    allow = child.scalars("allow")
    child.finish()
    if source is None:
        return UserFiles(), entry_point or None
    if not is_directory(source):
        report_missing(child, "directory", "directory ", directory)
        return UserFiles(), entry_point or None
    copy = f"{CODE_DIRECTORY}/{{name}}"
    tree, copies = _tree(child, "directory", source, reach, allow, copy)
    spot = child.place("entry_point")
    if entry_point and not _PATH.fullmatch(entry_point):
        label = "a path below `directory`, of letters, digits and `._+@-`"
        child.report(f"`{entry_point}` is not a plain relative path", spot, label)
    elif entry_point and not is_file(source / entry_point):
        message = f"`{child.text('directory')}` does not contain `{entry_point}`"
        child.report(message, spot, hint=_near_entry_point(entry_point, tree))
    elif entry_point and (rule := tree.rule_of(entry_point)):
        _report_left_out(child, entry_point, rule, spot)
    elif entry_point:
        _check_spelling(child, "entry_point", source / entry_point)
    allowed = tuple(copy.replace("{name}", path) for path in tree.allowed)
    return UserFiles([(copies, child.place("directory"))], tree.left_out_lines, allowed), entry_point or None


def _near_entry_point(entry_point: str, tree: SourceTree) -> str:
    """Return a hint with the file of the same name elsewhere, or else with the most similar path."""
    names = [file.name for file in tree.files]
    base = PurePosixPath(entry_point).name
    same = min((name for name in names if PurePosixPath(name).name == base), key=len, default="")
    if same:
        return f"did you mean `{same}`?"
    scripts = [name for name in names if name.endswith((".py", ".sh"))]
    return suggestion(entry_point, scripts) or suggestion(base, scripts)


def beside(fields: Fields, key: str, directory: Path, reach: Reach = ANYWHERE) -> Path | None:
    """Read a path, which must be relative because recipes are read on other machines too.

    It must be within `reach`.
    """
    text = fields.text(key, required=True)
    if text.startswith("/"):
        fields.report(f"`{key}` must be relative to the recipe's directory", fields.place(key))
        return None
    path = directory / text if text else None
    if path and reach.inside and (real := _outside(path, reach.inside)):
        label = f"this is `{real}`" if real != Path(os.path.normpath(path)) else ""
        hint = "copy it into the repository"
        fields.report(f"`{text}` is outside the repository", fields.place(key), label, hint)
        return None
    if path and (is_file(path) or is_directory(path)):
        _check_spelling(fields, key, path)
    return path


def _check_spelling(fields: Fields, key: str, path: Path) -> None:
    """Report a path whose case differs from that on the disk, so that other hosts do not find it."""
    text = fields.text(key)
    listed = spelling.as_listed(text, path)
    if listed not in (text, os.path.normpath(text)):
        label = "file names are case-sensitive on most systems"
        fields.report(
            f"the disk spells `{text}` as `{listed}`", fields.place(key), label, f"write `{listed}`"
        )


def report_missing(fields: Fields, key: str, kind: str, directory: Path) -> None:
    """Report a path that does not exist, with the path from the recipe if it exists further up."""
    text = fields.text(key)
    upwards = (f"{'../' * levels}{text}" for levels in range(1, _MAX_LEVELS + 1))
    existing = (path for path in upwards if is_file(directory / path) or is_directory(directory / path))
    hint = next((f"did you mean `{path}`?" for path in existing), "")
    fields.report(f"{kind}`{text}` does not exist next to the recipe", fields.place(key), hint=hint)


def _outside(source: Path, inside: Sequence[Path]) -> Path | None:
    """Return the real path of a file or directory outside of some directories."""
    try:
        real = source.resolve()
    except (OSError, RuntimeError):
        # Reading the file reports it.
        return None
    return None if any(real.is_relative_to(directory) for directory in inside) else real


def _tree(
    fields: Fields, key: str, source: Path, reach: Reach, allow: Sequence[Scalar], target: str
) -> tuple[SourceTree, tuple[File, ...]]:
    """Select the files of a directory, or examine a file; report its mistakes at `key`, or in its files."""
    globs = tuple(glob.text for glob in allow)
    of = (source, reach.project, reach.inside, globs, target)
    known = reach.read.get(of) if reach.read is not None else None
    if known is None:
        tree = read_tree(
            source,
            LIMITS,
            project=reach.project,
            inside=reach.inside,
            allow=globs,
            target=target,
            hint=_SECRET_HINT,
        )
        files = (
            File(target.replace("{name}", file.name), file.sha256, file.bytes, file.is_executable, file.path)
            for file in tree.files
        )
        known = tree, tuple(files)
        if reach.read is not None:
            reach.read[of] = known
    tree = known[0]
    spot = fields.place(key)
    for problem in tree.problems:
        if problem.location is None:
            problem = replace(problem, location=spot)
        else:
            problem = replace(problem, facts=(("recipe", f"{display_path(spot.path)}:{spot.line}"),))
        fields.problems.add(problem)
    for glob in allow:
        only = ignore_file.from_globs((glob.text,))
        if not tree.problems and not any(only.state_below(name)[0] for name in tree.allowed):
            message = f"`allow` names `{glob.text}`, but no file of this name in `{source.name}` has a secret"
            fields.report(message, glob.location, hint="remove it")
    return known


def _report_left_out(fields: Fields, name: str, rule: str, spot: Location) -> None:
    fields.report(f"`{name}` stays out of the image: {rule}", spot, hint=hint_of(rule, name))


def hint_of(rule: str, name: str) -> str:
    """Return the hint for a needed file that a rule excludes."""
    if f"{ignore_file.NAME}:" in rule:
        return f"change that line, or add an exception for `{name}` below it"
    return f"move `{name}` to another directory"


def check_targets(placed: Placed, fields: Fields) -> None:
    """Report files that have the path of another file or of a directory, or are below a link of the base."""
    if len(placed) == 1 and placed[0][0] and placed[0][0][0].target.startswith(f"{CODE_DIRECTORY}/"):
        return  # `read_tree` reports those within one item
    taken: dict[str, Location] = {}
    files = [(file, spot) for item, spot in placed for file in item]
    directories = {str(parent) for file, _ in files for parent in PurePosixPath(file.target).parents}
    for file, spot in files:
        if file.target in taken:
            fields.report(f"two files have the target `{file.target}`", spot)
        elif file.target in directories:
            fields.report(f"`{file.target}` is the path of a file and of a directory", spot)
        taken[file.target] = spot
        for link, directory in _LINKS.items():
            if file.target == link or file.target.startswith(f"{link}/"):
                message = f"`{file.target}` is below `{link}`, a link in every base"
                fields.report(message, spot, hint=f"write `{directory}{file.target.removeprefix(link)}`")
    _check_case(taken, fields)


def _check_case(spots: Mapping[str, Location], fields: Fields) -> None:
    """Report targets of two items that differ only in case. `read_tree` reports those within one item."""
    for one, other in spelling.clashes(spots):
        spot = spots.get(other) or next(spots[path] for path in spots if path.startswith(f"{other}/"))
        first = spots.get(one) or next(spots[path] for path in spots if path.startswith(f"{one}/"))
        if spot != first:
            message = f"only the case of names differs: `{one}` and `{other}`"
            reason = Reason(f"`{one}` is set in", first)
            fields.problems.add(Diagnostic(message, spot, reasons=(reason,), hint=spelling.HINT))
