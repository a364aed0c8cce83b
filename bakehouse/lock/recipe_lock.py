"""Locks of the requirements of recipes, next to what the components of the image install.

The versions in the locks of components are kept where they fit. Where they do not, packages that a component
only needs in some version are locked again together with the requirements; the lock of the recipe then says
which versions it replaces.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property, partial
from pathlib import Path
from urllib.parse import quote, urlsplit

from packaging.requirements import Requirement as Parsed

from bakehouse.catalog.build_requirements import read_build_requirements
from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.component import Component
from bakehouse.catalog.names import FRAMEWORKS
from bakehouse.catalog.python_lock import INSTALLED, Package, locked_sums, normal_name
from bakehouse.catalog.requirements_file import RequiredPackage, Requirements
from bakehouse.errors import (
    BakehouseError,
    ConflictError,
    Diagnostic,
    Location,
    Problems,
    Reason,
    RecipeError,
    UsageError,
)
from bakehouse.lock import python as pylock
from bakehouse.lock.build_requirements import with_build_requirements
from bakehouse.lock.git_requirements import git_archives
from bakehouse.lock.project_locks import ProjectPackage, fits, project_files, read_project_locks
from bakehouse.lock.requirements_options import (
    build_of_pytorch,
    unused_indexes,
    with_options,
    without_build_labels,
)
from bakehouse.resolve.resolver import Choice, Resolution
from bakehouse.util.format import format_bytes
from bakehouse.util.terminal import Reporter


def component_advice(
    resolution: Resolution, lines: tuple[RequiredPackage, ...], catalog: Catalog
) -> Iterator[str]:
    """Yield a line for each requirement that is a component of the catalogue, unless the image has it."""
    chosen = {choice.name for choice in resolution.all_choices}
    for line in lines:
        names = [name for name, component in catalog.components.items() if _provides(component, line.name)]
        if names and not chosen.intersection(names):
            kind = "a component" if len(names) == 1 else "components"
            listed = ", ".join(f"`{name}`" for name in sorted(names))
            place = f"{line.location.path.name}:{line.location.line}"
            yield (
                f"{resolution.recipe.name}: the catalogue has {kind} for `{line.name}` ({place}): "
                f"component {listed}; add one to `components` and remove the line"
            )


def _provides(component: Component, package: str) -> bool:
    """Return whether a component is named after a package, or after its flavor, such as `horovod-nccl`."""
    if component.name == package:
        return True
    projects = map(normal_name, component.upstream.projects if component.upstream else ())
    return package in projects and (component.name.startswith(package) or package.startswith(component.name))


_MAX_CONCURRENT_RESOLUTIONS = 4
_FOR_GPUS = re.compile(r"(nvidia|cuda|cupy)-.+|.+-cu(da)?1[0-9][0-9x]*|.+-gpu|triton|pytorch-triton.*")
"""Names of packages that need a GPU."""
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")
"""Words that may be names of packages in uv's explanation."""
_FOR_CPUS = {
    "xgboost": "xgboost-cpu",
    **{known.package: known.cpu_package for known in FRAMEWORKS.values() if known.cpu_package},
    "onnxruntime-gpu": "onnxruntime",
    "faiss-gpu-cu12": "faiss-cpu",
}
"""Packages of CPU images, by those with files for GPUs."""
_FLAVOR = re.compile(r"-(cpu|gpu|headless|binary|contrib|nightly|cu(da)?1[0-9][0-9x]*)(?=-|$)")


@dataclass(frozen=True, slots=True)
class _Need:
    """A requirement of a component that the lock must satisfy."""

    choice: Choice
    text: str
    location: Location | None
    package: Package | None = None
    """The package that the component installs, if only this one fits."""

    @property
    def reason(self) -> Reason:
        if self.package is None:
            return Reason(f"{self.choice.candidate} needs {self.text}", self.location)
        verb = "installs" if self.package.location.path.suffix == ".yaml" else "locks"
        fact = f"{self.choice.candidate} {verb} {self.package.name} {self.package.version}"
        return Reason(fact, self.package.location)


