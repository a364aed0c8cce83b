"""Reader of the recipes of a project at a commit."""

import contextlib
import os
import re
import subprocess
from collections.abc import Collection, Iterable, Iterator
from collections.abc import Mapping as MappingOf
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from itertools import takewhile
from pathlib import Path, PurePosixPath

from bakehouse.catalog import apt_lock, ignore_file, pins
from bakehouse.catalog.base_image_lock import AptLocks, read_locks
from bakehouse.catalog.catalog import Catalog, load_catalog
from bakehouse.catalog.project import HOME, ProjectSettings
from bakehouse.catalog.recipe import Recipe, RefusalOf, read_recipes
from bakehouse.catalog.requirements_file import included_files
from bakehouse.errors import Problems, RecipeError, UsageError
from bakehouse.util.files import make_directory, matching_paths, read_bytes, remove_file
from bakehouse.util.process import MISSING_PROGRAM
from bakehouse.util.tempdir import scratch_directory
from bakehouse.util.yaml_fields import Fields
from bakehouse.util.yaml_reader import Mapping, Node, Scalar, Sequence, load

DIRTY = "-dirty"
"""End of the revision of files that differ from the commit."""
_SECONDS = 60
_FILES = {"100644": 0o644, "100664": 0o644, "100755": 0o755}
_LINK = "120000"


@dataclass(frozen=True, slots=True)
class Past:
    """Catalogue and recipes of a project at a commit."""

    catalog: Catalog
    recipes: MappingOf[str, Recipe]
    unread: MappingOf[str, str]
    """Why the locked requirements of some images cannot be read."""
    apt_locks: AptLocks


@contextlib.contextmanager
def past(
    project: ProjectSettings, revision: str, image: str = "*", refusal_of: RefusalOf | None = None
) -> Iterator[Past]:
    """Read the catalogue and recipes at a commit; their locks are readable until the context ends.

    Only recipes that `image`, a name, family or glob, selects have to be valid.

    Recipe directories outside the repository of the project, such as that of Bakehouse, are read in their
    present state. Raises UsageError.
    """
    top = _top(project.root)
    commit = commit_of(top, revision)
    with scratch_directory() as temporary:
        directory = temporary.resolve()
        tree = _Tree(top, commit, directory)
        copies = {root: tree.copy_of(root) for root in project.recipe_roots if _is_within(root, top)}
        here = tree.copy_of(project.root)
        tree.lay_out(copies.values(), here / ignore_file.NAME)
        roots = [copies.get(root, root) for root in project.recipe_roots]
        try:
            catalog = load_catalog(roots)
            recipes = _recipes(roots, catalog, image, here, revision, refusal_of)
            yield Past(catalog, *recipes, read_locks(roots))
        except RecipeError as error:
            first = error.diagnostics[0]
            spot = first.location
            if spot and not spot.path.is_relative_to(directory):
                # The mistake is in a present file
                raise
            if spot:
                # Print the path like git, because the temporary file is removed.
                spot = replace(spot, path=Path(f"{revision}:{spot.path.relative_to(directory).as_posix()}"))
            raise UsageError(f"cannot read the recipes of `{revision}`: {first.message}", spot) from error


def files_at(directory: Path, revision: str, path: str, names: Collection[str]) -> dict[str, bytes]:
    """Return the files of some names anywhere below `path` at a commit, by path relative to `directory`.

    Raises UsageError.
    """
    commit = commit_of(directory, revision)
    objects: dict[str, str] = {}
    for line in _git(directory, "ls-tree", "-r", "-z", commit, "--", path).split(b"\0")[:-1]:
        entry, _, raw = line.partition(b"\t")
        mode, _, object_name = entry.decode().split(" ")
        if mode in _FILES and PurePosixPath(item := os.fsdecode(raw)).name in names:
            objects[item] = object_name
    contents = _contents(directory, objects.values())
    return {item: contents[each] for item, each in objects.items()}


def current(directory: Path) -> str:
    """Return the current commit of a directory, with `-dirty` if files differ; empty outside a repository."""
    try:
        commit = _git(directory, "rev-parse", "HEAD").decode().strip()
        changed = _git(directory, "status", "--porcelain", "--untracked-files=no")
    except UsageError:
        return ""
    return f"{commit}{DIRTY}" if changed else commit


