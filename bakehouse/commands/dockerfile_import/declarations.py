"""Readers of files that declare dependencies: a table of file names, with what each file declares."""

import ast
import configparser
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from bakehouse.catalog.requirements_file import PYTORCH_INDEX, included_files
from bakehouse.commands.dockerfile_import.installs import names
from bakehouse.util.files import is_file, read_text

_PLACES = ("workspace", "path", "git", "url", "file", "hg", "svn", "bzr")
"""Keys of sources that are not an index."""


@dataclass(frozen=True, slots=True)
class Declarations:
    """Content of a file that declares dependencies."""

    requirements: tuple[str, ...] = ()
    """Packages in the form of PEP 508."""
    conda: tuple[str, ...] = ()
    """Packages of conda."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Sources other than the public index, by package."""
    remarks: tuple[str, ...] = ()
    """Parts that are not in the recipe, with the reason."""
    project: str = ""
    """Name of the project itself."""
    python: str = ""
    """Specifier of Python versions."""
    files: tuple[Path, ...] = ()
    """Requirements files that it includes."""
    is_standard: bool = True
    """The packages are those that `bake lock` reads from the file."""
    failure: str = ""
    """Reason why the dependencies are not known."""

    @property
    def has_packages(self) -> bool:
        return bool(self.requirements or self.conda or self.files or self.sources)


def read(root: Path, name: str) -> Declarations | None:
    """Return what a file of a repository declares; None for a file without a reader."""
    number = rank(name)
    if number is None:
        return None
    try:
        return [*_READERS.values()][number](root / name)
    except (ValueError, SyntaxError, configparser.Error, RecursionError, OSError) as error:
        return Declarations(failure=(str(error).splitlines() or ["it is too deep"])[0])
    except (AttributeError, TypeError):
        return Declarations(failure="its values have other types than in its format")


def rank(name: str) -> int | None:
    """Return the position of a file's reader; the recipe has the packages of the first file."""
    path = PurePosixPath(name)
    names = path.name, f"{path.parent.name}/{path.name}"
    ranks = (number for number, glob in enumerate(_READERS) if fnmatchcase(names["/" in glob], glob))
    return next(ranks, None)


def normal_name(line: str) -> str:
    """Return the normal name of the package of a requirement; empty without one."""
    match = re.match(r"\s*([A-Za-z0-9][\w.-]*)", line)
    return str(canonicalize_name(match[1])) if match else ""


def is_for_linux(line: str) -> bool:
    """Return False if the marker of a requirement excludes Linux in every version of Python."""
    try:
        marker = Requirement(re.sub(r"\s(?:#|--hash).*", "", line).strip()).marker
    except InvalidRequirement:
        return True
    linux = {"os_name": "posix", "platform_system": "Linux", "sys_platform": "linux"}
    environments = (
        {"platform_machine": machine, "python_version": minor, "python_full_version": f"{minor}.9"}
        for machine in ("x86_64", "aarch64")
        for minor in (f"3.{number}" for number in range(6, 20))
    )
    return marker is None or any(marker.evaluate({**linux, **other}) for other in environments)


def conda_specifier(text: str) -> str | None:
    """Return versions of conda as a specifier of pip; None for forms that pip lacks."""
    parts = []
    for part in re.split(r"\s*,\s*", text.strip()):
        match = re.fullmatch(r"(==?|[<>!]=|~=|[<>])?\s*(\d[\w.]*?)?(\.?\*)?(?:[= ][\w*.]+)?", part)
        if match is None or not (match[2] or match[3]):
            return None
        operator, version, star = match[1] or "==", match[2], match[3]
        if version:
            is_prefix = operator == "=" or (star and operator in ("==", "!="))
            parts.append(f"{'==' if operator == '=' else operator}{version}{'.*' if is_prefix else ''}")
    return ",".join(parts)