@dataclass(frozen=True)
class _ImagePackages:
    """The Python packages of an image apart from those of its requirements."""

    resolution: Resolution
    index: pylock.Index
    constraints: tuple[str, ...]
    """The user's constraints, and the packages that the base keeps."""
    without: tuple[str, ...] = ()
    """Packages that the base keeps, in any version."""
    frozen: tuple[Package, ...] = ()
    """Packages that the base contains and keeps."""
    contained: tuple[Package, ...] = ()
    """Packages that the base contains, which a lock replaces only if they do not fit."""
    given: tuple[Package, ...] = ()
    """Packages of locks of other tools, whose versions do not change."""

    @cached_property
    def locked(self) -> Mapping[str, Package]:
        """The packages of the components' locks without the given ones, by normal name."""
        owned = (package for packages in self.resolution.owners.values() for package in packages)
        given = {package.name for package in self.given}
        return {name: package for package in owned if (name := normal_name(package.name)) not in given}

    @cached_property
    def wheels(self) -> Mapping[str, Package]:
        """The packages that components install from their own wheels, by normal name."""
        return {
            name: package
            for choice in self.resolution.all_choices
            for name, package in choice.candidate.supplied.items()
        }

    @cached_property
    def replaced(self) -> Mapping[str, str]:
        """The versions in locks of components that another component replaces, by normal name."""
        versions = {name: package.version for name, package in self.locked.items()}
        return {
            name: package.version
            for choice in self.resolution.choices
            for name, package in choice.spec.packages_by_name.items()
            if _differs(package, versions)
        }

    @cached_property
    def needs(self) -> tuple[_Need, ...]:
        """The requirements of components; a lock without requirements is needed as it is."""
        needs: list[_Need] = []
        for choice in self.resolution.choices:
            fixed = [*choice.candidate.supplied.values()]
            lock = choice.spec.lock
            if lock and lock.requirements:
                needs += (_Need(choice, text, lock.named_at) for text in lock.requirements)
                fixed += choice.spec.replacing.values()
            elif lock:
                fixed += lock.packages
            needs += (_Need(choice, _pin(package), package.location, package) for package in fixed)
        return tuple(needs)

    def versions(
        self,
        requirements: Iterable[RequiredPackage],
        needs: Iterable[_Need],
        pins: Iterable[Package] = (),
        preferred: Iterable[Package] = (),
    ) -> dict[str, str]:
        """Return versions that fit requirements, needs and pins together. Raises ConflictError."""
        needs = [*needs]
        packages = [need.package for need in needs if need.package]
        installed = [package for package in packages if package in self.wheels.values()]
        installed += (*self.frozen, *self.given)
        fixed = map(_pin, [*packages, *pins, *self.given])
        texts = [
            *(requirement.text for requirement in requirements),
            *(need.text for need in needs if not need.package),
        ]
        return pylock.versions(
            texts, [*self.constraints, *fixed], self.index, installed=installed, preferred=preferred
        )


@dataclass(frozen=True)
class LockedImage:
    """The locked requirements of an image."""

    lines: tuple[str, ...]
    """Lines of the lock, sorted."""
    names: tuple[str, ...]
    """Packages that the recipe installs."""
    shared_names: tuple[str, ...]
    """Packages among them that components of the image lock."""
    replacements: tuple[str, ...] = ()
    """Texts about versions of components or of the base that the lock replaces."""
    notes: tuple[str, ...] = ()
    """Warnings about packages and indexes, such as packages that the image probably does not need."""


