"""Measures images of the engine's own store, and holds them to their budgets."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from bakehouse.analysis import image_archive
from bakehouse.analysis import sizes as size_report
from bakehouse.analysis.image_archive import SavedImage
from bakehouse.analysis.layers import Contents
from bakehouse.analysis.sizes import FolderSize, ImageSize
from bakehouse.build.built_image import BuiltImage
from bakehouse.catalog.size_budget import WHOLE, Budget
from bakehouse.engine.protocol import Engine
from bakehouse.errors import BuildError, Diagnostic, EngineError, Table, UsageError
from bakehouse.plan.dockerfile import layer_owners
from bakehouse.plan.model import Image
from bakehouse.util.files import write_whole
from bakehouse.util.format import format_bytes
from bakehouse.util.oci import Digest
from bakehouse.util.terminal import Reporter

_SAY_SECONDS = 5.0
_LARGEST = 5


@dataclass(slots=True)
class SizeReader:
    """Weighs images; a layer that several have is read once."""

    engine: Engine
    templates: Mapping[str, str]
    say: Reporter
    clock: Callable[[], float] = time.monotonic
    _contents: dict[str, Contents] = field(default_factory=dict)

    def size(self, image: Image, digest: str) -> ImageSize:
        """Where the bytes of an image lie, which is stored under `digest`."""
        saved = self._saved(image, digest, self._contents)
        names = layer_names(image, saved, self.templates)
        found = size_report.size_of(image.name, digest, saved, names, self._contents)
        choices = [(stage.name, one) for stage in image.stages for one in stage.trims]
        held = [self._contents[layer.digest] for layer in saved.layers]
        layers = list(zip(names, held, strict=True))
        return replace(found, trims=size_report.trims_of(choices, layers))

    def folders(self, image: Image, digest: str, part: str) -> tuple[FolderSize, ...]:
        """The folders of one part, whatever other parts do to its files."""
        saved = self._saved(image, digest, self._contents)
        names = layer_names(image, saved, self.templates)
        own = (layer.digest for name, layer in zip(names, saved.layers, strict=True) if name == part)
        return size_report.folders_of([self._contents[layer] for layer in own])

    def weights(self, image: Image, digest: str) -> dict[str, int] | None:
        """The bytes of each part as pushed, and of all; None where the engine doesn't store them so."""
        saved = self._saved(image, digest, None)
        if not saved.is_as_pushed:
            return None
        found = {WHOLE: saved.bytes}
        for name, layer in zip(layer_names(image, saved, self.templates), saved.layers, strict=True):
            found[name] = found.get(name, 0) + layer.bytes
        return found

    def _saved(self, image: Image, digest: str, contents: dict[str, Contents] | None) -> SavedImage:
        told = self.clock()

        def heard(count: int) -> None:
            nonlocal told
            if self.clock() - told >= _SAY_SECONDS:
                told = self.clock()
                self.say(f"{image.name}: {format_bytes(count)} read")

        with self.engine.export_image(digest) as chunks:
            return image_archive.read(chunks, contents, heard)


def layer_names(image: Image, saved: SavedImage, templates: Mapping[str, str]) -> tuple[str, ...]:
    """Whose each layer of an image is; what lies below those of its Dockerfile is the base's."""
    above = layer_owners(image, templates)
    below = len(saved.layers) - len(above)
    made_by = saved.made_by[below:] if below >= 0 else ()
    told = zip(above, made_by, strict=False)
    if below < 0 or any(made and not made.startswith(f"{one.instruction} ") for one, made in told):
        message = f"the layers of `{image.name}` in the engine are not those of its Dockerfile"
        facts = (
            ("in the engine", str(len(saved.layers))),
            ("in the Dockerfile", f"{len(above)} and the base's"),
        )
        raise EngineError(Diagnostic(message, facts=facts, hint=f"run `./bake build {image.name}`"))
    return (*[image.base_part.component or "base"] * below, *(owner.name for owner in above))


def stored_images(
    engine: Engine, images: Sequence[Image], named: Sequence[str], say: Reporter
) -> tuple[tuple[Image, Digest], ...]:
    """Those of the images that the engine has; one that is `named` by its own name has to be there."""
    found = [(image, engine.image(image.reference)) for image in images]
    there = tuple((image, Digest(stored.digest)) for image, stored in found if stored)
    absent = [image.name for image, stored in found if not stored]
    missed = [name for name in absent if name in named]
    if missed or not there:
        missed = missed or absent
        raise UsageError(*(_not_built(name) for name in missed[:_LARGEST]))
    if absent:
        say(f"{len(absent)} of {len(images)} images are not built on this machine as their recipes are now")
    return there


def _not_built(name: str) -> Diagnostic:
    message = f"image `{name}` is not built on this machine as its recipe is now"
    return Diagnostic(message, hint=f"run `./bake build {name}`")


def require_budgets(scale: SizeReader, built: Sequence[BuiltImage], state: Path) -> None:
    """Raise BuildError where images weigh more than they may; weights are remembered under `state`."""
    over: list[Diagnostic] = []
    for one in built:
        weights = _weights(scale, one, state) if one.image.budgets else None
        if weights is None:
            continue
        over += [
            _over(budget, weights, scale, one)
            for budget in one.image.budgets
            if weights.get(budget.name, 0) > budget.bytes
        ]
    if over:
        raise BuildError(*over)


def _weights(scale: SizeReader, one: BuiltImage, state: Path) -> Mapping[str, int] | None:
    path = state / "sizes" / f"{one.digest.removeprefix('sha256:')}.json"
    try:
        return {str(name): int(number) for name, number in json.loads(path.read_text()).items()}
    except (OSError, ValueError, AttributeError, TypeError):
        weights = scale.weights(one.image, one.digest)
    if weights is None:
        scale.say(
            f"note: the budget of {one.image.name} is not checked: this engine stores layers unpacked, "
            "and what they weigh as pushed is not known here"
        )
        return None
    write_whole(path, json.dumps(weights, indent=2, sort_keys=True) + "\n")
    return weights


def _over(budget: Budget, weights: Mapping[str, int], scale: SizeReader, one: BuiltImage) -> Diagnostic:
    weight = weights[budget.name]
    image = one.image.name
    if budget.name == WHOLE:
        message = f"image `{image}` is over its budget"
        parts = sorted((item for item in weights.items() if item[0] != WHOLE), key=lambda item: -item[1])
        largest = Table("its largest parts as pushed", _rows(parts))
    else:
        message = f"`{budget.name}` of image `{image}` is over its budget"
        folders = [
            (folder.path, folder.bytes) for folder in scale.folders(one.image, one.digest, budget.name)
        ]
        largest = Table("its largest folders, unpacked", _rows(folders))
    label = f"it weighs {format_bytes(weight)} as pushed, {format_bytes(weight - budget.bytes)} more"
    hint = f"`./bake sizes {image}` tells where its bytes lie"
    return Diagnostic(message, budget.location, label, hint=hint, tables=(largest,))


def _rows(sizes: Sequence[tuple[str, int]]) -> tuple[tuple[str, ...], ...]:
    return tuple((name, format_bytes(number)) for name, number in sizes[:_LARGEST])
