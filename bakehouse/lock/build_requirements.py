"""Build requirements of the source distributions of a lock: PEP 518, and those that PEP 517 adds."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from packaging.requirements import Requirement

from bakehouse.catalog.python_lock import Package, normal_name
from bakehouse.errors import BuildError, ConflictError, Reason
from bakehouse.lock import python as pylock
from bakehouse.lock.python import Index


def with_build_requirements(
    files: Iterable[Package],
    installed: Iterable[Package],
    index: Index,
    *,
    fixed: Collection[str],
    known: Mapping[str, tuple[Package, ...]],
    undeclared: Mapping[str, tuple[str, ...]],
) -> tuple[Package, ...]:
    """Return files with the build requirements of source distributions.

    Builds can import the `installed` packages of components, so these are not locked again if they fit. The
    `fixed` ones have no other version. `known` are the build requirements of the present lock, by sha256;
    `undeclared` those that the recipe adds, by name.
    """
    files = tuple(files)
    names = {file.name for file in files}
    importable = [package for package in installed if normal_name(package.name) not in names]
    pins = [f"{file.name}=={file.version}" for file in files if file.file.endswith(".whl")]

    def complete(file: Package) -> Package:
        if file.file.endswith(".whl"):
            return file
        added = undeclared.get(file.name, ())
        present = known.get(file.sha256)
        if present is not None and _satisfy((*present, *importable), added):
            return replace(file, build=tuple(map(_locked, present)))
        requirement = f"{file.name}=={file.version}"
        metadata = index.run_for_build(requirement, file, index)
        if metadata is None:
            return file
        requires = (*metadata.build_requires, *added)
        return replace(file, build=_resolved(requirement, requires, importable, pins, index, fixed))

    return tuple(map(complete, files))


def _resolved(
    requirement: str,
    requires: Sequence[str],
    importable: Sequence[Package],
    pins: Sequence[str],
    index: Index,
    fixed: Collection[str],
) -> tuple[Package, ...]:
    """Return wheels of build requirements, in the versions of the image if these fit."""
    if not requires:
        return ()
    conflicts = []
    for constraints, installed in ((pins, importable), ((), importable), ((), ())):
        try:
            wheels, _ = pylock.resolve_beside(requires, constraints, index, installed, only_wheels=True)
        except (BuildError, ConflictError) as error:
            conflicts.append(error)
            continue
        others = [wheel for wheel in wheels if wheel.name in fixed]
        if not others:
            return wheels
        versions = {normal_name(package.name): package.version for package in importable}
        raise ConflictError(
            f"`{requirement}` must be built with other packages than those of the image",
            reasons=tuple(
                Reason(f"a component installs {wheel.name} {versions.get(wheel.name, '')}".rstrip())
                for wheel in others
            ),
            tail=conflicts[0].diagnostics[0].tail,
            hint="ask for a version of the package or of the component that fits",
        )
    raise BuildError(
        f"the build requirements of `{requirement}` have no wheels: {', '.join(requires)}",
        tail=conflicts[-1].diagnostics[0].tail,
        hint="name a wheel, or a version that has one",
    )


def _satisfy(packages: Iterable[Package], requires: Iterable[str]) -> bool:
    versions = {normal_name(package.name): package.version for package in packages}
    parsed = map(Requirement, requires)
    return all(
        (name := normal_name(item.name)) in versions
        and item.specifier.contains(versions[name], prereleases=True)
        for item in parsed
    )


def _locked(package: Package) -> Package:
    return Package(normal_name(package.name), package.version, package.sha256, package.file, package.bytes)