def lock_image(
    resolution: Resolution,
    requirements: Requirements,
    index: pylock.Index,
    report: Reporter,
    *,
    before: Sequence[Package],
    contained: Iterable[Package] = (),
    catalog: Catalog | None = None,
) -> LockedImage:
    """Lock a recipe's requirements to versions that fit the packages of its components and its base.

    Packages of `before` keep their versions where they fit, also if the requirements change. `contained` are
    the packages of the base, which the lock leaves out if they fit. `catalog` has the components that the
    report proposes instead of packages.
    """
    recipe = resolution.recipe
    assert recipe.requirements
    lock = recipe.requirements.lock
    python = resolution.version_of("python")
    if python is None:
        raise UsageError(
            f"image `{recipe.name}` has requirements but no Python",
            recipe.location,
            hint="add `python` to its components",
        )
    report(f"{recipe.name}: locking {recipe.requirements.path.name} for Python {python}")
    for line in component_advice(resolution, requirements.packages, catalog) if catalog else ():
        report(line)
    base = resolution.base.candidate
    kept = {frozen.pattern: base.provided.get(frozen.known_as) for frozen in base.component.frozen}
    pins = [f"{name}=={version}" for name, version in kept.items() if version and "*" not in name]
    if pins:
        report(f"{recipe.name}: {base} keeps {', '.join(pins)}")
    # A list of a base's packages names them with versions that no index has
    listed = (
        line for line in requirements.constraints if not any(fnmatchcase(line.name, glob) for glob in kept)
    )
    constraints = (*(line.text for line in listed), *pins)
    index = replace(index, python_version=python, locked=locked_sums(lock), platform=recipe.platform)
    notes = [*unused_indexes(requirements, resolution)]
    index = with_options(index, requirements, resolution)
    requirements = without_build_labels(requirements, resolution)
    image = _ImagePackages(resolution, index, constraints, tuple(kept))
    image = _with_packages_of_base(image, contained, requirements)
    given = _given_packages(requirements, image, report) if requirements.locks else _GivenPackages()
    with git_archives(requirements, report) as archives:
        image = replace(image, given=given.packages)
        files: tuple[Package, ...] = ()
        expected: tuple[Package, ...] = ()
        if requirements.packages:
            files, expected = _resolved(archives.requirements, before, image, report)
        image = replace(image, given=())
        known, kept_names = read_build_requirements(lock), {normal_name(package.name) for package in before}
        files = with_build_requirements(
            (*files, *given.files),
            (*image.locked.values(), *image.wheels.values(), *image.frozen, *image.contained),
            index,
            fixed=image.wheels,
            undeclared=recipe.build_requirements,
            known={
                file.sha256: known[file.sha256]
                for file in (*files, *given.files)
                if file.sha256 in known and file.name in kept_names
            },
        )
    _check_hashes(requirements, files)
    files = tuple(map(archives.locked, files))
    files = tuple(
        replace(
            file,
            replaces=file.replaces or image.replaced.get(file.name, ""),
            origin=_relative(file.origin, lock.parent),
        )
        for file in files
    )
    expected = (*expected, *given.expected)
    notes += given.notes
    named = {file.name: file.line for file in files}
    named |= {normal_name(package.name): f"{_pin(package)}  # {INSTALLED}" for package in expected}
    versions = {normal_name(package.name): package.version for package in image.contained}
    replacements = [
        f"{file.name} {file.version} replaces {file.replaces} of a component"
        for file in files
        if file.replaces
    ]
    replacements += [
        f"{file.name} {file.version} replaces {versions[file.name]} of the base"
        for file in files
        if file.name in versions
    ]
    return LockedImage(
        tuple(named[name] for name in sorted(named)),
        tuple(file.name for file in files),
        tuple(file.name for file in files if file.name in image.locked),
        tuple(replacements),
        (
            *notes,
            *questionable_packages(resolution, files, partial(_are_related, requirements, image, files)),
            *source_distributions(files),
        ),
    )


def _with_packages_of_base(
    image: _ImagePackages, contained: Iterable[Package], requirements: Requirements
) -> _ImagePackages:
    """Add the packages of the base, apart from those that components install or that need extras."""
    with_extras = {line.name for line in requirements.packages if Parsed(line.text).extras}
    left = {*image.locked, *image.wheels, *with_extras}
    packages = [package for package in contained if normal_name(package.name) not in left]
    frozen = [
        package
        for package in packages
        if any(fnmatchcase(normal_name(package.name), glob) for glob in image.without)
    ]
    others = tuple(package for package in packages if package not in frozen)
    return replace(image, frozen=tuple(frozen), contained=others)


@dataclass(frozen=True)
class _GivenPackages:
    """Packages of locks of other tools."""

    packages: tuple[Package, ...] = ()
    files: tuple[Package, ...] = ()
    expected: tuple[Package, ...] = ()
    """Wheels of components that take the place of packages."""
    notes: tuple[str, ...] = ()