def poetry_specifier(version: str) -> str | None:
    """Return a version of Poetry as a specifier of pip; None for forms that are not known."""
    if match := re.fullmatch(r"([\^~])(\d+)((?:\.\d+)*)", version):
        numbers = [int(match[2]), *(int(part) for part in match[3].split(".") if part)]
        nonzero = next((index for index, number in enumerate(numbers) if number), len(numbers) - 1)
        position = nonzero if match[1] == "^" else min(1, len(numbers) - 1)
        upper = [*numbers[:position], numbers[position] + 1]
        return f">={version[1:]},<{'.'.join(map(str, upper))}"
    return _pip_specifier(f"=={version}" if re.match(r"\d", version) else version)


def _pip_specifier(version: str) -> str | None:
    try:
        SpecifierSet("" if version == "*" else version)
    except InvalidSpecifier:
        return None
    return "" if version == "*" else version.replace(" ", "")


def _table(content: Any, *keys: str) -> dict[str, Any]:
    for key in keys:
        content = content.get(key) if isinstance(content, dict) else None
    return content if isinstance(content, dict) else {}


def _texts(values: object) -> tuple[str, ...]:
    return tuple(map(str, values)) if isinstance(values, list | tuple) else ()


class _Packages:
    """Packages of a file, with those of other sources, and parts without a form in a recipe."""

    def __init__(self) -> None:
        self.requirements: list[str] = []
        self.conda: list[str] = []
        self.sources: dict[str, str] = {}
        self.remarks: list[str] = []

    def declarations(self, **others: Any) -> Declarations:
        packages = tuple(self.requirements), tuple(self.conda)
        return Declarations(*packages, self.sources, tuple(self.remarks), **others)

    def add_table(self, table: Mapping[str, Any], form: Callable[[str], str | None]) -> None:
        """Add packages by name, as Poetry, Pipenv and pixi write them."""
        for name, value in table.items():
            fields = value if isinstance(value, dict) else {"version": value}
            self.add_source(name, value)
            specifier = form(str(fields.get("version", "*")))
            others = fields.keys() - {"version", "extras", "markers", "source", "index", "channel", *_PLACES}
            if specifier is None or others - {"editable", "branch", "tag", "rev", "ref", "subdirectory"}:
                self.remarks.append(f"not in the recipe: write `{name}` into a requirements file")
            elif not any(fields.get(place) for place in _PLACES):
                extras = ",".join(_texts(fields.get("extras")))
                marker = f" ; {fields['markers']}" if "markers" in fields else ""
                packages = self.conda if form is conda_specifier else self.requirements
                packages.append(f"{name}{f'[{extras}]' if extras else ''}{specifier}{marker}")

    def add_lines(self, lines: Iterable[str]) -> None:
        """Add packages in the form of PEP 508."""
        for line in filter(None, map(str.strip, lines)):
            try:
                parsed = Requirement(line)
            except InvalidRequirement:
                self.remarks.append(f"not in the recipe: `{re.split('[@:]', line)[0]}` is not a requirement")
                continue
            if (parsed.url or "").startswith("file:"):
                self.sources[canonicalize_name(parsed.name)] = "a path"
            self.requirements.append(line)

    def add_source(self, name: str, value: object) -> None:
        """Add the source of a package, if it is not the public index."""
        for fields in value if isinstance(value, list) else [value]:
            given = fields if isinstance(fields, dict) else {}
            place = next((key for key in _PLACES if given.get(key)), "")
            index = given.get("index") or given.get("source") or given.get("channel") or ""
            if place:
                self.sources[canonicalize_name(name)] = f"a {place}"
            elif index and str(index).lower() not in ("pypi", "conda-forge"):
                self.sources.setdefault(canonicalize_name(name), f"the index {index}")

    def add_index(self, *addresses: object) -> None:
        """Give all packages the source of an index that is searched for each of them."""
        for address in addresses:
            host = urlsplit(str(address)).hostname or ""
            if address and host.split(".") != ["pypi", "org"] and not PYTORCH_INDEX.fullmatch(str(address)):
                for line in self.requirements:
                    self.sources.setdefault(normal_name(line), f"the index {host or address}")

    def add_groups(self, kind: str, groups: Iterable[str]) -> None:
        if texts := ", ".join(groups):
            self.remarks.append(f"not in the recipe: {kind} {texts}")


