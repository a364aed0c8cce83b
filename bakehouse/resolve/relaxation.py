"""The pins of a recipe, and copies of the recipe with some pins relaxed."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Literal

from packaging.requirements import Requirement as Parsed

from bakehouse.catalog.component import DRIVER, Requirement
from bakehouse.catalog.python_lock import Package, normal_name
from bakehouse.catalog.recipe import Recipe
from bakehouse.catalog.requirements_file import RequiredPackage
from bakehouse.errors import Location
from bakehouse.resolve.phrases import version_range
from bakehouse.util.yaml_reader import Scalar

COMMAND = 0
"""Line number of pins that are given on the command line."""

_WHOLE = ("lock", "requirements", "instance")
"""Kinds of pins that can only be dropped."""


class Relaxation(IntEnum):
    """How far a pin is relaxed."""

    MOVE = 1
    """Allow any version or variant."""
    DROP = 2
    """Leave the component out."""


@dataclass(frozen=True, slots=True)
class Restriction:
    """One requirement of a recipe or of the command line."""

    kind: Literal["base", "component", "variant", "lock", "requirements", "instance", "driver"]
    name: str
    value: str
    """Its versions or variants as written; empty for any."""
    location: Location

    @property
    def least(self) -> Relaxation:
        """The smallest possible relaxation."""
        return Relaxation.MOVE if self.value and self.kind not in _WHOLE else Relaxation.DROP

    @property
    def most(self) -> Relaxation:
        """The largest useful relaxation."""
        if self.kind == "component" and self.value and self.is_given_by_command:
            # An image without it does not answer the question
            return Relaxation.MOVE
        return Relaxation.DROP if self.kind in ("component", *_WHOLE) else Relaxation.MOVE

    @property
    def is_given_by_command(self) -> bool:
        return self.location.line == COMMAND


Relaxations = Mapping[Restriction, Relaxation]
"""The relaxed pins of a recipe."""


def is_requested_variant(name: str, glob: Scalar) -> bool:
    """Return whether a recipe or the command line names a variant; else it follows from another choice."""
    return glob.location.line > COMMAND or f"{name}=" in str(glob.location.path)


def pins_of(recipe: Recipe) -> tuple[Restriction, ...]:
    """Return all pins of a recipe; those that are more likely to stay come last.

    Components of the command line stay, because an image without them does not answer the question.
    A variant that follows from another choice on the command line is not a pin.
    """
    components = [
        Restriction("component", requirement.name, version_range(requirement), requirement.location)
        for requirement in recipe.components
    ]
    pins = [pin for pin in components if not pin.value and not pin.is_given_by_command]
    limited = limited_packages(recipe)
    if len(limited) < len(recipe.content.packages):
        pins.append(Restriction("lock", "lock", "lock", recipe.location))
    if limited:
        pins.append(Restriction("requirements", "requirements", "requirements", recipe.location))
    pins += [
        Restriction("variant", name, glob.text, glob.location)
        for name, glob in recipe.variants.items()
        if is_requested_variant(name, glob)
    ]
    if recipe.base.specifier:
        pins.append(Restriction("base", recipe.base.name, version_range(recipe.base), recipe.base.location))
    pins += [pin for pin in components if pin.value]
    instances = recipe.targets.instances
    pins += [
        Restriction("instance", instance.text, instance.text, instance.location) for instance in instances
    ]
    if driver := recipe.targets.driver:
        pins.append(Restriction("driver", DRIVER, driver.text, driver.location))
    return tuple(sorted(pins, key=lambda pin: pin.is_given_by_command))


def limited_packages(recipe: Recipe) -> tuple[Package, ...]:
    """Return the locked packages that the requirements limit; `bake lock` may move the others.

    `bake lock` does not write the locks of other tools.
    """
    packages, requirements = recipe.content.packages, recipe.requirements
    if not packages or requirements is None or any(file.is_lock for file in requirements.files):
        return packages
    limited = {line.name for line in requirements.read().packages if _is_limited(line)}
    return tuple(item for item in packages if normal_name(item.name) in limited)


def _is_limited(line: RequiredPackage) -> bool:
    requirement = Parsed(line.text)
    operators = {specifier.operator for specifier in requirement.specifier}
    return bool(requirement.url or not operators <= {">=", ">", "!="})


def relax(recipe: Recipe, relaxations: Relaxations) -> Recipe:
    """Return the recipe with some pins relaxed."""
    if not relaxations:
        return recipe
    by_place = {(pin.kind, pin.name, pin.location): how for pin, how in relaxations.items()}
    kinds = {pin.kind for pin in relaxations}
    packages = recipe.content.packages
    if kinds & {"lock", "requirements"}:
        limited = limited_packages(recipe)
        derived = () if "lock" in kinds else tuple(item for item in packages if item not in limited)
        packages = (*derived, *(() if "requirements" in kinds else limited))

    def moved(kind: str, requirement: Requirement) -> Requirement:
        is_relaxed = (kind, requirement.name, requirement.location) in by_place
        return replace(requirement, specifier="") if is_relaxed else requirement

    def is_dropped(requirement: Requirement) -> bool:
        return by_place.get(("component", requirement.name, requirement.location)) is Relaxation.DROP

    targets = replace(
        recipe.targets,
        instances=tuple(
            instance
            for instance in recipe.targets.instances
            if ("instance", instance.text, instance.location) not in by_place
        ),
        driver=None if "driver" in kinds else recipe.targets.driver,
    )
    return replace(
        recipe,
        base=moved("base", recipe.base),
        components=tuple(
            moved("component", requirement)
            for requirement in recipe.components
            if not is_dropped(requirement)
        ),
        variants={
            name: glob
            for name, glob in recipe.variants.items()
            if ("variant", name, glob.location) not in by_place
        },
        content=replace(recipe.content, packages=packages),
        targets=targets,
    )
