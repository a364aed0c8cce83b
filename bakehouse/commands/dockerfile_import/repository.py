"""Content of a repository without a Dockerfile: what it needs, as a proposal with a row for each file."""

import ast
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.names import FRAMEWORKS
from bakehouse.commands.dockerfile_import.account import Fate, InstructionEntry
from bakehouse.commands.dockerfile_import.bases import DEFAULT_BASE, BaseChoice, KnownImage
from bakehouse.commands.dockerfile_import.index import ReverseIndex
from bakehouse.commands.dockerfile_import.installs import names
from bakehouse.commands.dockerfile_import.lifts import Lifter
from bakehouse.commands.dockerfile_import.proposal import Proposal, Wish
from bakehouse.util.files import is_directory, is_file, names_in, read_text

_LOCKS = ("uv.lock", "pylock.toml")
_DEVELOPMENT = re.compile(r"dev|test|doc|lint|ci\b|notebook")
_SKIPPED = re.compile(
    r"\.|(?:build|dist|images|tests?|docs?|node_modules|site-packages|venv|env|training-images)$"
)
_MAX_DEPTH = 4
_CODE = ("src", "code", "training")
"""Usual directories of a training script."""
_DISTRIBUTIONS = names("modules")
"""Distributions by the names of their modules, where these differ."""


def look(root: Path, catalog: Catalog) -> Proposal:
    """Return the proposal for a repository."""
    return _Look(root, catalog).proposal


