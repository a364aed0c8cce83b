"""Keys of the steps of a Dockerfile: hashes of what BuildKit reads to run them, and of nothing else.

The key of a step covers the instruction, the content of the files that it mounts or copies, the keys of the
stages that it reads, the step before it, and the environment, directory and user of that moment. Comments,
labels, and the names of mounted files are left out, as in BuildKit's own cache. A base is its digest.
"""

import csv
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import Any, NewType

from bakehouse.plan.model import ImageKey, StageKey
from bakehouse.util import dockerfile_reader
from bakehouse.util.dockerfile_reader import WORD, Instruction
from bakehouse.util.files import files_below, read_bytes
from bakehouse.util.hashing import bytes_digest, key_of

StepKey = NewType("StepKey", str)
"""64 hex digits: a hash of an instruction, of the files that it reads, and of all steps that it builds on."""


@dataclass(frozen=True, slots=True)
class FileContent:
    """A file as BuildKit compares it: without its name and times."""

    sha256: str
    mode: str
    owner: str = ""


Tree = Mapping[str, FileContent]
"""Files by path, without a leading slash."""


@dataclass(frozen=True, slots=True)
class BuildStep:
    """One instruction that changes files."""

    key: StepKey
    stage: str
    end: int
    """Number of its last line; comments and blank lines that follow belong to it."""
    needs: frozenset[StepKey]
    """Keys of all steps that it builds on, and its own key."""


@dataclass(frozen=True, slots=True)
class LayerStep:
    """The step that makes a layer of the last stage."""

    key: StepKey
    needs: frozenset[StepKey]
    """Keys of all steps and images that it builds on, without its own. Linked copies need none below them."""
    source: str = ""
    """The stage that a copy reads."""


@dataclass(frozen=True, slots=True)
class DockerfileKeys:
    """Keys of the last stage of a Dockerfile and of what it needs."""

    steps: tuple[BuildStep, ...]
    """In their order. Copies with `--link` are left out, because BuildKit only lists their layers."""
    layers: tuple[LayerStep, ...]
    """The step that makes each layer above the base, lowest first."""
    stages: Mapping[str, StageKey]
    """Keys of all stages by name."""
    images: Mapping[str, StepKey]
    """Keys of the images that stages start from or read, by name."""
    image: ImageKey


@dataclass(slots=True)
class _State:
    """A stage after some of its instructions, which replace values and change none."""

    files: str
    """Key of the last step, or of the base."""
    needs: frozenset[StepKey] = frozenset()
    layers: tuple[LayerStep, ...] = ()
    tree: Tree | None = None
    """All files, if they were only copied from known ones."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of RUN steps in the order in which they were set."""
    directory: str = ""
    """Empty for the directory of the base."""
    user: str = ""
    shell: str = ""
    configuration: Mapping[str, Any] = field(default_factory=dict)


_CONTENT_FLAGS = ("--chmod", "--chown", "--from", "--link")
_LISTS = ("EXPOSE", "ONBUILD", "VOLUME")
_WITHOUT_CONFIGURATION = ("ADD", "COPY", "LABEL", "RUN")
_FROM = re.compile(r"^(?=FROM )", re.MULTILINE)
_END = "end-of-part"
_VARIABLE = re.compile(r"\$\{?(\w+)")
_QUOTED = re.compile(r"\\(.)|'([^']*)'|\"((?:\\.|[^\"\\])*)\"", re.DOTALL)
_HEREDOC = re.compile(r"<<-?([\"']?)[^\s<\"']+\1")
_PLATFORM_ARGUMENT = re.compile(r"(TARGET|BUILD)(PLATFORM|OS|ARCH|VARIANT)")
_MOUNT_NAMES = {
    **{"src": "source", "dst": "target", "destination": "target"},
    **{"ro": "readonly", "rw": "readwrite"},
}