def _given_packages(requirements: Requirements, image: _ImagePackages, report: Reporter) -> _GivenPackages:
    """Return the packages of locks of other tools. Raises ConflictError if components do not accept them."""
    kept = {normal_name(package.name): package for package in (*image.frozen, *image.contained)}
    frozen = {normal_name(package.name) for package in image.frozen}
    installed = {**image.wheels, **{name: kept[name] for name in frozen}}
    added, left = read_project_locks(requirements.locks, image.index, installed)
    build = build_of_pytorch(image.resolution)
    conflicts = [
        _given_conflict(package, image, installed[package.line.name])
        for package in left
        if not fits(package, installed[package.line.name].version, build)
    ]
    if conflicts:
        raise ConflictError.of(*conflicts)
    # The base has some packages in the same version
    added = tuple(
        package
        for package in added
        if package.line.name not in kept or kept[package.line.name].version != package.version
    )
    packages = tuple(
        Package(package.line.name, package.version, "", "", 0, package.line.location) for package in added
    )
    differing = [
        package for package in added if _differs(image.locked.get(package.line.name), package.version)
    ]
    if differing:
        _check_given(differing, replace(image, given=packages), report)

    def archives(lines: Sequence[RequiredPackage]) -> tuple[Package, ...]:
        with git_archives(Requirements(tuple(lines), (), ()), report) as archived:
            texts = [line.text for line in archived.requirements.packages]
            files = pylock.resolve(texts, (), image.index, alone=True)
            return tuple(map(archived.locked, files))

    replaced = {package.line.name: image.locked[package.line.name].version for package in differing}
    files = tuple(
        replace(file, replaces=replaced.get(file.name, ""))
        for file in project_files(added, image.index, archives)
    )
    return _GivenPackages(
        packages,
        files,
        tuple(image.wheels[package.line.name] for package in left if package.line.name in image.wheels),
        tuple(_left_out(package, image, installed[package.line.name].version) for package in left),
    )


def _left_out(package: ProjectPackage, image: _ImagePackages, version: str) -> str:
    name, file = package.line.name, package.line.location.path.name
    return f"{name} {package.version} of {file} is left out: {_installer(name, image)} {version}"


def _installer(name: str, image: _ImagePackages) -> str:
    choices = (choice for choice in image.resolution.all_choices if name in choice.candidate.supplied)
    choice = next(choices, None)
    return f"{choice.candidate} installs" if choice else f"{image.resolution.base.candidate} keeps"


def _given_conflict(package: ProjectPackage, image: _ImagePackages, installed: Package) -> Diagnostic:
    """Return the mistake that a lock has another version than a component installs."""
    message = f"`{package.line.text}` does not fit the components of image `{image.resolution.recipe.name}`"
    reason = Reason(f"{_installer(package.line.name, image)} {_pin(installed)}", installed.location)
    version = installed.version.partition("+")[0]
    hint = f"lock `{package.line.name}=={version}`, which fits, or use another version of the component"
    return Diagnostic(message, package.line.location, reasons=(reason,), hint=hint)


def _check_given(packages: Sequence[ProjectPackage], image: _ImagePackages, report: Reporter) -> None:
    """Raise ConflictError if the needs of components exclude versions of a lock."""
    try:
        image.versions((), image.needs)
    except ConflictError as error:
        report(f"{image.resolution.recipe.name}: looking for the packages at fault")
        lines = [package.line for package in packages]
        raise _explained(lines, replace(image, given=()), error) from error


def questionable_packages(
    resolution: Resolution, files: Iterable[Package], are_related: Callable[[Sequence[str]], bool]
) -> Iterator[str]:
    """Yield packages that an image may not need: for GPUs that it does not use, or a library twice.

    `are_related` returns whether one of several packages requires another one.
    """
    choices = resolution.all_choices
    locked = {normal_name(package.name) for packages in resolution.owners.values() for package in packages}
    wheels = {name for choice in choices for name in choice.candidate.wheels}
    added = [file for file in files if file.name not in locked]
    names = {file.name for file in added}
    if not any(choice.spec.gpu for choice in choices):
        for_gpus = [file for file in added if _FOR_GPUS.fullmatch(file.name)]
        if for_gpus:
            listed = ", ".join(f"{file.name} ({format_bytes(file.bytes)})" for file in for_gpus)
            hints = [f"use {cpu} instead of {gpu}" for gpu, cpu in _FOR_CPUS.items() if gpu in names]
            hint = f"; {' and '.join(hints)}" if hints else ""
            yield f"packages for GPUs in an image without CUDA: {listed}{hint}"
    libraries: dict[str, list[str]] = {}
    for name in sorted({*names, *locked, *wheels}):
        libraries.setdefault(_FLAVOR.sub("", name), []).append(name)
    for same in libraries.values():
        if len(same) > 1 and names.intersection(same) and not are_related(same):
            yield f"one library in several packages: {', '.join(same)}; keep one of them"


