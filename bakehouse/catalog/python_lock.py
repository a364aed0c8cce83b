"""Reader of Python locks: each package and the file that is installed."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from urllib.parse import unquote

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from bakehouse.errors import Diagnostic, Location, Problems, RecipeError
from bakehouse.util import file_format
from bakehouse.util.files import read_text
from bakehouse.util.oci import PLATFORM, platform_suffix

_LOCK_LINE = re.compile(
    r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;]+) --hash=sha256:(?P<sha256>[0-9a-f]{64})"
    r"  # (?P<file>[A-Za-z0-9._+-]+) (?P<bytes>[0-9]{1,18})( replaces (?P<replaces>[^\s;]+))?"
    r"( from (?P<origin>\S+))?"
)
_FORMAT = 1
"""Locks without a line such as `# format 2` have it."""
INSTALLED = "installed by a component"
ANY_VERSION = "*"
_INSTALLED_LINE = re.compile(rf"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;]+)  # {INSTALLED}")
_SECTION = "# for "
BUILT_WITH = "#   built with "
"""Start of the lines of build requirements, which other readers of a lock treat as comments."""
NOTHING = "nothing else"
_NOWHERE = Location(Path(), 0, 0)
_MARKERS = ("<<<<<<< ", "||||||| ", ">>>>>>> ")
_SEPARATOR = "======="

_ROW = ("name", "version", "sha256", "bytes", "file")


@dataclass(frozen=True)
class Package:
    """A line of a Python lock: a package and the file that is installed."""

    name: str
    version: str
    sha256: str
    file: str
    """Empty if a component or the base installs it."""
    bytes: int
    location: Location = _NOWHERE
    replaces: str = ""
    """The version in a component's lock that this one replaces; ANY_VERSION in the lock of a component."""
    origin: str = ""
    """URL or absolute path of a file that package indexes may not have."""
    build: "tuple[Package, ...] | None" = None
    """Build requirements of a source distribution; None if they are unknown."""

    @property
    def line(self) -> str:
        """Line of a lock, with one for each build requirement."""
        if self.build is None:
            return self._line
        requirements = [file.line for file in self.build] or [NOTHING]
        return "\n".join([self._line, *(BUILT_WITH + line for line in requirements)])

    @property
    def _line(self) -> str:
        replaces = f" replaces {self.replaces}" if self.replaces else ""
        origin = f" from {self.origin}" if self.origin else ""
        return f"{self.requirement}  # {self.file} {self.bytes}{replaces}{origin}"

    @cached_property
    def is_sdist(self) -> bool:
        return not self.file.endswith(".whl")

    @cached_property
    def requirement(self) -> str:
        return f"{self.name}=={self.version} --hash=sha256:{self.sha256}"

    @cached_property
    def key_input(self) -> tuple[str, ...]:
        """Contribution of the package to the text of a stage: its file, and those that build it."""
        return (self.file, self.requirement, *(package.requirement for package in self.build or ()))

    @cached_property
    def row(self) -> str:
        """Entry of the package in image locks, as JSON, cached because most packages are in many images."""
        return json.dumps({name: getattr(self, name) for name in _ROW})


@dataclass(frozen=True)
class Lock:
    """A Python lock, read on first use because a catalogue has hundreds and an image needs a few."""

    path: Path
    named_at: Location
    requirements: tuple[str, ...] = ()
    """Requirements to lock again, if the component has them."""
    platform: str = PLATFORM
    replaces: tuple[str, ...] = ()
    """Names of packages that replace those in the locks of other components."""

    def heading(self, python: str) -> str:
        """Return its first line: Python version, platform unless it is the default one, and requirements."""
        on_platform = "" if self.platform == PLATFORM else f" on {self.platform}"
        return f"# Python {python}{on_platform}: {', '.join(self.requirements)}"

    @cached_property
    def by_name(self) -> Mapping[str, Package]:
        """The packages by normal name; raises like `packages`."""
        return {normal_name(package.name): package for package in self.packages}

    @property
    def first_line(self) -> str:
        """The first line of the file; empty if the file does not exist."""
        try:
            return read_text(self.path).partition("\n")[0]
        except (OSError, UnicodeDecodeError):
            return ""

    @property
    def is_conflicted(self) -> bool:
        """Return whether git wrote both sides of a conflict into the file."""
        try:
            return bool(conflict_marker(read_text(self.path, errors="replace")))
        except OSError:
            return False

    @property
    def is_readable(self) -> bool:
        """Return whether every line is a valid package."""
        problems = Problems()
        load_lock(self.path, self.named_at, problems)
        return not problems

    @cached_property
    def packages(self) -> tuple[Package, ...]:
        """The locked packages. Raises RecipeError if the lock is unreadable or has an invalid line."""
        problems = Problems()
        packages = load_lock(self.path, self.named_at, problems)
        problems.raise_as(RecipeError)
        replacing = set(map(normal_name, self.replaces))
        return tuple(
            replace(package, replaces=ANY_VERSION) if normal_name(package.name) in replacing else package
            for package in packages
        )

    @cached_property
    def replacing(self) -> Mapping[str, Package]:
        """The packages that replace those of other components, by normal name; raises like `packages`."""
        return {name: package for name, package in self.by_name.items() if package.replaces}


def platform_path(path: Path, platform: str) -> Path:
    """Return the lock for one of two platforms: `locks/1.0-arm64.txt` for linux/arm64."""
    return path.with_name(f"{path.stem}{platform_suffix(platform)}{path.suffix}")


