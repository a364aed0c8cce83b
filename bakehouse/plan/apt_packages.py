"""Finds which files of a distribution each step of an image installs, where these are locked."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from bakehouse.catalog.apt_lock import AptLock, Deb, NotLocked
from bakehouse.catalog.base_image_lock import AptLocks, BaseLock
from bakehouse.catalog.component import BaseSource
from bakehouse.errors import Diagnostic, Location, Problems, Reason
from bakehouse.resolve.resolver import Resolution

Closure = Callable[[AptLock], tuple[Deb, ...]]


@dataclass(frozen=True, slots=True)
class AptSteps:
    """The files of each step that installs packages; empty where nothing is locked."""

    base: tuple[Deb, ...] = ()
    toolchain: tuple[Deb, ...] = ()
    stages: Mapping[str, tuple[Deb, ...]] = field(default_factory=dict)
    """Packages by component name."""
    image: tuple[Deb, ...] = ()
    on_pulled: bool = False
    """True if these are all packages that steps add to a vendor base."""


@dataclass(frozen=True, slots=True)
class PulledLists:
    """Names of the Debian packages that the steps of an image install on one vendor base."""

    reference: str
    digest: str | None
    toolchain: tuple[str, ...] = ()
    stages: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    image: tuple[str, ...] = ()

    @property
    def lists(self) -> tuple[tuple[str, ...], ...]:
        """The packages after each step, without steps that install none."""
        return tuple(filter(None, (self.toolchain, *self.stages.values(), self.image)))

    @property
    def pinned(self) -> str:
        """The base by its digest, or empty if the digest is unknown."""
        return f"{self.reference}@{self.digest}" if self.digest else ""


def apt_of(resolution: Resolution) -> tuple[str, ...]:
    """Return the Debian packages of an image: those of its recipe and those that its components need."""
    asked = (package for one in (resolution.base, *resolution.choices) for package in one.spec.apt)
    return tuple(sorted({*resolution.recipe.content.apt, *asked}))


def wanted_lists(resolution: Resolution) -> tuple[tuple[str, ...], ...]:
    """Return the names of the Debian packages after each step on a bootstrapped base."""
    spec = resolution.base.spec
    base = spec.base.packages if spec.base else ()
    below = (*base, *spec.build_apt)
    stages = ((*below, *one.spec.build_apt) for one in resolution.choices if one.spec.build_apt)
    return (below, *stages, (*base, *apt_of(resolution)))


def pulled_lists(resolution: Resolution) -> tuple[PulledLists, ...]:
    """Return the packages that steps install on the vendor bases of an image and of its build stages."""
    spec, source = resolution.base.spec, resolution.base.spec.base
    if source is None or source.suite or resolution.base.spec.provides.get("amazon-linux"):
        return ()
    image, built = apt_of(resolution), [one for one in resolution.choices if one.candidate.component.template]
    # An image without build stages has no toolchain.
    shared = spec.build_apt if built or resolution.user_packages else ()
    stages = {one.name: (*shared, *one.spec.build_apt) for one in built if one.spec.build_apt}
    if not source.build_reference:
        return (PulledLists(source.reference, source.digest, shared, stages, image),)
    return (
        PulledLists(source.reference, source.digest, image=image),
        PulledLists(*_parted(source.build_reference), shared, stages),
    )


def apt_steps(resolution: Resolution, locks: AptLocks, problems: Problems) -> AptSteps:
    """The files of an image's steps.

    Adds a mistake for each step that needs a package which is not locked.
    """
    source = resolution.base.spec.base
    if source is None or not source.suite:
        return _on_pulled(resolution, locks, problems)
    lock = locks.suites.get(source.suite)
    return _on_bootstrapped(resolution, source, lock, problems) if lock else AptSteps()


def _on_bootstrapped(
    resolution: Resolution, source: BaseSource, lock: AptLock, problems: Problems
) -> AptSteps:
    def closure(of: Closure, who: str, location: Location) -> tuple[Deb, ...]:
        try:
            return of(lock)
        except NotLocked as missing:
            problems.add(_mistake(missing, who, resolution.recipe.name, lock.suite, location))
            return ()

    recipe, spec = resolution.recipe, resolution.base.spec
    place = resolution.base.candidate.component.location
    base = closure(lambda one: one.base(source.packages), f"base `{resolution.base.name}`", place)
    toolchain = closure(lambda one: one.install(spec.build_apt, base), "every build stage", place)
    below = (*base, *toolchain)
    stages = {
        choice.name: closure(
            lambda one, names=choice.spec.build_apt: one.install(names, below),  # type: ignore[misc]
            f"building `{choice.name}`",
            choice.candidate.component.location,
        )
        for choice in resolution.choices
        if choice.spec.build_apt
    }
    apt = apt_of(resolution)
    image = closure(lambda one: one.install(apt, base), f"image `{recipe.name}`", recipe.location)
    return AptSteps(base, toolchain, stages, image)


def are_locked(lists: Iterable[PulledLists], locks: AptLocks) -> bool:
    """Return whether each base on which steps install packages has a lock, of any digest.

    If one has none, all steps of the image use the mirrors of their bases.
    """
    asked = [one for one in lists if one.lists]
    return bool(asked) and all(locks.of_reference(one.reference) for one in asked)


def _on_pulled(resolution: Resolution, locks: AptLocks, problems: Problems) -> AptSteps:
    asked = [one for one in pulled_lists(resolution) if one.lists]
    if not are_locked(asked, locks):
        return AptSteps()
    toolchain: tuple[Deb, ...] = ()
    stages: dict[str, tuple[Deb, ...]] = {}
    image: tuple[Deb, ...] = ()
    for one in asked:
        lock = locks.bases.get(one.pinned)
        try:
            if lock is None:
                raise NotLocked(" ".join(one.lists[0]))
            toolchain = toolchain or lock.adds(one.toolchain)
            for name, names in one.stages.items():
                added = lock.adds(names)
                stages[name] = tuple(deb for deb in added if deb not in toolchain)
            image = image or lock.adds(one.image)
        except NotLocked as missing:
            problems.add(_not_on_base(missing, resolution, one, lock or locks.of_reference(one.reference)))
    return AptSteps((), toolchain, stages, image, on_pulled=True)


def _parted(reference: str) -> tuple[str, str | None]:
    name, _, digest = reference.partition("@")
    return name, digest or None


def _mistake(missing: NotLocked, who: str, image: str, suite: str, location: Location) -> Diagnostic:
    message = f"{who} needs `{missing.asked}`, which is not locked for Debian `{suite}`"
    if missing.locked:
        message = f"{who} needs `{missing.asked}`, and Debian `{suite}` is locked with {missing.locked}"
    return Diagnostic(message, location, hint=f"`./bake lock {image}` locks what is missing")


def _not_on_base(
    missing: NotLocked, resolution: Resolution, asked: PulledLists, lock: BaseLock | None
) -> Diagnostic:
    """Why an image can't be built whose base, or that of its build stages, has a lock."""
    recipe = resolution.recipe
    message = f"a step of image `{recipe.name}` on `{asked.reference}` is not locked: {missing.asked}"
    hint = f"`./bake lock {recipe.name}` locks what is missing"
    if not asked.pinned:
        hint = "write the base's digest into its component: what steps add to it is known for that one alone"
    reasons: tuple[Reason, ...] = ()
    if lock and lock.pinned != asked.pinned:
        reasons = (Reason(f"`{lock.path.name}` is of {lock.pinned.partition('@')[2]}"),)
    return Diagnostic(message, recipe.location, reasons=reasons, hint=hint)