def read_steps(
    dockerfile: str,
    context: Tree,
    *,
    platform: str,
    contexts: Mapping[str, Tree] | None = None,
    arguments: Mapping[str, str] | None = None,
) -> DockerfileKeys:
    """Return the keys of a Dockerfile; `contexts` replace stages and images, `arguments` are of the build."""
    instructions = [*_instruction_ends(dockerfile)]
    if any(instruction.escape != "\\" for instruction, _ in instructions):
        # The quotes of such files are not read: every edit changes every key
        platform += key_of(dockerfile)
    reader = _Reader(context, platform, contexts or {}, arguments or {})
    for instruction, end in instructions:
        reader.read(instruction, end)
    return reader.result()


def tree_of(directory: Path, *names: str) -> Tree:
    """Return the files of a directory, or of some of its subdirectories, by path."""
    roots = [directory / name for name in names] or [directory]
    files = (file for root in roots for file in files_below(root))
    return {
        file.relative_to(directory).as_posix(): file_content(
            read_bytes(file), is_executable=bool(file.stat().st_mode & 0o100)
        )
        for file in files
    }


def forget() -> None:
    """Clear the caches of parsed steps."""
    for cached in (_chunk_ends, _mount_options, _shared_key, dockerfile_reader.split):
        cached.cache_clear()


def file_content(content: bytes, *, is_executable: bool) -> FileContent:
    return FileContent(bytes_digest(content), "755" if is_executable else "644")


