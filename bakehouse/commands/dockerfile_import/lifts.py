"""Installations that a recipe can express: each becomes packages, requirements or components as a whole."""

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import replace as changed
from pathlib import Path, PurePosixPath

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from bakehouse.catalog.requirements_file import PYTORCH_INDEX
from bakehouse.catalog.system_packages import APT_PACKAGE
from bakehouse.commands.dockerfile_import.account import Fate, InstructionEntry
from bakehouse.commands.dockerfile_import.declarations import (
    conda_specifier,
    is_for_linux,
    is_public_channel,
    normal_name,
    read_list,
)
from bakehouse.commands.dockerfile_import.index import ComponentSource, ReverseIndex, version_in
from bakehouse.commands.dockerfile_import.installs import Install, names
from bakehouse.commands.dockerfile_import.proposal import Proposal, Wish
from bakehouse.errors import RecipeError
from bakehouse.util.files import is_file, read_text
from bakehouse.util.yaml_reader import Mapping, Node, Scalar, Sequence, load

_BAKEHOUSE_PIP = "Bakehouse installs locked packages with its own pip"
_BAKEHOUSE_APT = "Bakehouse installs distribution packages itself and keeps no lists"
_INSTALLERS = ("pip", "setuptools", "wheel", "uv", "virtualenv", "pipx")
_PYTHON_PACKAGE = re.compile(
    r"python(?P<version>3\.\d+)?(?:3|3?-is-python3|-is-python3)?"
    r"(?:-(?:dev|venv|pip|distutils|setuptools|wheel|minimal|full|all|lib2to3|gdbm|tk))*"
    r"|libpython3(?:\.\d+)?(?:-dev)?"
)
URL = re.compile(r"https?://|ftp://|git@|git\+|git://|ssh://")
_LOGIN = re.compile(r"\w[\w+]*://(?!git@)[^/]*@")
_CONDA = re.compile(r"(?:([\w./-]+)::)?([\w.-]+)\s*([=<>!~\d*].*)?")
_CONDA_PYTORCH = names("conda_pytorch")
_FROM_FILES = names("from_files")
_INDEXES = ("-i", "-f", "--find-links", "--index", "--default-index", "--index-url", "--extra-index-url")
LEVELS = {"apt": 1, "dnf": 1, "pip": 2, "conda": 2}
"""Layers of a recipe: packages, requirements, and 3 for files and code."""


@dataclass(frozen=True, slots=True)
class Lift:
    """An installation as content of the recipe."""

    tool: str
    apply: Callable[[InstructionEntry], None]
    files: tuple[str, ...] = ()
    """Names of files that it reads."""

    @property
    def level(self) -> int:
        return LEVELS[self.tool]


