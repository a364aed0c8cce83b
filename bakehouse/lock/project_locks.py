"""Packages of locks of other tools: uv.lock, which uv exports, and pylock.toml (PEP 751).

Nothing is resolved: the image gets the files that the lock names.
"""

import glob
import os
import subprocess
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from packaging.markers import Marker
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from uv import find_uv_bin

from bakehouse.catalog.python_lock import Package
from bakehouse.catalog.requirements_file import PROJECT, UV_LOCK, RequiredPackage, RequirementsFile
from bakehouse.errors import BuildError, Diagnostic, Location, Problems, RecipeError
from bakehouse.lock import interpreter
from bakehouse.lock.python import Index, files_of, marker_environment
from bakehouse.util import git
from bakehouse.util.directory_handles import LinkError, repository_of
from bakehouse.util.files import read_bytes, read_text

_LOCK_VERSION = "1."


_PATCHES = range(64)
"""Patch releases that a range of Python versions may be about."""


def check_python(files: Iterable[RequirementsFile], version: str, image: str) -> None:
    """Raise RecipeError for projects and locks of other tools that are for another Python than the image has.

    uv's resolver would go on, and compile what has no wheel for this Python.
    """
    problems = Problems()
    minor = ".".join(version.split(".")[:2])
    for file in files:
        if file.path.name != PROJECT and not file.is_lock:
            continue
        try:
            content = tomllib.loads(file.path.read_text(encoding="utf-8"))
            table = content.get("project", {}) if file.path.name == PROJECT else content
            allowed = SpecifierSet(table.get("requires-python", ""))
        except (OSError, ValueError, AttributeError, TypeError):
            continue  # who reads the file reports it
        if not any(allowed.contains(f"{minor}.{patch}") for patch in _PATCHES):
            message = f"`{file.path.name}` is for Python {allowed}, but image `{image}` has {minor}"
            hint = "set `python` in `components` of the recipe, or change `requires-python`"
            problems.add(Diagnostic(message, file.location, hint=hint))
    problems.raise_as(RecipeError)


@dataclass(frozen=True, slots=True)
class ProjectPackage:
    """A package of a lock of another tool."""

    line: RequiredPackage
    """Its version as a requirement, at its line in the lock."""
    version: str
    row: Mapping[str, Any]
    """Its table in pylock.toml."""


def read_project_locks(
    locks: Iterable[RequirementsFile], index: Index, installed: Collection[str]
) -> tuple[tuple[ProjectPackage, ...], tuple[ProjectPackage, ...]]:
    """Return the packages to install, and those that components install.

    Packages that only `installed` ones need are left out if the lock says so, as uv.lock does. Raises
    RecipeError for packages that an image cannot install, and BuildError if uv cannot read a lock.
    """
    added: dict[str, ProjectPackage] = {}
    left: dict[str, ProjectPackage] = {}
    problems = Problems()
    for lock in locks:
        whole = _packages(lock, index, ())
        pruned = {name for name in whole if name in installed}
        kept = _packages(lock, index, sorted(pruned)) if pruned and lock.path.name == UV_LOCK else whole
        left |= {name: whole[name] for name in pruned}
        for name, package in kept.items():
            if name in pruned:
                continue
            first = added.setdefault(name, package)
            if first.version != package.version:
                message = f"`{name}` has version {package.version} in `{lock.path.name}`"
                reason = f"{first.version} in {first.line.location.path.name}"
                problems.add(Diagnostic(message, package.line.location, reason))
            if "directory" in package.row:
                message = f"`{name}` of `{lock.path.name}` is a directory, not a file"
                hint = "add its code with `code` or `files`, or build a wheel of it with `uv build --wheel`"
                problems.add(Diagnostic(message, package.line.location, hint=hint))
    problems.raise_as(RecipeError)
    return tuple(added.values()), tuple(left.values())


def fits(package: ProjectPackage, version: str, build: str | None) -> bool:
    """Return whether a component's version satisfies a lock: a version without label allows any label.

    Wheels of PyTorch for the `build` of the image may have a label in one index and none in another.
    """
    wanted = package.version.removesuffix(f"+{build}") if "+" not in version else package.version
    return SpecifierSet(f"=={wanted}", prereleases=True).contains(version)


def project_files(
    packages: Sequence[ProjectPackage],
    index: Index,
    archives: Callable[[Sequence[RequiredPackage]], tuple[Package, ...]],
) -> tuple[Package, ...]:
    """Return the file of each package, with the hash in the lock. `archives` returns those of commits."""
    from_git = [package for package in packages if package.line.git]
    others = [package for package in packages if not package.line.git]
    rows = [package.row for package in others]
    listed = (file for row in rows for file in (*row["wheels"], row.get("sdist", {}), row.get("archive", {})))
    sums = frozenset(file["hashes"]["sha256"] for file in listed if "sha256" in file.get("hashes", {}))
    # The lock decides between indexes
    index = replace(
        index, locked=index.locked | sums, searched_by_builds=index.searched_by_builds or index.pip
    )
    files = files_of(rows, index, [package.line.text for package in others])
    return (*files, *(archives([package.line for package in from_git]) if from_git else ()))


