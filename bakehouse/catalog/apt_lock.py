"""Reader of apt locks: each package of a suite and the file that is installed.

A lock is a `Packages` index as every Debian mirror has one, `apt/<suite>.packages` in a folder of recipes,
with a single version of each package in it. So what a package needs is known without asking a mirror.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from urllib.parse import quote

from bakehouse.errors import Diagnostic, Location, Reason, RecipeError

FOLDER = "apt"
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
"""Fields kept of a package: to find its file, to check it and to know its dependencies."""
NEEDED = ("Package", "Version", "Filename", "Size", "SHA256")
"""Required fields of a package in a lock."""
_NAME = re.compile(r"[a-z0-9][a-z0-9.+-]+")
_VERSION = re.compile(r"[A-Za-z0-9.+:~-]+")
_PATH = re.compile(r"(?!.*\.\.)[A-Za-z0-9][A-Za-z0-9.+:~_%/-]*\.deb")
_SITE = re.compile(r"(https?://[A-Za-z0-9.:/_~%+-]+)?")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_FIELD = re.compile(r"(?P<name>[A-Za-z][A-Za-z0-9-]*):\s*(?P<value>.*)")
_ARCHITECTURES = ("amd64", "all")
_BARE = re.compile(r"[\s(:\[]")
_EXACTLY = re.compile(r"\(= ([^)]*)\)")
_ALWAYS = "apt"
"""Package of every base besides the essential and the required ones."""
_RESTORE = "restore the file from version control, or delete it and run `bake lock` to lock today's packages"


@dataclass(frozen=True)
class Deb:
    """A package of Debian as the one file that is installed."""

    name: str
    version: str
    sha256: str
    bytes: int
    path: str
    """Below the root of any mirror, such as `pool/main/m/make-dfsg/make_4.3-4.1_amd64.deb`."""
    site: str = ""
    """The root that apt found it below; empty where every mirror of the suite has it."""

    def __hash__(self) -> int:
        # Of all that is in it its bytes are enough
        return hash(self.sha256)

    @property
    def file(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def url(self) -> str:
        """URL of the file; empty if every mirror of the suite has it."""
        # S3 takes a `+` for a space
        return f"{self.site}/{quote(self.path)}" if self.site else ""

    @cached_property
    def row(self) -> str:
        """Entry of the package in image locks, as JSON, cached because most packages are in many images."""
        told = {"name": self.name, "version": self.version, "sha256": self.sha256, "bytes": self.bytes}
        return json.dumps({**told, "file": self.path})


@dataclass(frozen=True, slots=True)
class _Entry:
    deb: Deb
    needs: tuple[tuple[str, ...], ...]
    """Each group of names one of which must be there."""
    exactly: tuple[tuple[str, str], ...]
    """Names that it needs in one version alone."""
    provides: tuple[str, ...]
    is_basic: bool
    location: Location


class NotLocked(Exception):
    """A package that no lock of the suite has, or that has another version there than is asked for."""

    def __init__(self, asked: str, locked: str = "") -> None:
        super().__init__(asked)
        self.asked = asked
        self.locked = locked
        """The version that is locked, where it is another one."""


@dataclass(frozen=True)
class AptLock:
    """The lock of one suite, read when a package is asked for."""

    suite: str
    paths: tuple[Path, ...]
    """A later one's packages replace an earlier one's."""

    @cached_property
    def _entries(self) -> dict[str, _Entry]:
        found = {name: entry for path in self.paths for name, entry in _read(path).items()}
        _check_versions(found)
        return found

    @cached_property
    def _providers(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name, entry in sorted(self._entries.items()):
            for provided in entry.provides:
                found.setdefault(provided, []).append(name)
        return found

    @property
    def debs(self) -> tuple[Deb, ...]:
        """Every package that is locked, by name. Raises RecipeError where a lock can't be read."""
        return tuple(entry.deb for _, entry in sorted(self._entries.items()))

    def base(self, names: Iterable[str]) -> tuple[Deb, ...]:
        """Return the packages of a base that has `names` besides those of every base.

        Raises NotLocked where a package is in no lock, RecipeError where a lock can't be read.
        """
        basic = [name for name, entry in self._entries.items() if entry.is_basic]
        return self._closure(tuple(sorted({*basic, _ALWAYS, *names})), frozenset())

    def install(self, names: Iterable[str], on: Collection[Deb]) -> tuple[Deb, ...]:
        """The packages that `apt-get install NAMES` adds to those that are there; raises as `base`."""
        return self._closure(tuple(sorted({*names})), frozenset(deb.name for deb in on))

    @cached_property
    def _known(self) -> dict[tuple[tuple[str, ...], frozenset[str]], tuple[Deb, ...]]:
        return {}

    def forget(self) -> None:
        """Look every step's packages up anew, as a process does that has looked up none."""
        self._known.clear()

    def _closure(self, names: tuple[str, ...], there: frozenset[str]) -> tuple[Deb, ...]:
        # Images ask for the same again and again
        if (names, there) not in self._known:
            self._known[names, there] = self._search(names, there)
        return self._known[names, there]

    def _search(self, names: Sequence[str], there: frozenset[str]) -> tuple[Deb, ...]:
        left = [self._named(name) for name in names]
        found = {*left, *there}
        # It grows while it is read
        for name in left:
            for group in self._entries[name].needs:
                if not any(self._is_met(one, found) for one in group):
                    chosen = self._choose(group)
                    found.add(chosen)
                    left.append(chosen)
        return tuple(self._entries[name].deb for name in sorted(found - there))

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

    def _is_met(self, name: str, there: Collection[str]) -> bool:
        return name in there or any(one in there for one in self._providers.get(name, ()))

    def _choose(self, group: Sequence[str]) -> str:
        """Return the first available alternative, like apt."""
        for name in group:
            if name in self._entries:
                return name
            if name in self._providers:
                return self._providers[name][0]
        raise NotLocked(" | ".join(group))


