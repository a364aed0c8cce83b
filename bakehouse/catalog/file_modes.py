"""Executable files on file systems without modes, so that keys are the same as on other hosts.

When git creates or clones a repository, it tests whether the file system keeps modes, and records the result
in the configuration of the repository. If it does not, the modes come from git. A file that git does not
track yet is executable if it starts with `#!`.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from bakehouse.util import git
from bakehouse.util.files import is_directory, is_file

_NO_MODES = re.compile(r"^\s*filemode\s*=\s*false\s*$", re.MULTILINE | re.IGNORECASE)


def keeps_modes(directory: Path) -> bool:
    """Return whether the file system of a directory keeps modes, as far as its repository knows."""
    for parent in (directory.absolute(), *directory.absolute().parents):
        repository = parent / ".git"
        if is_directory(repository) or is_file(repository):
            config = _git_directory(repository) / "config"
            return not (is_file(config) and _NO_MODES.search(config.read_text(errors="replace")))
    return True


def executables(directory: Path) -> Mapping[str, bool] | None:
    """Return whether files are executable by path below a directory; None if the file system keeps modes."""
    if keeps_modes(directory):
        return None
    try:
        return git.executables(directory)
    except git.GitError:
        return {}


def is_script(path: Path) -> bool:
    """Return whether a file starts with the name of its interpreter."""
    with path.open("rb") as file:
        return file.read(2) == b"#!"


def _git_directory(repository: Path) -> Path:
    """Return the directory of `.git`, which is a file in worktrees and submodules."""
    if is_directory(repository):
        return repository
    directory = repository.parent / repository.read_text(errors="replace").removeprefix("gitdir:").strip()
    common = directory / "commondir"
    return directory / common.read_text().strip() if is_file(common) else directory
