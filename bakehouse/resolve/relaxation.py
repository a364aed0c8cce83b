"""What an image's author pinned, as things that could be given up one by one."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Literal

from bakehouse.catalog.component import DRIVER, Requirement
from bakehouse.catalog.recipe import Recipe
from bakehouse.errors import Location
from bakehouse.resolve.phrases import version_range

COMMAND = 0
"""The line of what was asked for on the command line, not in a file."""


_WHOLE = ("lock", "instance")
"""What can only be given up whole."""


class Relaxation(IntEnum):
    """How far a pin is given up."""

    MOVE = 1
    """Another version, or another variant."""
    DROP = 2
    """The part is left out."""


@dataclass(frozen=True, slots=True)
class Pin:
    """One thing that a recipe, or the command line, asks for."""

    kind: Literal["base", "part", "variant", "lock", "instance", "driver"]
    name: str
    asked: str
    """Its versions or its variants as written; empty is any."""
    location: Location

    @property
    def least(self) -> Relaxation:
        return Relaxation.MOVE if self.asked and self.kind not in _WHOLE else Relaxation.DROP

    @property
    def most(self) -> Relaxation:
        if self.kind == "part" and self.asked and self.is_given_by_command:
            # Who asks whether it fits gets no answer from an image without it.
            return Relaxation.MOVE
        return Relaxation.DROP if self.kind in ("part", *_WHOLE) else Relaxation.MOVE

    @property
    def is_given_by_command(self) -> bool:
        return self.location.line == COMMAND


Relaxations = Mapping[Pin, Relaxation]
"""What of a recipe is given up."""


def pins_of(recipe: Recipe) -> tuple[Pin, ...]:
    """All that could be given up. What is likelier to have to stay comes last.

    A variant that follows from something else on the command line is none.
    """
    parts = [Pin("part", one.name, version_range(one), one.location) for one in recipe.components]
    found = [one for one in parts if not one.asked]
    if recipe.content.packages:
        found.append(Pin("lock", "requirements", "requirements", recipe.location))
    found += [
        Pin("variant", name, glob.text, glob.location)
        for name, glob in recipe.variants.items()
        if glob.location.line or f"{name}=" in str(glob.location.path)
    ]
    if recipe.base.specifier:
        found.append(Pin("base", recipe.base.name, version_range(recipe.base), recipe.base.location))
    found += [one for one in parts if one.asked]
    found += [Pin("instance", one.text, one.text, one.location) for one in recipe.targets.instances]
    if driver := recipe.targets.driver:
        found.append(Pin("driver", DRIVER, driver.text, driver.location))
    return tuple(sorted(found, key=lambda pin: pin.is_given_by_command))


def relax(recipe: Recipe, giving: Relaxations) -> Recipe:
    """The recipe with some things given up."""
    if not giving:
        return recipe
    given = {(pin.kind, pin.name, pin.location): how for pin, how in giving.items()}

    def moved(kind: str, one: Requirement) -> Requirement:
        return replace(one, specifier="") if (kind, one.name, one.location) in given else one

    def is_dropped(one: Requirement) -> bool:
        return given.get(("part", one.name, one.location)) is Relaxation.DROP

    targets = replace(
        recipe.targets,
        instances=tuple(
            one for one in recipe.targets.instances if ("instance", one.text, one.location) not in given
        ),
        driver=None if any(pin.kind == "driver" for pin in giving) else recipe.targets.driver,
    )
    content = recipe.content
    if any(pin.kind == "lock" for pin in giving):
        content = replace(content, packages=())
    return replace(
        recipe,
        base=moved("base", recipe.base),
        components=tuple(moved("part", one) for one in recipe.components if not is_dropped(one)),
        variants={
            name: glob
            for name, glob in recipe.variants.items()
            if ("variant", name, glob.location) not in given
        },
        content=content,
        targets=targets,
    )