def _packages(lock: RequirementsFile, index: Index, pruned: Sequence[str]) -> dict[str, ProjectPackage]:
    """Return the packages of a lock that an environment has, by normal name."""
    text = _exported(lock, pruned) if lock.path.name == UV_LOCK else read_text(lock.path)
    try:
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        message = f"`{lock.path.name}` is not a valid TOML file: {error}"
        raise RecipeError(message, Location(lock.path, 1, 1)) from error
    if not str(content.get("lock-version", "")).startswith(_LOCK_VERSION):
        message = f"`{lock.path.name}` has no `lock-version` of PEP 751 that this version of Bakehouse reads"
        raise RecipeError(message, Location(lock.path, 1, 1))
    environment: dict[str, Any] = {
        **marker_environment(index.python_version, index.platform),
        "extras": frozenset(map(canonicalize_name, lock.extras)),
        "dependency_groups": frozenset(
            map(canonicalize_name, (*content.get("default-groups", ()), *lock.groups))
        ),
    }
    source = read_text(lock.path).splitlines()
    packages: dict[str, ProjectPackage] = {}
    for row in content.get("packages", ()):
        if "marker" in row and not Marker(row["marker"]).evaluate(environment, context="lock_file"):
            continue
        name, version = canonicalize_name(row["name"]), str(row.get("version", ""))
        line = _line(row, name, version, _spot(lock, source, name))
        packages[name] = ProjectPackage(line, version, _with_paths(row, lock.path.parent))
    return packages


def _with_paths(row: Mapping[str, Any], directory: Path) -> Mapping[str, Any]:
    """Return the table of a package with absolute paths of its files."""

    def absolute(file: Mapping[str, Any]) -> Mapping[str, Any]:
        path = file.get("path")
        return {**file, "path": str((directory / path).resolve())} if path and "url" not in file else file

    files = {key: absolute(row[key]) for key in ("sdist", "archive") if key in row}
    return {**row, **files, "wheels": [absolute(wheel) for wheel in row.get("wheels", ())]}


def _line(row: Mapping[str, Any], name: str, version: str, spot: Location) -> RequiredPackage:
    vcs = row.get("vcs")
    if vcs is None:
        return RequiredPackage(f"{name}=={version}" if version else name, spot)
    url = f"git+{vcs['url']}@{vcs['commit-id']}"
    url += f"#subdirectory={vcs['subdirectory']}" if "subdirectory" in vcs else ""
    return RequiredPackage(f"{name} @ {url}", spot, git=git.parse(url))


def _spot(lock: RequirementsFile, lines: Sequence[str], name: str) -> Location:
    """Return the line of a lock with the name of a package."""
    for number, line in enumerate(lines, 1):
        if line.startswith('name = "') and canonicalize_name(line[8:].rstrip('"')) == name:
            return Location(lock.path, number, 1, len(line), line)
    return Location(lock.path, 1, 1)


def _require_members_inside(lock: RequirementsFile) -> None:
    """Raise RecipeError if uv, whose errors quote lines, would read a project outside of the repository."""
    directory, repository = lock.path.parent, repository_of(lock.path)
    try:
        content = tomllib.loads(read_text(lock.path))
        workspace = tomllib.loads(read_text(directory / PROJECT))
        globs = workspace.get("tool", {}).get("uv", {}).get("workspace", {}).get("members", ())
        sources = [package["source"] for package in content.get("package", ())]
        members = [*globs, *(path for source in sources for path in source.values())]
        for path in sorted({str(path) for path in members if "://" not in str(path)}):
            for member in glob.glob(f"{directory}/{path}/{PROJECT}"):  # noqa: PTH207  # an absolute path too
                read_bytes(Path(member), within=repository)
    except LinkError as error:
        message = f"cannot read `{os.path.relpath(error.filename, directory)}`: {error.strerror}"
        raise RecipeError(message, lock.location) from error
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        # uv reports it
        return


def _exported(lock: RequirementsFile, pruned: Sequence[str]) -> str:
    """Return a uv.lock as pylock.toml. uv reads the lock as it is, without a network."""
    command = [
        find_uv_bin(), "export", "--quiet", "--frozen", "--offline", "--no-config", "--format=pylock.toml",
        "--no-default-groups", "--no-emit-project", "--project", str(lock.path.parent),
        *(word for extra in lock.extras for word in ("--extra", extra)),
        *(word for group in lock.groups for word in ("--group", group)),
        *(word for name in pruned for word in ("--prune", name)),
    ]  # fmt: skip
    _require_members_inside(lock)
    result = subprocess.run(
        command, env=interpreter.environment(), capture_output=True, text=True, check=False
    )
    if result.returncode != 0:
        tail = tuple(result.stderr.splitlines()[-interpreter.MAX_LINES :])
        hint = "run `uv lock --check` next to it"
        raise BuildError(f"uv cannot export `{lock.path.name}`", lock.location, tail=tail, hint=hint)
    return result.stdout
