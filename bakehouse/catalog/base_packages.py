"""Reader of records of the Python packages that vendor bases contain.

A record is `python/bases/<base>-<digest>.txt` in a recipe directory. It names the base, then one package per
line: `name==version`.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from bakehouse.catalog import base_image_lock
from bakehouse.catalog.apt_lock import SUFFIX
from bakehouse.catalog.python_lock import Package, normal_name
from bakehouse.errors import Diagnostic, Location, Problems, RecipeError

DIRECTORY = "python/bases"
HEADING = "# Python packages of "
_LINE = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;]+)")


def file_of(pinned: str) -> str:
    """Return the file name of the record of a base, given by its reference with digest."""
    return f"{base_image_lock.file_of(pinned).removesuffix(SUFFIX)}.txt"


def read_packages(roots: Iterable[Path], pinned: str) -> tuple[Package, ...] | None:
    """Return the packages of a base; None without a record. Raises RecipeError if the record is invalid."""
    paths = [path for root in roots if (path := root / DIRECTORY / file_of(pinned)).is_file()]
    if not paths:
        return None
    path, problems = paths[-1], Problems()
    heading, *lines = path.read_text(encoding="utf-8", errors="replace").splitlines() or [""]
    if heading != f"{HEADING}{pinned}":
        problems.add(_invalid(f"`{path.name}` begins with `{HEADING}{pinned}`", Location(path, 1, 1)))
    packages = {}
    for number, line in enumerate(lines, 2):
        if match := _LINE.fullmatch(line):
            location = Location(path, number, 1, len(line), line)
            name = normal_name(match["name"])
            packages[name] = Package(name, match["version"], "", "", 0, location)
        else:
            problems.add(_invalid("a line is `name==version`", Location(path, number, 1, len(line), line)))
    problems.raise_as(RecipeError)
    return tuple(packages.values())


def text_of(pinned: str, packages: Mapping[str, str]) -> str:
    """Return the text of a record; `packages` are versions by name."""
    return "".join([f"{HEADING}{pinned}\n", *(f"{name}=={packages[name]}\n" for name in sorted(packages))])


def _invalid(message: str, location: Location) -> Diagnostic:
    hint = "restore the file from version control, or delete it and run `bake lock IMAGE`"
    return Diagnostic(f"invalid record of a base: {message}", location, hint=hint)
