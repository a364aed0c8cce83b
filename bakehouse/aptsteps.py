"""Finds which files of a distribution each step of an image installs, where these are locked."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bakehouse.aptlock import AptLock, Deb, NotLocked
from bakehouse.errors import Diagnostic, Location, Problems
from bakehouse.resolution import Resolution

Closure = Callable[[AptLock], tuple[Deb, ...]]


@dataclass(frozen=True, slots=True)
class AptSteps:
    """The files of each step that installs packages; empty where nothing of the suite is locked."""

    base: tuple[Deb, ...] = ()
    toolchain: tuple[Deb, ...] = ()
    stages: Mapping[str, tuple[Deb, ...]] = field(default_factory=dict)
    """By the name of their component."""
    image: tuple[Deb, ...] = ()


def apt_of(resolution: Resolution) -> tuple[str, ...]:
    """What an image itself gets of the distribution: what its recipe names, and what its parts need."""
    asked = (package for one in (resolution.base, *resolution.choices) for package in one.face.apt)
    return tuple(sorted({*resolution.recipe.content.apt, *asked}))


def wanted_lists(resolution: Resolution) -> tuple[tuple[str, ...], ...]:
    """What each step of an image on a bootstrapped base has of the distribution when it is done, by name."""
    face = resolution.base.face
    base = face.base.packages if face.base else ()
    below = (*base, *face.build_apt)
    stages = ((*below, *one.face.build_apt) for one in resolution.choices if one.face.build_apt)
    return (below, *stages, (*base, *apt_of(resolution)))


def apt_steps(resolution: Resolution, locks: Mapping[str, AptLock], problems: Problems) -> AptSteps:
    """The files of an image's steps.

    Adds a mistake for each step that needs a package which is not locked.
    """
    source = resolution.base.face.base
    lock = locks.get(source.suite) if source else None
    if source is None or lock is None:
        return AptSteps()

    def closure(of: Closure, who: str, location: Location) -> tuple[Deb, ...]:
        try:
            return of(lock)
        except NotLocked as missing:
            problems.add(_mistake(missing, who, resolution.recipe.name, lock.suite, location))
            return ()

    recipe, face = resolution.recipe, resolution.base.face
    place = resolution.base.candidate.component.location
    base = closure(lambda one: one.base(source.packages), f"base `{resolution.base.name}`", place)
    toolchain = closure(lambda one: one.install(face.build_apt, base), "every build stage", place)
    below = (*base, *toolchain)
    stages = {
        choice.name: closure(
            lambda one, names=choice.face.build_apt: one.install(names, below),  # type: ignore[misc]
            f"building `{choice.name}`",
            choice.candidate.component.location,
        )
        for choice in resolution.choices
        if choice.face.build_apt
    }
    apt = apt_of(resolution)
    image = closure(lambda one: one.install(apt, base), f"image `{recipe.name}`", recipe.location)
    return AptSteps(base, toolchain, stages, image)


def _mistake(missing: NotLocked, who: str, image: str, suite: str, location: Location) -> Diagnostic:
    message = f"{who} needs `{missing.asked}`, which is not locked for Debian `{suite}`"
    if missing.locked:
        message = f"{who} needs `{missing.asked}`, and Debian `{suite}` is locked with {missing.locked}"
    return Diagnostic(message, location, hint=f"`./bake lock {image}` locks what is missing")
