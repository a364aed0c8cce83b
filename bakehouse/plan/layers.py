"""Which instructions of a Dockerfile make the layers of its image, and whose these are."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from bakehouse.catalog.size_budget import FILES, STEPS, SYSTEM
from bakehouse.errors import Diagnostic, Location, RecipeError
from bakehouse.plan.model import BootstrappedBase, Image, Stage, ships

HEREDOC = re.compile(r'<<"([A-Z0-9]+)"')
REPLACED = "replaced"
"""Whose layer it is in which files of a frozen base are taken away."""
_INSTRUCTION = re.compile("([A-Z]+) ")
_LAYER_WORDS = ("RUN", "COPY", "ADD", "WORKDIR")
Texts = Sequence[tuple[Stage, str]]
"""Stages, and what one block of their templates says."""


@dataclass(frozen=True, slots=True)
class LayerOwner:
    """What a layer belongs to, and the instruction that makes it."""

    name: str
    instruction: str


def links_system(image: Image, chain: Texts) -> bool:
    """Whether what is installed into the base is linked, `chain` being what parts do there.

    On a base made of locked packages none takes a file of the base away; what a base that is pulled loses to
    one is told by a step alone. Raises RecipeError where a part would lose
    what it says, since but files nothing is linked.
    """
    if not image.locks_apt or not isinstance(image.base, BootstrappedBase):
        return False
    for stage, text in chain:
        if lost := [word for word in _instructions(text) if word not in _LAYER_WORDS]:
            message = f"`{lost[0]}` in the `runtime` block of `{stage.name}` would not reach the image"
            hint = "`environment` and `path` in its component.yaml do"
            spot = Location(stage.source / "install.j2", 1, 1, 0, "")
            raise RecipeError(Diagnostic(message, spot, hint=hint))
    return bool(image.apt_debs or chain)


def linked(image: Image, build: Texts) -> list[Stage]:
    """The stages that end in a linked layer, lowest first; `build` being what parts do to come to it."""
    names = {stage.name for stage, text in build if ships(text, stage.name)}
    return [stage for stage in image.layers if stage.name in names]


def owners(image: Image, build: Texts, chain: Texts) -> tuple[LayerOwner, ...]:
    """Whose each layer above the base's is, lowest first: a component's, or one of the recipe's own keys'."""
    if links_system(image, chain):
        system = [LayerOwner(SYSTEM, "COPY")]
    else:
        system = [LayerOwner(SYSTEM, "RUN")] if image.installs_apt else []
        system += [
            LayerOwner(stage.name, word)
            for stage, text in chain
            for word in _instructions(text)
            if word in _LAYER_WORDS
        ]
    has_files = bool(image.content.files or image.content.code)
    return (
        *system,
        *([LayerOwner(REPLACED, "RUN")] if image.frozen and build else []),
        *(LayerOwner(stage.name, "COPY") for stage in linked(image, build)),
        *([LayerOwner(FILES, "COPY")] if has_files else []),
        *(LayerOwner(STEPS, "RUN") for _ in image.content.run),
    )


def _instructions(text: str) -> list[str]:
    """The instructions of a part of a Dockerfile."""
    found, end = [], ""
    for line in text.split("\n"):
        if end:
            end = "" if line == end else end
            continue
        if match := _INSTRUCTION.match(line):
            found.append(match[1])
        if heredoc := HEREDOC.search(line):
            end = heredoc[1]
    return found
