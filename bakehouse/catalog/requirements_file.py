"""Reader of pip's requirements files: packages and constraints, each with its location."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

from packaging.requirements import InvalidRequirement
from packaging.requirements import Requirement as Parsed
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from bakehouse.errors import Diagnostic, Location, Problems, RecipeError
from bakehouse.util import git
from bakehouse.util.files import is_directory, is_file
from bakehouse.util.git import GitSource

_INCLUDE = re.compile(r"(?P<option>-r|-c|--requirement|--constraint)(?:\s+|=|(?<=-[rc]))(?P<file>\S.*)")
_HASH = re.compile(r"\s+--hash[= ]sha256:(?P<sha256>[0-9a-f]{64})")
_COMMENT = re.compile(r"(?:^|\s)#.*")
_NO_OPTIONS = (
    "use packages, `-r` and `-c` only; indexes and proxies come from this machine's pip configuration"
)
_NO_CREDENTIALS = (
    "remove them and put them in ~/.netrc, or in the index URLs of this machine's pip configuration"
)
_PATH = re.compile(r"\.{0,2}/|[^@\s]*\.whl$")
_UV_COMPILE = "run `uv pip compile {name} --output-file requirements.txt`"
_CONDA = ("a file of conda", "activate the environment, run `pip list --format=freeze > requirements.txt`")
_OTHER_FORMATS = {
    "uv.lock": (
        "a lock of uv",
        "run `uv export --no-dev --no-emit-project --output-file requirements.txt`",
    ),
    "poetry.lock": (
        "a lock of Poetry",
        "install poetry-plugin-export, run `poetry export --without-urls --output requirements.txt`",
    ),
    "pdm.lock": ("a lock of PDM", "run `pdm export --prod --output requirements.txt`"),
    "Pipfile": ("a file of Pipenv", "run `pipenv requirements --exclude-index > requirements.txt`"),
    "Pipfile.lock": ("a lock of Pipenv", "run `pipenv requirements --exclude-index > requirements.txt`"),
    "pylock*.toml": (
        "a lock of PEP 751",
        "run `uv venv`, `uv pip sync {name}` and `uv pip freeze > requirements.txt`",
    ),
    "pyproject.toml": ("a project file", _UV_COMPILE),
    "setup.py": ("a build script", _UV_COMPILE),
    "setup.cfg": ("a build configuration", _UV_COMPILE),
    "environment*.y*ml": _CONDA,
    "conda*.y*ml": _CONDA,
}
"""Kinds of other files with packages by name, and the command that exports a requirements file."""


@dataclass(frozen=True, slots=True)
class RequiredPackage:
    """A line of a requirements file."""

    text: str
    """The requirement as PEP 508 writes it; local files have absolute URLs."""
    location: Location
    hashes: frozenset[str] = frozenset()
    """The sha256 sums that the line allows; empty if it allows any."""
    git: GitSource | None = None
    """The repository of a git requirement."""

    @property
    def name(self) -> str:
        """The normal name of the package."""
        return canonicalize_name(Parsed(self.text).name)


@dataclass(frozen=True, slots=True)
class Requirements:
    """A requirements file with the files that it includes."""

    packages: tuple[RequiredPackage, ...]
    constraints: tuple[RequiredPackage, ...]
    content: bytes
    """The bytes of all files."""


def read_requirements(path: Path) -> Requirements:
    """Read a requirements file and the files of its `-r` and `-c`. Raises RecipeError with all mistakes."""
    reader = _Reader()
    reader.read(path, is_constraint=False, named_at=None)
    reader.problems.raise_as(RecipeError)
    return Requirements(tuple(reader.packages), tuple(reader.constraints), b"".join(reader.contents))


def lock_heading(name: str, requirements: bytes) -> str:
    """Return the first line of a lock, which identifies the requirements that it was made from."""
    return f"# of {name} sha256:{sha256(requirements).hexdigest()}"


def other_format(path: Path, named_at: Location) -> Diagnostic | None:
    """Return the mistake that a requirement file has another format, which its name shows."""
    for pattern, (kind, export) in _OTHER_FORMATS.items():
        if fnmatchcase(path.name, pattern):
            message = f"`{path.name}` is {kind}, not a requirements file"
            hint = f"{export.format(name=path.name)} and name that file"
            return Diagnostic(message, named_at, hint=hint)
    return None


class _Reader:
    def __init__(self) -> None:
        self.packages: list[RequiredPackage] = []
        self.constraints: list[RequiredPackage] = []
        self.contents: list[bytes] = []
        self.problems = Problems()
        self._seen: set[Path] = set()

    def read(self, path: Path, *, is_constraint: bool, named_at: Location | None) -> None:
        """Read one file, and those that it includes."""
        if is_file(path) and (mistake := other_format(path, named_at or Location(path, 1, 1))):
            self.problems.add(mistake)
            return
        try:
            if (file := path.resolve()) in self._seen:
                return
            self._seen.add(file)
            data = path.read_bytes()
        except (OSError, ValueError):
            self.problems.add(Diagnostic(f"file `{path.name}` does not exist", named_at))
            return
        self.contents.append(data)
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            location = Location(path, data.count(b"\n", 0, error.start) + 1, 1)
            self.problems.add(Diagnostic(f"`{path.name}` is not UTF-8 text", location))
            return
        for line, location in _logical_lines(path, text):
            include = _INCLUDE.fullmatch(line)
            if include:
                is_constraints = is_constraint or include["option"] in ("-c", "--constraint")
                self.read(path.parent / include["file"], is_constraint=is_constraints, named_at=location)
            elif line.startswith("-"):
                self.problems.add(
                    Diagnostic("this pip option is not supported here", location, hint=_NO_OPTIONS)
                )
            elif package := self._package(line, path.parent, location):
                (self.constraints if is_constraint else self.packages).append(package)

    def _package(self, line: str, directory: Path, location: Location) -> RequiredPackage | None:
        hashes = frozenset(match["sha256"] for match in _HASH.finditer(line))
        text = _HASH.sub("", line).strip()
        path, _, extra = text.partition(" ;")
        if _PATH.match(path) and "://" not in path:
            return self._local(directory / path.strip(), extra, hashes, location)
        try:
            parsed = Parsed(text)
        except (InvalidRequirement, RecursionError) as error:
            is_deep = isinstance(error, RecursionError)
            label = "too many parentheses" if is_deep else str(error).splitlines()[0].rstrip(".").lower()
            hint = "write packages as `name>=1.2` or `name @ URL`"
            self.problems.add(Diagnostic(f"`{text}` is not a requirement", location, label, hint=hint))
            return None
        url = parsed.url or ""
        if url.startswith("file:") and not url.startswith("file:///"):
            relative = url.removeprefix("file:").removeprefix("//")
            return self._local(directory / relative, str(parsed.marker or ""), hashes, location)
        if url.startswith(git.PREFIX):
            try:
                return RequiredPackage(text, location, hashes, git.parse(url))
            except ValueError as error:
                message = f"`{parsed.name}` has an invalid git URL"
                self.problems.add(Diagnostic(message, location, hint=str(error)))
                return None
        if "@" in _host_of(url):
            message = f"the URL of `{parsed.name}` contains credentials, which its lock would repeat"
            self.problems.add(Diagnostic(message, location, hint=_NO_CREDENTIALS))
            return None
        return RequiredPackage(text, location, hashes)

    def _local(
        self, path: Path, marker: str, hashes: frozenset[str], location: Location
    ) -> RequiredPackage | None:
        """Return the requirement of a local wheel."""
        if not is_file(path):
            hint = "run `pip wheel --no-deps DIRECTORY` and name the wheel" if is_directory(path) else ""
            message = (
                f"`{path.name}` is a directory, not a wheel" if hint else f"`{path.name}` does not exist"
            )
            self.problems.add(Diagnostic(message, location, hint=hint))
            return None
        try:
            name = parse_wheel_filename(path.name)[0]
        except InvalidWheelFilename:
            hint = "run `pip wheel --no-deps FILE` and name the wheel"
            self.problems.add(Diagnostic(f"`{path.name}` is not a wheel", location, hint=hint))
            return None
        text = f"{name} @ {path.resolve().as_uri()}"
        return RequiredPackage(f"{text} ; {marker.strip()}" if marker.strip() else text, location, hashes)


def _host_of(url: str) -> str:
    """Return the host of a URL, with the credentials before it."""
    try:
        return urlsplit(url).netloc
    except ValueError:
        return ""


def _logical_lines(path: Path, text: str) -> Iterator[tuple[str, Location]]:
    """Yield lines without comments, with continuations joined, each with the location of its start."""
    lines = iter(enumerate(text.splitlines(), 1))
    for number, first in lines:
        line, last = _COMMENT.sub("", first), first
        while line.endswith("\\"):
            _, last = next(lines, (0, ""))
            line = line[:-1].rstrip() + " " + _COMMENT.sub("", last).lstrip()
        if stripped := line.strip():
            start = len(first) - len(first.lstrip()) + 1
            shown = _COMMENT.sub("", first).rstrip("\\").strip()
            yield stripped, Location(path, number, start, len(shown), first)
