"""Translation of a Dockerfile into a proposal, with the fate of each word."""

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.secrets import kind_of_secret
from bakehouse.catalog.user_files import CODE_DIRECTORY
from bakehouse.commands.dockerfile_import.account import Fate, Word
from bakehouse.commands.dockerfile_import.bases import find_base
from bakehouse.commands.dockerfile_import.index import ReverseIndex
from bakehouse.commands.dockerfile_import.proposal import (
    BUILD_VARIABLES,
    CopiedFile,
    Proposal,
    Wish,
    place,
    replace,
    untranslate,
)
from bakehouse.commands.dockerfile_import.run_step import RunTranslator, joined_path
from bakehouse.commands.dockerfile_import.shell import expanded, has_variables, split_words, unquoted
from bakehouse.util.dockerfile_reader import Instruction, instructions
from bakehouse.util.files import is_directory, is_file
from bakehouse.util.oci import PLATFORM

_ROOT = ("root", "0", "0:0", "root:root")
_WITHOUT_EFFECT = {
    "EXPOSE": "training jobs do not publish ports",
    "HEALTHCHECK": "SageMaker does not run health checks of training jobs",
    "VOLUME": "SageMaker mounts /opt/ml itself",
    "LABEL": "Bakehouse sets the labels of its images",
    "MAINTAINER": "Bakehouse sets the labels of its images",
    "STOPSIGNAL": "SageMaker stops training jobs with SIGTERM",
    "ONBUILD": "training images are not used as base images",
}
_INTERPRETER = re.compile(r"(?:.*/)?python[\d.]*|-u|(?:.*/)?(?:ba)?sh")
_UV_IMAGE = re.compile(r"(?:^|/)astral-sh/uv[:@]")
_FOREIGN_FILES = "write a component, or add the files to the project"
_NOT_COPIED = "is not among the copied files; name it in `code`"
_UV = "Bakehouse locks and installs Python packages with uv itself"
_SCRIPT = re.compile(r"\.(?:py|sh)$")
_CONTAINER_START = ("bash", "sh", "/bin/bash", "/bin/sh", "train", "python", "python3", "/usr/bin/bash")
_OWN_TRAIN = (
    "{} has its own program `train`, which SageMaker would start instead of the toolkit's; "
    "make it the entry point of `code`"
)
_PATHS = (
    *("PATH", "LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH"),
    *("PKG_CONFIG_PATH", "MANPATH"),
)
"""Variables with lists of directories."""
_SYSTEM_PATHS = re.compile(
    r"/(?:usr/)?(?:local/)?s?bin/?|/(?:usr/)?(?:local/)?lib(?:64)?/?|/usr/local/(?:cuda|nvidia)[^:]*"
    r"|/usr/lib/x86_64-linux-gnu"
)
_COMPONENT_PATHS = {
    "/opt/amazon/openmpi": "efa",
    "/opt/amazon/efa": "efa",
    "/opt/amazon/ofi-nccl": "efa",
    "/opt/conda": "python",
    "/root/.local": "python",
    "/root/.cargo": "python",
    "/root/.pyenv": "python",
    "/root/miniconda3": "python",
}
"""Directories of installers, with the component that has these files, there or elsewhere."""


@dataclass(slots=True)
class _Stage:
    name: str
    image: str
    start: Instruction
    content: list[Instruction] = field(default_factory=list)


def translate(text: str, context: Path, catalog: Catalog) -> Proposal:
    """Return the recipe for a Dockerfile. `context` is the directory that COPY reads."""
    return _Translation(context, catalog).run([*instructions(text)])


