"""Locked packages of images, and the steps that install them."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from debian.debian_support import NativeVersion
from packaging.utils import parse_wheel_filename

from bakehouse.catalog.apt_lock import Deb
from bakehouse.catalog.python_lock import normal_name
from bakehouse.commands.security.findings import Usage
from bakehouse.plan.model import BootstrappedBase, Image, Stage


@dataclass(frozen=True, slots=True, order=True)
class PythonPackage:
    """A Python package that images lock."""

    name: str
    """Normalized, as in PEP 503."""
    version: str


def deb_usages(images: Iterable[Image], is_affected: Callable[[Deb], bool]) -> tuple[Usage, ...]:
    """Return the steps that install affected Debian packages."""
    return tuple(
        dict.fromkeys(
            Usage(image.name, step, in_image)
            for image in images
            for step, in_image, debs in _apt_steps(image)
            if any(map(is_affected, debs))
        )
    )


def _apt_steps(image: Image) -> Iterator[tuple[str, bool, tuple[Deb, ...]]]:
    if isinstance(image.base, BootstrappedBase):
        yield f"base {image.base_part.title}", True, image.base.debs
    yield "packages of the image", True, image.apt_debs
    yield "tools of all build stages", False, image.toolchain_debs
    for stage in image.stages:
        yield f"build of {stage.title}", False, stage.debs


def python_packages(images: Iterable[Image]) -> dict[PythonPackage, tuple[Usage, ...]]:
    """Return the Python packages that images lock, with the steps that install them."""
    usages: dict[PythonPackage, dict[Usage, None]] = {}
    for image in images:
        for stage in image.stages:
            for package in stage_packages(stage):
                usages.setdefault(package, {})[Usage(image.name, stage.title, in_image=True)] = None
    return {package: tuple(steps) for package, steps in sorted(usages.items())}


def stage_packages(stage: Stage) -> Iterator[PythonPackage]:
    """Yield the Python packages that a stage installs."""
    for package in (*stage.wheels, *stage.sdists):
        yield PythonPackage(normal_name(package.name), package.version)
    for artifact in stage.artifacts.values():
        if artifact.file.endswith(".whl"):
            name, version, *_ = parse_wheel_filename(artifact.file)
            yield PythonPackage(name, str(version))


def is_newer(version: str, other: str) -> bool:
    """Return whether a Debian version is newer than another one. Raises ValueError for invalid versions."""
    # `Version` would use python-apt on machines that have it
    return NativeVersion(version) > NativeVersion(other)