class _Look:
    def __init__(self, root: Path, catalog: Catalog) -> None:
        self._root = root
        self.proposal = Proposal()
        self.proposal.base = KnownImage((BaseChoice(*DEFAULT_BASE), BaseChoice("debian", "13")))
        self._index = ReverseIndex(catalog)
        self._lifter = Lifter(self.proposal, self._index, root)
        self._project = self._pyproject()
        self._files = [*_walk(root)]
        self._requirements()
        self._environment()
        self._python()
        script = self._script()
        self._imports(script)

    def _row(self, text: str) -> InstructionEntry:
        return self.proposal.account.add(0, text)

    def _pyproject(self) -> dict[str, object]:
        path = self._root / "pyproject.toml"
        try:
            values = tomllib.loads(read_text(path)) if is_file(path) else {}
        except tomllib.TOMLDecodeError:
            values = {}
        return values

    def _requirements(self) -> None:
        """Take the requirements of the repository, and name the files that are left out."""
        project = self._project.get("project")
        lists = [
            name
            for name in self._files
            if re.fullmatch(r"(?:requirements[^/]*|requirements/[^/]+)\.(?:txt|in)", name)
        ]
        plain = sorted(
            (name for name in lists if not _DEVELOPMENT.search(name)), key=lambda name: (len(name), name)
        )
        plain = [
            name for name in plain if not name.endswith(".in") or name.removesuffix("in") + "txt" not in plain
        ]
        main = next((name for name in ("requirements.txt", "requirements/base.txt") if name in plain), "")
        taken = [main] if main else plain[:1]
        locks = [name for name in _LOCKS if is_file(self._root / name)]
        has_project = isinstance(project, dict) and bool(project.get("dependencies"))
        if not taken:
            taken = locks[:1] or (["pyproject.toml"] if has_project else [])
        for name in [*lists, *locks, *(["pyproject.toml"] if has_project else [])]:
            entry = self._row(name)
            if name in taken:
                self._lifter.add_file(name, entry)
                entry.add(Fate.RECIPE, "`requirements`")
                self._framework_of(name, entry)
            elif name == "pyproject.toml" and taken[:1] == ["uv.lock"]:
                entry.add(Fate.REPLACED, "uv.lock has its packages")
            elif _DEVELOPMENT.search(name):
                entry.add(Fate.REPLACED, "not in the recipe: packages for development")
            else:
                entry.check(f"not in the recipe: {taken[0]} has the packages; name it in `requirements`, too")
        if not taken:
            self._poetry()
        for name in ("setup.py", "setup.cfg", "Pipfile"):
            if is_file(self._root / name):
                self._row(name).check("not read: write its dependencies into a requirements file")
        for name in (
            name for name in self._files if re.search(r"(?:^|/)(?:[\w-]+\.)?Dockerfile(?:\.[\w-]+)?$", name)
        ):
            self._row(name).add(
                Fate.REPLACED, f"not read: `bake init --from-dockerfile {name}` translates it"
            )

    def _poetry(self) -> None:
        """Take the dependencies of a project of Poetry, whose versions have a form of their own."""
        tool = self._project.get("tool")
        poetry = tool.get("poetry") if isinstance(tool, dict) else None
        given = poetry.get("dependencies") if isinstance(poetry, dict) else None
        if not isinstance(given, dict):
            return
        entry = self._row("pyproject.toml: [tool.poetry.dependencies]")
        for name, value in given.items():
            fields = value if isinstance(value, dict) else {"version": value}
            version, extras = fields.get("version"), fields.get("extras", [])
            specifier = _poetry_specifier(version) if isinstance(version, str) else None
            if specifier is None or fields.keys() - {"version", "extras"}:
                entry.check("not in the recipe: write it into a requirements file", str(name))
            elif name == "python":
                self.proposal.wish(Wish(("python",), specifier, "", 0, "python of Poetry", [entry]))
            else:
                options = f"[{','.join(map(str, extras))}]" if extras else ""
                self._lifter.pip_line(f"{name}{options}{specifier}", entry)
        entry.add(Fate.RECIPE, "`requirements`")

    def _framework_of(self, name: str, entry: InstructionEntry) -> None:
        """Find the framework in a lock or a project."""
        lines: list[str] = []
        if name == "pyproject.toml":
            project = self._project.get("project")
            given = project.get("dependencies") if isinstance(project, dict) else None
            lines = [line for line in given if isinstance(line, str)] if isinstance(given, list) else []
        elif name in _LOCKS:
            try:
                values = tomllib.loads(read_text(self._root / name))
            except tomllib.TOMLDecodeError:
                return entry.check("not known: it is not TOML")
            packages = values.get("package" if name == "uv.lock" else "packages", [])
            lines = [
                f"{package.get('name')}=={package.get('version')}"
                for package in packages
                if package.get("version")
            ]
        for line in lines:
            match = re.match(r"([\w.-]+)(?:\[[^]]*\])?\s*([^;]*)", line.strip())
            components = self._index.find_pip(match[1]) if match else ()
            if match and components and components[0] in (*FRAMEWORKS, "sagemaker-training"):
                specifier = re.sub(r"\+\w+", "", match[2].strip())
                pin = f"{match[1]}{specifier}"
                self.proposal.wish(Wish(components, specifier, "", 0, f"{name}: {match[1]}", [entry], pin))
        return None

    def _environment(self) -> None:
        """Take the packages of conda's environment, and those of pip in it."""
        for name in self._files:
            if re.fullmatch(r"(?:[^/]*/)?(?:environment|conda)[^/]*\.ya?ml", name):
                self._lifter.add_environment(name, self._row(name))

    def _python(self) -> None:
        project = self._project.get("project")
        asked = project.get("requires-python") if isinstance(project, dict) else None
        pinned = self._root / ".python-version"
        if is_file(pinned) and (match := re.match(r"3\.\d+", read_text(pinned))):
            self._lifter.python(match[0], self._row(".python-version"))
        elif isinstance(asked, str) and asked:
            entry = self._row(f"pyproject.toml: requires-python {asked}")
            self.proposal.wish(Wish(("python",), asked.replace(" ", ""), "", 0, "requires-python", [entry]))

    def _script(self) -> str:
        """Take the training script: train.py wherever it is, or a file with such a name."""
        found = sorted(
            (
                name
                for name in self._files
                if re.search(r"(?:^|/)(?:train|[\w-]*_train|train[_-]\w*|main|run)\.py$", name)
            ),
            key=_likely,
        )
        scripts = [name for name in found if _likely(name)[0] == _likely(found[0])[0]]
        if not scripts:
            self._row("train.py").check("no training script was found: name it in `code`")
            return ""
        script = scripts[0]
        entry = self._row(script)
        directory = str(PurePosixPath(script).parent)
        modules = {module for module, _ in _modules(self._root / script)}
        local = [
            module
            for module in modules
            if is_directory(self._root / module) or is_file(self._root / f"{module}.py")
        ]
        near = self._root / directory
        if not all(is_file(near / f"{module}.py") or is_directory(near / module) for module in local):
            directory = "."
        self.proposal.code = (directory, str(PurePosixPath(script).relative_to(directory)))
        entry.add(Fate.RECIPE, "`code`")
        for other in scripts[1:]:
            self._row(other).check(
                f"not in the recipe: {script} is the entry point; name another one in `code`"
            )
        return script

    def _imports(self, script: str) -> None:
        """Compare what the script and notebooks import with the requirements."""
        named = {self._normal(line) for line in self.proposal.requirements}
        for file in self.proposal.requirement_files:
            named |= {
                self._normal(line)
                for line in re.split(r"[\n\"']", read_text(self._root / file, errors="replace"))
            }
        has_files = bool(
            self.proposal.requirement_files
            or self.proposal.requirements
            or self.proposal.wishes.keys() - {"python"}
        )
        for name in [
            *([script] if script else []),
            *(file for file in self._files if file.endswith(".ipynb")),
        ]:
            entry = next(
                (row for row in self.proposal.account.instructions if row.text == name), None
            ) or self._row(name)
            missing = []
            for module, line in _modules(self._root / name):
                project = _DISTRIBUTIONS.get(module, module)
                components = self._index.find_pip(project)
                framework = components[0] if components and components[0] in FRAMEWORKS else ""
                if (
                    self._is_local(module, name)
                    or self._normal(project) in named
                    or framework in self.proposal.wishes
                ):
                    continue
                if name == script and framework:
                    self.proposal.wish(Wish((framework,), "", "", line, f"import {module}", [entry]))
                elif name == script and not has_files:
                    self.proposal.requirements.setdefault(project, entry)
                    entry.check(
                        "the import is a requirement without a version; `bake lock` selects it",
                        f"import {module}",
                    )
                else:
                    missing.append(project)
            if missing:
                entry.check(f"it imports {', '.join(dict.fromkeys(missing))}, which no requirements name")
            elif not entry.parts:
                entry.add(Fate.REPLACED, "the requirements name what it imports")

    def _is_local(self, module: str, name: str) -> bool:
        places = {self._root, self._root / "src", (self._root / name).parent}
        return (
            module in sys.stdlib_module_names
            or module == "sagemaker"
            or any(is_directory(place / module) or is_file(place / f"{module}.py") for place in places)
        )

    @staticmethod
    def _normal(line: str) -> str:
        match = re.match(r"\s*([A-Za-z0-9][\w.-]*)", line)
        return re.sub(r"[-_.]+", "-", match[1]).lower() if match else ""