class _Reader:
    """The stages of a Dockerfile that was read up to an instruction."""

    def __init__(
        self, context: Tree, platform: str, contexts: Mapping[str, Tree], arguments: Mapping[str, str]
    ) -> None:
        self._context, self._platform, self._arguments = context, platform, arguments
        self._contexts = {name.lower(): tree for name, tree in contexts.items()}
        self._globals: dict[str, str] = {}
        self._states: dict[str, _State] = {}
        self._steps: list[BuildStep] = []
        self._images: dict[str, StepKey] = {}
        self._stage, self._count = "", 0
        self._has_command = False

    def result(self) -> DockerfileKeys:
        last = self._states.get(self._stage) or _State("")
        stages = {name: StageKey(state.files) for name, state in self._states.items()}
        steps = tuple(step for step in self._steps if step.key in last.needs)
        image = key_of(last.files, {**last.configuration})
        return DockerfileKeys(steps, last.layers, stages, self._images, ImageKey(image))

    def read(self, instruction: Instruction, end: int) -> None:
        """Add an instruction that ends with a line."""
        keyword = instruction.keyword
        if keyword == "FROM":
            self._start(instruction)
            return
        if not self._stage:
            self._globals |= self._argument_values(instruction, self._globals)
            return
        state = self._states[self._stage]
        if keyword == "RUN":
            self._add_step(state, end, *self._run(instruction, state))
        elif keyword in ("COPY", "ADD"):
            self._copy(instruction, state, end)
        elif keyword == "WORKDIR":
            state.directory = posixpath.join(state.directory, _plain(instruction.text, state.environment))
            self._add_step(state, end, key_of(state.files, "mkdir", state.directory, state.user), frozenset())
        if keyword not in _WITHOUT_CONFIGURATION:
            self._configure(instruction, state)

    def _start(self, instruction: Instruction) -> None:
        base, _, name = (*instruction.text.split(), "", "", "")[:3]
        base = _plain(base, self._globals)
        flags = [_plain(flag, self._globals) for flag in instruction.flags]
        self._stage, self._count = (name or str(self._count)).lower(), self._count + 1
        self._has_command = False
        if self._stage in self._contexts:
            state = self._named(self._stage)
        elif base == "scratch":
            state = _State(key_of("scratch"), tree={})
        else:
            known = self._states.get(base.lower())
            state = replace(known) if known else self._named(base, flags)
        self._states[self._stage] = state

    def _named(self, name: str, flags: Iterable[str] = ()) -> _State:
        """Return a named context or an image. Two names of one digest are the same image."""
        if (tree := self._contexts.get(name.lower())) is not None:
            return _State(_content(tree, "/"), tree=tree)
        key = StepKey(key_of("image", name.partition("@")[2] or name, self._platform, *flags))
        self._images[name] = key
        return _State(key, frozenset({key}))

    def _argument_values(self, instruction: Instruction, known: Mapping[str, str]) -> dict[str, str]:
        values: dict[str, str] = {}
        for match in WORD.finditer(instruction.text) if instruction.keyword == "ARG" else ():
            name, has_default, default = match[0].partition("=")
            value = _plain(default, {**known, **values}) if has_default else self._globals.get(name)
            if value is None and _PLATFORM_ARGUMENT.fullmatch(name):
                value = self._platform
            value = self._arguments.get(name, value)
            if value is not None:
                values[name] = value
        return values

    def _add_step(
        self,
        state: _State,
        end: int,
        key: str,
        needs: frozenset[StepKey],
        source: str = "",
        *,
        linked: bool = False,
    ) -> None:
        step = StepKey(key)
        state.layers = *state.layers, LayerStep(step, needs if linked else needs | state.needs, source)
        state.tree = None
        if linked:
            state.files = key_of(state.files, step)
            state.needs |= needs
        else:
            state.files = step
            state.needs |= {*needs, step}
            self._steps.append(BuildStep(step, self._stage, end, state.needs))

    def _run(self, instruction: Instruction, state: _State) -> tuple[str, frozenset[StepKey]]:
        needs: frozenset[StepKey] = frozenset()
        others, mounts = [], []
        for flag in (_plain(flag, state.environment) for flag in instruction.flags):
            name, _, value = flag.partition("=")
            if name != "--mount":
                others.append(flag)
                continue
            mount, below = self._mount(value, state)
            mounts.append(mount)
            needs |= below
        # BuildKit sorts mounts of files by their target; the others keep their order
        mounts.sort(key=itemgetter(0))
        surroundings = tuple(state.environment.items()), state.directory, state.user, state.shell
        details = tuple(sorted(others)), tuple(mounts), surroundings, self._platform
        # An exec form cannot be hashed
        key = _shared_key if instruction.words is None else key_of
        return key(state.files, "run", _command(instruction), *details), needs

    def _mount(self, text: str, state: _State) -> tuple[tuple[Any, ...], frozenset[StepKey]]:
        kind, name, source, target, options = _mount_options(text)
        target = posixpath.join(state.directory, target)
        content, needs = self._source(name, source) if kind == "bind" or name else (source, frozenset())
        position = target if kind in ("bind", "cache", "tmpfs") else ""
        return (position, kind, target, options, content), needs

    def _source(self, name: str | None, path: str) -> tuple[object, frozenset[StepKey]]:
        """Return what identifies the files at a path of the context, or of a stage or image."""
        state = self._stage_or_image(name)
        tree = self._context if state is None else state.tree
        if tree is not None:
            return _content(tree, path), frozenset()
        assert state is not None
        return (state.files, posixpath.normpath(f"/{path}")), state.needs

    def _stage_or_image(self, name: str | None) -> _State | None:
        if name is None:
            return None
        if name.lower() in self._states:
            return self._states[name.lower()]
        numbered = [*self._states.values()]
        return numbered[int(name)] if name.isdecimal() and int(name) < len(numbered) else self._named(name)

    def _copy(self, instruction: Instruction, state: _State, end: int) -> None:
        flags = [_plain(flag, state.environment).partition("=") for flag in instruction.flags]
        options = {name: value for name, _, value in flags}
        name = options.get("--from")
        words = instruction.words or instruction.text.split()
        *sources, target = (_plain(word, state.environment) for word in words)
        linked = "--link" in options and options["--link"] != "false"
        contents, needs = [], frozenset[StepKey]()
        for source in sources:
            content, below = self._source(name, source)
            # A copy into a directory keeps the name
            contents.append((posixpath.basename(posixpath.normpath(source)), content))
            needs |= below
        place = posixpath.join(state.directory, target)
        own = tuple(sorted(item for item in options.items() if item[0] not in ("--from", "--link")))
        is_plain = (
            instruction.keyword == "COPY" and options.keys() <= {*_CONTENT_FLAGS} and not instruction.bodies
        )
        # What a source means then depends on its text
        texts = () if is_plain else (instruction.keyword, instruction.bodies, tuple(sources))
        key = _shared_key(*(() if linked else (state.files,)), "copy", tuple(contents), place, own, texts)
        origin, before = self._stage_or_image(name), state.tree
        known = self._context if origin is None else origin.tree
        self._add_step(state, end, key, needs, name or "", linked=linked)
        if before is None or known is None or not is_plain:
            return
        tree = {**before}
        for source in sources:
            if any(character in source for character in "*?["):
                return
            for path, content in _placed(known, source, place, tree):
                tree[path] = replace(
                    content,
                    mode=options.get("--chmod", content.mode),
                    owner=options.get("--chown", content.owner),
                )
        state.tree = tree

    def _configure(self, instruction: Instruction, state: _State) -> None:
        """Apply what an instruction changes for later steps and the image's configuration."""
        keyword, text = instruction.keyword, instruction.text
        state.configuration = configuration = {**state.configuration}
        if keyword == "ENV":
            new = _environment(text, state.environment)
            variables = {**dict(configuration.get("ENV") or ()), **new}
            configuration["ENV"] = [*variables.items()]
            state.environment = {**state.environment, **new}
        elif keyword == "ARG":
            new = self._argument_values(instruction, state.environment)
            state.environment = {**state.environment, **new}
        elif keyword == "WORKDIR":
            configuration[keyword] = state.directory
        elif keyword == "USER":
            configuration[keyword] = state.user = _plain(text, state.environment)
        elif keyword == "SHELL":
            configuration[keyword] = state.shell = repr(instruction.words)
        elif keyword in ("CMD", "ENTRYPOINT", "HEALTHCHECK", "MAINTAINER", "STOPSIGNAL", *_LISTS):
            value: object = [*instruction.flags, *(instruction.words or [_bound(text, state.environment)])]
            value = [value, instruction.words is None, state.shell]
            configuration[keyword] = [*configuration.get(keyword, ()), value] if keyword in _LISTS else value
            if keyword == "ENTRYPOINT" and not self._has_command:
                configuration["CMD"] = None
            self._has_command |= keyword == "CMD"


