"""The recipes of a project as they were at a commit."""

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path, PurePosixPath

from bakehouse.catalog.catalog import Catalog, load_catalog
from bakehouse.catalog.project import Project
from bakehouse.catalog.recipe import Recipe, load_recipes
from bakehouse.errors import Diagnostic, Problems, RecipeError, UsageError
from bakehouse.util.yaml_fields import Fields
from bakehouse.util.yaml_reader import load

_SECONDS = 60
_FILES = {"100644": 0o644, "100664": 0o644, "100755": 0o755}
_LINK = "120000"


@dataclass(frozen=True, slots=True)
class Past:
    """Catalogue and recipes of a project at a commit."""

    catalog: Catalog
    recipes: dict[str, Recipe]


@contextlib.contextmanager
def past(project: Project, revision: str) -> Iterator[Past]:
    """The catalogue and the recipes at a commit; their locks can be read while this lasts.

    Folders of recipes outside the project's repository, such as Bakehouse's own, are taken as they are now.
    Raises UsageError.
    """
    top = _top(project.root)
    try:
        commit = _git(top, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    except UsageError as error:
        hint = "run `git log --oneline` to list the commits"
        raise UsageError(Diagnostic(f"commit `{revision}` does not exist", hint=hint)) from error
    with tempfile.TemporaryDirectory(prefix="bakehouse-") as temporary:
        folder = Path(temporary).resolve()
        tree = _Tree(top, commit.decode().strip(), folder)
        places = {root: tree.place(root) for root in project.recipe_roots if _is_within(root, top)}
        tree.lay_out(places.values())
        roots = [places.get(root, root) for root in project.recipe_roots]
        try:
            catalog = load_catalog(roots)
            yield Past(catalog, _recipes(roots, catalog))
        except RecipeError as error:
            first = error.diagnostics[0]
            spot = first.location
            if spot and spot.path.is_relative_to(folder):
                # As git names it: the temporary file will be gone when somebody reads this
                spot = replace(spot, path=Path(f"{revision}:{spot.path.relative_to(folder).as_posix()}"))
            message = f"cannot read the recipes of `{revision}`: {first.message}"
            raise UsageError(Diagnostic(message, spot)) from error


def current(folder: Path) -> str:
    """The commit that a folder is at, `-dirty` where files differ from it; empty outside a repository."""
    try:
        commit = _git(folder, "rev-parse", "HEAD").decode().strip()
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    except UsageError:
        return ""
    return f"{commit}-dirty" if changed else commit


def _recipes(roots: Sequence[Path], catalog: Catalog) -> dict[str, Recipe]:
    """The recipes, with the packages of their own requirements unless a lock of them was missing or old."""
    problems = Problems()
    recipes = load_recipes(roots, catalog, problems)
    return load_recipes(roots, catalog, locked=False) if problems else recipes


class _Tree:
    """The files of a commit, of which those are laid out in a folder that are asked for.

    Not with `git archive`: that leaves out what `.gitattributes` says, and runs a repository's filters.
    """

    def __init__(self, top: Path, commit: str, folder: Path) -> None:
        self._top = top
        self._folder = folder
        self._files: dict[str, tuple[str, str]] = {}
        """Mode and object by path."""
        self._asked: set[str] = set()
        self._written: set[str] = set()
        self._links: set[Path] = set()
        for line in _git(top, "ls-tree", "-r", "-z", commit).split(b"\0")[:-1]:
            about, _, path = line.partition(b"\t")
            mode, _, name = about.decode().split(" ")
            if mode in _FILES or mode == _LINK:
                self._files[os.fsdecode(path)] = mode, name

    def place(self, path: Path) -> Path:
        """Return the path of a repository directory after `lay_out`."""
        return self._folder / path.resolve().relative_to(self._top)

    def lay_out(self, roots: Iterable[Path]) -> None:
        """Write the recipes and components of folders, and what these or links name elsewhere in the tree."""
        roots = tuple(roots)
        wanted = set(self._inside(root / name for root in roots for name in ("components", "images")))
        while new := wanted - self._asked:
            self._write(self._beneath(new))
            self._asked |= new
            wanted = {*self._inside(_named(roots)), *self._inside(self._links)}

    def _inside(self, paths: Iterable[Path]) -> Iterator[str]:
        """Yield the relative paths of those paths that are inside the directory, after following links."""
        for path in paths:
            real = Path(os.path.realpath(path))
            if real.is_relative_to(self._folder):
                yield real.relative_to(self._folder).as_posix()

    def _beneath(self, wanted: set[str]) -> list[str]:
        """The files at some paths and below them, and links on the way there."""
        at = {str(one) for path in wanted for one in (path, *PurePosixPath(path).parents)}
        below = tuple("" if path == "." else f"{path}/" for path in wanted)
        return [path for path in self._files if path in at or path.startswith(below)]

    def _write(self, paths: Iterable[str]) -> None:
        new = [one for one in paths if one not in self._written and self._is_safe(one)]
        self._written.update(new)
        contents = self._contents({self._files[one][1] for one in new})
        for one in new:
            mode, name = self._files[one]
            path = self._folder / one
            path.parent.mkdir(parents=True, exist_ok=True)
            if mode != _LINK:
                path.write_bytes(contents[name])
                path.chmod(_FILES[mode])
                continue
            # A link that no system can make leads nowhere
            with contextlib.suppress(OSError, ValueError):
                path.symlink_to(os.fsdecode(contents[name]))
                self._links.add(path)
        # Another link can turn where one leads, so all are looked at again
        for path in [one for one in self._links if not any(self._inside([one]))]:
            path.unlink()
            self._links.discard(path)

    def _is_safe(self, path: str) -> bool:
        """Return whether a path stays in the tree: a forged tree can contain `..`, or a link as a parent."""
        pure = PurePosixPath(path)
        is_plain = not pure.is_absolute() and ".." not in pure.parts
        return is_plain and not any(str(parent) in self._files for parent in pure.parents)

    def _contents(self, names: Iterable[str]) -> dict[str, bytes]:
        """Return the contents of git objects, by name."""
        asked = sorted(names)
        found: dict[str, bytes] = {}
        answer = _git(self._top, "cat-file", "--batch", lines=asked) if asked else b""
        start = 0
        for name in asked:
            end = answer.index(b"\n", start)
            size = answer[start:end].decode().rpartition(" ")[2]
            if not size.isdecimal():
                hint = "run `git fetch`"
                raise UsageError(Diagnostic(f"git has no object `{name}`", hint=hint))
            found[name] = answer[end + 1 : end + 1 + int(size)]
            start = end + int(size) + 2
        return found


def _named(roots: Iterable[Path]) -> Iterator[Path]:
    """Yield the paths that recipes name with `..`, which may be outside the recipe directory."""
    for path in (path for root in roots for path in (root / "images").glob("*.yaml")):
        try:
            if b".." not in path.read_bytes():
                continue
            fields = Fields(load(path), path.name, Problems())
        except (OSError, RecipeError):
            # Told when the recipes are read
            continue
        lock = fields.text("requirements")
        code = fields.child("code", "`code`")
        files = [one.text("from") for one in fields.children("files", "a file")]
        for text in (lock, f"{lock}.lock", code.text("directory") if code else "", *files):
            # A variable of a matrix can stand for anything
            known = takewhile(lambda part: "$" not in part, PurePosixPath(text).parts)
            yield path.parent.joinpath(*known)


def _top(folder: Path) -> Path:
    """The folder of the repository that a folder belongs to."""
    return Path(os.fsdecode(_git(folder, "rev-parse", "--show-toplevel")).removesuffix("\n")).resolve()


def _is_within(folder: Path, top: Path) -> bool:
    """Return whether a directory belongs to a repository, but not to a submodule of it."""
    return folder.resolve().is_relative_to(top) and _top(folder) == top


def _git(folder: Path, *words: str, lines: Iterable[str] = ()) -> bytes:
    command: Sequence[str] = ("git", "-C", str(folder), *words)
    given = "".join(f"{line}\n" for line in lines).encode()
    try:
        ended = subprocess.run(command, input=given, capture_output=True, timeout=_SECONDS, check=False)
    except FileNotFoundError as error:
        raise UsageError(
            Diagnostic("`git` is not installed", hint="install it, or compare two images")
        ) from error
    except subprocess.TimeoutExpired as error:
        raise UsageError(Diagnostic(f"git did not read `{folder}` within {_SECONDS} s")) from error
    if ended.returncode != 0:
        tail = tuple(ended.stderr.decode(errors="replace").strip().splitlines()[-3:])
        raise UsageError(Diagnostic(f"git cannot read `{folder}`", tail=tail))
    return ended.stdout