def _are_related(
    requirements: Requirements, image: _ImagePackages, files: Iterable[Package], names: Sequence[str]
) -> bool:
    """Return whether one of several locked packages requires another one; True if this is unknown."""
    texts = [line.text for line in requirements.packages if not line.git]
    installed = (*image.wheels.values(), *image.frozen, *image.contained)
    pins = [f"{file.name}=={file.version}" for file in files if not file.origin]
    try:
        return pylock.requires_another(names, texts, [*image.constraints, *pins], image.index, installed)
    except BakehouseError:
        return True


def source_distributions(files: Iterable[Package]) -> Iterator[str]:
    """Yield a text about packages without a wheel, which a build compiles."""
    if names := [file.name for file in files if not file.file.endswith(".whl")]:
        yield f"locked as a source distribution, which the build compiles: {', '.join(names)}"


def _relative(origin: str, directory: Path) -> str:
    """Return a URL without credentials, or a path relative to a directory."""
    if "://" in origin:
        return origin if urlsplit(origin).username is None else ""
    return quote(os.path.relpath(origin, directory)) if origin else ""


def _resolved(
    requirements: Requirements, before: Sequence[Package], image: _ImagePackages, report: Reporter
) -> tuple[tuple[Package, ...], tuple[Package, ...]]:
    """Return the files to lock, and the wheels of components that requirements need."""
    locked = [f"{package.name}=={package.version}" for package in image.locked.values()]
    contained = {normal_name(package.name) for package in image.contained}
    before = [package for package in before if normal_name(package.name) not in contained]
    own = [
        f"{package.name}=={package.version}"
        for package in before
        if normal_name(package.name) not in image.locked
    ]
    for pins in ([*locked, *own], locked) if own else (locked,):
        try:
            return _closure(requirements, pins, image, before)
        except ConflictError:
            report(f"{image.resolution.recipe.name}: other versions are needed")
    joint = _joint(requirements.packages, before, image, report)
    replaced = {name: package.version for name, package in image.locked.items() if _differs(package, joint)}
    pins = [f"{name}=={version}" for name, version in joint.items() if name not in image.wheels]
    fitting = tuple(package for package in image.contained if not _differs(package, joint))
    image = replace(image, contained=fitting)
    files, expected = _closure(requirements, pins, image)
    names = {file.name for file in files}
    if others := [f"{name}=={joint[name]}" for name in sorted(replaced) if name not in names]:
        files += pylock.resolve(others, (), image.index, alone=True)
    return tuple(replace(file, replaces=replaced.get(file.name, "")) for file in files), expected


def _joint(
    lines: Sequence[RequiredPackage], before: Sequence[Package], image: _ImagePackages, report: Reporter
) -> Mapping[str, str]:
    """Return versions for requirements and components together, with as few changes of locks as possible."""
    locked = [*image.locked.values(), *image.contained]
    try:
        joint = image.versions(lines, image.needs, preferred=[*before, *locked])
    except ConflictError as error:
        report(f"{image.resolution.recipe.name}: looking for the requirements at fault")
        raise _explained(lines, image, error) from error
    pins = [package for package in locked if not _differs(package, joint)]
    # uv does not keep every preferred version that fits
    for package in [package for package in locked if package not in pins]:
        try:
            joint = image.versions(lines, image.needs, [*pins, package], before)
        except ConflictError:
            continue
        pins.append(package)
    return joint


def _differs(package: Package | None, versions: Mapping[str, str] | str) -> bool:
    """Return whether a package has another version than a lock; one that is missing does not."""
    if package is None:
        return False
    name = normal_name(package.name)
    version = versions if isinstance(versions, str) else versions.get(name, package.version)
    return version != package.version


def _closure(
    requirements: Requirements, pins: Sequence[str], image: _ImagePackages, preferred: Sequence[Package] = ()
) -> tuple[tuple[Package, ...], tuple[Package, ...]]:
    """Return the files of requirements and what they depend on, and the wheels of components among these.

    Where several versions fit, a `preferred` package keeps its version.
    """
    texts = [line.text for line in requirements.packages]
    installed = (*image.wheels.values(), *image.frozen, *image.contained, *image.given)
    constraints = [*image.constraints, *pins]
    files, used = pylock.resolve_beside(texts, constraints, image.index, installed, preferred=preferred)
    kept = [file.name for file in files if any(fnmatchcase(file.name, glob) for glob in image.without)]
    if kept:
        free = [text for text in constraints if normal_name(Parsed(text).name) not in kept]
        files, used = pylock.resolve_beside(
            texts, free, image.index, installed, without=kept, preferred=preferred
        )
    return files, tuple(package for package in used if normal_name(package.name) in image.wheels)