# Images share most of their steps
_shared_key = lru_cache(8192)(key_of)


@lru_cache(4096)
def _mount_options(text: str) -> tuple[str, str | None, str, str, tuple[tuple[str, str], ...]]:
    """Return kind, stage, source, target and other options of a mount."""
    options = {}
    for item in next(csv.reader([text]), []):
        option, _, value = item.partition("=")
        options[_MOUNT_NAMES.get(option.lower(), option.lower())] = value
    kind, source, name = options.pop("type", "bind"), options.pop("source", "/"), options.pop("from", "")
    if kind == "secret" and "env" not in options:
        options.setdefault("target", f"/run/secrets/{options.get('id', '')}")
    return kind, name or None, source, options.pop("target", ""), tuple(sorted(options.items()))


def _instruction_ends(dockerfile: str) -> Iterator[tuple[Instruction, int]]:
    """Yield the instructions with the numbers of their last lines."""
    chunks = _FROM.split(dockerfile)
    parsed = [_chunk_ends(chunk) for chunk in chunks]
    if None in parsed:
        # A here-document contains the line of a stage
        chunks, parsed = [dockerfile], [_ends(dockerfile_reader.instructions(dockerfile), dockerfile)]
    first = 0
    for chunk, instructions in zip(chunks, parsed, strict=True):
        yield from ((instruction, first + end) for instruction, end in instructions or ())
        first += chunk.count("\n")


