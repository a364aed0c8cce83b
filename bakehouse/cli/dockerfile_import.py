"""Translates a Dockerfile into a proposed recipe, and lists the instructions that it cannot translate."""

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from packaging.requirements import InvalidRequirement, Requirement

from bakehouse.catalog.secrets import kind_of_secret
from bakehouse.catalog.system_packages import APT_PACKAGE
from bakehouse.catalog.user_files import CODE_DIRECTORY
from bakehouse.fetch.connection import redacted
from bakehouse.util.dockerfile_reader import Instruction, instructions
from bakehouse.util.files import is_directory, is_file
from bakehouse.util.oci import PLATFORM

DEFAULT_BASE = ("debian", "12")
_DLC = re.compile(r"\d{12}\.dkr\.ecr\.(?P<region>[^./]+)[^/]*/(?P<framework>pytorch|tensorflow)-training")
_FRAMEWORKS = {
    "torch": "pytorch",
    "tensorflow": "tensorflow",
    "tensorflow-cpu": "tensorflow",
    "tensorflow-gpu": "tensorflow",
}
"""Components that replace Python packages of other names."""
_SAME_NAME = (
    *("torchvision", "torchaudio", "mpi4py", "deepspeed", "horovod"),
    *("sagemaker-training", "sagemaker-pytorch-training", "sagemaker-tensorflow-training"),
)
_TOOLS = ("pip", "setuptools", "wheel", "uv")
_PIP_VALUES = (
    *("-i", "--index-url", "--extra-index-url", "-f", "--find-links", "--trusted-host", "--timeout"),
    *("--default-timeout", "--retries", "-c", "--constraint", "--cache-dir", "--root-user-action"),
    *("-t", "--target", "--prefix", "--root", "--progress-bar", "--platform", "--upgrade-strategy"),
    "--proxy",
)
_PIP_HARMLESS = (
    *("-q", "-qq", "--quiet", "-v", "-U", "--upgrade", "--no-cache-dir", "--disable-pip-version-check"),
    *("--no-input", "--no-warn-script-location", "--break-system-packages", "--system", "--timeout"),
    *("--default-timeout", "--retries", "--cache-dir", "--root-user-action", "--progress-bar"),
)
"""Options that do not change what is installed."""
_APT_WITHOUT_EFFECT = ("update", "clean", "autoclean")
_APT_REFUSED = {
    **dict.fromkeys(("upgrade", "dist-upgrade", "full-upgrade"), "`bake lock` selects the versions"),
    **dict.fromkeys(("remove", "purge", "autoremove"), "a recipe does not remove packages"),
}
_APT_VALUES = ("-t", "--target-release", "-o", "-c")
_APT_HARMLESS = re.compile(r"-[yq]+|--(?:yes|assume-yes|quiet|no-install-recommends)")
_ROOT = ("root", "0", "0:0", "root:root")
_PLAIN = ("mkdir", "chmod", "chown", "ln", "echo", "touch", "sed", "rm", "cp", "mv", "ldconfig", "test")
"""Commands that need no network, so a step of `run` may have them."""
_WITHOUT_EFFECT = {
    "EXPOSE": "training jobs do not publish ports",
    "HEALTHCHECK": "SageMaker does not run health checks of training jobs",
    "VOLUME": "SageMaker mounts /opt/ml itself",
    "LABEL": "Bakehouse sets the labels of its images",
    "MAINTAINER": "Bakehouse sets the labels of its images",
    "STOPSIGNAL": "SageMaker stops training jobs with SIGTERM",
    "ONBUILD": "no image is built on training images",
}
_VARIABLE = re.compile(r"\$(?:\{(?P<braced>\w+)(?::-(?P<default>[^}]*))?\}|(?P<plain>\w+))")
_SHELL = re.compile(r"[`|<>()*?\[\]]|\$\(")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_PUNCTUATION = re.compile(r"[();<>|&]+")
_SCRIPT = re.compile(r"(?m)(?:^|;|&&)\s*(?:if|for|while|until|case|function|\{|\()(?=\s)|<<|^#!")
"""Shell text that is more than a list of commands."""
_LONGEST = 60
_PYTHON = re.compile(r"\d+\.\d+")
_INTERPRETER = re.compile(r"(?:.*/)?python[\d.]*|-u|(?:.*/)?(?:ba)?sh")
BUILD_VARIABLES = ("DEBIAN_FRONTEND", "PIP_NO_CACHE_DIR", "PIP_DISABLE_PIP_VERSION_CHECK")
"""Variables that only matter to the steps of a Dockerfile."""


