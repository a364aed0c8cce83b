"""Explanations of packages: the components, requirements and locks that bring one into an image."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from bakehouse.catalog.apt_lock import AptLock, Deb
from bakehouse.catalog.base_image_lock import AptLocks
from bakehouse.catalog.python_lock import Package, normal_name
from bakehouse.errors import Location, Problems, Reason
from bakehouse.plan.apt_packages import AptSteps, apt_steps
from bakehouse.resolve.candidate import frozen_package
from bakehouse.resolve.resolver import Choice, Resolution

_WHEEL = re.compile(r"(?P<name>[A-Za-z0-9._]+)-(?P<version>[^-]+)-.*\.whl")
_REQUIREMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_MAX_REQUIREMENTS = 4


@dataclass(frozen=True, slots=True)
class PackageOrigin:
    """A package of an image, and the reasons why it is there."""

    name: str
    kind: Literal["Python", "distribution"]
    version: str
    """Empty if it is not locked."""
    reasons: tuple[Reason, ...]
    in_image: bool = True
    """False if only build stages install it."""


def explain_package(resolution: Resolution, locks: AptLocks, name: str) -> tuple[PackageOrigin, ...]:
    """Return the Python package and the distribution package with a name."""
    return (*_python(resolution, name), *_distribution(resolution, locks, name))


def package_names(resolution: Resolution, locks: AptLocks) -> tuple[str, ...]:
    """Return the names of all locked packages of an image."""
    packages = (
        *resolution.user_packages,
        *(package for owned in resolution.owners.values() for package in owned),
    )
    steps = apt_steps(resolution, locks, Problems())
    debs = (*steps.in_image, *steps.in_build_stages)
    return tuple(sorted({*(package.name for package in packages), *(deb.name for deb in debs)}))


def report(origins: Sequence[PackageOrigin]) -> list[tuple[str, Location | None]]:
    """Return the lines of a report with their locations."""
    lines: list[tuple[str, Location | None]] = []
    for origin in origins:
        use = "" if origin.in_image else ", only in build stages"
        version = f" {origin.version}" if origin.version else ""
        lines.append((f"{origin.name}{version}, a {origin.kind} package{use}", None))
        lines += [(f"  {reason.text}", reason.location) for reason in origin.reasons]
    return lines


def _python(resolution: Resolution, name: str) -> Iterator[PackageOrigin]:
    wanted, base = normal_name(name), resolution.base.candidate
    version, reasons = "", list[Reason]()
    for choice in resolution.all_choices:
        for wheel, wheel_version, location in _wheels(choice):
            if normal_name(wheel) == wanted:
                version = wheel_version
                reasons.append(Reason(f"{choice.candidate} installs its wheel", location))
        packages = resolution.owners.get(choice.name, ())
        owned = (package for package in packages if normal_name(package.name) == wanted)
        package = next(owned, choice.spec.packages_by_name.get(wanted))
        if package is None:
            continue
        is_owner = package in resolution.owners.get(choice.name, ())
        version = version or package.version
        kept = frozen_package(base, package)
        if kept:
            version = kept.version or package.version
            reasons.append(Reason(f"{base} keeps its own {kept.name}", kept.location))
        verb = "installs" if is_owner else "needs"
        reasons.append(Reason(f"{choice.candidate} {verb} {package.version}", package.location))
        if choice.spec.lock:
            text = _requested(wanted, choice.spec.lock.requirements)
            reasons.append(Reason(text, choice.spec.lock.named_at))
    for package in resolution.recipe.content.packages:
        if normal_name(package.name) == wanted:
            version = version or package.version
            reasons += _of_recipe(resolution, package)
    if reasons:
        yield PackageOrigin(name, "Python", version, tuple(reasons))


def _wheels(choice: Choice) -> Iterator[tuple[str, str, Location]]:
    """Yield the name, version and location of each wheel that a component installs itself."""
    for artifact in choice.spec.artifacts:
        if match := _WHEEL.fullmatch(artifact.file):
            yield match["name"], match["version"].replace("%2B", "+"), artifact.location


def _of_recipe(resolution: Resolution, package: Package) -> Iterator[Reason]:
    verb = "installs" if package in resolution.user_packages else "also locks"
    yield Reason(f"the recipe {verb} {package.version}", package.location)
    files = resolution.recipe.requirements
    if files is None:
        return
    lines = files.read().packages
    for line in lines:
        if line.name == normal_name(package.name):
            start = line.location.column - 1
            text = line.location.text[start : start + line.location.length]
            yield Reason(f"`{text}` requests it", line.location)
            return
    yield Reason(_requested("", [line.text for line in lines]), Location(files.path, 1, 1))


def _requested(name: str, requirements: Sequence[str]) -> str:
    """Return which requirement of a lock requests a package."""
    if direct := [text for text in requirements if _name_of(text) == name]:
        return f"`{direct[0]}` requests it"
    if not requirements:
        return "its lock has no requirements"
    texts = ", ".join(f"`{text}`" for text in requirements[:_MAX_REQUIREMENTS])
    more = len(requirements) - _MAX_REQUIREMENTS
    return f"a dependency of {texts}" + (f" or {more} others" if more > 0 else "")


def _name_of(requirement: str) -> str:
    match = _REQUIREMENT.match(requirement)
    return normal_name(match[0]) if match else ""


def _distribution(resolution: Resolution, locks: AptLocks, name: str) -> Iterator[PackageOrigin]:
    steps = apt_steps(resolution, locks, Problems())
    source = resolution.base.spec.base
    lock = locks.suites.get(source.lock_name) if source and source.suite else None
    deb = _named(name, steps.in_image)
    requesters = tuple(_requesters(resolution, name))
    if deb is None and requesters and not (steps.base or steps.image):
        # Steps on a vendor base without a lock install from its mirrors.
        reason = Reason("no version is locked: it comes from the mirrors of the base on the day of the build")
        yield PackageOrigin(name, "distribution", "", (*requesters, reason))
    elif deb is not None:
        reasons = [*requesters, *(_of_base(resolution, lock, steps, name) if lock else ())]
        if lock and not reasons:
            reasons = [*_by_dependency(resolution, lock, steps, name)]
        yield PackageOrigin(deb.name, "distribution", deb.version, tuple(reasons))
    elif deb := _named(name, steps.in_build_stages):
        stages = [stage for stage, debs in steps.stages.items() if _named(name, debs)]
        used = "every build stage" if _named(name, steps.toolchain) else f"the build of {', '.join(stages)}"
        reason = Reason(f"{used} installs it", resolution.base.candidate.component.location)
        yield PackageOrigin(deb.name, "distribution", deb.version, (reason,), in_image=False)


def _named(name: str, debs: Sequence[Deb]) -> Deb | None:
    return next((deb for deb in debs if deb.name == name), None)


def _requesters(resolution: Resolution, name: str) -> Iterator[Reason]:
    """Yield the recipe and the components that request a package for the image."""
    for text, location in resolution.recipe.package_lines.items():
        if text.partition("=")[0] == name:
            yield Reason(f"the recipe names it in `packages`: {text}", location)
    for choice in resolution.all_choices:
        for text in choice.spec.system_packages.names(resolution.base.spec.manager):
            if text.partition("=")[0] == name:
                yield Reason(f"{choice.candidate} needs it to run", choice.candidate.variant.location)


def _of_base(resolution: Resolution, lock: AptLock, steps: AptSteps, name: str) -> Iterator[Reason]:
    """Yield the reason why a package is in a bootstrapped base."""
    if _named(name, steps.base) is None:
        return
    base, source = resolution.base.candidate, resolution.base.spec.base
    chain = lock.chain(source.packages, name, steps.base) if source else ()
    location = base.component.location
    if len(chain) == 1:
        yield Reason(f"{base} contains it", location)
    elif chain:
        yield Reason(f"{base} contains it, a dependency: {' → '.join(chain)}", location)
    else:
        yield Reason(f"{base} contains it: every installation of Debian needs it", location)


def _by_dependency(resolution: Resolution, lock: AptLock, steps: AptSteps, name: str) -> Iterator[Reason]:
    """Yield the chain of dependencies from each requester to a package."""
    requests = [(text, "the recipe", location) for text, location in resolution.recipe.package_lines.items()]
    requests += [
        (text, str(choice.candidate), choice.candidate.variant.location)
        for choice in resolution.all_choices
        for text in choice.spec.system_packages.names("apt")
    ]
    for text, requester, location in requests:
        if chain := lock.chain([text], name, steps.image):
            yield Reason(f"{requester} needs it: {' → '.join(chain)}", location)