# Most stages are in many images
@lru_cache(4096)
def _chunk_ends(text: str) -> tuple[tuple[Instruction, int], ...] | None:
    """Return the instructions of a part of a Dockerfile; None if the last one does not end there."""
    *instructions, last = dockerfile_reader.instructions(f"{text}\nFROM {_END}\n")
    is_whole = (last.keyword, last.text) == ("FROM", _END)
    return _ends(instructions, text) if is_whole else None


def _ends(instructions: Iterable[Instruction], text: str) -> tuple[tuple[Instruction, int], ...]:
    parsed = [*instructions]
    ends = [*(instruction.line - 1 for instruction in parsed[1:]), text.count("\n") + (text[-1:] != "\n")]
    return tuple(zip(parsed, ends, strict=False))


def _command(instruction: Instruction) -> object:
    """Return what a RUN step executes. A shell gets the content of its only here-document as the command."""
    if instruction.words is not None:
        return {"exec": instruction.words}
    bodies, text = instruction.bodies, instruction.text
    if len(bodies) == 1 and _HEREDOC.fullmatch(text) and not bodies[0].startswith("#!"):
        return re.sub(r"^\t+", "", bodies[0], flags=re.MULTILINE) if text.startswith("<<-") else bodies[0]
    return (text, *bodies)


def _content(tree: Tree, path: str) -> str:
    """Return the identity of a file without its name, or of a directory with the names below it."""
    place = posixpath.normpath(f"/{path}").lstrip("/")
    if any(character in path for character in "*?["):
        return key_of("pattern", path, _content(tree, "/"))
    if place in tree:
        return _key(tree[place])
    prefix = f"{place}/" if place else ""
    below = {name[len(prefix) :]: content for name, content in tree.items() if name.startswith(prefix)}
    return key_of("directory", [(name, _key(content)) for name, content in sorted(below.items())])


@lru_cache(8192)
def _key(content: FileContent) -> str:
    return " ".join((content.sha256, content.mode, content.owner))


def _placed(known: Tree, source: str, target: str, tree: Tree) -> Iterator[tuple[str, FileContent]]:
    """Yield the files that a copy creates, by path."""
    path = posixpath.normpath(f"/{source}").lstrip("/")
    place = posixpath.normpath(f"/{target}").lstrip("/")
    if path in known:
        is_directory = target.endswith("/") or any(name.startswith(f"{place}/") for name in tree) or not place
        yield posixpath.join(place, posixpath.basename(path)) if is_directory else place, known[path]
        return
    prefix = f"{path}/" if path else ""
    for name, content in known.items():
        if name.startswith(prefix):
            yield posixpath.join(place, name[len(prefix) :]), content


def _environment(text: str, known: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that ENV sets."""
    words = [match[0] for match in WORD.finditer(text)]
    if words and "=" in words[0]:
        pairs = [word.partition("=")[::2] for word in words]
    else:
        name, _, value = text.partition(" ")
        pairs = [(name, value.strip())]
    return {name: _plain(value, known) for name, value in pairs}


def _plain(text: str, known: Mapping[str, str]) -> str:
    """Return a text without quotes, or one that identifies it together with the variables that it uses."""
    if "$" in text:
        return _bound(text, known)
    if "\\" not in text and "'" not in text and '"' not in text:
        return text
    return _QUOTED.sub(
        lambda match: match[1] or match[2] or re.sub(r'\\(["$\\])', r"\1", match[3] or ""), text
    )


def _bound(text: str, known: Mapping[str, str]) -> str:
    """Return a text with the values of the variables that it uses; those of the base follow from its key."""
    values = {name: known[name] for name in _VARIABLE.findall(text) if name in known}
    return f"{text} {key_of(values)}" if values else text
