"""The layers of an image: the instructions that create them and the components that own them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from bakehouse.catalog.size_budget import FILES, STEPS, SYSTEM
from bakehouse.errors import Diagnostic, Location, RecipeError
from bakehouse.plan.model import BootstrappedBase, Image, Stage, ships

HEREDOC = re.compile(r'<<"([A-Z0-9]+)"')
REPLACED = "replaced"
"""Owner of the layer that removes files of a frozen base."""
_INSTRUCTION = re.compile("([A-Z]+) ")
_LAYER_WORDS = ("RUN", "COPY", "ADD", "WORKDIR")
Texts = Sequence[tuple[Stage, str]]
"""Stages with the text of one block of their templates."""


@dataclass(frozen=True, slots=True)
class LayerOwner:
    """The owner of a layer and the instruction that creates it."""

    name: str
    instruction: str


def links_system(image: Image, chain: Texts) -> bool:
    """Return whether the installed packages and the steps of `chain` become one `COPY --link` layer.

    This needs a base made of locked packages, because no package removes files of such a base. A package can
    remove files of a vendor base. Raises RecipeError if a step of a component has an instruction that changes
    more than files.
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
    """Return the stages whose result is a `COPY --link` layer, lowest first."""
    names = {stage.name for stage, text in build if ships(text, stage.name)}
    return [stage for stage in image.layers if stage.name in names]


def owners(image: Image, build: Texts, chain: Texts) -> tuple[LayerOwner, ...]:
    """Return the owners of the layers above the base, lowest first: components or keys of the recipe."""
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
