"""Reader of apt locks: each package of a suite and the file that is installed.

A lock is a `Packages` index like that of a Debian mirror, `apt/<suite>.packages` in a recipe directory, with
one version of each package. It contains the dependencies, so resolving them needs no mirror.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NoReturn
from urllib.parse import quote

from bakehouse.errors import Diagnostic, Location, Problems, Reason, RecipeError
from bakehouse.util import file_format
from bakehouse.util.files import matching_paths, read_text
from bakehouse.util.oci import PLATFORM, PLATFORMS, architecture_of, platform_suffix

FORMAT = 1
"""Number of the format, which the first line of a lock of another format has."""
DIRECTORY = "apt"
SUFFIX = ".packages"
FIELDS = (
    "Package",
    "Version",
    "Architecture",
    "Multi-Arch",
    "Essential",
    "Priority",
    "Pre-Depends",
    "Depends",
    "Provides",
    "Conflicts",
    "Breaks",
    "Replaces",
    "Filename",
    "Site",
    "Size",
    "SHA256",
)
"""Fields that a lock keeps: to find and verify the file of a package, and to resolve its dependencies."""
NEEDED = ("Package", "Version", "Filename", "Size", "SHA256")
"""Required fields of a package in a lock."""
_NAME = re.compile(r"[a-z0-9][a-z0-9.+-]+")
_VERSION = re.compile(r"[A-Za-z0-9.+:~-]+")
_PATH = re.compile(r"(?!.*\.\.)[A-Za-z0-9][A-Za-z0-9.+:~_%/-]*\.deb")
_SITE = re.compile(r"(https?://[A-Za-z0-9.:/_~%+-]+)?")
_SIZE = re.compile(r"[0-9]{1,18}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_FIELD = re.compile(r"(?P<name>[A-Za-z][A-Za-z0-9-]*):\s*(?P<value>.*)")
_BARE = re.compile(r"[\s(:\[]")
_EXACTLY = re.compile(r"\(= ([^)]*)\)")
_ALWAYS = "apt"
"""Package of every base, in addition to the essential and the required ones."""
_RESTORE = "restore the file from version control, or delete it and run `bake lock` to lock today's packages"


@dataclass(frozen=True)
class Deb:
    """A Debian package and the file that is installed."""

    name: str
    version: str
    sha256: str
    bytes: int
    path: str
    """Below the root of any mirror, such as `pool/main/m/make-dfsg/make_4.3-4.1_amd64.deb`."""
    site: str = ""
    """Root URL of its mirror; empty if every mirror of the suite has it."""

    def __hash__(self) -> int:
        # The sha256 identifies the file.
        return hash(self.sha256)

    @property
    def file(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def url(self) -> str:
        """URL of the file; empty if every mirror of the suite has it."""
        # S3 reads `+` as a space.
        return f"{self.site}/{quote(self.path)}" if self.site else ""

    @cached_property
    def row(self) -> str:
        """Entry of the package in image locks, as JSON, cached because most packages are in many images."""
        fields = {"name": self.name, "version": self.version, "sha256": self.sha256, "bytes": self.bytes}
        return json.dumps({**fields, "file": self.path})


@dataclass(frozen=True, slots=True)
class _Entry:
    deb: Deb
    needs: tuple[tuple[str, ...], ...]
    """Groups of alternative names; one of each group must be installed."""
    exactly: tuple[tuple[str, str], ...]
    """Names that it needs in exactly one version."""
    provides: tuple[str, ...]
    is_basic: bool
    location: Location


class NotLocked(Exception):
    """A requested package is missing from the locks of the suite, or locked in another version."""

    def __init__(self, asked: str, locked: str = "") -> None:
        super().__init__(asked)
        self.asked = asked
        self.locked = locked
        """The locked version, if it differs from the requested one."""


@dataclass(frozen=True)
class AptLock:
    """The lock of one suite, read on first use."""

    suite: str
    paths: tuple[Path, ...]
    """Packages of later files replace those of earlier ones."""

    @cached_property
    def _entries(self) -> dict[str, _Entry]:
        entries = {name: entry for path in self.paths for name, entry in _read(path).items()}
        _check_versions(entries)
        return entries

    @cached_property
    def _providers(self) -> dict[str, list[str]]:
        providers: dict[str, list[str]] = {}
        for name, entry in sorted(self._entries.items()):
            for provided in entry.provides:
                providers.setdefault(provided, []).append(name)
        return providers

    @property
    def debs(self) -> tuple[Deb, ...]:
        """All locked packages, sorted by name. Raises RecipeError if a lock is unreadable."""
        return tuple(entry.deb for _, entry in sorted(self._entries.items()))

    def base(self, names: Iterable[str]) -> tuple[Deb, ...]:
        """Return the packages of a base: those of every base, and `names`.

        Raises NotLocked if a package is not locked, RecipeError if a lock is unreadable.
        """
        basic = [name for name, entry in self._entries.items() if entry.is_basic]
        return self._closure(tuple(sorted({*basic, _ALWAYS, *names})), frozenset())

    def install(self, names: Iterable[str], on: Collection[Deb]) -> tuple[Deb, ...]:
        """Return the packages that `apt-get install NAMES` adds to installed ones; raises like `base`."""
        return self._closure(tuple(sorted({*names})), frozenset(deb.name for deb in on))

    def chain(self, names: Iterable[str], name: str, among: Collection[Deb]) -> tuple[str, ...]:
        """Return the shortest chain of dependencies from one of `names` to a package; empty if none exists.

        It consists of packages in `among`, and ends with the package.
        """
        present = {deb.name for deb in among}
        named = [first for first in map(self._named, names) if first in present]
        chains: dict[str, tuple[str, ...]] = {first: (first,) for first in named}
        left = list(chains)
        # The loop appends to the list that it reads.
        for current in left:
            for group in self._entries[current].needs:
                providers = (
                    other for needed in group for other in (needed, *self._providers.get(needed, ()))
                )
                for other in providers:
                    if other in present and other not in chains:
                        chains[other] = (*chains[current], other)
                        left.append(other)
        return chains.get(name, ())

    @cached_property
    def _closures(self) -> dict[tuple[tuple[str, ...], frozenset[str]], tuple[Deb, ...]]:
        return {}

    def forget(self) -> None:
        """Clear the cache of closures, for benchmarks."""
        self._closures.clear()

    def _closure(self, names: tuple[str, ...], installed: frozenset[str]) -> tuple[Deb, ...]:
        # Many images have the same steps.
        if (names, installed) not in self._closures:
            self._closures[names, installed] = self._search(names, installed)
        return self._closures[names, installed]

    def _search(self, names: Sequence[str], installed: frozenset[str]) -> tuple[Deb, ...]:
        added = [self._named(name) for name in names]
        closure = {*added, *installed}
        # The loop appends to the list that it reads.
        for name in added:
            for group in self._entries[name].needs:
                if not any(self._is_met(alternative, closure) for alternative in group):
                    chosen = self._choose(group)
                    closure.add(chosen)
                    added.append(chosen)
        return tuple(self._entries[name].deb for name in sorted(closure - installed))

    def _named(self, asked: str) -> str:
        name, _, version = asked.partition("=")
        if name not in self._entries and name in self._providers:
            return self._providers[name][0]
        if name not in self._entries:
            raise NotLocked(asked)
        locked = self._entries[name].deb.version
        if version and version != locked:
            raise NotLocked(asked, locked)
        return name

    def _is_met(self, name: str, installed: Collection[str]) -> bool:
        return name in installed or any(provider in installed for provider in self._providers.get(name, ()))

    def _choose(self, group: Sequence[str]) -> str:
        """Return the first available alternative, like apt."""
        for name in group:
            if name in self._entries:
                return name
            if name in self._providers:
                return self._providers[name][0]
        raise NotLocked(" | ".join(group))


def lock_name(suite: str, platform: str) -> str:
    """Return the name of the lock of a suite's packages for a platform."""
    return f"{suite}{platform_suffix(platform)}"


