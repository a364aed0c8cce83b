"""Find the instructions of a Dockerfile that create layers, and the component of each layer."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from bakehouse.catalog.run_steps import PLACES
from bakehouse.catalog.size_budget import FILES, REQUIREMENTS, STEPS, SYSTEM
from bakehouse.errors import Diagnostic, Location, Problems, RecipeError
from bakehouse.plan.model import BootstrappedBase, Image, Stage, defines_layer

HEREDOC = re.compile(r'<<"([A-Z0-9]+)"')
REPLACED = "replaced"
"""Owner of the layer that removes files of a frozen base."""
CONSTRAINTS = "constraints"
"""Owner of the layer with the versions that installations must keep."""
_INSTRUCTION = re.compile("([A-Z]+) ")
_LAYER_INSTRUCTIONS = ("RUN", "COPY", "ADD", "WORKDIR")
Texts = Sequence[tuple[Stage, str]]
"""Stages, each with the rendered text of one block of its template."""


@dataclass(frozen=True, slots=True)
class LayerOwner:
    """The component or recipe key that a layer belongs to, and the instruction that creates it."""

    name: str
    instruction: str


def links_system(image: Image, chain: Texts) -> bool:
    """Return whether system layers are linked; `chain` contains the `runtime` blocks of components.

    On a bootstrapped base of locked packages, installed packages never remove files of the base. On a
    vendor base they can, and only a step shows which ones. Raises RecipeError if a block contains an
    instruction that would have no effect, because linking copies only files.
    """
    if not image.locks_apt or not isinstance(image.base, BootstrappedBase):
        return False
    problems = Problems()
    for stage, text in chain:
        for instruction in _instructions(text):
            if instruction in _LAYER_INSTRUCTIONS:
                continue
            message = f"`{instruction}` in the `runtime` block of `{stage.name}` has no effect on the image"
            hint = "set `environment` or `path` in its component.yaml instead"
            location = Location(stage.source / "install.j2", 1, 1, 0, "")
            problems.add(Diagnostic(message, location, hint=hint))
    problems.raise_as(RecipeError)
    return bool(image.apt_debs or chain)


def linked(image: Image, build: Texts) -> list[Stage]:
    """Return the stages that end in a linked layer, lowest first; `build` contains their `build` blocks."""
    names = {stage.name for stage, text in build if defines_layer(text, stage.name)}
    return [stage for stage in image.layers if stage.name in names]


def owners(image: Image, build: Texts, chain: Texts) -> tuple[LayerOwner, ...]:
    """Return the owner of each layer above the base, lowest first: a component or a key of the recipe."""
    steps = {place: [LayerOwner(STEPS, "RUN")] * len(image.content.steps(place)) for place in ("", *PLACES)}
    if links_system(image, chain):
        # Steps before the packages are part of the system layer.
        steps["packages"] = []
        system = [LayerOwner(SYSTEM, "COPY")]
    else:
        system = [LayerOwner(SYSTEM, "RUN")] if image.installs_apt else []
        system += [
            LayerOwner(stage.name, name)
            for stage, text in chain
            for name in _instructions(text)
            if name in _LAYER_INSTRUCTIONS
        ]
    has_files = bool(image.content.own_files)
    stages = linked(image, build)
    own = [stage for stage in stages if stage.name == REQUIREMENTS]
    return (
        *steps["packages"],
        *system,
        *([LayerOwner(REPLACED, "RUN")] if image.frozen and build else []),
        *(LayerOwner(stage.name, "COPY") for stage in stages if stage not in own for _ in stage.copied),
        *steps["requirements"],
        *(LayerOwner(stage.name, "COPY") for stage in own for _ in stage.copied),
        *([LayerOwner(CONSTRAINTS, "COPY")] if image.constraints else []),
        *steps["code"],
        *([LayerOwner(FILES, "COPY")] if has_files else []),
        *steps[""],
    )


def _instructions(text: str) -> list[str]:
    """Return the names of the instructions in a section of a Dockerfile."""
    names, end = [], ""
    for line in text.split("\n"):
        if end:
            end = "" if line == end else end
            continue
        if match := _INSTRUCTION.match(line):
            names.append(match[1])
        if heredoc := HEREDOC.search(line):
            end = heredoc[1]
    return names