@dataclass(frozen=True, slots=True)
class Untranslated:
    """A part of a Dockerfile that the recipe does not have."""

    line: int
    text: str
    reason: str


@dataclass(frozen=True, slots=True)
class BaseAndComponents:
    """Base and components of a recipe."""

    base: tuple[str, str]
    components: Mapping[str, str] = field(default_factory=dict)
    variants: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class RecipeProposal:
    """Content of the recipe that replaces a Dockerfile. Paths are relative to the Dockerfile's directory."""

    base: tuple[int, str] = (0, "")
    """Line and image of the last FROM."""
    python: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Line and version specifier of Python packages that are components here."""
    index: str = ""
    """Package index of the framework."""
    apt: list[str] = field(default_factory=list)
    packages: list[str] = field(default_factory=list)
    requirement_files: list[str] = field(default_factory=list)
    files: list[tuple[int, str, str]] = field(default_factory=list)
    """Line, source and target."""
    environment: dict[str, str] = field(default_factory=dict)
    run: list[str] = field(default_factory=list)
    code: tuple[str, str] | None = None
    """Directory and entry point."""
    untranslated: list[Untranslated] = field(default_factory=list)


def translate(text: str, context: Path) -> RecipeProposal:
    """Return the recipe for a Dockerfile. `context` is the directory that COPY reads."""
    return _Translation(context).run([*instructions(text)])


def selections(proposal: RecipeProposal, components: Iterable[str]) -> Iterator[BaseAndComponents]:
    """Yield bases and components for a proposal, the most faithful ones first.

    `components` are the names in the catalogue.
    """
    known = {*components}
    frameworks = {name: spec for name, (_, spec) in proposal.python.items() if name in known}
    _, image = proposal.base
    name, _, tag = image.partition("@")[0].rpartition(":") if ":" in image else (image, "", "")
    version = match[0] if (match := re.match(r"\d+(\.\d+)*", tag)) else ""
    cuda = "cpu-*" if "/cpu" in proposal.index else "cu*"
    if match := re.search(r"/(cu\d+)", proposal.index) or re.search(r"cuda(\d+\.\d+)", tag):
        cuda = f"cu{match[1].removeprefix('cu').replace('.', '')}-*"
    if match := _DLC.fullmatch(name):
        yield from _vendor_base(f"aws-dlc-{match['framework']}", version, tag, known)
        frameworks.setdefault(match["framework"], f"=={version}" if version else "")
        cuda = "cpu-*" if "-cpu-" in tag else "cu*"
    elif (short := name.rpartition("/")[2]) in ("pytorch", "tensorflow") and name.count("/") == 1:
        frameworks.setdefault(short, f"=={version}" if version else "")
        if short == "tensorflow":
            cuda = "cuda-*" if "gpu" in tag else "cpu-*"
    frameworks |= _toolkit(frameworks, known)
    variants: dict[str, str] = {name: cuda for name in frameworks if name in ("pytorch", "tensorflow")}
    exact = {name: versions(spec) for name, spec in frameworks.items()}
    loose = exact | {name: _minor(exact[name]) for name in variants}
    newest = dict.fromkeys(exact, "*")
    pythons = [{"python": f"{match[0]}"}] if _is_python(image) and (match := _PYTHON.search(tag)) else []
    bases: list[tuple[tuple[str, str], dict[str, str]]] = [(DEFAULT_BASE, {})]
    if name.endswith("nvidia/cuda"):
        system = match[0] if (match := re.search(r"ubuntu[\d.]+", tag)) else "ubuntu*"
        bases.insert(0, (("nvidia-cuda", version), {"nvidia-cuda": f"*-{system}"}))
        bases.insert(1, (("nvidia-cuda", _minor(version)), {}))
    any_cuda = {name: "cpu-*" if glob.startswith("cpu") else "cu*" for name, glob in variants.items()}
    for chosen in (exact, loose, newest):
        for globs in (variants, any_cuda):
            for base, base_variants in bases:
                for python in (*pythons, {}):
                    yield BaseAndComponents(base, {**python, **chosen}, {**base_variants, **globs})
    kept = {name: "*" for name in newest if name in variants or name.startswith("sagemaker")}
    yield BaseAndComponents(DEFAULT_BASE, kept, dict.fromkeys(variants, "*"))
    yield BaseAndComponents(DEFAULT_BASE, kept, {})


def _is_python(image: str) -> bool:
    """Return whether an image is the official image of Python."""
    return image.partition("@")[0].partition(":")[0] in (
        "python",
        "library/python",
        "docker.io/library/python",
    )


def _vendor_base(base: str, version: str, tag: str, known: set[str]) -> Iterator[BaseAndComponents]:
    """Yield AWS's image of the same version, and images of the same minor version."""
    if base not in known or not version:
        return
    kind = "cpu-*" if "-cpu-" in tag else "cu*"
    for versions in dict.fromkeys((version, _minor(version))):
        yield BaseAndComponents((base, versions), {}, {base: kind})


