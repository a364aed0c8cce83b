"""Content of a repository without a Dockerfile: what it needs, as a proposal with a row for each file."""

import ast
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.names import FRAMEWORKS
from bakehouse.catalog.requirements_file import other_format
from bakehouse.commands.dockerfile_import.account import Fate, InstructionEntry
from bakehouse.commands.dockerfile_import.bases import DEFAULT_BASE, BaseChoice, KnownImage
from bakehouse.commands.dockerfile_import.declarations import normal_name, rank, read
from bakehouse.commands.dockerfile_import.index import ReverseIndex
from bakehouse.commands.dockerfile_import.installs import names
from bakehouse.commands.dockerfile_import.lifts import Lifter
from bakehouse.commands.dockerfile_import.proposal import Proposal, Wish
from bakehouse.errors import Location
from bakehouse.util.files import is_directory, is_file, names_in, read_text

_DEVELOPMENT = re.compile(r"dev|test|doc|lint|ci\b|notebook")
_SKIPPED = re.compile(
    r"\.|(?:build|dist|images|node_modules|site-packages|__pycache__|venv|env|training-images)$"
)
_MAX_DEPTH = 4
_MAX_LISTED = 4
_NAMEABLE = (".txt", ".in", "uv.lock", "pylock.toml")
_CODE = ("src", "code", "training")
"""Usual directories of a training script."""
_DISTRIBUTIONS = names("modules")
"""Distributions by the names of their modules."""
_ENVIRONMENT = re.compile(r"(?:^|/)(?:environment|conda)(?!-lock)[^/]*\.ya?ml$")
_SCRIPT = re.compile(r"(?:^|/)(?:(?:pre)?train|[\w-]*_train|train[_-]\w*|fine_?tune\w*|main|run)\.py$")
_UNREAD = {
    r"pylock\..+\.toml": "not in the recipe: name it in `requirements`",
    r"constraints.*\.txt": "not in the recipe: name it with `-c` in a requirements file",
    r"pixi\.lock": "not read: a lock of pixi; activate the environment, "
    "run `pip list --format=freeze > requirements.txt` and name that file",
    r"mise\.toml|\.mise\.toml": "not read: set `python` in `components` if it selects Python",
    r"tox\.ini|noxfile\.py": "not read: environments for development",
    r"meta\.yaml|recipe\.yaml|MLproject|python_env\.yaml|renv\.lock": "not read: "
    "write its dependencies into a requirements file",
    r"(?:train|run|launch|finetune)[\w-]*\.(?:sh|slurm|sbatch)": "not read: name it in `code` if it trains",
}
"""Other files that declare dependencies, Python or training code, as patterns of names."""


def look(root: Path, catalog: Catalog) -> Proposal:
    """Return the proposal for a repository."""
    return _Look(root, catalog).proposal