class Lifter:
    """Makes content of the recipe from installations whose options it knows."""

    def __init__(self, proposal: Proposal, index: ReverseIndex, context: Path) -> None:
        self._proposal = proposal
        self._index = index
        self._context = context
        self.sources: dict[str, str] = {}
        """Sources of packages of a repository that must not come from the public index."""

    def plan(self, install: Install, directory: PurePosixPath, variables: set[str]) -> Lift | str:
        """Return the content for an installation, or why a recipe cannot express it."""
        if install.unknown and install.verb == "install":
            return f"Bakehouse does not know the option {install.unknown} of {install.tool}"
        if install.tool == "pip":
            return self._pip(install, directory, variables)
        if variables:
            return f"the command sets {min(variables)}"
        if install.tool == "conda":
            return self._conda(install, directory)
        if install.verb != "install":
            return f"a recipe has no `{install.verb}` of packages"
        if install.options:
            return f"a recipe has no option {install.options[0][0]} of {install.tool}"
        for package in install.packages:
            name = re.split("[=/:]", package)[0]
            is_name = (
                APT_PACKAGE.fullmatch(name) if install.tool == "apt" else not re.search(r"[@/*:]", package)
            )
            if not is_name or package.endswith((".deb", ".rpm")):
                return f"`{package}` is not a package of the distribution"

        def apply(entry: InstructionEntry) -> None:
            for package in install.packages:
                if install.tool == "apt":
                    self._apt_package(package, entry)
                elif match := re.match(r"python(3\.\d+)(?:-\w+)?$", package):
                    self.python(match[1], entry)
                else:
                    self._proposal.dnf.setdefault(package, entry)
            if not install.packages:
                entry.add(Fate.REPLACED, _BAKEHOUSE_APT)

        return Lift(install.tool, apply)

    def _apt_package(self, package: str, entry: InstructionEntry) -> None:
        name, _, version = package.partition("=")
        name, suite, _ = name.partition("/")
        name = name.partition(":")[0]
        if name == "software-properties-common":
            entry.add(Fate.REPLACED, "Bakehouse uses no further apt repositories")
        elif match := _PYTHON_PACKAGE.fullmatch(name):
            if match["version"]:
                self.python(match["version"], entry)
            else:
                self._proposal.python_entries.append(entry)
        elif component := self._index.apt.get(name):
            number = version_in(version)
            asked = f"=={number}" if number and component == "nccl" else ""
            self._proposal.wish(
                Wish((component,), asked, "", entry.line, f"apt-get install {package}", [entry])
            )
        else:
            if version or suite:
                entry.check("`bake lock` selects the version", f"RUN apt-get install {package}")
            if re.match(r"python3?-(?!apt$)", name):
                reason = "the Python of the image does not see packages of the distribution; "
                reason += "add the package of the index to the requirements"
                entry.check(reason, f"RUN apt-get install {package}")
            self._proposal.apt.setdefault(name, entry)

    def _conda(self, install: Install, directory: PurePosixPath) -> Lift | str:
        if install.verb in ("update", "upgrade") and {*install.packages} <= {"conda"}:
            return Lift("conda", lambda entry: self._proposal.python_entries.append(entry))
        if install.verb == "env" and install.packages[:1] in (("create",), ("update",)):
            name = next(iter(install.values("-f", "--file")), "environment.yml")
            source = self.context_file(name, directory)
            others = {option for option, _ in install.options} - {"-f", "--file"}
            if source and not others:
                return Lift("conda", lambda entry: self.add_environment(source, entry))
        if install.verb not in ("install", "create"):
            return "a recipe has no environments of conda"
        if any(name not in ("--file", "-f") for name, _ in install.options) or install.values("--file", "-f"):
            return f"a recipe has no option {install.options[0][0]} of conda"
        if not all(map(_conda_parts, install.packages)):
            return "Bakehouse does not know how conda selects such packages"

        def apply(entry: InstructionEntry) -> None:
            self._proposal.python_entries.append(entry)
            for package in install.packages:
                self.conda_package(package, entry)

        return Lift("conda", apply)

    def conda_package(self, package: str, entry: InstructionEntry, line: int = 0, own: str = "") -> bool:
        """Add a package of conda as a component or a requirement; return whether it is one of these.

        `own` is a channel that may have another package of this name than the index.
        """
        parts = _conda_parts(package)
        if parts is None:
            return False
        channel, name, specifier = parts
        text, spot = f"conda install {package}", line or entry.line
        exact = re.match(r"==(\d+(?:\.\d+)*)", specifier)
        own = channel if channel and not is_public_channel(channel) else own
        source = self.sources.get(name) or (f"the channel {own}" if own else "")
        components = ("pytorch",) if name in _CONDA_PYTORCH else self._index.find_pip(name)
        if name == "python":
            if exact:
                self.python(".".join(exact[1].split(".")[:2]), entry)
            elif specifier:
                self._proposal.wish(Wish((name,), specifier, "", spot, text, [entry]))
        elif source and (source.startswith("a ") or not components):
            entry.check(f"not in the recipe: `{name}`, whose source is {source}", package, spot)
        elif name in _CONDA_PYTORCH:
            form = _CONDA_PYTORCH[name]
            version = exact[1] if exact else ""
            variant = form.format("".join(version.split(".")[:2])) if version or name == "cpuonly" else ""
            asked = "" if form else re.sub(r"^(==\d+\.\d+\.\d+)\.\*$", r"\1", specifier)
            self._proposal.wish(Wish(components, asked, variant, spot, text, [entry]))
        elif components:
            asked = re.sub(r"^(==[\d.]+)\.\*$", r"\1", specifier)
            self._proposal.wish(Wish(components, asked, "", spot, text, [entry]))
        elif name not in ("conda", "pip", "setuptools", "wheel", "conda-build", "mamba", "nomkl"):
            self._proposal.requirements.setdefault(name + specifier, entry)
            reason = f"the requirements have `{name}` of the index, not that of conda"
            entry.check(reason, text, spot)
        return True

    def add_environment(self, source: str, entry: InstructionEntry) -> None:
        """Add the packages of a file of conda, and those of pip in it."""
        try:
            node = load(self._context / source)
        except RecipeError:
            entry.check(f"not known: {source} is not YAML")
            return
        pairs = {key.text: value for key, value in node.entries} if isinstance(node, Mapping) else {}
        if isinstance(variables := pairs.get("variables"), Mapping):
            names_ = ", ".join(key.text for key, _ in variables.entries)
            entry.check(f"not in the recipe: variables {names_}; add them to `environment`")
        given, channels = pairs.get("dependencies"), pairs.get("channels")
        texts = [item.text for item in _scalars(channels)]
        own = next((text for text in texts if not is_public_channel(text)), "")
        for item in given.items if isinstance(given, Sequence) else ():
            if isinstance(item, Scalar) and not self.conda_package(item.text, entry, own=own):
                entry.check("add the package to the requirements: its form is not known", item.text)
            for key, value in item.entries if isinstance(item, Mapping) else ():
                if key.text != "pip":
                    entry.check(f"not read: the packages of `{key.text}`")
                else:
                    self._pip_of_environment([line.text for line in _scalars(value)], source, entry)

    def _pip_of_environment(self, lines: list[str], source: str, entry: InstructionEntry) -> None:
        options = [re.fullmatch(r"(?:-i|--(?:extra-)?index-url)[\s=]+(\S+)", line) for line in lines]
        own = next((match[1] for match in options if match and not PYTORCH_INDEX.fullmatch(match[1])), "")
        for line in lines:
            if own and (name := normal_name(line)):
                self.sources.setdefault(name, f"the index {own.rpartition('@')[2]}")
            if match := re.match(r"-r\s+(\S+)", line):
                self.add_file(str(PurePosixPath(source).parent / match[1]), entry)
            elif re.match(r"-e|--editable", line):
                entry.check("not in the recipe: `-e` names a directory", line)
            elif line.startswith("-"):
                entry.check("not in the recipe: the lock reads indexes from pip's configuration", line)
            elif reason := self.pip_line(line, entry):
                entry.check(reason, line)

    def python(self, version: str, entry: InstructionEntry) -> None:
        """Add Python in a version."""
        wish = Wish(("python",), f"=={version}.*", "", entry.line, f"python {version}", [entry])
        self._proposal.wish(wish)

    def _pip(self, install: Install, directory: PurePosixPath, variables: set[str]) -> Lift | str:
        if install.verb != "install":
            return f"a recipe has no `pip {install.verb}`"
        index = ""
        files: list[tuple[str, str]] = []
        for name, value in install.options:
            if name in ("-r", "--requirement", "--requirements", "-c", "--constraint", "--constraints"):
                source = self.context_file(value, directory)
                if not source:
                    return f"`{value}` is not in the build context"
                files.append(("-c" if "c" in name.strip("-")[:1] else "-r", source))
            elif name in _INDEXES and "pytorch.org" in value:
                index = value
            elif name in _INDEXES:
                return "the lock reads indexes from pip's configuration, not from the command"
            else:
                return f"a recipe has no option {name} of pip"
        lines: list[tuple[str, ComponentSource | None, Requirement | None]] = []
        for package in install.packages:
            found = self._pip_package(package)
            if isinstance(found, str):
                return found
            lines.append(found)
        first = (self._index.find_pip(requirement.name)[:1] for _, _, requirement in lines if requirement)
        names = [
            *itertools.chain.from_iterable(first),
            *(source.component for _, source, _ in lines if source),
        ]
        others = [
            name
            for name in sorted(variables)
            if not any(self._index.sets_variable(component, name) for component in names)
        ]
        if others and (len(names) < len(lines) or not lines):
            return f"the command sets {others[0]}"

        def apply(entry: InstructionEntry) -> None:
            for name in others:
                entry.check(f"components are built with their own variables; {name} is left out")
            for kind, source in files:
                self.add_file(source, entry, is_constraint=kind == "-c")
            for package, found_source, requirement in lines:
                self._add(package, found_source, requirement, index, entry)
            if not lines and not files:
                entry.add(Fate.REPLACED, _BAKEHOUSE_PIP)

        return Lift("pip", apply, tuple(PurePosixPath(source).name for _, source in files))

    def pip_line(self, line: str, entry: InstructionEntry) -> str:
        """Add a line of requirements; return why it cannot be one."""
        found = self._pip_package(line)
        if isinstance(found, str):
            return found
        self._add(*found, "", entry)
        return ""

    def _add(
        self,
        package: str,
        source: ComponentSource | None,
        requirement: Requirement | None,
        index: str,
        entry: InstructionEntry,
    ) -> None:
        if source:
            self._source_wish(source, package, entry)
        elif requirement:
            self._requirement(requirement, package, index, entry)
        else:
            self._proposal.requirements.setdefault(package, entry)

    def _pip_package(self, text: str) -> tuple[str, ComponentSource | None, Requirement | None] | str:
        """Return the line for a package, with its component or its requirement; or why there is none."""
        if URL.match(text) or re.fullmatch(r".+ ?@ ?(?:https?|git\+).*", text):
            return self._pip_address(text)
        if text.startswith((".", "/")) or text.endswith((".whl", ".gz", ".zip")) or "/" in text:
            return "a lock has no packages of local directories"
        try:
            return text, None, Requirement(text)
        except InvalidRequirement:
            return f"`{text}` is not a requirement"

    def _pip_address(self, text: str) -> tuple[str, ComponentSource | None, Requirement | None] | str:
        _name, at, address = text.partition("@") if not URL.match(text) else ("", "", text)
        address = address.strip()
        if source := self._index.find(address):
            return text, source, None
        if _LOGIN.match(address):
            return "its URL has a login"
        if at:
            return text, None, None
        place, _, fragment = address.partition("#")
        fields = dict(part.partition("=")[::2] for part in fragment.split("&") if part)
        known = fields.pop("egg", "")
        if not known and place.partition("?")[0].endswith(".whl"):
            try:
                known = str(parse_wheel_filename(place.rpartition("/")[2].replace("%2B", "+"))[0])
            except (InvalidWheelFilename, ValueError):
                known = ""
        if not known:
            return "its URL does not name the package"
        rest = "&".join(f"{name}={value}" for name, value in fields.items())
        return f"{known} @ {place}" + (f"#{rest}" if rest else ""), None, None

    def _requirement(self, requirement: Requirement, text: str, index: str, entry: InstructionEntry) -> None:
        name, specifier = str(canonicalize_name(requirement.name)), str(requirement.specifier)
        components = self._index.find_pip(name)
        source = self.sources.get(name, "")
        if source and (source.startswith("a ") or not components):
            entry.check(f"not in the recipe: `{name}`, whose source is {source}", text)
            return
        if not components:
            if name not in _INSTALLERS:
                self._proposal.requirements.setdefault(text, entry)
            elif specifier:
                entry.check("add it to the requirements if your code imports it", f"RUN pip install {text}")
            else:
                entry.add(Fate.REPLACED, _BAKEHOUSE_PIP)
            return
        if not is_for_linux(text):
            entry.add(Fate.REPLACED, f"`{text}` is not for Linux")
            return
        variant, specifier = _variant(specifier, index if components[0] == "pytorch" else "")
        if components[0] == "tensorflow":
            device = "cuda-*" if "and-cuda" in requirement.extras else ""
            variant = "cpu-*" if name.endswith("-cpu") else device
        if (requirement.extras and components[0] != "tensorflow") or requirement.marker:
            reason = f"the component `{components[0]}` has no extras or markers"
            entry.check(reason, f"RUN pip install {text}")
        wish = Wish(components, specifier, variant, entry.line, f"pip install {text}", [entry])
        self._proposal.wish(wish)

    def _source_wish(self, source: ComponentSource, text: str, entry: InstructionEntry) -> None:
        asked = f"=={source.version}" if source.version else ""
        wish = Wish((source.component,), asked, source.variant, entry.line, f"pip install {text}", [entry])
        if components := self._index.find_pip(source.component):
            others = (name for name in components if name != source.component)
            wish = changed(wish, components=(source.component, *others))
        self._proposal.wish(wish)

    def context_file(self, name: str, directory: PurePosixPath) -> str:
        """Return the file of the build context that a path of the image was copied from."""
        sources = [source for _, source in self._proposal.sources(str(joined_path(directory, name)))]
        return next((source for source in sources if is_file(self._context / source)), "")

    def add_file(self, source: str, entry: InstructionEntry, *, is_constraint: bool = False) -> None:
        """Add a requirements file, and the components that it names."""
        files = self._proposal.constraint_files if is_constraint else self._proposal.requirement_files
        if source in files:
            return
        if not is_file(self._context / source):
            entry.check(f"not known: {source} does not exist")
            return
        if not is_constraint and not source.endswith((".lock", ".toml")):
            self.read_requirements(source, entry)
            lines = read_list(self._context / source).requirements if self.sources else ()
            foreign = {normal_name(line) for line in lines} & self.sources.keys()
            for name in sorted(foreign):
                reason = f"{source} has `{name}`, whose source is {self.sources[name]}"
                entry.check(f"not in the recipe: {reason}", source)
            if foreign:
                return
        files[source] = entry

    def read_requirements(self, source: str, entry: InstructionEntry) -> None:
        """Add the components that a requirements file names; list its options."""
        index = ""
        for number, row in enumerate(read_text(self._context / source, errors="replace").splitlines(), 1):
            option = re.match(r"\s*(-{1,2}[a-z-]+)(?:[\s=]+(\S+))?", row)
            if option and option[1] not in ("-r", "-c", "--requirement", "--constraint"):
                if "index" in option[1] and "pytorch.org" in (option[2] or ""):
                    index = option[2]
                reason = "remove the option: `bake lock` reads indexes from pip's configuration"
                if option[1] in ("-e", "--editable"):
                    reason = "remove the line: a lock has no packages of local directories"
                entry.check(reason, f"{source}:{number}: {row.strip()}")
                continue
            self.add_framework(row, f"{source}:{number}", entry, index)

    def add_framework(self, line: str, place: str, entry: InstructionEntry, index: str = "") -> None:
        """Add the component that a line of a file selects; others are installed as requirements."""
        match = re.match(r"\s*([\w.-]+)(?:\[[^]]*\])?\s*([=<>!~][^;#]*)?", line)
        components = self._index.find_pip(match[1]) if match and is_for_linux(line) else ()
        is_of_index = "@" not in line and normal_name(line) not in self.sources
        is_bound = is_of_index and any(map(self._index.is_built_for_framework, components[:1]))
        if match and components and (is_bound or components[0] in _FROM_FILES):
            variant, specifier = _variant((match[2] or "").strip(), index)
            wish = Wish(components, specifier, variant, entry.line, place, [entry], line.strip())
            self._proposal.wish(wish)