def _check_hashes(requirements: Requirements, files: Iterable[Package]) -> None:
    """Raise RecipeError if a requirement does not allow the file that was chosen for it."""
    sha256 = {file.name: file.sha256 for file in files}
    problems = Problems()
    for line in requirements.packages:
        if line.hashes and sha256.get(line.name, "") not in {*line.hashes, ""}:
            message = f"none of the hashes of `{line.name}` is that of the file for this image"
            problems.add(Diagnostic(message, line.location, hint="remove the hashes: the lock records them"))
    problems.raise_as(RecipeError)


def _explained(
    lines: Sequence[RequiredPackage], image: _ImagePackages, error: ConflictError
) -> ConflictError:
    """Return a conflict that names the requirements at fault and what each contradicts."""

    def conflict(line: RequiredPackage) -> ConflictError | None:
        return _conflict(image, [line], image.needs)

    with ThreadPoolExecutor(_MAX_CONCURRENT_RESOLUTIONS) as pool:
        conflicts = dict(zip(lines, pool.map(conflict, lines), strict=True))
    guilty = {line: conflict for line, conflict in conflicts.items() if conflict}
    if guilty:
        return ConflictError.of(*(_conflict_diagnostic(line, image, guilty[line]) for line in guilty))
    for number, line in enumerate(lines):
        if joint_conflict := _conflict(image, lines[: number + 1], image.needs):
            others = [other for other in lines[:number] if _conflict(image, [other, line], image.needs)]
            reasons = tuple(Reason(f"`{other.text}` is required too", other.location) for other in others)
            message = f"`{line.text}` does not fit the other requirements"
            return ConflictError(message, line.location, reasons=reasons, tail=_tail(joint_conflict))
    return error


def _conflict(
    image: _ImagePackages, lines: Sequence[RequiredPackage], needs: Sequence[_Need]
) -> ConflictError | None:
    try:
        image.versions(lines, needs)
    except ConflictError as error:
        return error
    return None


def _conflict_diagnostic(line: RequiredPackage, image: _ImagePackages, error: ConflictError) -> Diagnostic:
    """Return the reasons why one requirement does not fit the components."""
    if alone := _conflict(image, [line], ()):
        message = f"no version satisfies `{line.text}`"
        return Diagnostic(message, line.location, tail=_tail(alone), hint=alone.diagnostics[0].hint)
    # uv would try all releases of packages that a need alone does not pin, and build some.
    words = {normal_name(word.rstrip(".")) for word in _NAME.findall(" ".join(_tail(error)))}
    named = [need for need in image.needs if normal_name(Parsed(need.text).name) in words]
    with ThreadPoolExecutor(_MAX_CONCURRENT_RESOLUTIONS) as pool:
        conflicts = pool.map(lambda need: _conflict(image, [line], [need]), named)
        needs = [need for need, conflict in zip(named, conflicts, strict=True) if conflict]
    tail = _tail((needs and _conflict(image, [line], needs[:1])) or error)
    hint = ""
    name = Parsed(line.text).name
    bare = replace(line, text=name)
    if bare.text != line.text and not _conflict(image, [bare], image.needs):
        version = image.versions([bare], image.needs)[line.name]
        hint = f"ask for `{name}=={version}`, which fits, or for another version of the component"
    message = f"`{line.text}` does not fit the components of image `{image.resolution.recipe.name}`"
    reasons = tuple(dict.fromkeys(need.reason for need in needs))
    return Diagnostic(message, line.location, reasons=reasons, tail=tail, hint=hint)


def _pin(package: Package) -> str:
    return f"{package.name}=={package.version}"


def _tail(error: ConflictError) -> tuple[str, ...]:
    """Return uv's reasons."""
    lines = error.diagnostics[0].tail
    return tuple(line.removeprefix("  ") for line in lines if not line.startswith("error: No solution found"))
