"""Git requirements: commits as source archives, from which uv reads metadata and build steps make wheels."""

import contextlib
import hashlib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from packaging.requirements import Requirement as Parsed
from packaging.utils import canonicalize_name

from bakehouse.catalog.python_lock import Package
from bakehouse.catalog.requirements_file import RequiredPackage, Requirements
from bakehouse.errors import BakehouseError, BuildError, Diagnostic, Problems, RecipeError
from bakehouse.util import git
from bakehouse.util.archive import Tree
from bakehouse.util.files import make_directory
from bakehouse.util.tempdir import scratch_directory
from bakehouse.util.terminal import Reporter

_PROJECT = {"pyproject.toml", "setup.py"}
_BUILD_TOOLS = {"setuptools", "wheel"}
"""Python packages of build steps."""


@dataclass(frozen=True)
class GitArchives:
    """Requirements whose git repositories are replaced by local archives."""

    requirements: Requirements
    sources: dict[str, str]
    """Git sources, by the sha256 of their archives."""

    def locked(self, file: Package) -> Package:
        """Return a locked file with its git source, and with the name of a source distribution."""
        source = self.sources.get(file.sha256)
        if source is None:
            return file
        name = f"{file.name.replace('-', '_')}-{file.version}.tar.gz"
        return replace(file, file=name, origin=source)


@contextlib.contextmanager
def git_archives(requirements: Requirements, report: Reporter) -> Iterator[GitArchives]:
    """Fetch the commits of git requirements, until the context ends.

    Raises RecipeError for requirements that do not name a commit, or whose project needs more than setuptools
    to build, and BuildError if a repository cannot be read.
    """
    _check(requirements)
    sources: dict[str, str] = {}
    with scratch_directory() as directory, _shown(sources, directory):

        def local(lines: Iterable[RequiredPackage]) -> tuple[RequiredPackage, ...]:
            return tuple(_local(line, directory, sources, report) if line.git else line for line in lines)

        yield GitArchives(
            replace(
                requirements,
                packages=local(requirements.packages),
                constraints=local(requirements.constraints),
            ),
            sources,
        )


@contextlib.contextmanager
def _shown(sources: Mapping[str, str], directory: Path) -> Iterator[None]:
    """Replace the paths of archives by their git sources in errors."""
    path = re.compile(rf"file://{re.escape(str(directory))}/([0-9a-f]+)/[^`\s]+")

    def text(original: str) -> str:
        return path.sub(lambda match: sources[match[1]], original)

    try:
        yield
    except BakehouseError as error:
        error.diagnostics = tuple(
            replace(
                diagnostic,
                message=text(diagnostic.message),
                hint=text(diagnostic.hint),
                tail=tuple(map(text, diagnostic.tail)),
            )
            for diagnostic in error.diagnostics
        )
        raise


def _check(requirements: Requirements) -> None:
    problems = Problems()
    for line in (*requirements.packages, *requirements.constraints):
        source = line.git
        if source and not source.is_commit:
            try:
                commit = git.commit_of(source)
            except git.GitError as error:
                raise _unreadable(source, line, error) from error
            pinned = replace(source, revision=commit or "COMMIT").text
            hint = f"pin a commit: write `{pinned}`"
            message = f"`{source.revision}` is not a commit" if source.revision else "the commit is missing"
            if not commit:
                message = f"`{source.url}` has no branch or tag `{source.revision}`"
            problems.add(Diagnostic(message, line.location, hint=hint))
    problems.raise_as(RecipeError)


def _local(
    line: RequiredPackage, directory: Path, sources: dict[str, str], report: Reporter
) -> RequiredPackage:
    """Return a git requirement as one of a local archive."""
    source = line.git
    assert source
    report(f"fetching {source.text}")
    try:
        files = git.files_of(source)
    except git.GitError as error:
        raise _unreadable(source, line, error) from error
    if not files.keys() & _PROJECT:
        projects = sorted(str(path.parent) for path in map(PurePosixPath, files) if path.name in _PROJECT)
        raise RecipeError(
            f"`{source.url}` has no pyproject.toml or setup.py",
            line.location,
            hint=f"add `#subdirectory={projects[0]}` to the URL" if projects else "",
        )
    name = _name(files)
    if name not in ("", line.name):
        raise RecipeError(
            f"`{source.url}` is the project `{name}`, not `{line.name}`",
            line.location,
            hint=f"write `{name} @ {source.text}`",
        )
    if others := _other_build_tools(files):
        raise RecipeError(
            f"building `{line.name}` needs {', '.join(others)}, which build steps do not have",
            line.location,
            hint=f"run `pip wheel --no-deps {source.text}` and name the wheel",
        )
    data = git.archive(files)
    sha256 = hashlib.sha256(data).hexdigest()
    sources[sha256] = source.text
    path = directory / sha256 / f"{line.name}.tar.gz"
    make_directory(path.parent)
    path.write_bytes(data)
    parsed = Parsed(line.text)
    parsed.url = path.as_uri()
    return replace(line, text=str(parsed), git=None)


def _project_table(files: Tree) -> Mapping[str, Any]:
    """Return the pyproject.toml of a project; empty without a valid one, which uv reports."""
    content, _ = files.get("pyproject.toml", (b"", 0))
    try:
        return tomllib.loads(content.decode())
    except (ValueError, RecursionError):
        return {}


def _name(files: Tree) -> str:
    """Return the name that a project states in pyproject.toml; empty if it states none."""
    table = _project_table(files).get("project")
    name = table.get("name") if isinstance(table, dict) else None
    return canonicalize_name(name) if isinstance(name, str) else ""


def _other_build_tools(files: Tree) -> list[str]:
    """Return the build requirements of a project that build steps do not have."""
    try:
        requires = _project_table(files).get("build-system", {}).get("requires", [])
        names = {canonicalize_name(Parsed(text).name) for text in requires}
    except (ValueError, AttributeError, TypeError):
        # uv reports it when it reads the metadata
        return []
    return sorted(names - _BUILD_TOOLS)


def _unreadable(source: git.GitSource, line: RequiredPackage, error: git.GitError) -> BuildError:
    message = f"`{source.url}` {error}"
    hint = "check the URL and the commit; only git's own credential helpers supply credentials"
    return BuildError(message, line.location, hint=hint)