def _pyproject(path: Path) -> Declarations:
    content, packages = tomllib.loads(read_text(path)), _Packages()
    project, tools = _table(content, "project"), _table(content, "tool")
    poetry, uv = _table(tools, "poetry"), _table(tools, "uv")
    dynamic = _table(tools, "setuptools", "dynamic", "dependencies").get("file", ())
    files = [dynamic] if isinstance(dynamic, str) else dynamic
    if "dependencies" in project.get("dynamic", ()) and not (files or is_file(path.with_name("setup.py"))):
        packages.remarks.append("dynamic dependencies are not known: the build backend computes them")
    packages.add_lines(_texts(project.get("dependencies")))
    of_poetry = {**_table(poetry, "dependencies")}
    version = of_poetry.pop("python", "")
    python = project.get("requires-python") or (poetry_specifier(str(version)) if version else "")
    if "dependencies" not in project:
        packages.add_table(of_poetry, poetry_specifier)
    for name, value in [*of_poetry.items(), *_table(uv, "sources").items()]:
        packages.add_source(name, value)
    _add_pixi(_table(tools, "pixi"), packages)
    tables = [uv.get("index", ()), poetry.get("source", ()), _table(tools, "pdm").get("source", ())]
    indexes = [index for table in tables for index in table]
    shared = [i.get("url") for i in indexes if not i.get("explicit") and i.get("priority") != "explicit"]
    packages.add_index(*shared, uv.get("index-url"), *_texts(uv.get("extra-index-url")))
    packages.add_groups("extras", _table(project, "optional-dependencies") or _table(poetry, "extras"))
    packages.add_groups("groups", _table(content, "dependency-groups") | _table(poetry, "group"))
    groups = ("uv.dev-dependencies", "pdm.dev-dependencies", "poetry.dev-dependencies", "hatch.envs")
    packages.add_groups("tables", [name for name in groups if _table(tools, *name.split("."))])
    return packages.declarations(
        project=str(project.get("name") or poetry.get("name") or ""),
        python=str(python or ""),
        files=tuple(path.parent / name for name in files),
        is_standard="dependencies" in project,
    )


def _add_pixi(content: dict[str, Any], packages: _Packages) -> None:
    """Add packages of pixi; its Python is one of conda."""
    packages.add_table(_table(content, "dependencies"), conda_specifier)
    packages.add_table(_table(content, "pypi-dependencies"), _pip_specifier)
    packages.add_index(_table(content, "pypi-options").get("index-url"))
    tables = ("feature", "target", "activation", "system-requirements")
    packages.add_groups("tables", [name for name in tables if content.get(name)])
    workspace = _table(content, "workspace") or _table(content, "project")
    own = [channel for channel in _texts(workspace.get("channels")) if not is_public_channel(channel)]
    for line in packages.conda if own else ():
        packages.sources.setdefault(normal_name(line), f"the channel {own[0]}")


def _pixi(path: Path) -> Declarations:
    content, packages = tomllib.loads(read_text(path)), _Packages()
    _add_pixi(content, packages)
    workspace = _table(content, "workspace") or _table(content, "project")
    return packages.declarations(project=str(workspace.get("name", "")))


def is_public_channel(channel: str) -> bool:
    """Return whether a channel of conda has packages that the public index may have under their names."""
    return channel in names("channels")


def _pipfile(path: Path) -> Declarations:
    content, packages = tomllib.loads(read_text(path)), _Packages()
    packages.add_table(_table(content, "packages"), _pip_specifier)
    packages.add_index(*(index.get("url") for index in content.get("source", ())[:1]))
    others = ("packages", "source", "requires", "pipenv", "scripts")
    packages.add_groups("groups", [name for name in content if name not in others])
    requires = _table(content, "requires")
    version = str(requires.get("python_version") or requires.get("python_full_version") or "")
    return packages.declarations(python=f"=={'.'.join(version.split('.')[:2])}.*" if version else "")