def uncommitted(project: ProjectSettings, recipe: Path) -> tuple[str, ...]:
    """Return the files that the key of an image covers and that differ from the commit, also new ones.

    They are relative to the repository. `recipe` is the file of its recipe. The components of all recipe
    directories count, whether the image contains them or not. Empty outside a repository.
    """
    try:
        top = _top(project.root)
    except UsageError:
        return ()
    names = ("components", apt_lock.DIRECTORY, pins.FILE)
    shared = [*(root / name for root in project.recipe_roots for name in names), HOME / "templates"]
    paths = [Path(os.path.realpath(path)) for path in (recipe, *_named_by(recipe), *shared)]
    inside = sorted({path.relative_to(top).as_posix() for path in paths if path.is_relative_to(top)})
    words = ("status", "--porcelain", "-z", "--untracked-files=all", "--no-renames", "--", *inside)
    entries = _git(top, *words).split(b"\0")[:-1]
    return tuple(sorted(os.fsdecode(entry[len("XY ") :]) for entry in entries))


def _recipes(
    roots: SequenceOf[Path],
    catalog: Catalog,
    image: str,
    project: Path,
    revision: str,
    refusal_of: RefusalOf | None,
) -> tuple[MappingOf[str, Recipe], MappingOf[str, str]]:
    """Read the recipes, and why the locked requirements of some cannot be read: these are left out."""
    read = partial(read_recipes, roots, catalog, project=project, is_limited=False, refusal_of=refusal_of)
    recipes = read()
    if not recipes.broken:
        return recipes.by_name, {}
    unlocked = read(locked=False)
    problems = Problems()
    for broken in unlocked.broken:
        if any(fnmatchcase(name, image) for name in (broken.family, *broken.names)):
            problems.extend(broken.mistakes)
    problems.raise_as(RecipeError)
    unread = {
        name: f"{broken.mistakes[0].message} at {revision}"
        for broken in recipes.broken
        for name in broken.names
    }
    return {**unlocked.by_name, **recipes.by_name}, unread


class _Tree:
    """The files of a commit; requested ones are written to a directory.

    `git archive` is unsuitable because it follows `.gitattributes` and runs the filters of a repository.
    """

    def __init__(self, top: Path, commit: str, directory: Path) -> None:
        self._top = top
        self._directory = directory
        self._files: dict[str, tuple[str, str]] = {}
        """Mode and object by path."""
        self._requested: set[str] = set()
        self._written: set[str] = set()
        self._links: set[Path] = set()
        for line in _git(top, "ls-tree", "-r", "-z", commit).split(b"\0")[:-1]:
            entry, _, path = line.partition(b"\t")
            mode, _, name = entry.decode().split(" ")
            if mode in _FILES or mode == _LINK:
                self._files[os.fsdecode(path)] = mode, name

    def copy_of(self, path: Path) -> Path:
        """Return the path of a repository directory after `lay_out`."""
        return self._directory / path.resolve().relative_to(self._top)

    def lay_out(self, roots: Iterable[Path], ignore: Path) -> None:
        """Write a `.dockerignore`, the recipes and components, and other paths that these or links name."""
        roots = tuple(roots)
        names = ("components", "images", apt_lock.DIRECTORY, pins.FILE)
        paths = set(self._inside([ignore, *(root / name for root in roots for name in names)]))
        while new := paths - self._requested:
            self._write(self._beneath(new))
            self._requested |= new
            paths = {*self._inside(_referenced(roots)), *self._inside(self._links)}

    def _inside(self, paths: Iterable[Path]) -> Iterator[str]:
        """Yield the relative paths of those paths that are inside the directory, after following links."""
        for path in paths:
            real = Path(os.path.realpath(path))
            if real.is_relative_to(self._directory):
                yield real.relative_to(self._directory).as_posix()

    def _beneath(self, paths: set[str]) -> list[str]:
        """Return the files at and below some paths, and links among their parents."""
        exact = {str(path) for name in paths for path in (name, *PurePosixPath(name).parents)}
        prefixes = tuple("" if path == "." else f"{path}/" for path in paths)
        return [path for path in self._files if path in exact or path.startswith(prefixes)]

    def _write(self, paths: Iterable[str]) -> None:
        new = [path for path in paths if path not in self._written and self._is_safe(path)]
        self._written.update(new)
        contents = _contents(self._top, (self._files[path][1] for path in new))
        for relative_path in new:
            mode, name = self._files[relative_path]
            path = self._directory / relative_path
            make_directory(path.parent)
            if mode != _LINK:
                path.write_bytes(contents[name])
                path.chmod(_FILES[mode])
                continue
            # Ignore links that the file system cannot represent.
            with contextlib.suppress(OSError, ValueError):
                path.symlink_to(os.fsdecode(contents[name]))
                self._links.add(path)
        # New links can change the targets of others, so check all of them again.
        for path in [link for link in self._links if not any(self._inside([link]))]:
            remove_file(path)
            self._links.discard(path)

    def _is_safe(self, path: str) -> bool:
        """Return whether a path stays in the tree: a forged tree can contain `..`, or a link as a parent."""
        pure = PurePosixPath(path)
        is_plain = not pure.is_absolute() and ".." not in pure.parts
        return is_plain and not any(str(parent) in self._files for parent in pure.parents)