class _Look:
    def __init__(self, root: Path, catalog: Catalog) -> None:
        self._root = root
        self.proposal = Proposal()
        releases = catalog.components[DEFAULT_BASE[0]].releases
        self.proposal.base = KnownImage(tuple(BaseChoice(DEFAULT_BASE[0], item.version) for item in releases))
        self._index = ReverseIndex(catalog)
        self._lifter = Lifter(self.proposal, self._index, root)
        self._unseen: list[str] = []
        self._files = [*self._walk()]
        known = {name: read(root, name) for name in self._files}
        self._declared = {name: declared for name, declared in known.items() if declared}
        for declared in self._declared.values():
            self._lifter.sources |= declared.sources
            if declared.project:
                self._lifter.sources[normal_name(declared.project)] = "a project of this repository"
        self._rows: dict[str, InstructionEntry] = {}
        found = (name for name in self._files if _SCRIPT.search(name) and not _is_for_development(name))
        self._scripts = sorted(found, key=_likely)
        self._places = [str(place) for place in PurePosixPath((self._scripts or ["x"])[0]).parents]
        self._requirements()
        self._environment()
        self._python()
        script = self._script()
        self._imports(script)
        self._others()

    def _row(self, name: str) -> InstructionEntry:
        if name not in self._rows:
            self._rows[name] = self.proposal.account.add(0, name)
        return self._rows[name]

    def _rank(self, name: str) -> tuple[bool, int, int, int, str]:
        """Return the position of a file: those next to the script come first, then those of its parents."""
        place = _place(name)
        position = self._places.index(place) if place in self._places else len(self._places)
        return _is_for_development(name), position, rank(name) or 0, len(name), name

    def _requirements(self) -> None:
        """Take the packages of one file, and name those that are left out."""
        declared = self._declared
        order = sorted((name for name in declared if declared[name].has_packages), key=self._rank)
        usable = [
            name
            for name in order
            if _place(name) in self._places and not declared[name].failure and not _is_for_development(name)
        ]
        taken = usable[0] if usable else ""
        included = {_relative(file, self._root) for file in declared[taken].files} if taken else set()
        if taken:
            self._take(taken)
        for name in sorted(included):
            self._row(name).add(Fate.RECIPE, f"{taken} includes it")
        for name in sorted(declared, key=self._rank):
            content = declared[name]
            if content.failure:
                self._row(name).check(f"not read: {content.failure}")
            elif name == taken or name in included:
                pass
            elif not content.has_packages:
                if PurePosixPath(name).name in ("setup.py", "setup.cfg", "Pipfile", "pixi.toml"):
                    self._row(name).add(Fate.REPLACED, "it declares no packages")
            elif _is_for_development(name):
                self._row(name).add(Fate.REPLACED, "not in the recipe: packages for development")
            elif name.endswith(".in") and name.removesuffix("in") + "txt" in declared:
                self._row(name).add(Fate.REPLACED, f"{name.removesuffix('in')}txt has its packages")
            elif taken.endswith("uv.lock") and name == taken.removesuffix("uv.lock") + "pyproject.toml":
                self._row(name).add(Fate.REPLACED, "uv.lock has its packages")
            else:
                first = f"{taken} has the packages" if taken else "it is not next to the script"
                hint = "; name it in `requirements`, too" if name.endswith(_NAMEABLE) else ""
                self._row(name).check(f"not in the recipe: {first}{hint}")
            for remark in content.remarks if name != taken else ():
                self._row(name).check(remark)
        for name in self._files:
            if re.search(r"(?:^|/)(?:[\w-]+\.)?Dockerfile(?:\.[\w-]+)?$", name):
                detail = f"not read: `bake init --from-dockerfile {name}` translates it"
                self._row(name).add(Fate.REPLACED, detail)

    def _take(self, name: str) -> None:
        """Add the packages of a file: the file itself, or its packages if the lock cannot read it."""
        content, entry, sources = self._declared[name], self._row(name), self._lifter.sources
        path = PurePosixPath(name)
        others = {normal_name(line): sources.get(normal_name(line), "") for line in content.requirements}
        is_lock = path.name in ("uv.lock", "pylock.toml")
        is_whole = is_lock or not (any(others.values()) or content.sources or content.conda or content.files)
        if path.suffix in (".txt", ".in"):
            for file in content.files:
                self._lifter.read_requirements(_relative(file, self._root), entry)
            self._lifter.add_file(name, entry)
        elif is_whole and (is_lock or (path.name == "pyproject.toml" and content.is_standard)):
            self._lifter.add_file(name, entry)
            for line in content.requirements:
                self._lifter.add_framework(line, name, entry)
        else:
            for line in content.requirements:
                if reason := self._lifter.pip_line(line, entry):
                    entry.check(reason, line)
            for line in content.conda:
                if not self._lifter.conda_package(line, entry):
                    entry.check("add the package to the requirements: its form is not known", line)
            for file in content.files:
                self._lifter.add_file(_relative(file, self._root), entry)
            missing = sorted(set(content.sources) - others.keys() - set(map(normal_name, content.conda)))
            for other in missing:
                entry.check(f"not in the recipe: `{other}`, whose source is {content.sources[other]}", other)
        self._add_fate(entry)
        for remark in content.remarks:
            entry.check(remark)

    def _add_fate(self, entry: InstructionEntry) -> None:
        if entry in (*self.proposal.requirements.values(), *self.proposal.requirement_files.values()):
            entry.add(Fate.RECIPE, "`requirements`")

    def _environment(self) -> None:
        """Take the packages of conda's environment, and those of pip in it."""
        found = sorted((name for name in self._files if _ENVIRONMENT.search(name)), key=self._rank)
        for name in found:
            if _is_for_development(name):
                self._row(name).add(Fate.REPLACED, "not in the recipe: packages for development")
            elif name == found[0]:
                self._lifter.add_environment(name, self._row(name))
                self._add_fate(self._row(name))
            else:
                self._row(name).check(f"not in the recipe: {found[0]} has the packages")

    def _python(self) -> None:
        """Combine the versions of Python that the files next to the script and above it allow."""
        for name in sorted(self._declared, key=self._rank):
            asked = self._declared[name].python.replace(" ", "")
            if not asked or _place(name) not in self._places:
                continue
            try:
                allowed = SpecifierSet(asked)
            except InvalidSpecifier:
                self._row(name).check(f"not known: Python {asked} is not a specifier")
                continue
            entry = self._row(name)
            first = self.proposal.wishes.get("python")
            exact = re.fullmatch(r"==(\d+\.\d+)[\d.]*(?:\.\*)?", first.specifier) if first else None
            if first and exact and any(allowed.contains(f"{exact[1]}.{patch}") for patch in range(64)):
                first.entries.append(entry)
            elif first and not exact and not asked.startswith("=="):
                first.specifier = ",".join(dict.fromkeys([*first.specifier.split(","), *asked.split(",")]))
                first.entries.append(entry)
            else:
                self.proposal.wish(Wish(("python",), asked, "", 0, f"{name}: Python {asked}", [entry]))

    def _script(self) -> str:
        """Take the training script: train.py wherever it is, or a file with such a name."""
        if not self._scripts:
            self._row("train.py").check("no training script was found: name it in `code`")
            return ""
        script = self._scripts[0]
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
        for other in self._scripts[1:]:
            detail = f"not in the recipe: {script} is the entry point; name another one in `code`"
            is_alike = _likely(other)[0] == _likely(script)[0]
            self._row(other).add(Fate.UNTRANSLATED if is_alike else Fate.REPLACED, detail)
        return script

    def _others(self) -> None:
        """Name the recognised files that have no reader, and the directories that were not searched."""
        for name in self._files:
            file = PurePosixPath(name).name
            detail = next((detail for form, detail in _UNREAD.items() if re.fullmatch(form, file)), "")
            mistake = other_format(self._root / name, Location(self._root / name, 1, 1))
            if mistake and not detail:
                kind = mistake.message.partition(" is ")[2].partition(",")[0]
                detail = f"not read: {kind}; {mistake.hint}"
            if detail and name not in self._rows and name not in self._declared:
                self._row(name).check(detail)
        if self._unseen:
            others = len(self._unseen) - _MAX_LISTED
            unseen = ", ".join(f"{name}/" for name in self._unseen[:_MAX_LISTED])
            unseen += f" and {others} more" if others > 0 else ""
            self._row(unseen).add(Fate.REPLACED, "not known: not searched")

    def _walk(self, prefix: str = "", depth: int = 0) -> Iterator[str]:
        """Yield the files of a repository, without those of tools and builds."""
        for name in sorted(names_in(self._root / prefix)):
            path = f"{prefix}{name}"
            if is_file(self._root / path):
                yield path
            elif is_directory(self._root / path):
                if depth < _MAX_DEPTH and not _SKIPPED.match(name):
                    yield from self._walk(f"{path}/", depth + 1)
                elif not name.startswith((".", "__")):
                    self._unseen.append(path)

    def _imports(self, script: str) -> None:
        """Compare what the script and notebooks import with the requirements."""
        files = {self._root / name for name in self.proposal.requirement_files}
        taken = self.proposal.requirement_files.keys() & self._declared.keys()
        files |= {file for name in taken for file in self._declared[name].files}
        texts = (read_text(file, errors="replace") for file in files if is_file(file))
        lines = (line for text in texts for line in re.split(r"[\n\"']", text))
        named = {normal_name(line) for line in (*self.proposal.requirements, *lines)}
        frameworks: set[str] = set()
        has_files = bool(
            self.proposal.requirement_files
            or self.proposal.requirements
            or self.proposal.wishes.keys() - {"python"}
        )
        unread = ", ".join(name for name, content in self._declared.items() if content.failure)
        notebooks = [file for file in self._files if file.endswith(".ipynb")]
        main = [script] if script else [name for name in notebooks if not _is_for_development(name)]
        for name in dict.fromkeys([*main, *notebooks]):
            entry, missing = self._row(name), []
            for module, line in _modules(self._root / name):
                known = _DISTRIBUTIONS.get(module, "")
                project = known or module
                components = self._index.find_pip(project)
                framework = components[0] if components and components[0] in FRAMEWORKS else ""
                if (
                    self._is_local(module, name)
                    or normal_name(project) in named
                    or framework in self.proposal.wishes.keys() - frameworks
                ):
                    continue
                is_foreign = normal_name(project) in self._lifter.sources
                if name in main and framework and not is_foreign:
                    frameworks.add(framework)
                    self.proposal.wish(Wish((framework,), "", "", line, f"import {module}", [entry]))
                    if unread:
                        entry.check(f"the version of {framework} is not known: {unread} was not read")
                elif name in main and known and not has_files and not is_foreign:
                    self.proposal.requirements.setdefault(project, entry)
                    entry.check(
                        "the import is a requirement without a version; `bake lock` selects it",
                        f"import {module}",
                    )
                else:
                    # Another package of the index may have the name of a module
                    missing.append(project)
            if missing:
                entry.check(f"it imports {', '.join(dict.fromkeys(missing))}, which no requirements name")
            elif not entry.parts and not any(entry in wish.entries for wish in self.proposal.wishes.values()):
                entry.add(Fate.REPLACED, "the requirements name what it imports")

    def _is_local(self, module: str, name: str) -> bool:
        places = {self._root, self._root / "src", (self._root / name).parent}
        return (
            module in sys.stdlib_module_names
            or module == "sagemaker"
            or any(is_directory(place / module) or is_file(place / f"{module}.py") for place in places)
        )


def _place(name: str) -> str:
    """Return the directory whose code a file is for."""
    path = PurePosixPath(name)
    return str(path.parents[1] if path.parent.name == "requirements" else path.parent)


def _relative(file: Path, root: Path) -> str:
    return PurePosixPath(os.path.relpath(file, root)).as_posix()


def _is_for_development(name: str) -> bool:
    path = PurePosixPath(name)
    is_list = path.suffix in (".txt", ".in", ".yml", ".yaml")
    return bool(
        (is_list and _DEVELOPMENT.search(path.name)) or {"test", "tests", "doc", "docs"} & {*path.parts[:-1]}
    )


def _likely(name: str) -> tuple[int, int, int, str]:
    path = PurePosixPath(name)
    kind = 0 if path.name == "train.py" else 2 if path.stem in ("main", "run") else 1
    place = path.parts[0] if len(path.parts) == 2 else ""
    return kind, len(path.parts), _CODE.index(place) if place in _CODE else len(_CODE), name


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
