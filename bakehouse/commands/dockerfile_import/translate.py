"""Translation of a Dockerfile into a proposal, with the fate of each instruction."""

import itertools
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.run_steps import RunStep
from bakehouse.catalog.secrets import kind_of_secret
from bakehouse.catalog.user_files import CODE_DIRECTORY
from bakehouse.commands.dockerfile_import.account import Fate, InstructionEntry, has_secret, login_variables
from bakehouse.commands.dockerfile_import.base_settings import ROOT, BaseSettings
from bakehouse.commands.dockerfile_import.bases import (
    DEFAULT_BASE,
    find_base,
    python_of,
    sets_no_variables,
    working_directory,
)
from bakehouse.commands.dockerfile_import.index import UV, ReverseIndex
from bakehouse.commands.dockerfile_import.installs import names
from bakehouse.commands.dockerfile_import.lifts import joined_path
from bakehouse.commands.dockerfile_import.proposal import (
    BUILD_VARIABLES,
    CopiedFile,
    Proposal,
    Wish,
)
from bakehouse.commands.dockerfile_import.run_step import RunState, RunTranslator
from bakehouse.commands.dockerfile_import.shell import expanded, has_variables, unquoted, variables_in
from bakehouse.errors import Location, RecipeError
from bakehouse.util.dockerfile_reader import WORD, Instruction, instructions
from bakehouse.util.files import is_directory, is_file, read_text
from bakehouse.util.oci import PLATFORM

_WITHOUT_EFFECT = names("instructions")
_INTERPRETER = re.compile(r"(?:.*/)?python[\d.]*|-u|(?:.*/)?(?:ba)?sh")
_UV_IMAGE = re.compile(r"(?:^|/)astral-sh/uv[:@]")
_FOREIGN_FILES = "write a component, or add the files to the project"
_UNKNOWN_DIRECTORY = "the working directory of the base is not known; write an absolute path"
_SECRET = "it looks like a secret; set it when the job starts"
_NOT_COPIED = "is not among the copied files; name it in `code`"
_SCRIPT = re.compile(r"\.(?:py|sh)$")
_CONTAINER_START = names("container_starts")
_OWN_TRAIN = (
    "{} has its own program `train`, which SageMaker would start instead of the toolkit's; "
    "make it the entry point of `code`"
)
_PATHS = names("path_variables")
"""Variables with lists of directories."""
_SYSTEM_PATHS = re.compile(
    r"/(?:usr/)?(?:local/)?s?bin/?|/(?:usr/)?(?:local/)?lib(?:64)?/?|/usr/local/(?:cuda|nvidia)[^:]*"
    r"|/usr/lib/x86_64-linux-gnu"
)
_COMPONENT_PATHS = names("directories")
"""Directories of installers, with the component that has these files, there or elsewhere."""


@dataclass(frozen=True, slots=True)
class DockerfileBuild:
    """Arguments of `docker build`."""

    path: Path
    """The Dockerfile."""
    context: Path
    """The directory that COPY reads."""
    arguments: Mapping[str, str] = field(default_factory=dict)
    target: str = ""
    excluded: Mapping[str, str] = field(default_factory=dict)
    """Components that do not fit, with the reasons: what installs them is kept."""
    bases: Mapping[str, BaseSettings] = field(default_factory=dict)
    """Settings of bases that a registry or the engine stated."""


@dataclass(slots=True)
class _Stage:
    name: str
    image: str
    start: Instruction
    content: list[Instruction] = field(default_factory=list)


def find_context(path: Path, root: Path) -> Path:
    """Return the nearest directory, up to the root, that has most sources of COPY and requirements files."""
    names: set[str] = set()
    for instruction in instructions(read_text(path, errors="replace")):
        if instruction.keyword in ("COPY", "ADD") and "--from=" not in " ".join(instruction.flags):
            names |= {*(instruction.words or instruction.text.split())[:-1]}
        elif instruction.keyword == "RUN":
            names |= {*re.findall(r"(?:-r|--requirement|-c)[= ]?([\w./-]+)", instruction.text)}
    sources = {
        name.strip("\"'").strip("/") for name in names if not has_variables(name) and "://" not in name
    }
    above = [parent for parent in path.parent.parents if parent == root or parent.is_relative_to(root)]

    def count(directory: Path) -> int:
        return sum(is_file(directory / name) or is_directory(directory / name) for name in sources)

    return max([path.parent, *above], key=count)


