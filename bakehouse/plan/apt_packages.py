"""Look up the locked distribution packages that each step of an image installs."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from bakehouse.catalog.apt_lock import AptLock, Deb, NotLocked
from bakehouse.catalog.base_image_lock import AptLocks, BaseLock
from bakehouse.catalog.component import BaseSource, VariantSpec
from bakehouse.catalog.size_budget import REQUIREMENTS
from bakehouse.errors import Diagnostic, Location, Problems, Reason
from bakehouse.resolve.resolver import Resolution

Closure = Callable[[AptLock], tuple[Deb, ...]]


@dataclass(frozen=True, slots=True)
class AptSteps:
    """Package files of each step that installs packages; empty if nothing is locked."""

    base: tuple[Deb, ...] = ()
    toolchain: tuple[Deb, ...] = ()
    stages: Mapping[str, tuple[Deb, ...]] = field(default_factory=dict)
    """By component name; the recipe's own packages are `requirements`."""
    image: tuple[Deb, ...] = ()
    on_pulled: bool = False
    """True if these are all packages that steps add to a vendor base."""

    @property
    def in_image(self) -> tuple[Deb, ...]:
        return (*self.base, *self.image)

    @property
    def in_build_stages(self) -> tuple[Deb, ...]:
        """The packages that only build stages install."""
        return (*self.toolchain, *(deb for debs in self.stages.values() for deb in debs))


@dataclass(frozen=True, slots=True)
class PulledLists:
    """Distribution packages that the steps of an image request on one vendor base."""

    reference: str
    digest: str | None
    toolchain: tuple[str, ...] = ()
    stages: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    image: tuple[str, ...] = ()

    @property
    def lists(self) -> tuple[tuple[str, ...], ...]:
        """The packages that each step requests; steps without packages are left out."""
        return tuple(filter(None, (self.toolchain, *self.stages.values(), self.image)))

    @property
    def pinned(self) -> str:
        """The reference with its digest; empty if the digest is unknown."""
        return f"{self.reference}@{self.digest}" if self.digest else ""


def apt_of(resolution: Resolution) -> tuple[str, ...]:
    """Return the distribution packages of an image itself: those of its recipe and of its components."""
    manager = resolution.base.spec.manager
    required = (choice.spec.system_packages.names(manager) for choice in resolution.all_choices)
    own = resolution.recipe.content.system_packages.names(manager)
    return tuple(sorted({*own, *(package for names in required for package in names)}))


def build_packages(resolution: Resolution, spec: VariantSpec) -> tuple[str, ...]:
    """Return the distribution packages of a component's build stage, or of all build stages for the base."""
    return spec.build_packages.names(resolution.base.spec.manager)


def requirements_packages(resolution: Resolution) -> tuple[str, ...]:
    """Return the distribution packages that builds of the recipe's source distributions need."""
    return resolution.recipe.build_packages.names(resolution.base.spec.manager)


def installs_with_dnf(resolution: Resolution) -> bool:
    """Return whether steps of an image or of its build stages install packages with dnf."""
    if resolution.base.spec.manager != "dnf":
        return False
    specs = (choice.spec for choice in resolution.all_choices)
    own = (*apt_of(resolution), *requirements_packages(resolution))
    return bool(own) or any(build_packages(resolution, spec) for spec in specs)


def suite_lists(resolution: Resolution) -> list[tuple[str, ...]]:
    """Return the package names installed after each step of an image on a bootstrapped base, sorted."""
    spec = resolution.base.spec
    base = spec.base.packages if spec.base else ()
    below = (*base, *build_packages(resolution, spec))
    components = (build_packages(resolution, choice.spec) for choice in resolution.choices)
    added = (*components, requirements_packages(resolution))
    stages = ((*below, *names) for names in added if names)
    return [tuple(sorted({*names})) for names in (below, *stages, (*base, *apt_of(resolution)))]


def pulled_lists(resolution: Resolution) -> tuple[PulledLists, ...]:
    """Return the packages that steps install on the vendor base of an image and of its build stages."""
    spec, source = resolution.base.spec, resolution.base.spec.base
    if source is None or source.suite or spec.manager != "apt":
        return ()
    image = apt_of(resolution)
    built = [choice for choice in resolution.choices if choice.candidate.component.template]
    # An image without build stages has no toolchain
    shared = build_packages(resolution, spec) if built or resolution.user_packages else ()
    components = ((choice.name, build_packages(resolution, choice.spec)) for choice in built)
    added = (*components, (REQUIREMENTS, requirements_packages(resolution)))
    stages = {name: (*shared, *names) for name, names in added if names}
    if not source.build_reference:
        return (PulledLists(source.reference, source.digest, shared, stages, image),)
    return (
        PulledLists(source.reference, source.digest, image=image),
        PulledLists(*_split_digest(source.build_reference), shared, stages),
    )


