"""The part of a Dockerfile up to a step of one of its stages."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from bakehouse.util import dockerfile_reader
from bakehouse.util.dockerfile_reader import Instruction

_STEPS = ("ADD", "COPY", "RUN", "WORKDIR")
"""Instructions that BuildKit counts in the position of a step. It also counts a base that is an image."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A mount of a step."""

    kind: str
    """`bind`, `secret`, `cache`, `tmpfs` or `ssh`."""
    target: str
    source: str = ""
    """Path of a bind, or id of a secret."""
    stage: str = ""
    """Stage that a bind reads; empty for the build context."""


@dataclass(frozen=True, slots=True)
class StageCut:
    """End of the part of a Dockerfile that leads to a stage, or to a step of it."""

    stage: str
    end: int
    """Number of the last line of the part."""
    step: Instruction | None = None
    """The step after the part; None at the end of the stage."""
    text: str = ""
    """Lines of the step."""
    copies_binds: bool = False
    """The part ends with copies of the files in the bind mounts of the step."""

    def of(self, dockerfile: str) -> str:
        """Return this part of a Dockerfile, which may be a copy of the original with more mounts."""
        lines = dockerfile.split("\n")[: self.end]
        for mount in self.mounts if self.copies_binds else ():
            if mount.kind == "bind":
                stage = [f"--from={mount.stage}"] if mount.stage else []
                lines.append(" ".join(["COPY", *stage, json.dumps([mount.source, mount.target])]))
        return "".join(f"{line}\n" for line in lines)

    @property
    def mounts(self) -> tuple[Mount, ...]:
        """The mounts of the step."""
        flags = self.step.flags if self.step else ()
        values = (flag.removeprefix("--mount=") for flag in flags if flag.startswith("--mount="))
        return tuple(
            _mount(dict(option.partition("=")[::2] for option in value.split(","))) for value in values
        )

    @property
    def has_network(self) -> bool:
        return self.step is None or "--network=none" not in self.step.flags


def stage_bases(dockerfile: str) -> dict[str, str]:
    """Return the named stages of a Dockerfile with their bases."""
    words = (step.text.split() for step in _instructions(dockerfile) if step.keyword == "FROM")
    return {stage: base for base, *named in words for stage in named[1:]}


def cut_after(dockerfile: str, stage: str) -> StageCut:
    """Return the cut at the end of a stage."""
    return StageCut(stage, _stage_lines(dockerfile, stage)[1])


def cut_above(dockerfile: str, stage: str) -> StageCut:
    """Return the cut before a stage."""
    return StageCut(stage, _stage_lines(dockerfile, stage)[0] - 1)


def cuts_before(dockerfile: str, stage: str) -> list[StageCut]:
    """Return the cut before each step of a stage."""
    first, last = _stage_lines(dockerfile, stage)
    instructions = [item for item in _instructions(dockerfile) if first < item.line <= last]
    ends = [*(item.line - 1 for item in instructions[1:]), last]
    return [
        StageCut(stage, step.line - 1, step, _text(dockerfile, step.line, end))
        for step, end in zip(instructions, ends, strict=bool(instructions))
        if step.keyword in _STEPS
    ]


def cut_before(dockerfile: str, stage: str, position: str) -> StageCut | None:
    """Return the cut before the step at a position of a stage, such as `2/3`; None if no step is there."""
    cuts = cuts_before(dockerfile, stage)
    number, _, count = position.partition("/")
    # Count from the end, because the base and its triggers count as steps before those of the stage
    later = int(count) - int(number) if number.isdecimal() and count.isdecimal() else len(cuts)
    return cuts[-1 - later] if 0 <= later < len(cuts) else None


def _text(dockerfile: str, first: int, last: int) -> str:
    """Return lines without the comments and blank lines at their end."""
    lines = dockerfile.split("\n")[first - 1 : last]
    while lines and (not lines[-1].strip() or lines[-1].startswith("#")):
        lines.pop()
    return "\n".join(lines)


def _mount(options: Mapping[str, str]) -> Mount:
    kind = options.get("type", "bind")
    target = next((options[name] for name in ("target", "dst", "destination") if name in options), "")
    if kind == "secret":
        name = options.get("id", target.rpartition("/")[2])
        return Mount(kind, target or f"/run/secrets/{name}", name)
    source = next((options[name] for name in ("source", "src") if name in options), "/")
    return Mount(kind, target, source, options.get("from", "")) if kind == "bind" else Mount(kind, target)


def _stage_lines(dockerfile: str, stage: str) -> tuple[int, int]:
    """Return the numbers of the first and the last line of a stage."""
    starts = [item for item in _instructions(dockerfile) if item.keyword == "FROM"]
    ends = [*(start.line - 1 for start in starts[1:]), dockerfile.count("\n")]
    return next(
        (start.line, end) for start, end in zip(starts, ends, strict=True) if start.text.split()[-1] == stage
    )


def _instructions(dockerfile: str) -> tuple[Instruction, ...]:
    return tuple(dockerfile_reader.instructions(dockerfile))