def translate(text: str, build: DockerfileBuild, catalog: Catalog) -> Proposal:
    """Return the recipe for a Dockerfile."""
    return _Translation(build, catalog).run([*instructions(text)])


def _raw_words(instruction: Instruction) -> Iterator[str]:
    """Return the words between spaces, with their quotes, as BuildKit splits them."""
    return (match[0] for match in WORD.finditer(instruction.text))


class _Translation:
    """Translation of one Dockerfile, with the state of its stage."""

    def __init__(self, build: DockerfileBuild, catalog: Catalog) -> None:
        self._build = build
        self._context = build.context
        self._catalog = catalog
        self._proposal = Proposal()
        self._index = ReverseIndex(catalog, build.excluded)
        self._runs = RunTranslator(self._proposal, self._index, build.context)
        self._global: dict[str, str] = {}
        """Build arguments before the first FROM."""
        self._state = RunState()
        self._entry = InstructionEntry(0, "")
        self._starts: dict[str, tuple[InstructionEntry, list[str]]] = {}
        """ENTRYPOINT and CMD with their words."""
        self._arguments: dict[str, tuple[InstructionEntry, bool]] = {}
        self._texts: list[str] = []
        self._paths: list[tuple[str, str, InstructionEntry]] = []
        self._directories: dict[str, InstructionEntry] = {}
        """Directories that WORKDIR made."""
        self._builders: dict[str, str] = {}
        """Components by the name of a stage that builds nothing else."""
        self._stages: list[_Stage] = []
        self._used: list[_Stage] = []
        self._given: Sequence[Instruction] = ()
        self._uv: InstructionEntry | None = None
        self._logins: set[str] = set()
        """Variables in logins of URLs."""

    def run(self, given: Sequence[Instruction]) -> Proposal:
        self._given = given
        self._logins = {name for instruction in given for name in login_variables(instruction.text)}
        self._read_stages(given)
        for stage in self._stages:
            if stage in self._used:
                self._translate_stage(stage)
            else:
                self._skip_stage(stage)
        proposal = self._proposal
        self._finish_arguments()
        for name, value, entry in self._paths:
            self._set_path(name, value, entry)
        self._finish_environment()
        self._place_code()
        self._finish_directories()
        python = proposal.wishes.get("python")
        version = "" if python and python.specifier else python_of(proposal.image)
        if proposal.python_entries and version:
            entry = proposal.python_entries[0]
            text = f"python3 of {proposal.image}"
            proposal.wish(Wish(("python",), f"=={version}.*", "", entry.line, text, [entry]))
        if self._uv and any(re.search(r"\buvx? ", kept.text) for kept in proposal.run):
            proposal.requirements["uv"] = self._uv
            self._uv.add(Fate.RECIPE, "`requirements`, because steps of `run` use uv")
        self._runs.finish()
        return proposal

    def _begin(self, instruction: Instruction) -> InstructionEntry:
        text = " ".join((instruction.keyword, *instruction.flags, instruction.text)).strip()
        self._entry = self._proposal.account.add(instruction.line, text)
        return self._entry

    def _words(self, instruction: Instruction, *, json: bool = True) -> list[str]:
        """Return the arguments of an instruction with the values of variables."""
        if json and instruction.words is not None:
            return [self._expanded(word) for word in instruction.words]
        return [self._unquoted(word, instruction) for word in _raw_words(instruction)]

    def _unquoted(self, raw: str, instruction: Instruction) -> str:
        if instruction.escape != "\\":
            raw = raw.replace("\\", "\\\\").replace(instruction.escape, "\\")
        return unquoted(raw, self._state.variables)

    def _expanded(self, text: str) -> str:
        return expanded(text, self._state.variables)

    def _read_stages(self, given: Sequence[Instruction]) -> None:
        """Group the instructions into stages, and select one with those that it starts from."""
        for instruction in given:
            if instruction.keyword == "FROM":
                words = [unquoted(word, self._global) for word in instruction.text.split()]
                name = words[2] if len(words) == 3 and words[1].lower() == "as" else ""
                self._stages.append(_Stage(name.lower(), words[0] if words else "", instruction))
            elif self._stages:
                self._stages[-1].content.append(instruction)
            elif instruction.keyword == "ARG":
                self._state.variables = self._global
                self._begin(instruction)
                self._arg(instruction)
                self._state.variables = {}
            else:
                self._begin(instruction)
                self._other(instruction)
        if not self._stages:
            self._proposal.base = find_base("scratch", self._catalog)
            return
        stage = self._stages[-1]
        if target := self._build.target.lower():
            named = [
                other for number, other in enumerate(self._stages) if target in (other.name, str(number))
            ]
            if not named:
                names = ", ".join(f"`{other.name}`" for other in self._stages if other.name)
                spot = Location(self._build.path, 1, 1)
                hint = f"use one of {names}" if names else "the Dockerfile names no stages"
                raise RecipeError(f"the Dockerfile has no stage `{self._build.target}`", spot, hint=hint)
            stage = named[-1]
        self._used = [stage]
        while parent := next(
            (
                other
                for other in reversed(self._stages[: self._stages.index(stage)])
                if other.name and other.name == stage.image.lower()
            ),
            None,
        ):
            self._used.insert(0, parent)
            stage = parent
        self._proposal.image = self._used[0].image
        self._proposal.base = find_base(self._used[0].image, self._catalog)

    def _translate_stage(self, stage: _Stage) -> None:
        entry = self._begin(stage.start)
        for flag in stage.start.flags:
            platforms = (PLATFORM, "$BUILDPLATFORM", "$TARGETPLATFORM")
            if flag.partition("=")[2] not in platforms:
                entry.check("set `platforms` of the recipe", f"FROM {flag}")
        if stage is self._used[0]:
            self._proposal.image_entry = entry
            self._state = self._first_state(stage.image)
        else:
            entry.add(Fate.REPLACED, f"the recipe joins it with stage {stage.image}")
        handlers: dict[str, Callable[[Instruction], None]] = {
            "ADD": self._add_files,
            "ARG": self._arg,
            "CMD": self._start,
            "COPY": self._copy,
            "ENTRYPOINT": self._start,
            "ENV": self._env,
            "RUN": self._run,
            "SHELL": self._select_shell,
            "USER": self._user,
            "WORKDIR": self._workdir,
        }
        for instruction in stage.content:
            self._begin(instruction)
            self._texts.append("\n".join((instruction.text, *instruction.flags, *instruction.heredocs)))
            handlers.get(instruction.keyword, self._other)(instruction)

    def _first_state(self, image: str) -> RunState:
        """Return the state that the base gives the first step, as far as its settings are known."""
        settings = self._build.bases.get(image)
        if settings is None:
            directory = working_directory(image)
            is_replaced = any(choice.component == DEFAULT_BASE[0] for choice in self._proposal.base.choices)
            self._runs.unknown_base = image if is_replaced and not sets_no_variables(image) else ""
            return RunState(PurePosixPath(directory or "/"), bool(directory))
        variables = {
            name: value
            for name, value in settings.variables.items()
            if name not in _PATHS and not kind_of_secret(name, value) and not has_secret(value)
        }
        return RunState(PurePosixPath(settings.directory), True, settings.user, settings.shell, variables)

    def _skip_stage(self, stage: _Stage) -> None:
        """List a stage that the selected one does not start from."""
        name = stage.name or str(self._stages.index(stage))
        sources = {
            flag.partition("=")[2].lower()
            for other in self._used
            for instruction in other.content
            for flag in instruction.flags
            if flag.startswith("--from=")
        }
        if name in sources and self._stages.index(stage) < self._stages.index(self._used[-1]):
            self._translate_builder(stage, name)
            return
        entries = [self._begin(instruction) for instruction in (stage.start, *stage.content)]
        texts = " ".join((stage.image, *(instruction.text for instruction in stage.content)))
        own = self._used[-1].name or "the last one"
        if re.search(r"SAGEMAKER_|/opt/ml|dkr\.ecr|sagemaker", texts):
            reason = f"the recipe is that of stage {own}; `--target {name}` selects this stage"
            entries[0].check(reason)
        for entry in entries:
            entry.add(Fate.REPLACED, f"stage {own} does not use it")

    def _translate_builder(self, stage: _Stage, name: str) -> None:
        """Find the components that a stage builds for others."""
        build = replace(self._build, target=str(self._stages.index(stage)))
        builder = _Translation(build, self._catalog).run(self._given)
        entries = [self._begin(instruction) for instruction in (stage.start, *stage.content)]
        others = (builder.requirements, builder.requirement_files, builder.run, builder.files)
        is_complete = bool(builder.wishes) and not (any(others) or builder.account.checks())
        components = ", ".join(f"`{component}`" for component in builder.wishes)
        for entry in entries:
            if _UV_IMAGE.search(stage.image):
                entry.add(Fate.REPLACED, UV)
            elif is_complete:
                entry.add(Fate.REPLACED, f"build stages of Bakehouse make {components}")
            else:
                entry.check(f"it builds files for `COPY --from={name}`; {_FOREIGN_FILES}")
        if is_complete:
            self._builders[name] = components
        for wish in builder.wishes.values():
            wish.entries = entries[:1]
            self._proposal.wish(wish)
        self._proposal.prefixes |= builder.prefixes

    def _other(self, instruction: Instruction) -> None:
        reason = _WITHOUT_EFFECT.get(instruction.keyword)
        if reason and instruction.keyword != "ONBUILD":
            self._entry.add(Fate.REPLACED, reason)
        else:
            self._entry.check(reason or "it has no equivalent in a recipe")

    def _run(self, instruction: Instruction) -> None:
        self._runs.run(instruction, self._entry, self._state)

    def _arg(self, instruction: Instruction) -> None:
        for word in self._words(instruction, json=False):
            name, equals, value = word.partition("=")
            given = self._build.arguments.get(name)
            values = value or "x", given or "x" * 40
            is_login = name in self._logins
            if is_login or any(kind_of_secret(name, text) or has_secret(text) for text in values):
                self._state.secrets.add(name)
                self._entry.text = f"ARG {name}" + ("=…" if equals else "")
                self._entry.check(_SECRET)
                continue
            known = given if given is not None else value if equals else self._global.get(name)
            if known is not None:
                # BuildKit: the last of ARG and ENV wins.
                self._state.variables[name] = known
                if self._state.variables is not self._global:
                    self._state.exported[name] = known
            has_value = known is not None or self._arguments.get(name, (None, False))[1]
            self._arguments[name] = (self._entry, has_value)

    def _finish_arguments(self) -> None:
        texts = "\n".join((*self._texts, *(stage.start.text for stage in self._stages)))
        for name, (entry, has_value) in self._arguments.items():
            if name in BUILD_VARIABLES:
                entry.add(Fate.REPLACED, "it only matters to the steps of a Dockerfile")
            elif has_value:
                entry.add(Fate.REPLACED, "the recipe has its value; use `matrix` for several values")
            elif re.search(rf"\$\{{?{re.escape(name)}\b", texts):
                reason = f"the Dockerfile does not say its value; give it with `--build-arg {name}=VALUE`"
                entry.check(reason, f"ARG {name}")
            else:
                entry.add(Fate.REPLACED, "no instruction names it")

    def _env(self, instruction: Instruction) -> None:
        first = next(_raw_words(instruction), None)
        if first is None:
            return self._other(instruction)
        if "=" not in first:
            # The form `ENV NAME value`: the value is the rest of the line.
            rest = instruction.text[len(first) :].strip()
            return self._set(first, self._unquoted(rest, instruction))
        pairs = self._words(instruction, json=False)
        for word in pairs:
            if "=" not in word:
                message = f"`{word}` in ENV has no `=`; BuildKit rejects this line"
                raise RecipeError(message, Location(self._build.path, instruction.line, 1))
        for word in pairs:
            name, _, value = word.partition("=")
            self._set(name, value)
        return None

    def _set(self, name: str, value: str) -> None:
        entry, state = self._entry, self._state
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            return entry.check(f"a recipe has no variable `{name}`")
        if kind_of_secret(name, value) or has_secret(value):
            # The value must not appear in the recipe or in messages.
            entry.text = entry.text.replace(value, "…") if value else entry.text
            state.secrets.add(name)
            return entry.check(_SECRET, f"ENV {name}=…")
        if state.secrets & {*variables_in(value)}:
            state.secrets.add(name)
            return entry.check(_SECRET)
        if name in _PATHS and has_variables(value):
            # Later steps determine the component that a directory belongs to.
            self._paths.append((name, value, entry))
            state.paths[name] = value
            return None
        if name in BUILD_VARIABLES:
            state.variables[name] = state.exported[name] = value
            return entry.add(Fate.REPLACED, "it only matters to the steps of a Dockerfile")
        if re.search(r"\$(?:\w|\{)", value):
            own = re.sub(rf":?\$\{{?{re.escape(name)}\b[^}}:]*\}}?:?", "", value)
            advice = f"the base may set {name}; " if own != value else ""
            state.paths[name] = value
            return entry.check(f"{advice}variables are not expanded; write the value into `environment`")
        state.variables[name] = value
        state.exported.pop(name, None)
        for kept in self._proposal.run:
            is_restored = re.search(rf"(?m)^(?:export {name}=|unset {name}$)", kept.step.command)
            if name in re.findall(r"\w+", kept.text) and not is_restored:
                earlier = self._proposal.environment.get(name)
                line = f"export {name}={shlex.quote(earlier[0])}\n" if earlier else f"unset {name}\n"
                kept.step = replace(kept.step, command=line + kept.step.command)
        self._proposal.environment[name] = (value, entry)
        entry.add(Fate.RECIPE, "`environment`")
        return None

    def _set_path(self, name: str, value: str, entry: InstructionEntry) -> None:
        """Translate PATH and LD_LIBRARY_PATH: their directories belong to Bakehouse, or to components."""
        reasons: list[str] = []
        for directory in value.split(":"):
            if not directory or (has_variables(directory) and name in directory):
                continue
            if directory.rstrip("/") == CODE_DIRECTORY:
                if self._train_program(directory):
                    return entry.check(_OWN_TRAIN.format(directory))
                reasons.append(f"Bakehouse puts {CODE_DIRECTORY} on PATH")
            elif _SYSTEM_PATHS.fullmatch(directory):
                reasons.append("the base has it")
            elif wish := self._proposal.prefix_of(directory):
                reasons.append(f"the component `{wish.name}` sets its own paths")
            elif component := self._component_path(directory):
                reasons.append(f"the component `{component}` sets its own paths")
            else:
                reason = f"a recipe cannot extend {name}; the directory is {directory}"
                if self._train_program(directory):
                    reason = _OWN_TRAIN.format(directory)
                return entry.check(reason)
        return entry.add(Fate.REPLACED, "; ".join(dict.fromkeys(reasons)) or "it adds nothing")

    def _finish_environment(self) -> None:
        """List variables with paths that only the Dockerfile's image has."""
        environment = self._proposal.environment
        for name, (value, entry) in [*environment.items()]:
            paths = re.findall(r"(?<![\w.])/[\w./+-]+", value)
            if name == "LD_PRELOAD" and not re.match(r"/(?:usr/)?lib", value):
                del environment[name]
                entry.check("check that the image has this library, then add it to `environment`")
                continue
            wish = next((wish for path in paths if (wish := self._proposal.prefix_of(path))), None)
            if wish and name in _PATHS:
                del environment[name]
                entry.add(Fate.REPLACED, f"the component `{wish.name}` sets its own paths")
            elif wish:
                del environment[name]
                reason = f"it names files of {wish.name}, which the component installs elsewhere"
                entry.check(f"{reason}; check whether the image needs it")

    def _component_path(self, directory: str) -> str:
        """Return the component that has a directory, or that an earlier or later step installs there."""
        path = directory.replace("~", "/root", 1).replace("$HOME", "/root")
        places = ((name, pattern) for pattern, name in _COMPONENT_PATHS.items() if re.search(pattern, path))
        return next(
            (name for name, pattern in places if pattern[0] == "^" or name in self._proposal.wishes), ""
        )

    def _train_program(self, directory: str) -> bool:
        """Return whether a directory on PATH gets a program named `train`."""
        return any(
            PurePosixPath(file.target).name == "train" or is_file(self._context / file.source / "train")
            for file in self._proposal.files
            if file.target.startswith(directory.rstrip("/"))
        )

    def _workdir(self, instruction: Instruction) -> None:
        path = " ".join(self._words(instruction, json=False)).strip("\"'")
        state, entry = self._state, self._entry
        if has_variables(path):
            return entry.check("the Dockerfile does not say its value")
        if not path.startswith("/") and not state.is_directory_known:
            entry.check(_UNKNOWN_DIRECTORY)
        state.directory, state.is_directory_known = joined_path(state.directory, path), True
        self._directories[str(state.directory)] = entry
        return entry.add(Fate.REPLACED, f"steps start there; SageMaker starts training in {CODE_DIRECTORY}")

    def _finish_directories(self) -> None:
        """Make the directories of WORKDIR that nothing else makes."""
        for path, entry in self._directories.items():
            used = any(f"cd {shlex.quote(path)}" in kept.step.command for kept in self._proposal.run)
            copied = any(file.target.startswith(path) for file in self._proposal.files)
            if path not in ("/", CODE_DIRECTORY, "/tmp", "/opt", "/root", "/opt/ml") and not (
                used or copied or self._proposal.prefix_of(path)
            ):
                self._keep(f"mkdir -p {shlex.quote(path)}", entry)

    def _keep(self, command: str, entry: InstructionEntry) -> None:
        """Add a step that needs no network, after all others."""
        self._runs.keep(RunStep(command, network=False), entry)
        entry.add(Fate.KEPT, f"step {len(self._proposal.run)} of `run`")

    def _user(self, instruction: Instruction) -> None:
        name = " ".join(self._words(instruction))
        self._state.user = "" if name in ROOT else name
        if name in ROOT:
            self._entry.add(Fate.REPLACED, "training images run as root")
        else:
            self._entry.check("SageMaker starts training as root; only steps of `run` have this user")

    def _select_shell(self, instruction: Instruction) -> None:
        words = tuple(self._words(instruction))
        self._state.shell = () if words == ("/bin/sh", "-c") else words
        self._entry.add(Fate.KEPT, "the shell of kept steps")

    def _start(self, instruction: Instruction) -> None:
        if earlier := self._starts.get(instruction.keyword):
            earlier[0].add(Fate.REPLACED, f"a later {instruction.keyword} replaces it")
        self._starts[instruction.keyword] = (self._entry, self._words(instruction))

    def _add_files(self, instruction: Instruction) -> None:
        text, entry = instruction.text, self._entry
        words = self._words(instruction)
        if source := next((source for word in words if (source := self._index.find(word))), None):
            asked = f"=={source.version}" if source.version else ""
            label = f"{source.component} {source.version}".rstrip()
            wish = Wish((source.component,), asked, source.variant, entry.line, label, [entry])
            self._proposal.wish(wish)
            return None
        reason = ""
        if "://" in text or text.startswith("git@"):
            reason = "download the file into the project and pin its checksum"
        elif re.search(r"\.(?:tar|tgz|tar\.\w+)\s", text):
            reason = "ADD unpacks the archive; unpack it into a directory"
        if not reason:
            return self._copy(instruction)
        target = joined_path(self._state.directory, words[-1] if words else "")
        self._miss(target, [PurePosixPath(word).name for word in words[:-1]], entry, words[-1].endswith("/"))
        return entry.check(reason)

    def _miss(
        self, target: PurePosixPath, names: list[str], entry: InstructionEntry, is_directory: bool
    ) -> None:
        """Remember the files of an instruction that is not translated."""
        reason = f"it needs files of line {entry.line}, which is not in the recipe"
        paths = [*([] if is_directory else [target]), *(target / name for name in names)]
        self._proposal.missing |= {str(path): reason for path in paths if len(path.parts) > 1}

    def _copy(self, instruction: Instruction) -> None:
        words, entry = self._words(instruction), self._entry
        flags = dict(self._expanded(flag).lstrip("-").partition("=")[::2] for flag in instruction.flags)
        if "from" in flags:
            return self._copy_from(flags["from"], words)
        if instruction.heredocs:
            return self._copy_texts(instruction, words)
        if len(words) < 2:
            return entry.check("it has no target")
        *sources, target = words
        number = len(self._proposal.files)
        for source in sources:
            self._copy_one(source, target, many=len(sources) > 1)
        new = self._proposal.files[number:]
        if new:
            self._runs.lifted(3)
        for file in new:
            if has_variables(flags.get("chown", "") + flags.get("chmod", "")):
                entry.check("the Dockerfile does not say the value of its variables")
            elif flags.get("chown", "") not in ROOT:
                self._keep(f"chown -R {shlex.quote(flags['chown'])} {shlex.quote(file.target)}", entry)
            if "chmod" in flags:
                self._keep(f"chmod -R {shlex.quote(flags['chmod'])} {shlex.quote(file.target)}", entry)
        return None

    def _copy_texts(self, instruction: Instruction, words: list[str]) -> None:
        """Keep files whose content is in the Dockerfile."""
        target = words[-1]
        names = re.findall(r"<<-?([\"']?)([^\s<\"']+)", instruction.text)
        for (quote, name), text in zip(names, instruction.heredocs, strict=False):
            path = joined_path(self._state.directory, target)
            path = path / name if target.endswith("/") or len(names) > 1 else path
            names_in = {*variables_in("" if quote else text)} - self._state.variables.keys()
            if not target.startswith("/") and not self._state.is_directory_known:
                self._entry.check(_UNKNOWN_DIRECTORY)
                continue
            if names_in and not sets_no_variables(self._proposal.image):
                self._entry.check(f"the Dockerfile does not say the value of {min(names_in)}")
                continue
            if reason := self._runs.refusal(text, self._state):
                self._entry.check(reason)
                continue
            known = self._state.variables | dict.fromkeys(names_in, "")
            body = text if quote else expanded(text, known)
            end = next(f"END{number or ''}" for number in range(99) if f"END{number or ''}" not in body)
            place, parent = shlex.quote(str(path)), shlex.quote(str(path.parent))
            head = f"mkdir -p {parent} && " if len(path.parent.parts) > 1 else ""
            self._keep(f'{head}cat > {place} <<"{end}"\n{body}\n{end}', self._entry)

    def _copy_from(self, stage: str, words: list[str]) -> None:
        image = next((other.image for other in self._stages if other.name == stage.lower()), stage)
        if _UV_IMAGE.search(image):
            self._entry.add(Fate.REPLACED, UV)
            self._uv = self._entry
        elif components := self._builders.get(stage.lower()):
            self._entry.add(Fate.REPLACED, f"the recipe has {components}")
        else:
            target = joined_path(self._state.directory, words[-1]) if words else PurePosixPath("/")
            names = [PurePosixPath(word).name for word in words[:-1]]
            self._miss(target, names, self._entry, bool(words) and words[-1].endswith("/"))
            self._entry.check(f"it copies from {stage}; {_FOREIGN_FILES}")

    def _copy_one(self, source: str, target: str, *, many: bool) -> None:
        entry = self._entry
        path = source.strip("/").removeprefix("./").rstrip("/") or "."
        directory = joined_path(self._state.directory, target)
        is_known = target.startswith("/") or self._state.is_directory_known
        if has_variables(source + target):
            return entry.check("the Dockerfile does not say the value of its variables")
        if path == ".." or path.startswith("../"):
            return entry.check("it is outside the build context")
        if re.search(r"[*?\[]", path):
            matches = sorted(found for found in self._context.glob(path)) if ".." not in path else []
            for match in matches:
                name = match.relative_to(self._context).as_posix()
                inside = directory if is_directory(match) else directory / match.name
                self._proposal.files.append(CopiedFile(name, str(inside), entry, is_known))
            if not matches:
                entry.check(f"`{path}` matches nothing in the build context")
            return None
        if is_directory(self._context / path):
            self._proposal.files.append(CopiedFile(path, str(directory), entry, is_known))
        elif is_file(self._context / path):
            is_inside = (
                many or target.endswith("/") or target in (".", "..") or directory == self._state.directory
            )
            is_inside = is_inside or any(
                str(directory) == file.target.rstrip("/")
                for file in self._proposal.files
                if is_directory(self._context / file.source)
            )
            name_in_image = directory / PurePosixPath(path).name if is_inside else directory
            self._proposal.files.append(CopiedFile(path, str(name_in_image), entry, is_known))
        else:
            self._miss(directory, [PurePosixPath(path).name], entry, target.endswith("/"))
            entry.check(f"`{path}` does not exist in the build context; `--context DIR` names another one")
        return None

    def _place_code(self) -> None:
        """Select the copied directory with the script that the image starts as its training code."""
        proposal = self._proposal
        entry, position, script = self._script()
        file, entry_point = None, ""
        for directory, source in proposal.sources(str(script)) if script else ():
            if is_directory(self._context / directory.source) and is_file(self._context / source):
                file, entry_point = directory, str(PurePosixPath(source).relative_to(directory.source))
                break
        if file is None:
            # If no script is known, the directory with the target of the code is the code.
            placed = (file for file in proposal.files if file.target.rstrip("/") == CODE_DIRECTORY)
            file = next((file for file in placed if is_directory(self._context / file.source)), None)
        program = proposal.environment.get("SAGEMAKER_PROGRAM")
        single = proposal.copied(str(script)) if script else None
        if file:
            self._take_code(file, entry_point, entry)
        elif script and single and is_file(self._context / single.source):
            if not script.is_relative_to(CODE_DIRECTORY):
                (entry or single.entry).check(
                    f"move `{script.name}` into a directory of its own and name it in `code`"
                )
            elif program is None:
                name = str(script.relative_to(CODE_DIRECTORY))
                proposal.environment["SAGEMAKER_PROGRAM"] = name, single.entry
        elif program and program[1] is entry:
            entry.check(f"`{program[0]}` {_NOT_COPIED}")
            del proposal.environment["SAGEMAKER_PROGRAM"]
        self._finish_command(position, entry_point)
        self._finish_files()

    def _take_code(self, file: CopiedFile, entry_point: str, entry: InstructionEntry | None) -> None:
        proposal = self._proposal
        proposal.code = (file.source, entry_point)
        file.entry.add(Fate.RECIPE, "`code`")
        target = file.target.rstrip("/") or "/"
        texts = [
            *(kept.step.command for kept in proposal.run),
            *(text for text, _ in proposal.environment.values()),
        ]
        is_used = len(target) > 1 and any(target in text for text in texts)
        if target == CODE_DIRECTORY or not is_used:
            proposal.files.remove(file)
        if target != CODE_DIRECTORY and not is_used:
            (entry or file.entry).check(f"the code moves from {file.target} to {CODE_DIRECTORY}")
        program = proposal.environment.pop("SAGEMAKER_PROGRAM", None)
        if program and not entry_point:
            program[1].check(f"`{program[0]}` {_NOT_COPIED}")
        value, spot = proposal.environment.get("SAGEMAKER_SUBMIT_DIRECTORY", ("", file.entry))
        if value.rstrip("/") == CODE_DIRECTORY:
            del proposal.environment["SAGEMAKER_SUBMIT_DIRECTORY"]
            spot.add(Fate.REPLACED, "Bakehouse sets it in images with `code`")

    @property
    def _started(self) -> list[tuple[InstructionEntry, str]]:
        """The words of ENTRYPOINT and CMD."""
        given = [self._starts[name] for name in ("ENTRYPOINT", "CMD") if name in self._starts]
        return [(entry, word) for entry, words in given for word in words]

    def _finish_command(self, position: int, entry_point: str) -> None:
        """Decide ENTRYPOINT and CMD."""
        started = self._started
        texts = [word for _, word in started]
        own = "SageMaker starts `train`, which runs the entry point of `code`"
        for entry in dict.fromkeys(entry for entry, _ in started):
            entry.add(Fate.REPLACED, own)
        if all(text in _CONTAINER_START for text in texts):
            return None
        if position < 0:
            return started[0][0].check(own)
        if not entry_point:
            name = PurePosixPath(texts[position]).name
            return started[position][0].check(
                f"move `{name}` into a directory of its own and name it in `code`"
            )
        plain = [word for word in texts[:position] if not _INTERPRETER.fullmatch(word)]
        if before := " ".join(plain[: -1 if plain[-1:] == ["-m"] else None]):
            reason = f"{before} does not start the script; set the job's `distribution`"
            started[position][0].check(reason)
        if after := texts[position + 1 :]:
            options = dict.fromkeys(word.partition("=")[0] for word in after if word[0:1] == "-") or after
            started[position + 1][0].check(f"pass {' '.join(options)} as hyperparameters of the job")
        return None

    def _finish_files(self) -> None:
        """Place the other files, and remove those that the recipe should not copy."""
        proposal = self._proposal
        read = {*proposal.requirement_files, *proposal.constraint_files}
        steps = "\n".join(kept.step.command for kept in proposal.run)
        plain = re.compile(r"(?:/(?!\.\.?(?:/|$))[A-Za-z0-9._+@-]+)+")
        for file in [*proposal.files]:
            if file.source in read and PurePosixPath(file.target).name not in steps:
                proposal.files.remove(file)
                file.entry.add(Fate.RECIPE, "`requirements`")
            elif not file.is_known:
                proposal.files.remove(file)
                file.entry.check(_UNKNOWN_DIRECTORY)
            elif not plain.fullmatch(file.target.rstrip("/")):
                proposal.files.remove(file)
                reason = "the path has characters that a recipe cannot have"
                file.entry.check("copy it to a directory below /" if file.target == "/" else reason)
            else:
                file.entry.add(Fate.RECIPE, "`files`")

    def _script(self) -> tuple[InstructionEntry | None, int, PurePosixPath | None]:
        """Return the instruction, the position and the path of the script that the image starts."""
        program, entry = self._proposal.environment.get("SAGEMAKER_PROGRAM", ("", None))
        if program and entry:
            if program.startswith("-") or " " in program:
                del self._proposal.environment["SAGEMAKER_PROGRAM"]
                entry.check(
                    "an entry point is a script; write one that starts this command, and name it in `code`"
                )
                return None, -1, None
            return entry, -1, PurePosixPath(CODE_DIRECTORY) / program
        started = self._started
        for position, (own, word) in enumerate(started):
            if _SCRIPT.search(word) and not word.startswith("-"):
                return own, position, joined_path(self._state.directory, word)
        for position, ((_, word), (own, following)) in enumerate(itertools.pairwise(started)):
            # `python -m package.module`
            if word == "-m":
                path = joined_path(self._state.directory, following.replace(".", "/") + ".py")
                if self._proposal.copied(str(path)):
                    return own, position + 1, path
        return None, -1, None
