"""Inputs of an image that nothing pins: another build can differ. One list for all commands and pages."""

from collections.abc import Iterator
from dataclasses import dataclass

from bakehouse.catalog.pins import FILE
from bakehouse.errors import Diagnostic, Location
from bakehouse.plan.image_layer import KEY_DIGITS, ImageLayer
from bakehouse.plan.model import BootstrappedBase, Image, RegistryBase
from bakehouse.plan.step_keys import DockerfileKeys, StepKey

_LAST = "the last stage"


@dataclass(frozen=True, slots=True)
class UnpinnedInput:
    """An input of an image without a checksum."""

    text: str
    """Short description, such as `packages of apt: vim`."""
    problem: str = ""
    """Why `push` refuses the image; empty if it publishes it."""
    hint: str = ""
    location: Location | None = None
    stages: tuple[str, ...] = ()
    """Names of the stages whose steps read it, or of components; empty for bases."""
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
        stages = tuple(stage.name for stage in image.stages if artifact in stage.artifacts.values())
        yield UnpinnedInput(f"file {artifact.file}", problem, hint, artifact.location, stages)


def _published(image: Image) -> Iterator[UnpinnedInput]:
    if isinstance(image.base, RegistryBase) and (image.uses_dnf or not image.locks_apt):
        manager = "dnf" if image.uses_dnf else "apt"
        shipped = sorted(name for name in image.apt if "=" not in name)
        if shipped:
            text = f"packages of {manager}: {' '.join(shipped)}"
            yield UnpinnedInput(text, stages=(_LAST,), by_base=image.uses_dnf)
        stages = tuple(stage.name for stage in image.stages if stage.build_apt)
        if image.stages and (image.toolchain or stages):
            text = f"packages of {manager} in build stages"
            yield UnpinnedInput(text, stages=("toolchain", *stages), by_base=image.uses_dnf)
    own = [(str(number), step) for number, step in enumerate(image.content.run, 1) if step.network]
    if numbers := [number for number, _ in own]:
        steps = f"step {numbers[0]}" if len(numbers) == 1 else f"steps {', '.join(numbers)}"
        # On a bootstrapped base, steps before packages are in the stage of the packages
        stages = (_LAST, *(["system"] if any(step.before == "packages" for _, step in own) else []))
        yield UnpinnedInput(f"{steps} of `run`, which may use the network", stages=stages)


def layer_keys(image: Image, keys: DockerfileKeys) -> tuple[ImageLayer, ...]:
    """Return the layers of an image above its base, by the keys of its Dockerfile."""
    unpinned = {*_unpinned_steps(image, keys)}
    code = {step.key for step in keys.steps if step.stage == "files"} if image.content.code else set()
    layers = []
    for layer in keys.layers:
        below = {layer.key, *layer.needs}
        names = dict.fromkeys([layer.source, *(step.stage for step in keys.steps if step.key in below)])
        key = "" if below & code else layer.key[:KEY_DIGITS]
        layers.append(ImageLayer(key, not below & unpinned, tuple(filter(None, names))))
    return tuple(layers)


def _unpinned_steps(image: Image, keys: DockerfileKeys) -> Iterator[StepKey]:
    """Yield the keys of images without a digest, and of all steps that may read what nothing pins."""
    made = image.base.reference if isinstance(image.base, BootstrappedBase) and image.locks_apt else ""
    yield from (key for name, key in keys.images.items() if "@" not in name and name != made)
    names = {name for item in unpinned_inputs(image) for name in item.stages}
    last = keys.steps[-1].stage if keys.steps else ""
    for step in keys.steps:
        is_own = step.stage == last and _LAST in names
        if is_own or any(f"{step.stage}-".startswith(f"{name}-") for name in names):
            yield step.key


def unpinned_lines(images: tuple[Image, ...]) -> tuple[str, ...]:
    """Return a line for each list of inputs, with the images that have it."""
    names: dict[tuple[str, ...], list[str]] = {}
    for image in images:
        if texts := tuple(item.text for item in unpinned_inputs(image)):
            names.setdefault(texts, []).append(image.name)
    return tuple(f"not pinned in {', '.join(names[texts])}: {'; '.join(texts)}" for texts in names)