def suite_and_platform(name: str) -> tuple[str, str]:
    """Return the suite and the platform that a lock is named for, such as `bookworm-arm64`."""
    for platform in PLATFORMS:
        suffix = platform_suffix(platform)
        if suffix and name.endswith(suffix):
            return name.removesuffix(suffix), platform
    return name, PLATFORM


def apt_locks(roots: Iterable[Path]) -> dict[str, AptLock]:
    """Return the locks in recipe directories, by their names; packages of later ones replace earlier ones."""
    paths: dict[str, list[Path]] = {}
    for root in roots:
        for path in matching_paths(root / DIRECTORY, f"*{SUFFIX}"):
            paths.setdefault(path.name.removesuffix(SUFFIX), []).append(path)
    return {suite: AptLock(suite, tuple(files)) for suite, files in paths.items()}


def stanzas(
    text: str, damaged: Callable[[int, str], object] = lambda line, what: None
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the first line and the fields of each stanza of an index; folded lines are joined.

    `damaged` is called for invalid lines and for duplicate fields.
    """
    fields: dict[str, str] = {}
    first, name = 0, ""
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if not line.strip():
            if fields:
                yield first, fields
            fields, name = {}, ""
        elif line.startswith("#"):
            continue
        elif line[0] in " \t" and name:
            fields[name] += f" {line.strip()}"
        else:
            first = first if fields else number
            match = _FIELD.fullmatch(line.rstrip())
            name = match["name"] if match else ""
            if not match:
                damaged(number, "invalid field in a lock")
                continue
            if name in fields:
                damaged(number, f"duplicate field `{name}` of a package")
            fields[name] = match["value"]


def written(packages: Iterable[Mapping[str, str]]) -> str:
    """Format an index of packages, sorted by name, with the fields that a lock keeps."""
    pieces = (
        "".join(f"{name}: {package[name]}\n" for name in FIELDS if package.get(name))
        for package in sorted(packages, key=lambda package: package["Package"])
    )
    return "\n".join(pieces)


class LockFile:
    """The stanzas of a lock; mistakes are raised with their lines."""

    def __init__(self, path: Path, restore: str) -> None:
        self.path = path
        self._restore = restore
        """Hint of all mistakes."""
        self._lines: dict[str, int] = {}

    def stanzas(self) -> Iterator[tuple[int, dict[str, str]]]:
        try:
            text = read_text(self.path)
        except (OSError, UnicodeDecodeError) as error:
            raise self.mistake(1, f"cannot read `{self.path.name}` as UTF-8 text") from error
        with file_format.reading(self.path):
            file_format.require_known_line(text, FORMAT)
        return stanzas(text, self.fail)

    def deb(self, line: int, fields: Mapping[str, str]) -> Deb:
        """Return the package of a stanza, which must be complete and not a duplicate."""
        deb = deb_of(fields)
        if deb is None:
            reason = Reason(f"a package needs {', '.join(NEEDED)}")
            raise self.mistake(line, "incomplete package in a lock", reason)
        if self._lines.setdefault(deb.name, line) != line:
            first = Reason("first entry", Location(self.path, self._lines[deb.name], 1))
            raise self.mistake(line, f"duplicate package `{deb.name}` in `{self.path.name}`", first)
        return deb

    def fail(self, line: int, message: str) -> NoReturn:
        raise self.mistake(line, message)

    def mistake(self, line: int, message: str, *reasons: Reason) -> RecipeError:
        return RecipeError(message, Location(self.path, line, 1), reasons=reasons, hint=self._restore)


def _read(path: Path) -> Mapping[str, _Entry]:
    try:
        status = path.stat()
    except OSError as error:
        raise RecipeError(f"cannot read `{path.name}`", Location(path, 1, 1)) from error
    return _read_once(path, status.st_mtime_ns, status.st_size)


@lru_cache(16)
def _read_once(path: Path, changed: int, size: int) -> Mapping[str, _Entry]:
    file = LockFile(path, _RESTORE)
    _, platform = suite_and_platform(path.name.removesuffix(SUFFIX))
    own = architecture_of(platform)
    entries: dict[str, _Entry] = {}
    problems = Problems()
    for line, fields in file.stanzas():
        try:
            deb = file.deb(line, fields)
            architecture = fields.get("Architecture", "all")
            if architecture not in (own, "all"):
                file.fail(line, f"package `{deb.name}` is for {architecture}, but images are for {own}")
        except RecipeError as error:
            problems.extend(error.diagnostics)
        else:
            entries[deb.name] = _entry(deb, fields, Location(path, line, 1))
    problems.raise_as(RecipeError)
    return entries


def deb_of(fields: Mapping[str, str]) -> Deb | None:
    """Return a package of an index; None if a field is missing or invalid."""
    name, version, path, size, digest = (fields.get(key, "") for key in NEEDED)
    site = fields.get("Site", "")
    is_well_formed = (
        _NAME.fullmatch(name)
        and _VERSION.fullmatch(version)
        and _PATH.fullmatch(path)
        and _SIZE.fullmatch(size)
        and _SHA256.fullmatch(digest)
        and _SITE.fullmatch(site)
    )
    return Deb(name, version, digest, int(size), path, site) if is_well_formed else None


def _entry(deb: Deb, fields: Mapping[str, str], location: Location) -> _Entry:
    groups = [
        group
        for key in ("Pre-Depends", "Depends")
        for group in fields.get(key, "").split(",")
        if group.strip()
    ]
    exactly = (
        (_bare(group), match[1]) for group in groups if (match := _EXACTLY.search(group)) and "|" not in group
    )
    return _Entry(
        deb=deb,
        needs=tuple(tuple(map(_bare, group.split("|"))) for group in groups),
        exactly=tuple(exactly),
        provides=tuple(_bare(name) for name in fields.get("Provides", "").split(",") if name.strip()),
        is_basic=fields.get("Essential") == "yes" or fields.get("Priority") == "required",
        location=location,
    )


def _bare(relation: str) -> str:
    """Return the package name of a relation, without version and architecture."""
    return _BARE.split(relation.strip(), maxsplit=1)[0]


def _check_versions(entries: Mapping[str, _Entry]) -> None:
    """Check exact version requirements, because packages from mixed locks cannot be installed."""
    problems = Problems()
    for name, entry in sorted(entries.items()):
        for needed, version in entry.exactly:
            other = entries.get(needed)
            if other and other.deb.version != version:
                message = f"`{name}` needs `{needed}` {version}, but {other.deb.version} is locked"
                hint = f"run `bake lock --upgrade {needed}` to lock them together"
                problems.add(Diagnostic(message, entry.location, hint=hint))
    problems.raise_as(RecipeError)