@cache
def normal_name(name: str) -> str:
    """Return the normalized name of a Python package (PEP 503), cached."""
    return canonicalize_name(name)


def section_line(images: Iterable[str]) -> str:
    """Return the line of a lock before the packages that only some images have."""
    return f"{_SECTION}{', '.join(images)}"


def section_images(line: str) -> tuple[str, ...]:
    """Return the images of such a line; none for other lines."""
    return tuple(line.removeprefix(_SECTION).split(", ")) if line.startswith(_SECTION) else ()


def conflict_marker(text: str) -> int:
    """Return the number of the first line that git wrote around a conflict; 0 without one."""
    return next((number for number, line in enumerate(text.splitlines(), 1) if _is_marker(line)), 0)


def _is_marker(line: str) -> bool:
    return line.startswith(_MARKERS) or line == _SEPARATOR


def load_lock(
    path: Path, named_at: Location, problems: Problems, image: str | None = None
) -> tuple[Package, ...]:
    """Read the packages of a lock, one line each: `name==version --hash=sha256:…  # file bytes`.

    Lines in sections for other images than `image` are left out.
    """
    try:
        lines = read_text(path).splitlines()
    except OSError:
        message = f"lock `{path.name}` does not exist"
        problems.add(Diagnostic(message, named_at, hint="run `bake lock`"))
        return ()
    except UnicodeDecodeError:
        problems.add(Diagnostic(f"`{path.name}` is not UTF-8 text", Location(path, 1, 1)))
        return ()
    if lines and lines[0].startswith("# format "):
        try:
            file_format.require_known_line(lines[0], _FORMAT)
        except ValueError as error:
            is_newer = isinstance(error, file_format.NewerFormatError)
            hint = file_format.UPGRADE if is_newer else file_format.RESTORE
            spot = Location(path, 1, 1)
            facts = (("because", str(error)),)
            problems.add(Diagnostic(f"cannot read `{path.name}`", spot, facts=facts, hint=hint))
            return ()
    packages: dict[str, Package] = {}
    mistakes: list[Diagnostic] = []
    is_relevant = True
    for number, line in enumerate(lines, 1):
        spot = Location(path, number, 1, len(line), line)
        if images := section_images(line):
            is_relevant = image is None or image in images
        if _is_marker(line):
            message = f"`{path.name}` contains conflict markers"
            hint = "run `bake lock`, which keeps the versions that both sides share"
            mistakes = [Diagnostic(message, spot, hint=hint)]
            break
        if not is_relevant or not line.strip() or line.startswith("#"):
            continue
        package = _package(line, spot)
        if package is None:
            label, hint = "name==version --hash=sha256:…  # file bytes", "run `bake lock`"
            mistakes.append(Diagnostic("invalid line in a lock", spot, label, hint=hint))
            continue
        first = packages.setdefault(normal_name(package.name), package)
        if first is not package:
            message = f"duplicate package `{package.name}` in `{path.name}`"
            mistakes.append(Diagnostic(message, spot, f"first on line {first.location.line}"))
    if len(mistakes) > 1 and not packages:
        message = f"`{path.name}` is not a lock of Bakehouse"
        hint = "name the requirements file; `bake lock` writes its lock"
        mistakes = [Diagnostic(message, named_at, hint=hint)]
    problems.extend(mistakes)
    return tuple(packages.values())


def _package(line: str, spot: Location) -> Package | None:
    """Return the package of a line; None if the line is invalid."""
    if installed := _INSTALLED_LINE.fullmatch(line):
        return Package(installed["name"], installed["version"], "", "", 0, spot)
    match = _LOCK_LINE.fullmatch(line)
    if match is None:
        return None
    origin = match["origin"] or ""
    if origin and "://" not in origin:
        origin = str(spot.path.parent / unquote(origin))
    return Package(
        match["name"],
        match["version"],
        match["sha256"],
        match["file"],
        int(match["bytes"]),
        spot,
        match["replaces"] or "",
        origin,
    )


def preferred_packages(path: Path, image: str | None = None) -> tuple[Package, ...]:
    """Return the packages whose versions a new lock should keep, without those that components install.

    Those of `image` come first, then those of other images. Of two sides of a conflict, the newer version
    stays. Invalid lines are left out.
    """
    try:
        lines = read_text(path, errors="replace").splitlines()
    except OSError:
        return ()
    own: dict[str, Package] = {}
    others: dict[str, Package] = {}
    packages = own
    is_conflict = False
    for number, line in enumerate(lines, 1):
        is_conflict = is_conflict or _is_marker(line)
        if images := section_images(line):
            packages = own if image is None or image in images else others
        package = None if line.startswith("#") else _package(line, Location(path, number, 1))
        if package and package.file:
            name = normal_name(package.name)
            if name not in packages or (is_conflict and _is_newer(package, packages[name])):
                packages[name] = package
    return tuple({**others, **own}.values())


def _is_newer(package: Package, other: Package) -> bool:
    try:
        return Version(package.version) > Version(other.version)
    except InvalidVersion:
        return False


def locked_sums(path: Path) -> frozenset[str]:
    """Return the sha256 sums in a lock; none if it is missing. Invalid lines are left out."""
    spot = Location(path, 1, 1)
    return frozenset(package.sha256 for package in load_lock(path, spot, Problems()) if package.sha256)