def _conda_parts(package: str) -> tuple[str, str, str] | None:
    """Return channel, name and pip's specifier of a package of conda; None for other forms."""
    match = _CONDA.fullmatch(package.strip())
    specifier = conda_specifier(match[3] or "*") if match else None
    return (match[1] or "", match[2].lower(), specifier) if match and specifier is not None else None


def _scalars(node: Node | None) -> list[Scalar]:
    return [item for item in node.items if isinstance(item, Scalar)] if isinstance(node, Sequence) else []


def _variant(specifier: str, index: str) -> tuple[str, str]:
    """Return the variant of a framework, and the specifier without a local version."""
    local = re.search(r"\+(cu\d+|cpu)", specifier) or re.search(r"/(cu\d+|cpu)\b", index)
    return (f"{local[1]}-*" if local else ""), re.sub(r"\+(cu\d+|cpu)", "", specifier)


def joined_path(directory: PurePosixPath, path: str) -> PurePosixPath:
    """Return a path of the image without `.` and `..`."""
    parts: list[str] = []
    for part in (directory / path.replace("$HOME", "/root")).parts:
        if part == "..":
            parts = parts[:-1] if len(parts) > 1 else parts
        else:
            parts.append(part)
    return PurePosixPath(*parts) if parts else PurePosixPath("/")