def apt_steps(resolution: Resolution, locks: AptLocks, problems: Problems) -> AptSteps:
    """Return the package files of the steps of an image.

    Adds a diagnostic for each step that needs a package without a lock.
    """
    source = resolution.base.spec.base
    if source is None or not source.suite:
        return _on_pulled(resolution, locks, problems)
    lock = locks.suites.get(source.lock_name)
    return _on_bootstrapped(resolution, source, lock, problems) if lock else AptSteps()


def _on_bootstrapped(
    resolution: Resolution, source: BaseSource, lock: AptLock, problems: Problems
) -> AptSteps:
    def closure(select: Closure, step: str, location: Location) -> tuple[Deb, ...]:
        try:
            return select(lock)
        except NotLocked as missing:
            spot = resolution.recipe.package_lines.get(missing.asked, location)
            problems.add(_not_in_suite(missing, step, resolution.recipe.name, lock.suite, spot))
            return ()

    recipe, spec = resolution.recipe, resolution.base.spec
    location = resolution.base.candidate.component.location
    shared = build_packages(resolution, spec)
    base = closure(lambda lock: lock.base(source.packages), f"base `{resolution.base.name}`", location)
    toolchain = closure(lambda lock: lock.install(shared, base), "every build stage", location)
    below = (*base, *toolchain)
    stages = {
        choice.name: closure(
            lambda lock, names=names: lock.install(names, below),  # type: ignore[misc]
            f"building `{choice.name}`",
            choice.candidate.component.location,
        )
        for choice in resolution.choices
        if (names := build_packages(resolution, choice.spec))
    }
    if names := requirements_packages(resolution):
        step = "building the requirements"
        stages[REQUIREMENTS] = closure(lambda lock: lock.install(names, below), step, recipe.location)
    apt = apt_of(resolution)
    image = closure(lambda lock: lock.install(apt, base), f"image `{recipe.name}`", recipe.location)
    return AptSteps(base, toolchain, stages, image)


def are_locked(lists: Iterable[PulledLists], locks: AptLocks) -> bool:
    """Return whether all bases to which the steps of an image add packages have a lock, for any digest.

    If one of them has no lock, all steps of the image install from the mirrors of their bases.
    """
    used = [base for base in lists if base.lists]
    return bool(used) and all(locks.of_reference(base.reference) for base in used)


def _on_pulled(resolution: Resolution, locks: AptLocks, problems: Problems) -> AptSteps:
    bases = [base for base in pulled_lists(resolution) if base.lists]
    if not are_locked(bases, locks):
        return AptSteps()
    toolchain: tuple[Deb, ...] = ()
    stages: dict[str, tuple[Deb, ...]] = {}
    image: tuple[Deb, ...] = ()
    for base in bases:
        lock = locks.bases.get(base.pinned)
        try:
            if lock is None:
                raise NotLocked(" ".join(base.lists[0]))
            toolchain = toolchain or lock.adds(base.toolchain)
            for name, names in base.stages.items():
                added = lock.adds(names)
                stages[name] = tuple(deb for deb in added if deb not in toolchain)
            image = image or lock.adds(base.image)
        except NotLocked as missing:
            lock = lock or locks.of_reference(base.reference)
            problems.add(_not_on_base(missing, resolution, base, lock))
    return AptSteps((), toolchain, stages, image, on_pulled=True)


def _split_digest(reference: str) -> tuple[str, str | None]:
    name, _, digest = reference.partition("@")
    return name, digest or None


def _not_in_suite(missing: NotLocked, step: str, image: str, suite: str, location: Location) -> Diagnostic:
    message = f"{step} needs `{missing.asked}`, which is not locked for Debian `{suite}`"
    if missing.locked:
        message = f"{step} needs `{missing.asked}`, but {missing.locked} is locked for Debian `{suite}`"
    return Diagnostic(message, location, hint=f"run `bake lock {image}`")


def _not_on_base(
    missing: NotLocked, resolution: Resolution, base: PulledLists, lock: BaseLock | None
) -> Diagnostic:
    """Return the error for packages that are missing in the lock of a vendor base."""
    recipe = resolution.recipe
    message = (
        f"image `{recipe.name}` needs packages on `{base.reference}` that are not locked: {missing.asked}"
    )
    hint = f"run `bake lock {recipe.name}`"
    if not base.pinned:
        hint = "add the digest of the base to its component, because a lock is valid for one digest only"
    reasons: tuple[Reason, ...] = ()
    if lock and lock.pinned != base.pinned:
        reasons = (Reason(f"`{lock.path.name}` locks {lock.pinned.partition('@')[2]}"),)
    return Diagnostic(message, recipe.location, reasons=reasons, hint=hint)
