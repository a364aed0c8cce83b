"""Nothing that users read or run installs Bakehouse by its name from a package index."""

import re
import subprocess

import pytest

from bakehouse.catalog.project import HOME

INSTALLS = re.compile(
    r"""\b(?:uvx|(?:pip3?|pipx|uv|poetry|pdm|conda)\s+(?:[a-z]+\s+)?(?:install|run|add|upgrade|download))\b
    (?:\s+(?!bakehouse)[\w./=:@+\[\]"'`-]+)*?  # options,
    \s+["'`]?bakehouse\b(?!-|/|\.|\s*@)  # and the name
    |\bbakehouse\s*(?:\[[\w,]*\])?\s*(?:===?|~=|>=|<=|!=|[<>](?=\s*[0-9]))
    |\buvx\s+bake\b
    """,
    re.VERBOSE,
)
"""A command that installs the name, or a requirement of it."""
EXCEPTIONS = ("tests/", "requirements.lock")
"""Tests try wrong requirements."""


@pytest.mark.parametrize(
    "text",
    [
        "pip install bakehouse",
        "python -m pip install --quiet bakehouse",
        'pip install -U "bakehouse[test]"',
        "`pip install bakehouse`",
        "uvx bakehouse list",
        "uvx bake list",
        "uvx --from bakehouse bake",
        "uv tool install bakehouse",
        "uv pip install bakehouse",
        "uv add bakehouse",
        "pipx install bakehouse",
        "pipx run bakehouse",
        "bakehouse==0.2.0",
        "bakehouse ~= 1.0",
        'requirement = "bakehouse>=1.0,<2"',
        "bakehouse[test]==1.0",
    ],
)
def test_commands_that_install_the_name_are_found(text: str) -> None:
    assert INSTALLS.search(text)


@pytest.mark.parametrize(
    "text",
    [
        "pip install .",
        "uv tool install .",
        "pipx install ./bakehouse-0.2.0-py3-none-any.whl",
        "pip install bakehouse-0.2.0-py3-none-any.whl",
        "uvx --from git+URL bake",
        "uvx --from git+https://git.example/bakehouse.git bake list",
        'requirement = "git+https://git.example/bakehouse.git@0123456789abcdef0123456789abcdef01234567"',
        "bakehouse @ https://git.example/bakehouse-1.0-py3-none-any.whl",
        "pip, and bakehouse/util",
        "pip show --files bakehouse",
        "bake installs Bakehouse with pip",
    ],
)
def test_other_ways_are_allowed(text: str) -> None:
    assert not INSTALLS.search(text)


def test_nothing_installs_the_name_from_an_index() -> None:
    command = ["git", "-C", str(HOME), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\0")
    read = 0
    installing = []
    for name in filter(None, names):
        path = HOME / name
        if name.startswith(EXCEPTIONS) or not path.is_file():
            continue
        read += 1
        text = path.read_text(encoding="utf-8", errors="replace")
        # A command may be on several lines of a paragraph, or of a string.
        words = re.sub(r"\s*\\?\n\s*(?:[#>|*-]+\s+)?", " ", text)
        installing += [(name, match[0]) for match in INSTALLS.finditer(words)]

    assert read > 1000
    assert installing == []