def apt_locks(roots: Iterable[Path]) -> dict[str, AptLock]:
    """The locks in folders of recipes, by suite; a later folder's packages replace an earlier one's."""
    found: dict[str, list[Path]] = {}
    for root in roots:
        for path in sorted((root / FOLDER).glob(f"*{SUFFIX}")):
            found.setdefault(path.name.removesuffix(SUFFIX), []).append(path)
    return {suite: AptLock(suite, tuple(paths)) for suite, paths in found.items()}


def stanzas(
    text: str, damaged: Callable[[int, str], object] = lambda line, what: None
) -> Iterator[tuple[int, dict[str, str]]]:
    """The packages of an index: the line that each begins on, and its fields; what is folded is joined.

    `damaged` is told of lines that are no field, or a field of which the package has another one.
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
                damaged(number, "invalid field of a package")
                continue
            if name in fields:
                damaged(number, f"a package has `{name}` twice")
            fields[name] = match["value"]


def written(packages: Iterable[Mapping[str, str]]) -> str:
    """An index of those packages, sorted by name, with the fields that a lock keeps."""
    pieces = (
        "".join(f"{name}: {one[name]}\n" for name in FIELDS if one.get(name))
        for one in sorted(packages, key=lambda one: one["Package"])
    )
    return "\n".join(pieces)


def _read(path: Path) -> Mapping[str, _Entry]:
    try:
        status = path.stat()
    except OSError as error:
        raise RecipeError(Diagnostic(f"cannot read `{path.name}`", Location(path, 1, 1))) from error
    return _read_once(path, status.st_mtime_ns, status.st_size)


@lru_cache(16)
def _read_once(path: Path, changed: int, size: int) -> Mapping[str, _Entry]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        message = f"cannot read `{path.name}` as UTF-8 text"
        raise RecipeError(Diagnostic(message, Location(path, 1, 1))) from error

    def damaged(line: int, message: str) -> None:
        raise RecipeError(Diagnostic(message, Location(path, line, 1), hint=_RESTORE))

    found: dict[str, _Entry] = {}
    for line, fields in stanzas(text, damaged):
        location = Location(path, line, 1)
        entry = _entry(fields, location)
        if entry is None:
            reason = Reason(f"a package needs {', '.join(NEEDED)}")
            raise RecipeError(
                Diagnostic("incomplete package in a lock", location, reasons=(reason,), hint=_RESTORE)
            )
        architecture = fields.get("Architecture", _ARCHITECTURES[0])
        if architecture not in _ARCHITECTURES:
            damaged(line, f"package `{entry.deb.name}` is for {architecture}, but images are for amd64")
        if entry.deb.name in found:
            message = f"duplicate package `{entry.deb.name}` in `{path.name}`"
            first = Reason("first entry", found[entry.deb.name].location)
            raise RecipeError(Diagnostic(message, location, reasons=(first,), hint=_RESTORE))
        found[entry.deb.name] = entry
    return found


def deb_of(fields: Mapping[str, str]) -> Deb | None:
    """The file of a package in an index; None where a field is missing or not what it must be."""
    name, version, path, size, digest = (fields.get(key, "") for key in NEEDED)
    site = fields.get("Site", "")
    is_well_formed = (
        _NAME.fullmatch(name)
        and _VERSION.fullmatch(version)
        and _PATH.fullmatch(path)
        and size.isascii()
        and size.isdigit()
        and _SHA256.fullmatch(digest)
        and _SITE.fullmatch(site)
    )
    return Deb(name, version, digest, int(size), path, site) if is_well_formed else None


def _entry(fields: Mapping[str, str], location: Location) -> _Entry | None:
    deb = deb_of(fields)
    if deb is None:
        return None
    groups = [
        group
        for key in ("Pre-Depends", "Depends")
        for group in fields.get(key, "").split(",")
        if group.strip()
    ]
    exactly = ((_bare(one), match[1]) for one in groups if (match := _EXACTLY.search(one)) and "|" not in one)
    return _Entry(
        deb=deb,
        needs=tuple(tuple(_bare(one) for one in group.split("|")) for group in groups),
        exactly=tuple(exactly),
        provides=tuple(_bare(one) for one in fields.get("Provides", "").split(",") if one.strip()),
        is_basic=fields.get("Essential") == "yes" or fields.get("Priority") == "required",
        location=location,
    )


def _bare(relation: str) -> str:
    """A package's name, without the version and architecture that are asked of it."""
    return _BARE.split(relation.strip(), maxsplit=1)[0]


def _check_versions(entries: Mapping[str, _Entry]) -> None:
    """Packages of one source need each other in one version: locks that were mixed would not install."""
    for name, entry in sorted(entries.items()):
        for needed, version in entry.exactly:
            other = entries.get(needed)
            if other and other.deb.version != version:
                message = f"`{name}` needs `{needed}` {version}, but {other.deb.version} is locked"
                hint = f"run `bake lock --upgrade {needed}` to lock them together"
                raise RecipeError(Diagnostic(message, entry.location, hint=hint))