class _Translation:
    """Translation of one Dockerfile, with the state of its last stage."""

    def __init__(self, context: Path, catalog: Catalog) -> None:
        self._context = context
        self._catalog = catalog
        self._proposal = Proposal()
        index = ReverseIndex(catalog)
        self._runs = RunTranslator(self._proposal, index, context)
        self._index = index
        self._global: dict[str, str] = {}
        """Build arguments before the first FROM."""
        self._variables: dict[str, str] = {}
        self._directory = PurePosixPath("/")
        self._number = -1
        self._last: Instruction | None = None
        self._entrypoint: list[Word] = []
        self._command: list[Word] = []
        self._shell: list[Word] = []
        self._program: Word | None = None
        self._arguments: dict[str, tuple[list[Word], bool]] = {}
        self._texts: list[str] = []
        self._paths: list[tuple[str, str, list[Word]]] = []
        self._builders: dict[str, str] = {}
        """Components by the name of a stage that builds nothing else."""
        self._stages: list[_Stage] = []
        self._used: list[_Stage] = []

    def run(self, given: Sequence[Instruction]) -> Proposal:
        self._read_stages(given)
        for stage in self._stages:
            if stage in self._used:
                self._translate_stage(stage)
            else:
                self._skip_stage(stage)
        self._finish_arguments()
        for name, value, words in self._paths:
            self._set_path(name, value, words)
        self._finish_environment()
        self._place_code()
        if self._shell and self._proposal.run:
            untranslate(self._shell, "steps of `run` use /bin/sh")
        replace(self._shell, "no step of the recipe needs another shell")
        return self._proposal

    def _words(self, instruction: Instruction, *, json: bool = True) -> list[Word]:
        """Return the arguments of an instruction as words in the account."""
        self._begin(instruction)
        if json and instruction.words is not None:
            return [
                self._add(instruction, word, self._expanded(word), instruction.line)
                for word in instruction.words
            ]
        return [
            self._add(
                instruction, word.raw, self._unquoted(word.raw, instruction), instruction.line_at(word.start)
            )
            for word in split_words(instruction.text)
        ]

    def _unquoted(self, raw: str, instruction: Instruction) -> str:
        if instruction.escape != "\\":
            raw = raw.replace("\\", "\\\\").replace(instruction.escape, "\\")
        return unquoted(raw, self._variables)

    def _add(self, instruction: Instruction, raw: str, text: str, line: int) -> Word:
        return self._proposal.account.add(Word(line, raw, text, instruction.keyword, self._number))

    def _begin(self, instruction: Instruction) -> None:
        """Give the words of an instruction a number of their own."""
        if instruction is not self._last:
            self._last = instruction
            self._number -= 1

    def _flags(self, instruction: Instruction) -> list[Word]:
        self._begin(instruction)
        return [
            self._add(instruction, flag, self._expanded(flag), instruction.line) for flag in instruction.flags
        ]

    def _expanded(self, text: str) -> str:
        return expanded(text, self._variables)

    def _read_stages(self, given: Sequence[Instruction]) -> None:
        """Group the instructions into stages, and select the last one with those that it starts from."""
        for instruction in given:
            if instruction.keyword == "FROM":
                words = [unquoted(word, self._global) for word in instruction.text.split()]
                name = words[2] if len(words) == 3 and words[1].lower() == "as" else ""
                self._stages.append(_Stage(name.lower(), words[0] if words else "", instruction))
            elif self._stages:
                self._stages[-1].content.append(instruction)
            elif instruction.keyword == "ARG":
                self._variables = self._global
                self._arg(instruction)
                self._variables = {}
            else:
                self._other(instruction)
        if not self._stages:
            self._proposal.base = find_base("scratch", self._catalog)
            return
        stage = self._stages[-1]
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
        for flag in self._flags(stage.start):
            if flag.text in (
                f"--platform={PLATFORM}",
                "--platform=$BUILDPLATFORM",
                "--platform=$TARGETPLATFORM",
            ):
                replace([flag], "`platforms` of the recipe selects the platform")
            untranslate([flag], "set `platforms` of the recipe")
        self._number -= 1
        words = [
            self._add(stage.start, word, unquoted(word, self._global), stage.start.line)
            for word in stage.start.text.split()
        ]
        if stage is self._used[0]:
            self._proposal.image_words = words
            self._variables = {}
        else:
            replace(words, f"the recipe joins it with stage {stage.image}")
        handlers: dict[str, Callable[[Instruction], None]] = {
            "ADD": self._add_files,
            "ARG": self._arg,
            "CMD": self._cmd,
            "COPY": self._copy,
            "ENTRYPOINT": self._start,
            "ENV": self._env,
            "RUN": self._run,
            "SHELL": self._select_shell,
            "USER": self._user,
            "WORKDIR": self._workdir,
        }
        for instruction in stage.content:
            translate_instruction = handlers.get(instruction.keyword, self._other)
            self._texts.append("\n".join((instruction.text, *instruction.flags, *instruction.heredocs)))
            translate_instruction(instruction)

    def _skip_stage(self, stage: _Stage) -> None:
        """List a stage that the last one does not start from."""
        name = stage.name or str(self._stages.index(stage))
        sources = {
            flag.partition("=")[2].lower()
            for other in self._used
            for instruction in other.content
            for flag in instruction.flags
            if flag.startswith("--from=")
        }
        reason = "only the last stage is translated"
        if name in sources:
            reason = f"it builds files for `COPY --from={name}`; {_FOREIGN_FILES}"
        if name in sources:
            self._translate_builder(stage, name, reason)
            return
        for instruction in (stage.start, *stage.content):
            untranslate(self._all_words(instruction), reason)

    def _all_words(self, instruction: Instruction) -> list[Word]:
        return [*self._flags(instruction), *self._words(instruction), *self._heredoc_words(instruction)]

    def _translate_builder(self, stage: _Stage, name: str, reason: str) -> None:
        """Find the components that a stage builds for others."""
        if _UV_IMAGE.search(stage.image) and not stage.content:
            replace(self._all_words(stage.start), _UV)
            return
        account = self._proposal.account
        builder = Proposal(account=account)
        runs = RunTranslator(builder, self._index, self._context)
        first = len(account.words)
        variables, self._variables = self._variables, {}
        directory = PurePosixPath("/")
        self._all_words(stage.start)
        copied: list[Word] = []
        for instruction in stage.content:
            if instruction.keyword == "RUN":
                runs.run(instruction, directory, self._variables)
                continue
            words = self._all_words(instruction)
            if instruction.keyword in ("COPY", "ADD"):
                copied += words
            for word in words if instruction.keyword in ("ARG", "ENV") else ():
                variable, equals, value = word.text.partition("=")
                known = value if equals else self._global.get(variable)
                if known is not None:
                    self._variables[variable] = known
            if instruction.keyword == "WORKDIR":
                directory = joined_path(directory, words[0].text if words else "")
        self._variables = variables
        owned = {id(word) for wish in builder.wishes.values() for word in wish.words}
        others = [word for word in account.words[first:] if id(word) not in owned]
        is_complete = bool(builder.wishes) and not (
            copied
            or builder.requirements
            or builder.requirement_files
            or builder.run
            or any(word.fate is Fate.UNTRANSLATED for word in others)
        )
        names = ", ".join(f"`{stage}`" for stage in builder.wishes)
        for word in others:
            if word.fate is Fate.RECIPE:
                word.fate = None
        if is_complete:
            self._builders[name] = names
            replace(others, f"build stages of Bakehouse make {names}")
        untranslate(others, reason)
        for wish in builder.wishes.values():
            self._proposal.wish(wish)
        self._proposal.prefixes |= builder.prefixes

    def _heredoc_words(self, instruction: Instruction) -> list[Word]:
        return [
            self._add(instruction, line.strip(), line.strip(), first + number)
            for content, first in zip(instruction.heredocs, instruction.heredoc_lines, strict=True)
            for number, line in enumerate(content.splitlines())
            if line.strip()
        ]

    def _other(self, instruction: Instruction) -> None:
        words = [*self._flags(instruction), *self._words(instruction), *self._heredoc_words(instruction)]
        if not words:
            self._number -= 1
            words = [self._add(instruction, instruction.keyword, "", instruction.line)]
        reason = _WITHOUT_EFFECT.get(instruction.keyword, "it has no equivalent in a recipe")
        untranslate(words, reason)

    def _run(self, instruction: Instruction) -> None:
        self._runs.run(instruction, self._directory, self._variables)

    def _arg(self, instruction: Instruction) -> None:
        for word in self._words(instruction, json=False):
            name, equals, value = word.text.partition("=")
            if kind_of_secret(name, value):
                word.shown = f"{name}=…"
                untranslate([word], "it looks like a secret; set it when the job starts")
            elif equals:
                # A variable of ENV wins.
                self._variables.setdefault(name, value)
                self._arguments.setdefault(name, ([], True))[0].append(word)
            elif name in self._global:
                self._variables.setdefault(name, self._global[name])
                self._arguments.setdefault(name, ([], True))[0].append(word)
            else:
                self._arguments.setdefault(name, ([], False))[0].append(word)

    def _finish_arguments(self) -> None:
        texts = "\n".join((*self._texts, *(stage.start.text for stage in self._stages)))
        for name, (words, has_value) in self._arguments.items():
            if name in BUILD_VARIABLES:
                replace(words, "it only matters to the steps of a Dockerfile")
            elif has_value and re.search(rf"\$\{{?{re.escape(name)}\b", texts):
                replace(words, "the recipe has the default value; use `matrix` for several values")
            elif has_value:
                untranslate(words, "a recipe has no build arguments, and no instruction names this one")
            else:
                untranslate(words, "a recipe has no build arguments; write the value where it is used")

    def _env(self, instruction: Instruction) -> None:
        first = next(iter(split_words(instruction.text)), None)
        if first is None:
            return self._other(instruction)
        if "=" not in first.raw:
            # The form `ENV NAME value`: the value is the rest of the line.
            self._number -= 1
            rest = instruction.text[len(first.raw) :].strip()
            name = self._add(instruction, first.raw, first.raw, instruction.line)
            value = self._add(instruction, rest, self._unquoted(rest, instruction), instruction.line)
            return self._set(first.raw, value.text, [name, value])
        for word in self._words(instruction, json=False):
            name_of, _, value_of = word.text.partition("=")
            word.text = f"{name_of}={value_of}"
            self._set(name_of, value_of, [word])
        return None

    def _set(self, name: str, value: str, words: list[Word]) -> None:
        if kind_of_secret(name, value):
            # The value must not appear in the recipe or in messages.
            words[-1].shown = f"{name}=…" if len(words) == 1 else "…"
            return untranslate(words, "it looks like a secret; set it when the job starts")
        if name in _PATHS:
            # Later steps determine the component that a directory belongs to.
            self._paths.append((name, value, words))
            return None
        if name in BUILD_VARIABLES:
            self._variables[name] = value
            return replace(words, "it only matters to the steps of a Dockerfile")
        if has_variables(value):
            own = re.sub(rf":?\$\{{?{re.escape(name)}\b[^}}:]*\}}?:?", "", value)
            advice = f"the base may set {name}; " if own != value else ""
            return untranslate(
                words, f"{advice}variables are not expanded; write the value into `environment`"
            )
        self._variables[name] = value
        if earlier := self._proposal.environment.get(name):
            replace(earlier[1], f"line {words[0].line} sets it again")
        self._proposal.environment[name] = (value, words)
        if name == "SAGEMAKER_PROGRAM":
            self._program = words[-1]
        return None

    def _set_path(self, name: str, value: str, words: list[Word]) -> None:
        """Translate PATH and LD_LIBRARY_PATH: their directories belong to Bakehouse, or to components."""
        reasons: list[str] = []
        for directory in value.split(":"):
            if not directory or (has_variables(directory) and name in directory):
                continue
            if directory.rstrip("/") == CODE_DIRECTORY:
                if self._train_program(directory):
                    return untranslate(words, _OWN_TRAIN.format(directory))
                reasons.append(f"Bakehouse puts {CODE_DIRECTORY} on PATH")
            elif _SYSTEM_PATHS.fullmatch(directory):
                reasons.append("the base has it")
            elif wish := self._proposal.prefix_of(directory):
                reasons.append(f"the component `{wish.name}` sets its own paths")
            elif component := self._component_path(directory):
                reasons.append(f"the component `{component}` sets its own paths")
            else:
                reason = f"a recipe cannot extend {name}; use the full path of the programs in {directory}"
                if self._train_program(directory):
                    reason = _OWN_TRAIN.format(directory)
                return untranslate(words, reason)
        replace(words, "; ".join(dict.fromkeys(reasons)) or "it adds nothing")
        return None

    def _finish_environment(self) -> None:
        """List variables with paths that only the Dockerfile's image has."""
        environment = self._proposal.environment
        for name, (value, words) in [*environment.items()]:
            paths = re.findall(r"(?<![\w.])/[\w./+-]+", value)
            if name == "LD_PRELOAD" and not re.match(r"/(?:usr/)?lib", value):
                del environment[name]
                untranslate(words, "check that the image has this library, then add it to `environment`")
                continue
            wish = next((wish for path in paths if (wish := self._proposal.prefix_of(path))), None)
            if wish:
                del environment[name]
                reason = f"it names files of {wish.name}, which the component installs elsewhere"
                untranslate(words, f"{reason}; check whether the image needs it")

    def _component_path(self, directory: str) -> str:
        path = PurePosixPath(directory.replace("~", "/root", 1).replace("$HOME", "/root"))
        for prefix, component in _COMPONENT_PATHS.items():
            if path.is_relative_to(prefix):
                return component
        if "smdistributed" in directory and "site-packages" in directory:
            return "smddp"
        # An installation that a later or an earlier step makes
        return next(
            (
                name
                for name, pattern in (
                    ("nccl", r"nccl"),
                    ("open-mpi", r"openmpi|/mpi\b|ompi"),
                    ("gdrcopy", r"gdrcopy"),
                )
                if name in self._proposal.wishes and re.search(pattern, directory)
            ),
            "",
        )

    def _train_program(self, directory: str) -> bool:
        """Return whether a directory on PATH gets a program named `train`."""
        for stage in self._used:
            for instruction in stage.content:
                if instruction.keyword not in ("COPY", "ADD") or any(
                    f.startswith("--from") for f in instruction.flags
                ):
                    continue
                words = [*(instruction.words or instruction.text.split())]
                if len(words) < 2 or not words[-1].rstrip("/").startswith(directory.rstrip("/")):
                    continue
                for source in words[:-1]:
                    path = self._context / source.strip("/")
                    if PurePosixPath(source).name == "train" or is_file(path / "train"):
                        return True
        return False

    def _workdir(self, instruction: Instruction) -> None:
        words = self._words(instruction, json=False)
        path = " ".join(word.text for word in words).strip("\"'")
        self._directory = joined_path(self._directory, path)
        if str(self._directory) in ("/", CODE_DIRECTORY):
            replace(words, f"SageMaker starts training in {CODE_DIRECTORY}")
        elif has_variables(path):
            untranslate(words, "write the path without variables")
        else:
            untranslate(
                words, f"SageMaker starts training in {CODE_DIRECTORY}; paths of the recipe are absolute"
            )

    def _user(self, instruction: Instruction) -> None:
        words = self._words(instruction)
        if instruction.text in _ROOT:
            replace(words, "training images run as root")
        untranslate(words, "training images run as root")

    def _select_shell(self, instruction: Instruction) -> None:
        self._shell += self._words(instruction)

    def _start(self, instruction: Instruction) -> None:
        untranslate(self._entrypoint, "a later ENTRYPOINT replaces it")
        # An ENTRYPOINT replaces the CMD of the stages before it.
        self._entrypoint = self._words(instruction)

    def _cmd(self, instruction: Instruction) -> None:
        untranslate(self._command, "a later CMD replaces it")
        self._command = self._words(instruction)

    def _add_files(self, instruction: Instruction) -> None:
        text = instruction.text
        reason = ""
        if "://" in text or text.startswith("git@"):
            reason = "download the file into the project and pin its checksum"
        elif re.search(r"\.(tar|tgz|tar\.\w+)\s", text):
            reason = "ADD unpacks the archive; unpack it into a directory"
        if not reason:
            return self._copy(instruction)
        words = [*self._flags(instruction), *self._words(instruction)]
        source = next((source for word in words if (source := self._index.find(word.text))), None)
        if source:
            asked = f"=={source.version}" if source.version else ""
            text = f"{source.component} {source.version}".rstrip()
            wish = Wish((source.component,), asked, source.variant, words[0].line, words, text=text)
            self._proposal.wish(wish)
            return None
        return untranslate(words, reason)

    def _copy(self, instruction: Instruction) -> None:
        flags = self._flags(instruction)
        words = self._words(instruction)
        source_stage = next(
            (flag.text.partition("=")[2] for flag in flags if flag.text.startswith("--from=")), ""
        )
        if source_stage:
            return self._copy_from(source_stage, [*flags, *words])
        if instruction.heredocs:
            reason = "write the content into a file of the project and copy it with `files`"
            return untranslate([*flags, *words, *self._heredoc_words(instruction)], reason)
        for flag in flags:
            if flag.text == "--link" or flag.text.removeprefix("--chown=") in _ROOT:
                replace([flag], "files of a recipe belong to root and keep their mode")
            elif flag.text.startswith("--chmod="):
                untranslate([flag], "files of a recipe keep their mode; run `chmod` in the project")
            else:
                untranslate([flag], "files of a recipe belong to root and keep their mode")
        if len(words) < 2:
            return untranslate(words, "it has no target")
        *sources, target = words
        for source in sources:
            self._copy_one(source, target, many=len(sources) > 1)
        if not any(target in file.words for file in self._proposal.files):
            untranslate([target], "none of its sources is in the recipe")
        return None

    def _copy_from(self, stage: str, words: list[Word]) -> None:
        image = next((other.image for other in self._stages if other.name == stage.lower()), stage)
        if _UV_IMAGE.search(image):
            replace(words, _UV)
        elif components := self._builders.get(stage.lower()):
            replace(words, f"the recipe has {components}")
        else:
            if len(words) > 2 and not words[-1].text.endswith("/"):
                self._proposal.missing.add(str(joined_path(self._directory, words[-1].text)))
            untranslate(words, f"it copies from {stage}; {_FOREIGN_FILES}")

    def _copy_one(self, source: Word, target: Word, *, many: bool) -> None:
        path = source.text.strip("/").removeprefix("./").rstrip("/") or "."
        directory = joined_path(self._directory, target.text)
        if has_variables(source.text + target.text):
            return untranslate([source], "write the path without variables")
        if re.search(r"[*?\[]", path):
            matches = sorted(found for found in self._context.glob(path)) if ".." not in path else []
            if not matches:
                return untranslate([source], f"`{path}` matches nothing next to the Dockerfile")
            for match in matches:
                name = match.relative_to(self._context).as_posix()
                inside = directory if is_directory(match) else directory / match.name
                self._proposal.files.append(CopiedFile(name, str(inside), (source, target)))
            return None
        if path == ".." or path.startswith("../"):
            return untranslate([source], "it is outside the build context")
        if is_directory(self._context / path):
            self._proposal.files.append(CopiedFile(path, str(directory), (source, target)))
        elif is_file(self._context / path):
            is_inside = (
                many
                or target.text.endswith("/")
                or target.text in (".", "..")
                or directory == self._directory
            )
            is_inside = is_inside or any(
                str(directory) == file.target.rstrip("/")
                for file in self._proposal.files
                if is_directory(self._context / file.source)
            )
            name_in_image = directory / PurePosixPath(path).name if is_inside else directory
            self._proposal.files.append(CopiedFile(path, str(name_in_image), (source, target)))
        else:
            self._proposal.missing |= {str(directory), str(directory / PurePosixPath(path).name)}
            return untranslate([source], f"`{path}` does not exist next to the Dockerfile")
        return None

    def _place_code(self) -> None:
        """Select the copied directory with the script that the image starts as its training code."""
        proposal = self._proposal
        script_word, script = self._script()
        started = [*self._entrypoint, *self._command]
        file, entry_point = None, ""
        for directory, source in proposal.sources(str(script)) if script else ():
            if is_directory(self._context / directory.source) and is_file(self._context / source):
                file, entry_point = directory, str(PurePosixPath(source).relative_to(directory.source))
                break
        if file is None:
            # If no script is known, the directory with the target of the code is the code.
            file = next(
                (
                    file
                    for file in proposal.files
                    if file.target.rstrip("/") == CODE_DIRECTORY and is_directory(self._context / file.source)
                ),
                None,
            )
        if file:
            self._take_code(file, entry_point, script_word, started)
        elif script and (single := proposal.copied(str(script))) and is_file(self._context / single.source):
            self._take_script(single, script, script_word, started)
        elif script_word and script_word is self._program:
            reason = (
                f"`{script_word.text.partition('=')[2] or script_word.text}` is not among the copied files"
            )
            untranslate(self._variable_words("SAGEMAKER_PROGRAM"), f"{reason}; name it in `code`")
            proposal.environment.pop("SAGEMAKER_PROGRAM", None)
        self._finish_command(started, script_word, entry_point)
        self._finish_files()

    def _take_code(
        self, file: CopiedFile, entry_point: str, script_word: Word | None, started: list[Word]
    ) -> None:
        proposal = self._proposal
        proposal.code = (file.source, entry_point)
        proposal.files.remove(file)
        place(file.words, "code")
        if file.target.rstrip("/") != CODE_DIRECTORY:
            line = (script_word or file.words[0]).line
            keyword = (script_word or file.words[0]).keyword
            shown = " ".join(
                word.report_text
                for word in (started if script_word in started else [script_word or file.words[0]])
            )
            proposal.account.note(
                line, f"{keyword} {shown}", f"the code moves from {file.target} to {CODE_DIRECTORY}"
            )
            reason = f"the code moves from {file.target} to {CODE_DIRECTORY}"
            self._drop_steps(file.target, reason)
            for name, (value, words) in proposal.environment.items():
                if file.target.rstrip("/") in value and len(PurePosixPath(file.target).parts) > 1:
                    proposal.account.note(words[0].line if words else line, f"ENV {name}={value}", reason)
        if self._program:
            words = self._variable_words("SAGEMAKER_PROGRAM")
            if entry_point:
                place(words, "code")
            else:
                untranslate(words, f"`{proposal.environment['SAGEMAKER_PROGRAM'][0]}` {_NOT_COPIED}")
            proposal.environment.pop("SAGEMAKER_PROGRAM", None)
        self._drop_submit_directory()

    def _take_script(
        self, file: CopiedFile, script: PurePosixPath, script_word: Word | None, started: list[Word]
    ) -> None:
        """Keep a script that COPY brings without its directory."""
        proposal = self._proposal
        if str(script).startswith(f"{CODE_DIRECTORY}/") and self._program is None:
            relative = str(script.relative_to(CODE_DIRECTORY))
            proposal.environment["SAGEMAKER_PROGRAM"] = (relative, [])
            place([script_word] if script_word else [], "environment")
        elif not str(script).startswith(f"{CODE_DIRECTORY}/"):
            reason = f"move `{script.name}` into a directory of its own and name it in `code`"
            untranslate([word for word in started if word is script_word], reason)

    def _drop_steps(self, path: str, reason: str) -> None:
        """Remove the steps that use files which the recipe does not have there."""
        for step, words in [*self._proposal.run]:
            if path.rstrip("/") in step and len(PurePosixPath(path).parts) > 1:
                self._proposal.run.remove((step, words))
                for word in words:
                    word.fate = None
                untranslate(words, reason)

    def _drop_submit_directory(self) -> None:
        value, words = self._proposal.environment.get("SAGEMAKER_SUBMIT_DIRECTORY", ("", []))
        if value.rstrip("/") == CODE_DIRECTORY:
            del self._proposal.environment["SAGEMAKER_SUBMIT_DIRECTORY"]
            replace(words, "Bakehouse sets it in images with `code`")

    def _variable_words(self, name: str) -> list[Word]:
        return next(
            (words for other, (_, words) in self._proposal.environment.items() if other == name), []
        ) or ([self._program] if self._program and name == "SAGEMAKER_PROGRAM" else [])

    def _finish_command(self, started: list[Word], script_word: Word | None, entry_point: str) -> None:
        """Decide the words of ENTRYPOINT and CMD."""
        texts = [word.text for word in started]
        if not started:
            return
        if all(text in (*_CONTAINER_START, "-c", "--login", "-l") for text in texts):
            replace(started, "SageMaker starts `train`, which runs the entry point of `code`")
            return
        is_code = script_word in started
        if not is_code:
            reason = "SageMaker starts `train`, which runs the entry point of `code`"
            untranslate(started, reason)
            return
        position = next(number for number, word in enumerate(started) if word is script_word)
        before = [
            word
            for number, word in enumerate(started[:position])
            if not _INTERPRETER.fullmatch(word.text) and (word.text, number) != ("-m", position - 1)
        ]
        if entry_point:
            place([script_word] if script_word else [], "code")
            replace(
                [word for word in started[:position] if word not in before], "`train` starts the entry point"
            )
            name = " ".join(word.text for word in before)
            untranslate(before, f"{name} does not start the script; set the job's `distribution`")
            after = started[position + 1 :]
            options = " ".join(
                dict.fromkeys(word.text for word in after if word.text.startswith("-"))
            ) or " ".join(word.text for word in after)
            untranslate(after, f"pass {options} as hyperparameters of the job")
        script = script_word.text if script_word else ""
        untranslate(
            started, f"move `{PurePosixPath(script).name}` into a directory of its own and name it in `code`"
        )

    def _finish_files(self) -> None:
        """Place the other files, and remove those that the recipe should not copy."""
        proposal = self._proposal
        read = {*proposal.requirement_files, *proposal.constraint_files}
        for file in [*proposal.files]:
            if file.source in read:
                proposal.files.remove(file)
                key = "requirements"
                place(file.words, key)
            elif file.source == ".":
                proposal.files.remove(file)
                reason = "it copies the whole project; copy the directories that the image needs"
                untranslate(file.words, reason)
                self._drop_steps(file.target, "it uses files of a COPY that is not translated")
            elif not re.fullmatch(r"(?:/(?!\.\.?(?:/|$))[A-Za-z0-9._+@-]+)+", file.target.rstrip("/")):
                proposal.files.remove(file)
                reason = "the path has characters that a recipe cannot have"
                untranslate(file.words, "copy it to a directory below /" if file.target == "/" else reason)
        for file in proposal.files:
            place(file.words, "files")

    def _script(self) -> tuple[Word | None, PurePosixPath | None]:
        """Return the word and the path of the script that the image starts."""
        program, words = self._proposal.environment.get("SAGEMAKER_PROGRAM", ("", []))
        if program:
            word = words[-1] if words else None
            if program.startswith("-") or " " in program:
                del self._proposal.environment["SAGEMAKER_PROGRAM"]
                untranslate(
                    words,
                    "an entry point is a script; write one that starts this command, and name it in `code`",
                )
                self._program = None
                return None, None
            return word, PurePosixPath(CODE_DIRECTORY) / program
        started = [*self._entrypoint, *self._command]
        for word in started:
            if _SCRIPT.search(word.text) and not word.text.startswith("-"):
                return word, joined_path(self._directory, word.text)
        for word, following in itertools.pairwise(started):
            # `python -m package.module`
            if word.text == "-m":
                path = joined_path(self._directory, following.text.replace(".", "/") + ".py")
                if self._proposal.copied(str(path)):
                    return following, path
        return None, None