def _toolkit(frameworks: Mapping[str, str], known: set[str]) -> dict[str, str]:
    """Return the SageMaker Training Toolkit for the frameworks, unless the Dockerfile installs one."""
    if any(name.startswith("sagemaker-") for name in frameworks):
        return {}
    names = [f"sagemaker-{name}-training" for name in ("pytorch", "tensorflow") if name in frameworks]
    return {name: "" for name in (names or ["sagemaker-training"])[:1] if name in known}


def region_of(proposal: RecipeProposal) -> str:
    """Return the region of the registry of an AWS base; empty for other bases."""
    match = _DLC.match(proposal.base[1])
    return match["region"] if match else ""


def versions(specifier: str) -> str:
    """Return a specifier of pip as the versions of a recipe."""
    exact = re.fullmatch(r"==\s*([^,*+]+)(\+\w+)?", specifier)
    return exact[1] if exact else specifier or "*"


def _minor(versions: str) -> str:
    match = re.match(r"\d+\.\d+", versions)
    return match[0] if match else "*"


class _Translation:
    """Translation of one Dockerfile, with the state of its last stage."""

    def __init__(self, context: Path) -> None:
        self._context = context
        self._result = RecipeProposal()
        self._variables: dict[str, str] = {}
        self._directory = PurePosixPath("/")
        self._command: tuple[int, str, Sequence[str]] | None = None
        self._program_line = 0

    def run(self, given: Sequence[Instruction]) -> RecipeProposal:
        for instruction in self._last_stage(given):
            translate_instruction: Callable[[Instruction], None] = getattr(
                self, f"_{instruction.keyword.lower()}", self._other
            )
            translate_instruction(instruction)
        self._place_code()
        self._result.untranslated.sort(key=lambda item: item.line)
        return self._result

    def _skip(self, line: int, text: str, reason: str) -> None:
        short = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
        self._result.untranslated.append(Untranslated(line, " ".join(short.split()), reason))

    def _last_stage(self, given: Sequence[Instruction]) -> list[Instruction]:
        """Return the instructions of the last stage and of the stages that it starts from."""
        stages: list[tuple[str, str, list[Instruction]]] = []
        for instruction in given:
            if instruction.keyword == "FROM":
                words = self._expanded(instruction.text).split()
                name = words[2] if len(words) == 3 and words[1].lower() == "as" else ""
                stages.append((name.lower(), words[0] if words else "", [instruction]))
            elif stages:
                stages[-1][2].append(instruction)
            elif instruction.keyword == "ARG":
                self._arg(instruction)
            else:
                self._other(instruction)
        if not stages:
            return []
        used = [len(stages) - 1]
        while (
            number := next(
                (index for index in range(used[0]) if stages[index][0] == stages[used[0]][1].lower()), None
            )
        ) is not None and stages[number][0]:
            used.insert(0, number)
        for index, (name, _, content) in enumerate(stages):
            if index not in used:
                text = content[0].text if not name else f"stage {name}"
                self._skip(content[0].line, f"FROM {text}", "only the last stage is translated")
            for flag in content[0].flags if index in used else ():
                if flag != f"--platform={PLATFORM}":
                    reason = "`platforms` of the recipe selects the platform"
                    self._skip(content[0].line, f"FROM {flag}", reason)
        self._result.base = (stages[used[0]][2][0].line, stages[used[0]][1])
        return [instruction for index in used for instruction in stages[index][2][1:]]

    def _expanded(self, text: str) -> str:
        """Replace the variables that the Dockerfile sets; others stay as they are."""

        def value(match: re.Match[str]) -> str:
            name = match["braced"] or match["plain"]
            return self._variables.get(name, match["default"] if match["default"] is not None else match[0])

        return _VARIABLE.sub(value, text)

    def _other(self, instruction: Instruction) -> None:
        reason = _WITHOUT_EFFECT.get(instruction.keyword, "it has no equivalent in a recipe")
        self._skip(instruction.line, f"{instruction.keyword} {instruction.text}", reason)

    def _arg(self, instruction: Instruction) -> None:
        for word in _split(instruction.text):
            name, equals, value = word.partition("=")
            reason = "a recipe has no build arguments"
            if equals:
                self._variables.setdefault(name, self._expanded(value))
                reason += "; the recipe has the default value"
            self._skip(instruction.line, f"ARG {name}", reason)

    def _env(self, instruction: Instruction) -> None:
        words = _split(instruction.text)
        if words and "=" not in words[0]:
            name, _, value = instruction.text.partition(" ")
            words = [f"{name}={_unquoted(value.strip())}"]
        for word in words:
            name, _, value = word.partition("=")
            value = self._expanded(value)
            if kind_of_secret(name, value):
                # The value must not appear in the recipe or in messages.
                reason = "it looks like a secret; set it when the job starts"
                self._skip(instruction.line, f"ENV {name}=…", reason)
                continue
            if "$" in value:
                self._skip(instruction.line, f"ENV {name}={value}", "variables are not expanded")
                continue
            self._variables[name] = value
            self._result.environment[name] = value
            if name == "SAGEMAKER_PROGRAM":
                self._program_line = instruction.line

    def _workdir(self, instruction: Instruction) -> None:
        self._directory /= self._expanded(instruction.text).strip("\"'")
        if self._directory != PurePosixPath(CODE_DIRECTORY):
            reason = f"SageMaker starts training in {CODE_DIRECTORY}"
            self._skip(instruction.line, f"WORKDIR {instruction.text}", reason)

    def _user(self, instruction: Instruction) -> None:
        if instruction.text not in _ROOT:
            self._skip(instruction.line, f"USER {instruction.text}", "training images run as root")

    def _shell(self, instruction: Instruction) -> None:
        self._skip(instruction.line, f"SHELL {instruction.text}", "steps of `run` use /bin/sh")

    def _entrypoint(self, instruction: Instruction) -> None:
        words = instruction.words or tuple(_split(instruction.text))
        if self._command and self._command[1].startswith("CMD"):
            words = (*words, *self._command[2])
        self._command = (instruction.line, f"ENTRYPOINT {instruction.text}", words)

    def _cmd(self, instruction: Instruction) -> None:
        words = instruction.words or tuple(_split(instruction.text))
        if self._command and self._command[1].startswith("ENTRYPOINT"):
            line, text, entry = self._command
            self._command = (line, text, (*entry, *words))
        else:
            self._command = (instruction.line, f"CMD {instruction.text}", words)

    def _add(self, instruction: Instruction) -> None:
        text = f"{instruction.keyword} {instruction.text}"
        if "://" in instruction.text or instruction.text.startswith("git@"):
            self._skip(instruction.line, text, "download the file into the project and pin its checksum")
        elif re.search(r"\.(tar|tgz|tar\.\w+)\s", instruction.text):
            self._skip(instruction.line, text, "ADD unpacks the archive; unpack it into a directory")
        else:
            self._copy(instruction)

    def _copy(self, instruction: Instruction) -> None:
        text = " ".join((instruction.keyword, *instruction.flags, instruction.text))
        if any(flag.startswith("--from") for flag in instruction.flags):
            self._skip(instruction.line, text, "it copies from another stage or image")
            return
        if instruction.heredocs:
            self._skip(instruction.line, text, "write the content into a file of the project")
            return
        for flag in instruction.flags:
            if flag != "--link" and flag.removeprefix("--chown=") not in _ROOT:
                reason = "files of a recipe belong to root and keep their mode"
                self._skip(instruction.line, f"{instruction.keyword} {flag}", reason)
        words = [self._expanded(word) for word in instruction.words or _split(instruction.text)]
        if len(words) < 2:
            self._skip(instruction.line, text, "it has no target")
            return
        *sources, target = words
        for source in sources:
            self._copy_one(instruction, source, target, many=len(sources) > 1)

    def _copy_one(self, instruction: Instruction, source: str, target: str, *, many: bool) -> None:
        text = f"{instruction.keyword} {source} {target}"
        path = source.strip("/").removeprefix("./") or "."
        place = self._directory / target
        if "$" in text or re.search(r"[*?\[]", path):
            self._skip(instruction.line, text, "name each file or directory")
        elif path == ".":
            reason = "it copies the whole project; copy the directories that the image needs"
            self._skip(instruction.line, text, reason)
        elif is_directory(self._context / path):
            self._result.files.append((instruction.line, path, str(place)))
        elif is_file(self._context / path):
            is_inside = many or target.endswith("/") or target in (".", "..") or place == self._directory
            name = place / PurePosixPath(path).name if is_inside else place
            self._result.files.append((instruction.line, path, str(name)))
        else:
            self._skip(instruction.line, text, f"`{path}` does not exist next to the Dockerfile")

    def _run(self, instruction: Instruction) -> None:
        for flag in instruction.flags:
            if not flag.startswith("--mount=type=cache"):
                self._skip(instruction.line, f"RUN {flag}", "steps of a recipe have no options")
        texts = instruction.heredocs or (instruction.text,)
        if words := instruction.words:
            texts = (shlex.join(words),)
        if _SCRIPT.search("\n".join(texts)):
            first = texts[0].strip().partition("\n")[0]
            self._skip(instruction.line, f"RUN {first}", "copy the script with `files` and call it in `run`")
            return
        for command in (command for text in texts for command in commands(text)):
            self._run_command(instruction.line, self._expanded(command))

    def _run_command(self, line: int, command: str) -> None:
        words = _split(command)
        while words and (_ASSIGNMENT.fullmatch(words[0]) or words[0] in ("sudo", "exec", "command")):
            name, equals, _ = words[0].partition("=")
            if equals and name not in BUILD_VARIABLES:
                # The value may be a secret.
                self._skip(line, f"RUN {name}=…", "a recipe sets no variables for one command")
            words = words[1:]
        if not words or words[0] in ("set", "true", ":"):
            return
        program = PurePosixPath(words[0]).name
        if re.fullmatch(r"python[\d.]*", program) and words[1:3] == ["-m", "pip"]:
            program, words = "pip", words[2:]
        if program == "uv" and words[1:2] == ["pip"]:
            program, words = "pip", words[1:]
        text = f"RUN {command}"
        if program in ("apt-get", "apt"):
            self._apt(line, text, words[1:])
        elif re.fullmatch(r"pip[\d.]*", program):
            self._pip(line, text, words[1:])
        elif program == "rm" and all(
            re.match(r"-|/var/lib/apt|/var/cache|/tmp|/root/\.cache|~/\.cache", word) for word in words[1:]
        ):
            return
        elif program in _PLAIN and not _SHELL.search(re.sub(r">>?", "", command)):
            self._result.run.append(command)
        else:
            reason = "add it to `run` if it needs no network, or write a component"
            if program in ("curl", "wget", "git"):
                reason = "downloads belong in a component, where they are pinned"
            elif program in ("conda", "mamba", "micromamba", "yum", "dnf", "apk"):
                reason = f"Bakehouse does not install packages with {program}"
            self._skip(line, text, reason)

    def _apt(self, line: int, text: str, words: Sequence[str]) -> None:
        (verb, *rest), options = _without_options(words, _APT_VALUES)
        for option in options:
            if not _APT_HARMLESS.fullmatch(option):
                # The value may be a proxy with a password.
                self._skip(line, f"apt-get {option.partition('=')[0]}", "a recipe has no options of apt")
        if reason := _APT_REFUSED.get(verb):
            self._skip(line, text, reason)
            return
        if verb in _APT_WITHOUT_EFFECT:
            return
        if verb != "install":
            self._skip(line, text, "it has no equivalent in a recipe")
            return
        for word in rest:
            name = re.split(r"[=/:]", word)[0]
            if not APT_PACKAGE.fullmatch(name) or word.endswith(".deb") or _SHELL.search(word) or "$" in word:
                self._skip(line, f"apt-get install {word}", "it is not a package of the distribution")
                continue
            if name != word:
                self._skip(line, f"apt-get install {word}", "`bake lock` selects the version")
            if name not in self._result.apt:
                self._result.apt.append(name)

    def _pip(self, line: int, text: str, words: Sequence[str]) -> None:
        if [*words[:1]] != ["install"]:
            if [*words[:1]] not in (["cache"], ["check"], ["list"], ["freeze"]):
                self._skip(line, text, "it has no equivalent in a recipe")
            return
        rest = iter(words[1:])
        index = ""
        found: list[str] = []
        for word in rest:
            option, equals, value = word.partition("=")
            if word in ("-r", "--requirement") or option == "--requirement":
                self._requirement_file(line, value if equals else next(rest, ""))
            elif word in ("-e", "--editable"):
                self._skip(
                    line, f"pip install -e {next(rest, '')}", "copy the package with `files` or `code`"
                )
            elif option in _PIP_VALUES:
                value = value if equals else next(rest, "")
                text = f"pip install {option} {redacted(value)}"
                if option in ("-i", "--index-url", "--extra-index-url"):
                    index = value
                    if "pytorch.org" not in value:
                        reason = "set the index in pip's configuration, which `bake lock` reads"
                        self._skip(line, text, reason)
                elif option in ("-c", "--constraint"):
                    self._skip(line, text, "add a line `-c FILE` to the requirements file")
                elif option not in _PIP_HARMLESS:
                    self._skip(line, text, "a recipe has no options of pip")
            elif not word.startswith("-"):
                found.append(word)
            elif word not in _PIP_HARMLESS:
                self._skip(line, f"pip install {option}", "a recipe has no options of pip")
        for word in found:
            self._package(line, word, index)

    def _package(self, line: int, word: str, index: str = "") -> None:
        try:
            requirement = Requirement(word)
        except InvalidRequirement:
            reason = "pin a version in a requirements file, or copy the package with `files` or `code`"
            self._skip(line, f"pip install {word}", reason)
            return
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        component = _FRAMEWORKS.get(name, name)
        # Without its URL, which may contain a password
        text = f"pip install {requirement.name}{requirement.specifier}"
        if name in _FRAMEWORKS or name in _SAME_NAME:
            first = self._result.python.setdefault(component, (line, str(requirement.specifier)))
            if first[1] != str(requirement.specifier):
                self._skip(line, text, f"line {first[0]} selects another version")
            if requirement.extras or requirement.marker or requirement.url:
                self._skip(line, text, f"the recipe has the component `{component}`")
            if component in ("pytorch", "tensorflow"):
                self._result.index = index or self._result.index or ("/cpu" if name.endswith("-cpu") else "")
        elif name in _TOOLS and (name != "pip" or requirement.specifier):
            self._skip(line, text, "add it to the requirements if your code imports it")
        elif name not in _TOOLS and word not in self._result.packages:
            self._result.packages.append(word)

    def _requirement_file(self, line: int, name: str) -> None:
        """Find the requirements file of the project that an earlier COPY copied."""
        target = str(self._directory / name)
        for _, source, copied in self._result.files:
            path = PurePosixPath(target)
            if target == copied or path.is_relative_to(copied):
                rest = path.relative_to(copied) if target != copied else PurePosixPath()
                source = str(PurePosixPath(source) / rest)
                break
        else:
            source = name.removeprefix("./")
        if source.startswith("/") or not is_file(self._context / source):
            reason = f"`{source}` does not exist next to the Dockerfile"
            self._skip(line, f"pip install -r {name}", reason)
            return
        if source not in self._result.requirement_files:
            self._result.requirement_files.append(source)
        self._result.files = [item for item in self._result.files if item[1] != source]
        for text in (self._context / source).read_text(errors="replace").splitlines():
            option = re.match(r"\s*(?:-i|--(?:extra-)?index-url)[\s=]+(\S+)", text)
            match = re.match(r"\s*(torch|tensorflow(?:-cpu|-gpu)?)\s*([=<>!~][^;#\s]*)?\s*(?:[;#].*)?$", text)
            if option:
                self._result.index = self._result.index or option[1]
            if match:
                component = _FRAMEWORKS[match[1]]
                self._result.python.setdefault(component, (line, match[2] or ""))

    def _place_code(self) -> None:
        """Select the copied directory with the script that the image starts as its training code."""
        line, text, script = self._script()
        result = self._result
        if not script:
            if text:
                self._skip(line, text, "SageMaker starts `train`, which runs the entry point of `code`")
            return
        for item in result.files:
            _, source, target = item
            if not is_directory(self._context / source) or not script.is_relative_to(target):
                continue
            entry_point = script.relative_to(target)
            if is_file(self._context / source / str(entry_point)):
                result.code = (source, str(entry_point))
                result.files.remove(item)
                result.environment.pop("SAGEMAKER_PROGRAM", None)
                result.environment.pop("SAGEMAKER_SUBMIT_DIRECTORY", None)
                if target != CODE_DIRECTORY:
                    self._skip(line, text, f"the code moves from {target} to {CODE_DIRECTORY}")
                command = self._command[2] if self._command else ()
                if command and not any(word.endswith(script.name) for word in command):
                    if [*command] != ["train"]:
                        self._skip(
                            line, text, "SageMaker starts `train`, which runs the entry point of `code`"
                        )
                    return
                before, after = self._words()
                if options := [word for word in after if word.startswith("-")] or after:
                    reason = f"pass {' '.join(options)} as hyperparameters of the job"
                    self._skip(line, text, reason)
                if before:
                    reason = f"{' '.join(before)} does not start the script; set the job's `distribution`"
                    self._skip(line, text, reason)
                return
        reason = f"move `{script.name}` into a directory of its own and name it in `code`"
        self._skip(line, text or f"ENV SAGEMAKER_PROGRAM={script.name}", reason)

    def _words(self) -> tuple[Sequence[str], Sequence[str]]:
        """Return the words before and after the script that the image starts, without its interpreter."""
        words = self._command[2] if self._command else ()
        first = next(
            (index for index, word in enumerate(words) if re.search(r"\.(py|sh)$", word)), len(words)
        )
        before = [word for word in words[:first] if not _INTERPRETER.fullmatch(word)]
        return before, words[first + 1 :]

    def _script(self) -> tuple[int, str, PurePosixPath | None]:
        """Return the line, the text and the path of the script that the image starts."""
        program = self._result.environment.get("SAGEMAKER_PROGRAM", "")
        if program:
            line, text, _ = self._command or (self._program_line, f"ENV SAGEMAKER_PROGRAM={program}", ())
            return line, text, PurePosixPath(CODE_DIRECTORY) / program
        if self._command is None:
            return 0, "", None
        line, text, words = self._command
        script = next((word for word in words if re.search(r"\.(py|sh)$", word)), "")
        return line, text, self._directory / script if script else None


def commands(text: str) -> Iterator[str]:
    """Yield the commands of a shell text that `&&`, `;` and line ends separate."""
    for part in text.splitlines() or [text]:
        words: list[str] = []
        start = 0
        depth = 0
        for match in re.finditer(r"'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.|&&|\|\||[;()|]", part):
            token = match[0]
            depth += {"(": 1, ")": -1}.get(token, 0)
            if token in ("&&", ";") and not depth:
                words.append(part[start : match.start()])
                start = match.end()
        words.append(part[start:])
        yield from (word.strip() for word in words if word.strip())


def _split(text: str) -> list[str]:
    """Return the words of a shell text; without closing quotes, those between spaces."""
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _unquoted(text: str) -> str:
    """Return a text without the quotes around it."""
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text


def _without_options(words: Sequence[str], with_value: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the arguments, at least one, and the options with their values."""
    rest = iter(words)
    arguments, options = [], []
    for word in rest:
        if word in with_value:
            options.append(f"{word} {next(rest, '')}")
        elif word.startswith("-"):
            options.append(word)
        else:
            arguments.append(word)
    return arguments or [""], options
