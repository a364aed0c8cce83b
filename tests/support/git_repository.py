"""Git repositories in directories."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.support.data import text_of

_PROJECT = text_of(__file__, "project")


def git(directory: Path, *words: str) -> str:
    """Run git in a directory without the settings of this machine."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_AUTHOR_NAME": "A",
        "GIT_AUTHOR_EMAIL": "a@x.example",
        "GIT_COMMITTER_NAME": "A",
        "GIT_COMMITTER_EMAIL": "a@x.example",
    }
    command = ["git", "-c", "init.defaultBranch=main", "-c", "protocol.file.allow=always", *words]
    result = subprocess.run(command, cwd=directory, env=environment, check=True, capture_output=True)
    return result.stdout.decode().strip()


def commit(directory: Path, files: Mapping[str, str]) -> str:
    """Write files into a repository, which is made on first use, and return the new commit."""
    directory.mkdir(parents=True, exist_ok=True)
    if not (directory / ".git").exists():
        git(directory, "init", "--quiet")
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    git(directory, "add", "--all")
    git(directory, "commit", "--quiet", "--message", "next")
    return git(directory, "rev-parse", "HEAD")


def project(version: str = "1.0") -> dict[str, str]:
    """Return the files of the Python project `own-lib`, which needs `six`."""
    return {"pyproject.toml": _PROJECT.format(version=version), "own_lib/__init__.py": f'V = "{version}"\n'}
