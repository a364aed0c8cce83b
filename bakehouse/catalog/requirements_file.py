"""Reader of requirements: pip's files and pyproject.toml, each package with its location."""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

from packaging.requirements import InvalidRequirement
from packaging.requirements import Requirement as Parsed
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from bakehouse.catalog.python_lock import conflict_marker
from bakehouse.errors import Diagnostic, Location, Problems, RecipeError
from bakehouse.util import git
from bakehouse.util.directory_handles import LinkError, repository_of
from bakehouse.util.files import is_directory, is_file, read_bytes, read_text
from bakehouse.util.git import GitSource
from bakehouse.util.suggest import suggestion

_OPTION = re.compile(r"(?P<option>--[a-z-]+|-[a-zA-Z])(?:\s*=?\s*(?P<value>\S.*))?")
_HASH = re.compile(r"\s+--hash[= ]sha256:(?P<sha256>[0-9a-f]{64})")
_COMMENT = re.compile(r"(?:^|\s)#.*")
_INCLUDES = ("-r", "--requirement", "-c", "--constraint")
_CONSTRAINTS = ("-c", "--constraint")
_INDEXES = ("-i", "--index-url", "--pypi-url", "--extra-index-url")
_FIND_LINKS = ("-f", "--find-links")
_UV_OPTIONS = ("--no-index", "--pre", "--no-binary", "--only-binary")
_WITHOUT_EFFECT = ("--prefer-binary", "--require-hashes")
"""Options without effect, because locks contain hashes, and wheels if an index has them."""
_OPTION_HINTS = {
    "--trusted-host": "set it in this machine's pip configuration, because builds download files too",
    "-e": "write `name @ git+URL@COMMIT`, or build a wheel with `pip wheel --no-deps DIRECTORY` and name it",
}
_NO_OPTIONS = "remove it: `bake lock` chooses each package, and builds install the files in the lock"
PYTORCH_INDEX = re.compile(r"https?://download(?:-r2)?\.pytorch\.org/whl/?(?P<path>[^#?]*)")
_NO_CREDENTIALS = (
    "remove them and put them in ~/.netrc, or in the index URLs of this machine's pip configuration"
)
_PATH = re.compile(r"\.{0,2}/|[^@\s]*\.whl$")
_UV_COMPILE = "run `uv pip compile {name} --output-file requirements.txt`"
_CONDA = ("a file of conda", "activate the environment, run `pip list --format=freeze > requirements.txt`")
PROJECT, UV_LOCK = "pyproject.toml", "uv.lock"
LOCKS = (UV_LOCK, "pylock.toml", "pylock.*.toml")
"""Names of locks of other tools whose packages are taken as they are."""
_OTHER_FORMATS = {
    "poetry.lock": (
        "a lock of Poetry",
        "install poetry-plugin-export, run `poetry export --without-urls --output requirements.txt`",
    ),
    "pdm.lock": ("a lock of PDM", "run `pdm export --prod --output requirements.txt`"),
    "Pipfile": ("a file of Pipenv", "run `pipenv requirements --exclude-index > requirements.txt`"),
    "Pipfile.lock": ("a lock of Pipenv", "run `pipenv requirements --exclude-index > requirements.txt`"),
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
    """The requirement in the form of PEP 508; local files have absolute URLs."""
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
class PipOption:
    """An option of a requirements file, with its value."""

    name: str
    value: str
    location: Location

    @property
    def text(self) -> str:
        return f"{self.name} {self.value}".rstrip()


@dataclass(frozen=True, slots=True)
class TorchIndex:
    """An index of PyTorch, whose packages a component installs."""

    build: str
    """Such as `cu128`, `cpu` or `nightly/cu128`; empty if the index has several builds."""
    url: str
    location: Location


@dataclass(frozen=True, slots=True)
class RequirementsFile:
    """A file that a recipe names in `requirements`."""

    path: Path
    location: Location
    extras: tuple[str, ...] = ()
    """Extras of a project file or a lock of one."""
    groups: tuple[str, ...] = ()
    """Dependency groups of a project file or a lock of one."""

    @property
    def is_lock(self) -> bool:
        """Return whether the file is a lock of another tool."""
        return any(fnmatchcase(self.path.name, pattern) for pattern in LOCKS)

    @property
    def is_project(self) -> bool:
        return self.path.name == PROJECT


@dataclass(frozen=True, slots=True)
class RequirementsFiles:
    """The requirements of a recipe, which have one lock."""

    files: tuple[RequirementsFile, ...]

    @property
    def path(self) -> Path:
        """The first file, which gives the lock its name."""
        return self.files[0].path

    @property
    def lock(self) -> Path:
        """The lock, which may not exist yet."""
        return self.path.with_name(f"{self.path.name}.lock")

    def read(self) -> "Requirements":
        """Read the files and those that they include. Raises RecipeError with all mistakes."""
        reader = _Reader()
        for file in self.files:
            reader.read_named(file)
        reader.problems.raise_as(RecipeError)
        return Requirements(
            tuple(reader.packages),
            tuple(reader.constraints),
            tuple(reader.contents),
            options=tuple(reader.options),
            torch_indexes=tuple(reader.torch_indexes),
            locks=tuple(file for file in self.files if file.is_lock),
            choices=tuple(
                word
                for file in self.files
                for word in (*file.extras, "", *file.groups)
                if file.extras or file.groups
            ),
        )


@dataclass(frozen=True, slots=True)
class Requirements:
    """Requirements with those of all included files."""

    packages: tuple[RequiredPackage, ...]
    constraints: tuple[RequiredPackage, ...]
    contents: tuple[bytes, ...]
    """The bytes of each file."""
    options: tuple[PipOption, ...] = ()
    """Indexes and other options that change which files uv chooses."""
    torch_indexes: tuple[TorchIndex, ...] = ()
    locks: tuple[RequirementsFile, ...] = ()
    """Locks of other tools, whose packages are taken as they are."""
    choices: tuple[str, ...] = ()
    """Selected extras and groups."""

    @property
    def digests(self) -> tuple[str, ...]:
        """The digests of all formats of locks; format 1 joins the files, and knows no extras or groups."""
        return self.digest, *(() if self.choices else (sha256(b"".join(self.contents)).hexdigest(),))

    @property
    def digest(self) -> str:
        """The sha256 that identifies the requirements; the sha256 of the file if there is only one."""
        sums = [sha256(content).hexdigest() for content in self.contents]
        if len(sums) == 1 and not self.choices:
            return sums[0]
        return sha256(json.dumps([sums, self.choices]).encode()).hexdigest()


def read_requirements(path: Path) -> Requirements:
    """Read a requirements file and the files of its `-r` and `-c`. Raises RecipeError with all mistakes."""
    return RequirementsFiles((RequirementsFile(path, Location(path, 1, 1)),)).read()


def included_files(path: Path) -> tuple[Path, ...]:
    """Return the files and directories that a requirements file names, as far as it is readable."""
    if path.name == UV_LOCK:
        return (path.with_name(PROJECT),)
    if path.suffix == ".toml":
        return ()
    try:
        text = read_text(path, encoding="utf-8-sig")
    except (OSError, ValueError):
        return ()
    names = []
    for line, _ in _logical_lines(path, text):
        option = _OPTION.fullmatch(line)
        if option and option["option"] in (*_INCLUDES, *_FIND_LINKS):
            names.append(option["value"] or "")
        elif _PATH.match(name := _HASH.sub("", line).partition(" ;")[0].strip()):
            names.append(name)
        elif "file:" in name and "file:///" not in name:
            names.append(name.partition("file:")[2].removeprefix("//"))
    return tuple(path.parent / name for name in names if name and "://" not in name)


def other_format(path: Path, named_at: Location) -> Diagnostic | None:
    """Return the mistake of a requirements file whose name shows that it has another format."""
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
        self.options: list[PipOption] = []
        self.torch_indexes: list[TorchIndex] = []
        self.contents: list[bytes] = []
        self.problems = Problems()
        self._seen: set[tuple[Path, bool]] = set()

    def read_named(self, file: RequirementsFile) -> None:
        """Read a file that a recipe names."""
        if file.is_project:
            self._read_project(file)
        elif file.is_lock:
            self._read_lock(file)
        elif file.extras or file.groups:
            message = f"`{file.path.name}` has no extras and dependency groups"
            hint = f"name `{PROJECT}` or `{UV_LOCK}`"
            self.problems.add(Diagnostic(message, file.location, hint=hint))
        else:
            self.read(file.path, is_constraint=False, named_at=None)

    def _read_lock(self, file: RequirementsFile) -> None:
        """Read the content of a lock of another tool, which `bake lock` translates."""
        for path in (file.path, *included_files(file.path)):
            try:
                self.contents.append(read_bytes(path))
            except LinkError as error:
                message = f"cannot read `{path.name}`: {error.strerror}"
                self.problems.add(Diagnostic(message, file.location))
            except OSError:
                message = f"`{path.name}` does not exist next to `{file.path.name}`"
                hint = "uv needs both files"
                self.problems.add(Diagnostic(message, file.location, hint=hint))

    def _read_project(self, file: RequirementsFile) -> None:
        """Read the dependencies of a pyproject.toml, with the selected extras and groups."""
        try:
            data = read_bytes(file.path)
            texts = project_dependencies(data.decode(), file)
        except (OSError, ValueError, RecursionError) as error:
            reason = str(error).splitlines()[0] if str(error) else "too deep"
            message = f"`{file.path.name}` is not a valid TOML file: {reason}"
            if isinstance(error, LinkError):
                message = f"cannot read `{file.path.name}`: {error.strerror}"
            self.problems.add(Diagnostic(message, Location(file.path, 1, 1)))
            return
        except RecipeError as error:
            self.problems.extend(error.diagnostics)
            return
        self.contents.append(data)
        lines = data.decode().splitlines()
        for text in texts:
            found = (
                Location(file.path, number, line.index(text) + 1, len(text), line)
                for number, line in enumerate(lines, 1)
                if text in line
            )
            spot = next(found, Location(file.path, 1, 1))
            if package := self._package(text, file.path.parent, spot):
                self.packages.append(package)

    def read(self, path: Path, *, is_constraint: bool, named_at: Location | None) -> None:
        """Read one file, and those that it includes."""
        named_at = named_at or Location(path, 1, 1)
        if is_file(path) and (mistake := other_format(path, named_at)):
            self.problems.add(mistake)
            return
        if path.suffix == ".toml" or path.name == UV_LOCK:
            message = f"`{path.name}` is not a requirements file"
            hint = "name it in `requirements` of the recipe, which can be a list of files"
            self.problems.add(Diagnostic(message, named_at, hint=hint))
            return
        try:
            if (file := (path.resolve(), is_constraint)) in self._seen:
                return
            self._seen.add(file)
            data = read_bytes(path, within=repository_of(named_at.path))
        except LinkError as error:
            self.problems.add(Diagnostic(f"cannot read `{path.name}`: {error.strerror}", named_at))
            return
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
        if number := conflict_marker(text):
            marker = text.splitlines()[number - 1]
            message = f"`{path.name}` contains conflict markers"
            hint = "resolve the conflict, then run `bake lock`"
            self.problems.add(Diagnostic(message, Location(path, number, 1, len(marker), marker), hint=hint))
            return
        for line, location in _logical_lines(path, text):
            option = _OPTION.fullmatch(line) if line.startswith("-") else None
            if option and option["option"] in _INCLUDES and option["value"]:
                is_constraints = is_constraint or option["option"] in _CONSTRAINTS
                self.read(path.parent / option["value"], is_constraint=is_constraints, named_at=location)
            elif line.startswith("-"):
                name, value = option.groups("") if option else (line, "")
                self._add_option(PipOption(name, value, location), path)
            elif package := self._package(line, path.parent, location):
                (self.constraints if is_constraint else self.packages).append(package)

    def _add_option(self, option: PipOption, path: Path) -> None:
        """Add an option that changes which files are chosen."""
        name, value = option.name, option.value
        if name in _WITHOUT_EFFECT:
            return
        if name in _UV_OPTIONS:
            self.options.append(option)
            return
        if name not in (*_INDEXES, *_FIND_LINKS) or not value:
            hint = _OPTION_HINTS.get({"--editable": "-e"}.get(name, name), _NO_OPTIONS)
            message = f"pip's option `{name}` is not supported here"
            self.problems.add(Diagnostic(message, option.location, hint=hint))
            return
        if "@" in _host_of(value) or "$" in value:
            message = f"the URL of `{name}` contains credentials or variables"
            self.problems.add(Diagnostic(message, option.location, hint=_NO_CREDENTIALS))
        elif torch := PYTORCH_INDEX.fullmatch(value):
            build = re.sub(r"/?(torch_stable\.html|simple)?/?$", "", torch["path"])
            self.torch_indexes.append(TorchIndex(build, value, option.location))
        elif name in _INDEXES:
            extra = "--extra-index-url" if name == "--extra-index-url" else "--index-url"
            self.options.append(PipOption(extra, value, option.location))
        elif value.startswith("file:") or "://" not in value:
            # A directory is relative to the file
            directory = (path.parent / value.removeprefix("file:").removeprefix("//")).resolve()
            if self._is_outside(directory, option.location):
                message = f"the directory of `{name}` is outside the repository"
                hint = "set `find-links` in your pip.conf, or PIP_FIND_LINKS"
                self.problems.add(Diagnostic(message, option.location, hint=hint))
                return
            self.options.append(PipOption("--find-links", str(directory), option.location))
        else:
            self.options.append(PipOption("--find-links", value, option.location))

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
        real = path.resolve()
        if self._is_outside(real, location):
            message = f"`{path.name}` is outside the repository"
            self.problems.add(Diagnostic(message, location, hint="copy the wheel into the repository"))
            return None
        text = f"{name} @ {real.as_uri()}"
        return RequiredPackage(f"{text} ; {marker.strip()}" if marker.strip() else text, location, hashes)

    @staticmethod
    def _is_outside(path: Path, location: Location) -> bool:
        """Return whether a path leads out of the repository of the file that names it."""
        repository = repository_of(location.path)
        return repository is not None and not path.is_relative_to(repository.resolve())


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


def project_dependencies(text: str, file: RequirementsFile) -> list[str]:
    """Return the dependencies of a pyproject.toml, with those of the selected extras and groups.

    Raises ValueError for invalid TOML, and RecipeError.
    """
    content = tomllib.loads(text)
    project = content.get("project")
    tools = content.get("tool", {})
    problems = Problems()
    spot = file.location
    if not isinstance(project, dict) or "dependencies" in project.get("dynamic", ()):
        lacks = "has no static `[project] dependencies`"
        export = "run `uv pip compile pyproject.toml --output-file requirements.txt`"
        if "poetry" in tools:
            export = _OTHER_FORMATS["poetry.lock"][1]
        problems.add(Diagnostic(f"`{PROJECT}` {lacks}", spot, hint=f"{export} and name that file"))
        problems.raise_as(RecipeError)
    assert isinstance(project, dict)
    extras: dict[str, list[str]] = {
        canonicalize_name(name): texts for name, texts in project.get("optional-dependencies", {}).items()
    }
    groups: dict[str, list[str | dict[str, str]]] = {
        canonicalize_name(name): items for name, items in content.get("dependency-groups", {}).items()
    }
    texts = list(project.get("dependencies", ()))
    for kind, wanted, known in (("extra", file.extras, extras), ("group", file.groups, groups)):
        for name in wanted:
            if canonicalize_name(name) not in known:
                hint = suggestion(name, known) or "; ".join(sorted(known))
                problems.add(Diagnostic(f"`{PROJECT}` has no {kind} `{name}`", spot, hint=hint))
    problems.raise_as(RecipeError)
    for name in file.extras:
        texts += _extra(canonicalize_name(name), extras, canonicalize_name(project.get("name", "")), ())
    for name in file.groups:
        texts += _group(canonicalize_name(name), groups, spot, ())
    texts = list(dict.fromkeys(texts))
    sources = {canonicalize_name(name) for name in tools.get("uv", {}).get("sources", {})}
    named = [text for text in texts if canonicalize_name(re.split(r"[^A-Za-z0-9._-]", text)[0]) in sources]
    if named:
        message = f"`[tool.uv.sources]` of `{PROJECT}` changes the source of `{named[0]}`"
        hint = f"run `uv lock` and name `{UV_LOCK}` instead, which has the files of all sources"
        raise RecipeError(message, spot, hint=hint)
    return texts


def _extra(name: str, extras: Mapping[str, list[str]], project: str, seen: tuple[str, ...]) -> list[str]:
    """Return the dependencies of an extra; a project can name its own extras in them."""
    texts: list[str] = []
    for text in extras.get(name, ()):
        try:
            parsed = Parsed(text)
        except InvalidRequirement:
            texts.append(text)
            continue
        if canonicalize_name(parsed.name) != project:
            texts.append(text)
        elif name not in seen:
            for inner in parsed.extras:
                texts += _extra(canonicalize_name(inner), extras, project, (*seen, name))
    return texts


def _group(
    name: str, groups: Mapping[str, list[str | dict[str, str]]], spot: Location, seen: tuple[str, ...]
) -> list[str]:
    """Return the dependencies of a group (PEP 735), with those of the groups that it includes."""
    texts: list[str] = []
    for item in groups.get(name, ()):
        if isinstance(item, str):
            texts.append(item)
            continue
        inner = canonicalize_name(item.get("include-group", ""))
        if inner not in groups or inner in (*seen, name):
            reason = "does not exist" if inner not in groups else "includes itself"
            raise RecipeError(f"the group `{inner}` of `{PROJECT}` {reason}", spot)
        texts += _group(inner, groups, spot, (*seen, name))
    return texts
