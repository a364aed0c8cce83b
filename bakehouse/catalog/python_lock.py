"""Reader of Python locks: each package and the file that is installed."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from packaging.utils import canonicalize_name

from bakehouse.errors import Diagnostic, Location, Problems, RecipeError
from bakehouse.util.hashing import Json, json_of

_LOCK_LINE = re.compile(
    r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;]+) --hash=sha256:(?P<sha256>[0-9a-f]{64})"
    r"  # (?P<file>[A-Za-z0-9._+-]+) (?P<bytes>[0-9]+)"
)


@dataclass(frozen=True)
class Package:
    """A line of a Python lock: a package and the file that is installed."""

    name: str
    version: str
    sha256: str
    file: str
    bytes: int
    location: Location

    @cached_property
    def is_sdist(self) -> bool:
        return not self.file.endswith(".whl")

    @cached_property
    def requirement(self) -> str:
        return f"{self.name}=={self.version} --hash=sha256:{self.sha256}"

    @cached_property
    def key_input(self) -> Json:
        """Contribution of the package to build keys."""
        return json_of(self.requirement)

    @cached_property
    def row(self) -> str:
        """Entry of the package in image locks, as JSON, cached because most packages are in many images."""
        told = {name: getattr(self, name) for name in ("name", "version", "sha256", "bytes", "file")}
        return json.dumps(told)


@dataclass(frozen=True)
class Lock:
    """A Python lock, read when its packages are asked for: a catalogue has hundreds, an image a few."""

    path: Path
    named_at: Location
    requirements: tuple[str, ...] = ()
    """Requirements to lock again, if the component has them."""

    def heading(self, python: str) -> str:
        """Its first line, which tells what it was made from."""
        return f"# Python {python}: {', '.join(self.requirements)}"

    @cached_property
    def by_name(self) -> Mapping[str, Package]:
        """The packages by their normal names; raises as `packages`."""
        return {normal_name(one.name): one for one in self.packages}

    @property
    def first_line(self) -> str:
        """Empty where there is no such file."""
        try:
            return self.path.read_text(encoding="utf-8").partition("\n")[0]
        except (OSError, UnicodeDecodeError):
            return ""

    @property
    def is_readable(self) -> bool:
        """Return whether every line is a valid package."""
        problems = Problems()
        load_lock(self.path, self.named_at, problems)
        return not problems

    @cached_property
    def packages(self) -> tuple[Package, ...]:
        """Raises RecipeError where the lock can't be read, or a line of it is none."""
        problems = Problems()
        found = load_lock(self.path, self.named_at, problems)
        problems.raise_as(RecipeError)
        return found


@cache
def normal_name(name: str) -> str:
    """A Python package's name as all ways to write it mean it."""
    return canonicalize_name(name)


def load_lock(path: Path, named_at: Location, problems: Problems) -> tuple[Package, ...]:
    """The packages of a lock: one line each, `name==version --hash=sha256:…  # file bytes`."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        message = f"lock `{path.name}` does not exist"
        problems.add(Diagnostic(message, named_at, hint="run `bake lock`"))
        return ()
    except UnicodeDecodeError:
        problems.add(Diagnostic(f"`{path.name}` is not UTF-8 text", Location(path, 1, 1)))
        return ()
    packages: dict[str, Package] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        spot = Location(path, number, 1, len(line), line)
        match = _LOCK_LINE.fullmatch(line)
        if match is None:
            label, hint = "name==version --hash=sha256:…  # file bytes", "run `bake lock`"
            problems.add(Diagnostic("invalid line in a lock", spot, label, hint=hint))
            continue
        name, size = match["name"], int(match["bytes"])
        package = Package(name, match["version"], match["sha256"], match["file"], size, spot)
        first = packages.setdefault(normal_name(name), package)
        if first is not package:
            message = f"duplicate package `{name}` in `{path.name}`"
            problems.add(Diagnostic(message, spot, f"first on line {first.location.line}"))
    return tuple(packages.values())