def _poetry_specifier(version: str) -> str | None:
    """Return a version of Poetry as a specifier of pip; None for forms that are not known."""
    if version == "*":
        return ""
    if match := re.fullmatch(r"([\^~]?)(\d+)((?:\.\d+)*)", version):
        mark, first, rest = match[1], match[2], [int(part) for part in match[3].split(".") if part]
        numbers = [int(first), *rest]
        if not mark:
            return f"=={version}"
        nonzero = next((index for index, number in enumerate(numbers) if number), len(numbers) - 1)
        position = nonzero if mark == "^" else min(1, len(numbers) - 1)
        upper = [*numbers[:position], numbers[position] + 1]
        return f">={version[1:]},<{'.'.join(map(str, upper))}"
    return version if re.fullmatch(r"(?:[<>=!~]=?[\d.*]+,?\s*)+", version) else None


def _likely(name: str) -> tuple[int, int, int, str]:
    path = PurePosixPath(name)
    kind = 0 if path.name == "train.py" else 2 if path.stem in ("main", "run") else 1
    place = path.parts[0] if len(path.parts) == 2 else ""
    return kind, len(path.parts), _CODE.index(place) if place in _CODE else len(_CODE), name


def _walk(root: Path, prefix: str = "", depth: int = 0) -> Iterator[str]:
    """Yield the files of a repository, without those of tools and tests."""
    for name in sorted(names_in(root / prefix)):
        path = f"{prefix}{name}"
        if is_file(root / path):
            yield path
        elif depth < _MAX_DEPTH and not _SKIPPED.match(name) and is_directory(root / path):
            yield from _walk(root, f"{path}/", depth + 1)


def _modules(path: Path) -> Iterator[tuple[str, int]]:
    """Yield the modules that a script or a notebook imports, with lines; none for other text."""
    text = read_text(path, errors="replace")
    try:
        if path.suffix == ".ipynb":
            cells = [cell for cell in json.loads(text).get("cells", []) if cell.get("cell_type") == "code"]
            sources = ["".join(cell.get("source", [])) for cell in cells]
            text = "\n".join(re.sub(r"(?m)^\s*[!%].*$", "", source) for source in sources)
        nodes = [*ast.walk(ast.parse(text))]
    except (SyntaxError, ValueError, AttributeError, RecursionError):
        return
    names = [
        (alias.name, node.lineno) for node in nodes if isinstance(node, ast.Import) for alias in node.names
    ]
    names += [
        (node.module, node.lineno)
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.module and not node.level
    ]
    seen: set[str] = set()
    for name, line in names:
        module = name.partition(".")[0]
        if module not in seen:
            seen.add(module)
            yield module, line
