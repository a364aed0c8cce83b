"""Reader of build requirements, which a lock lists below the line of their source distribution."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from bakehouse.catalog.python_lock import BUILT_WITH, NOTHING, Package, normal_name
from bakehouse.errors import Location
from bakehouse.util.files import read_text
from bakehouse.util.yaml_fields import Fields

_LINE = re.compile(
    r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;]+) --hash=sha256:(?P<sha256>[0-9a-f]{64})"
    r"  # (?P<file>[A-Za-z0-9._+-]+) (?P<bytes>[0-9]{1,18})"
)
_HASH = re.compile(r"--hash=sha256:(?P<sha256>[0-9a-f]{64})")


def read_undeclared(fields: Fields) -> dict[str, tuple[str, ...]]:
    """Read the build requirements that a recipe adds to source distributions, by normal name."""
    requirements = {}
    for name, texts in fields.text_pairs("build_requirements"):
        for text in texts.text.split():
            try:
                Requirement(text)
            except InvalidRequirement:
                hint = "separate requirements by spaces: `build_requirements: {NAME: packaging ninja>=1.11}`"
                fields.report(f"`{text}` is not a requirement", texts.location, hint=hint)
        requirements[normal_name(name.text)] = tuple(texts.text.split())
    return requirements


def read_build_requirements(lock: Path) -> Mapping[str, tuple[Package, ...]]:
    """Return the build requirements by sha256 of the source distribution; empty if the lock is unreadable.

    A source distribution whose build requirements are unknown is left out.
    """
    try:
        lines = read_text(lock).splitlines()
    except (OSError, ValueError):
        return {}
    known: dict[str, tuple[Package, ...]] = {}
    sha256 = ""
    for number, line in enumerate(lines, 1):
        if not line.startswith(BUILT_WITH):
            match = _HASH.search(line)
            sha256 = match["sha256"] if match else ""
        elif line == BUILT_WITH + NOTHING:
            known[sha256] = ()
        elif match := _LINE.fullmatch(line.removeprefix(BUILT_WITH)):
            spot = Location(lock, number, 1, len(line), line)
            package = Package(
                match["name"], match["version"], match["sha256"], match["file"], int(match["bytes"]), spot
            )
            known[sha256] = (*known.get(sha256, ()), package)
    return known


def with_build_requirements(packages: Iterable[Package]) -> tuple[Package, ...]:
    """Return packages with the build requirements in their locks."""
    locks: dict[Path, Mapping[str, tuple[Package, ...]]] = {}

    def complete(package: Package) -> Package:
        if not package.is_sdist:
            return package
        path = package.location.path
        if path not in locks:
            locks[path] = read_build_requirements(path)
        return replace(package, build=locks[path].get(package.sha256))

    return tuple(map(complete, packages))