def _contents(directory: Path, names: Iterable[str]) -> dict[str, bytes]:
    """Return the contents of git objects, by name."""
    objects = sorted(set(names))
    contents: dict[str, bytes] = {}
    output = _git(directory, "cat-file", "--batch", lines=objects) if objects else b""
    start = 0
    for name in objects:
        end = output.index(b"\n", start)
        size = output[start:end].decode().rpartition(" ")[2]
        if not size.isdecimal():
            raise UsageError(f"git has no object `{name}`", hint="run `git fetch`")
        contents[name] = output[end + 1 : end + 1 + int(size)]
        start = end + int(size) + 2
    return contents


def _referenced(roots: Iterable[Path]) -> Iterator[Path]:
    """Yield the paths in recipes that may be outside the recipe directory, and included requirements."""
    for path in (path for root in roots for path in matching_paths(root / "images", "*.yaml")):
        with contextlib.suppress(OSError):
            content = read_bytes(path)
            if b".." in content or b"requirements" in content:
                yield from _named_by(path)


def _named_by(path: Path) -> Iterator[Path]:
    """Yield the paths that a recipe names, and those that its requirements include."""
    try:
        fields = Fields(load(path), path.name, Problems())
    except (OSError, RecipeError):
        # Reading the recipes reports it.
        return
    code = fields.child("code", "`code`")
    files = [file.text("from") for file in fields.children("files", "a file")]
    requirements = _requirements(fields.node("requirements"))
    locks = [f"{text}.lock" for text in requirements]
    for text in filter(None, (*requirements, *locks, code.text("directory") if code else "", *files)):
        # A variable of a matrix can have any value.
        yield path.parent.joinpath(*takewhile(lambda part: "$" not in part, PurePosixPath(text).parts))
    for text in requirements:
        pattern = re.sub(r"\$\{[^}]*\}", "*", text)
        for file in path.parent.glob(pattern) if pattern != text else (path.parent / text,):
            yield from _included(file)


def _requirements(node: Node | None) -> list[str]:
    """Return the paths of `requirements`, which is a path, a mapping with a path, or a list of these."""
    if isinstance(node, Scalar):
        return [node.text]
    if isinstance(node, Sequence):
        return [text for item in node.items for text in _requirements(item)]
    if isinstance(node, Mapping):
        return [text for key, value in node.entries if key.text == "file" for text in _requirements(value)]
    return []


def _included(path: Path) -> Iterator[Path]:
    """Yield the files that a requirements file names, and those that they name."""
    seen: set[Path] = set()
    paths = [path]
    while paths:
        for file in included_files(paths.pop()):
            if file not in seen:
                seen.add(file)
                paths.append(file)
                yield file


def commit_of(directory: Path, revision: str) -> str:
    """Return the hash of a commit. Raises UsageError."""
    try:
        commit = _git(
            directory, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"
        )
    except UsageError as error:
        raise UsageError(
            f"commit `{revision}` does not exist", hint="run `git log --oneline` to list the commits"
        ) from error
    return commit.decode().strip()


def _top(directory: Path) -> Path:
    """Return the top directory of the repository that contains a directory."""
    return Path(os.fsdecode(_git(directory, "rev-parse", "--show-toplevel")).removesuffix("\n")).resolve()


def _is_within(directory: Path, top: Path) -> bool:
    """Return whether a directory belongs to a repository, but not to a submodule of it."""
    return directory.resolve().is_relative_to(top) and _top(directory) == top


def _git(directory: Path, *words: str, lines: Iterable[str] = ()) -> bytes:
    command: SequenceOf[str] = ("git", "-C", str(directory), *words)
    stdin = "".join(f"{line}\n" for line in lines).encode()
    try:
        process = subprocess.run(command, input=stdin, capture_output=True, timeout=_SECONDS, check=False)
    except MISSING_PROGRAM as error:
        raise UsageError("`git` is not installed", hint="install it, or compare two images") from error
    except subprocess.TimeoutExpired as error:
        raise UsageError(f"git did not read `{directory}` within {_SECONDS} s") from error
    if process.returncode != 0:
        tail = tuple(process.stderr.decode(errors="replace").strip().splitlines()[-3:])
        raise UsageError(f"git cannot read `{directory}`", tail=tail)
    return process.stdout
