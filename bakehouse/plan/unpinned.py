"""Inputs of an image that nothing pins: another build can differ. One list for all commands and pages."""

from collections.abc import Iterator
from dataclasses import dataclass

from bakehouse.catalog.pins import FILE
from bakehouse.errors import Diagnostic, Location
from bakehouse.plan.model import BootstrappedBase, Image, RegistryBase
from bakehouse.util.format import format_count


@dataclass(frozen=True, slots=True)
class UnpinnedInput:
    """An input of an image without a checksum."""

    text: str
    """Short description, such as `packages of apt: vim`."""
    problem: str = ""
    """Why `push` refuses the image; empty if it publishes it."""
    hint: str = ""
    location: Location | None = None
    by_base: bool = False
    """The release of the base limits the versions, which the header of the Dockerfile says."""

    @property
    def diagnostic(self) -> Diagnostic:
        return Diagnostic(self.problem, self.location, hint=self.hint)


def unpinned_inputs(image: Image) -> tuple[UnpinnedInput, ...]:
    """Return the inputs that nothing pins: first those with which `push` refuses the image."""
    return (*_refused(image), *_published(image))


def _refused(image: Image) -> Iterator[UnpinnedInput]:
    again = "then build and test again"
    if isinstance(image.base, RegistryBase) and image.base.digest is None:
        reference = image.base.reference
        problem = f"the base of `{image.name}`, `{reference}`, is not pinned to a digest"
        hint = f"run `bake lock {image.name}`, commit `{FILE}`, {again}"
        yield UnpinnedInput(f"base {reference}", problem, hint)
    if isinstance(image.base, BootstrappedBase) and not image.locks_apt:
        problem = f"the packages of Debian `{image.base.suite}` in `{image.name}` are not locked"
        hint = f"run `bake lock {image.name}` and commit the lock, {again}"
        yield UnpinnedInput(f"packages of Debian {image.base.suite}", problem, hint)
    for artifact in image.unpinned:
        problem = f"the sha256 of `{artifact.name}` in `{image.name}` is unknown"
        hint = f"run `bake lock {image.name}`, compare the sha256 with the publisher's, {again}"
        yield UnpinnedInput(f"file {artifact.file}", problem, hint, artifact.location)


def _published(image: Image) -> Iterator[UnpinnedInput]:
    if isinstance(image.base, RegistryBase) and (image.uses_dnf or not image.locks_apt):
        manager = "dnf" if image.uses_dnf else "apt"
        shipped = sorted(name for name in image.apt if "=" not in name)
        if shipped:
            yield UnpinnedInput(f"packages of {manager}: {' '.join(shipped)}", by_base=image.uses_dnf)
        if image.toolchain and image.stages:
            yield UnpinnedInput(f"packages of {manager} in build stages", by_base=image.uses_dnf)
    if steps := image.content.run:
        yield UnpinnedInput(f"{format_count(len(steps), 'step')} of `run`, with network")


def unpinned_lines(images: tuple[Image, ...]) -> tuple[str, ...]:
    """Return a line for each list of inputs, with the images that have it."""
    names: dict[tuple[str, ...], list[str]] = {}
    for image in images:
        if texts := tuple(item.text for item in unpinned_inputs(image)):
            names.setdefault(texts, []).append(image.name)
    return tuple(f"not pinned in {', '.join(names[texts])}: {'; '.join(texts)}" for texts in names)