def _setup_cfg(path: Path) -> Declarations:
    parser, packages = configparser.ConfigParser(interpolation=None), _Packages()
    parser.read_string(read_text(path))
    given = parser.get("options", "install_requires", fallback="").strip()
    files = given.removeprefix("file:").split(",") if given.startswith("file:") else []
    packages.add_lines([] if files else [re.sub(r"(?:^|\s)#.*", "", line) for line in given.splitlines()])
    if parser.has_section("options.extras_require"):
        packages.add_groups("extras", parser["options.extras_require"])
    return packages.declarations(
        project=parser.get("metadata", "name", fallback=""),
        python=parser.get("options", "python_requires", fallback="").strip(),
        files=tuple(path.parent / name.strip() for name in files),
    )


def _setup_py(path: Path) -> Declarations:
    tree, packages = ast.parse(read_text(path)), _Packages()
    assigned = (node for node in tree.body if isinstance(node, ast.Assign))
    values = {ast.unparse(node.targets[0]): node.value for node in assigned}
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    setup = next((call for call in calls if ast.unparse(call.func) in ("setup", "setuptools.setup")), None)
    literals: dict[str, Any] = {}
    computed = []
    for keyword in setup.keywords if setup else ():
        try:
            value = values.get(ast.unparse(keyword.value), keyword.value)
            literals[keyword.arg or "**"] = ast.literal_eval(value)
        except ValueError:
            computed.append(keyword.arg or "**")
    requires = literals.get("install_requires", ())
    packages.add_lines(requires.splitlines() if isinstance(requires, str) else _texts(requires))
    packages.add_groups("extras", literals.get("extras_require", {}))
    packages.add_groups("computed", [name for name in ("extras_require",) if name in computed])
    unknown = next((name for name in ("install_requires", "**") if name in computed), "")
    reason = f"`{unknown}` is computed; write the dependencies into a requirements file"
    return packages.declarations(
        project=str(literals.get("name", "")),
        python=str(literals.get("python_requires", "")),
        failure=reason if unknown else "",
    )


def read_list(path: Path) -> Declarations:
    """Return the packages of a requirements file, with those of the files that it includes."""
    files = tuple(_included(path, {path.resolve()}))
    lines = [line for file in (path, *files) for line in read_text(file, errors="replace").splitlines()]
    return Declarations(tuple(line for line in lines if normal_name(line)), files=files)


def _included(path: Path, seen: set[Path]) -> Iterator[Path]:
    for file in included_files(path):
        if is_file(file) and file.suffix != ".whl" and (real := file.resolve()) not in seen:
            seen.add(real)
            yield file
            yield from _included(file, seen)


def _lock(path: Path) -> Declarations:
    content = tomllib.loads(read_text(path))
    rows = content.get("package" if path.name == "uv.lock" else "packages", [])
    lines = (f"{row.get('name')}=={row.get('version')}" for row in rows if row.get("version"))
    return Declarations(tuple(lines), python=str(content.get("requires-python", "")))


def _python_version(path: Path) -> Declarations:
    text = read_text(path)
    match = re.search(r"(?m)^\s*(?:python[ -]?)?(3\.\d+)", text)
    failure = "" if match or path.name == ".tool-versions" else "it has no version of Python 3"
    return Declarations(python=f"=={match[1]}.*" if match else "", failure=failure)


_READERS: Mapping[str, Callable[[Path], Declarations]] = {
    ".python-version": _python_version,
    "runtime.txt": _python_version,
    ".tool-versions": _python_version,
    "*requirements*.txt": read_list,
    "requirements/*.txt": read_list,
    "*requirements*.in": read_list,
    "requirements/*.in": read_list,
    "uv.lock": _lock,
    "pylock.toml": _lock,
    "pyproject.toml": _pyproject,
    "Pipfile": _pipfile,
    "pixi.toml": _pixi,
    "setup.cfg": _setup_cfg,
    "setup.py": _setup_py,
}
"""Readers by names of files, the first choice for the recipe first."""
