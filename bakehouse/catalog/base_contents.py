"""Reader of records of what vendor bases contain: Python packages and private keys.

A record is `bases/<base>-<digest>.txt` in a recipe directory. It names the base, then the sha256 of each
private key, then one package per line: `name==version`.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bakehouse.catalog import base_image_lock
from bakehouse.catalog.apt_lock import SUFFIX
from bakehouse.catalog.python_lock import Package, normal_name
from bakehouse.errors import Diagnostic, Location, Problems, RecipeError
from bakehouse.util.files import matching_paths, read_text

DIRECTORY = "bases"
KEY_DIRECTORIES = ("/etc/ssh", "/root/.ssh")
"""Directories that are searched for private keys."""
KEY_MARK = "PRIVATE KEY"
"""Text that every private key contains."""
_HEADING = "# Contents of "
_KEY = "# private key "
_KEY_LINE = re.compile(rf"{_KEY}(?P<path>/\S+) sha256:(?P<sha256>[0-9a-f]{{64}})")
_PACKAGE_LINE = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;]+)")
_HINT = "restore the file from version control, or delete it and run `bake lock IMAGE`"


@dataclass(frozen=True, slots=True)
class BaseContents:
    """Contents of a vendor base that locks and smoke tests need."""

    packages: tuple[Package, ...] = ()
    private_keys: frozenset[str] = frozenset()
    """Their sha256."""


def file_of(pinned: str) -> str:
    """Return the file name of the record of a base, given by its reference with digest."""
    return f"{base_image_lock.file_of(pinned).removesuffix(SUFFIX)}.txt"


def read_contents(roots: Iterable[Path], digest: str) -> BaseContents | None:
    """Return the contents of a base; None without a record. Raises RecipeError if the record is invalid."""
    pattern = f"*-{digest.removeprefix('sha256:')[:8]}.txt"
    paths = [path for root in roots for path in matching_paths(root / DIRECTORY, pattern)]
    if not paths:
        return None
    path, problems = paths[-1], Problems()
    heading, *lines = read_text(path, errors="replace").splitlines() or [""]
    if not (heading.startswith(_HEADING) and heading.endswith(f"@{digest}")):
        problems.add(_invalid(f"`{path.name}` begins with `{_HEADING}<base>@{digest}`", Location(path, 1, 1)))
    packages, keys = {}, set()
    for number, line in enumerate(lines, 2):
        location = Location(path, number, 1, len(line), line)
        if match := _PACKAGE_LINE.fullmatch(line):
            name = normal_name(match["name"])
            packages[name] = Package(name, match["version"], "", "", 0, location)
        elif match := _KEY_LINE.fullmatch(line):
            keys.add(match["sha256"])
        else:
            problems.add(_invalid("a line is `name==version`", location))
    problems.raise_as(RecipeError)
    return BaseContents(tuple(packages.values()), frozenset(keys))


def text_of(pinned: str, packages: Mapping[str, str], keys: Mapping[str, str]) -> str:
    """Return the text of a record: versions of packages by name, and sha256 of private keys by path."""
    rows = [f"{_KEY}{path} sha256:{keys[path]}\n" for path in sorted(keys)]
    rows += [f"{name}=={packages[name]}\n" for name in sorted(packages)]
    return "".join([f"{heading_of(pinned)}\n", *rows])


def heading_of(pinned: str) -> str:
    """Return the first line of the record of a base."""
    return f"{_HEADING}{pinned}"


def _invalid(message: str, location: Location) -> Diagnostic:
    return Diagnostic(f"invalid record of a base: {message}", location, hint=_HINT)
