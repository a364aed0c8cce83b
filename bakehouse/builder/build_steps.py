"""Steps of rendered Dockerfiles, identified by keys. Images that run the same step share its key."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NewType

from bakehouse.builder.code_copies import CODE
from bakehouse.engine.buildx import Target
from bakehouse.util import dockerfile_reader
from bakehouse.util.dockerfile_reader import Instruction
from bakehouse.util.files import read_bytes
from bakehouse.util.hashing import key_of

StepKey = NewType("StepKey", str)
"""64 hex digits: a hash of an instruction, of the files that it reads, and of all steps that it builds on."""

# Without an image manifest, Amazon ECR rejects a cache
CACHE_EXPORT = "mode=max,image-manifest=true,oci-mediatypes=true,compression=zstd"
"""Options of a cache export by BuildKit."""
_INPUTS = "inputs"
"""Stage whose files are mounted one by one, so that a step depends only on those that it mounts."""
_RUNS = ("RUN", "COPY", "ADD")


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
class _State:
    """State of a stage after some of its instructions."""

    key: str
    needs: frozenset[StepKey] = frozenset()


def read_steps(dockerfile: str, directory: Path, code: Path) -> tuple[BuildStep, ...]:
    """Return the steps that the last stage of a Dockerfile needs, in their order.

    `directory` is the context, and `code` has the files of the stage of training code. Copies with `--link`
    are left out, because BuildKit only lists their layers. The steps that they copy from are included.
    """
    steps: list[BuildStep] = []
    stages: dict[str, _State] = {}
    stage, state = "", _State("")
    for instruction, end in _instruction_ends(dockerfile):
        if instruction.keyword == "FROM":
            words = instruction.text.split()
            stage, state = words[-1], stages.get(words[0]) or _State(key_of(words[0]))
            if stage == CODE:
                state = _State(_content(code))
        else:
            sources = [stages[name] for name in _sources(instruction) if name in stages and name != _INPUTS]
            needs = state.needs.union(*(source.needs for source in sources))
            key = key_of(
                state.key,
                repr((instruction.keyword, instruction.flags, instruction.text, instruction.heredocs)),
                *(source.key for source in sources),
                *(_content(directory / path) for path in _paths(instruction, stage)),
            )
            if instruction.keyword in _RUNS and stage != _INPUTS and "--link" not in instruction.flags:
                needs |= {StepKey(key)}
                steps.append(BuildStep(StepKey(key), stage, end, needs))
            state = _State(key, needs)
        stages[stage] = state
    return tuple(step for step in steps if step.key in state.needs)


def part_of(target: Target, dockerfile: str, step: BuildStep, *, name: str, cache_to: str) -> Target:
    """Return a target that builds `target` up to a step, and exports the result to a cache."""
    # Its lines keep their numbers
    text = "".join(dockerfile.splitlines(keepends=True)[: step.end])
    return replace(
        target, target=name, part_of=target.target, dockerfile=text, stage=step.stage, cache_to=cache_to
    )


def _instruction_ends(dockerfile: str) -> Iterator[tuple[Instruction, int]]:
    """Yield the instructions with the numbers of their last lines."""
    instructions = [*dockerfile_reader.instructions(dockerfile)]
    ends = [*(instruction.line - 1 for instruction in instructions[1:]), len(dockerfile.splitlines())]
    return zip(instructions, ends, strict=True)


def _options(instruction: Instruction) -> Iterator[dict[str, str]]:
    """Yield the options of `--from` and of each `--mount`."""
    for flag in instruction.flags:
        name, _, value = flag.partition("=")
        if name == "--from":
            yield {"from": value}
        elif name == "--mount":
            yield dict(option.partition("=")[::2] for option in value.split(","))


def _sources(instruction: Instruction) -> list[str]:
    """Return the stages and contexts that a step reads."""
    return [options["from"] for options in _options(instruction) if "from" in options]


def _paths(instruction: Instruction, stage: str) -> list[str]:
    """Return the files and directories of the context that a step reads, also through the stage `inputs`."""
    copied = instruction.text.split()[:-1] if instruction.keyword in ("COPY", "ADD") else []
    options = [*_options(instruction)]
    mounted = [mount.get("source", "/") for mount in options if mount.get("from") == _INPUTS and not copied]
    if copied and _sources(instruction) == [_INPUTS]:
        mounted = copied
    elif copied and not _sources(instruction) and stage != _INPUTS:
        return copied
    return [f"{_INPUTS}/{path.lstrip('/')}" for path in mounted]


def _content(path: Path) -> str:
    """Return a hash of a file, or of all files of a directory."""
    files: Iterable[Path] = sorted(path.rglob("*")) if path.is_dir() else [path]
    contents = (
        (str(file.relative_to(path.parent)), hashlib.sha256(read_bytes(file)).hexdigest())
        for file in files
        if file.is_file()
    )
    return key_of(*(text for content in contents for text in content))
