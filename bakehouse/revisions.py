"""The recipes of a project as they were at a commit."""

import contextlib
import io
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bakehouse.catalog import Catalog, load_catalog
from bakehouse.errors import Diagnostic, RecipeError, UsageError
from bakehouse.project import Project
from bakehouse.recipe import Recipe, load_recipes

_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Past:
    """What a project's recipes were."""

    catalog: Catalog
    recipes: dict[str, Recipe]


@contextlib.contextmanager
def past(project: Project, revision: str) -> Iterator[Past]:
    """The catalogue and the recipes at a commit; their locks can be read while this lasts.

    Folders of recipes outside the project's repository, such as Bakehouse's own, are taken as they are now.
    Raises UsageError.
    """
    top = Path(_git(project.root, "rev-parse", "--show-toplevel").decode().strip())
    try:
        commit = _git(top, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    except UsageError as error:
        hint = "`git log --oneline` shows them"
        raise UsageError(Diagnostic(f"there is no commit `{revision}`", hint=hint)) from error
    with tempfile.TemporaryDirectory(prefix="bakehouse-") as folder:
        roots = [
            _extracted(top, commit.decode().strip(), root, Path(folder) / str(number))
            for number, root in enumerate(project.recipe_roots)
        ]
        try:
            catalog = load_catalog(roots)
            yield Past(catalog, load_recipes(roots, catalog, locked=False))
        except RecipeError as error:
            first = error.diagnostics[0]
            message = f"the recipes of `{revision}` can't be read: {first.message}"
            raise UsageError(Diagnostic(message, first.location)) from error


def current(folder: Path) -> str:
    """The commit that a folder is at, `-dirty` where files differ from it; empty outside a repository."""
    try:
        commit = _git(folder, "rev-parse", "HEAD").decode().strip()
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    except UsageError:
        return ""
    return f"{commit}-dirty" if changed else commit


def _extracted(top: Path, commit: str, root: Path, folder: Path) -> Path:
    if not root.resolve().is_relative_to(top.resolve()):
        return root
    inside = root.resolve().relative_to(top.resolve()).as_posix()
    if not _git(top, "ls-tree", "-d", "--name-only", commit, "--", inside):
        return folder
    with tarfile.open(
        fileobj=io.BytesIO(_git(top, "archive", "--format=tar", commit, "--", inside))
    ) as archive:
        archive.extractall(folder, filter="data")
    return folder / inside


def _git(folder: Path, *words: str) -> bytes:
    command: Sequence[str] = ("git", "-C", str(folder), *words)
    try:
        ended = subprocess.run(command, capture_output=True, timeout=_SECONDS, check=False)
    except FileNotFoundError as error:
        raise UsageError(
            Diagnostic("`git` is not installed", hint="install it, or compare two images")
        ) from error
    if ended.returncode != 0:
        tail = tuple(ended.stderr.decode(errors="replace").strip().splitlines()[-3:])
        raise UsageError(Diagnostic(f"git can't tell what `{folder}` was", tail=tail))
    return ended.stdout
