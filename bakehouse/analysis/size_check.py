"""Sizes of images in the engine's store, and checks of their size budgets."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from bakehouse.analysis import image_archive
from bakehouse.analysis.image_archive import SavedImage
from bakehouse.analysis.layers import LayerContents
from bakehouse.analysis.sizes import DirectorySize, ImageSize, directories_of, size_of, trims_of
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

_REPORT_SECONDS = 5.0
_LARGEST = 5


@dataclass(slots=True)
class SizeReader:
    """Reads the sizes of images; shared layers are read once."""

    engine: Engine
    templates: Mapping[str, str]
    report: Reporter
    clock: Callable[[], float] = time.monotonic
    _contents: dict[str, LayerContents] = field(default_factory=dict)

    def size(self, image: Image, digest: str) -> ImageSize:
        """Return the sizes of an image that is stored under `digest`."""
        saved = self._saved(image, digest, self._contents)
        names = layer_names(image, saved, self.templates)
        size = size_of(image.name, digest, saved, names, self._contents)
        choices = [(stage.name, trim) for stage in image.stages for trim in stage.trims]
        contents = [self._contents[layer.digest] for layer in saved.layers]
        layers = list(zip(names, contents, strict=True))
        return replace(size, trims=trims_of(choices, layers))

    def directories(self, image: Image, digest: str, owner: str) -> tuple[DirectorySize, ...]:
        """Return the directories of one component's layers, independent of other layers."""
        saved = self._saved(image, digest, self._contents)
        names = layer_names(image, saved, self.templates)
        own = (layer.digest for name, layer in zip(names, saved.layers, strict=True) if name == owner)
        return directories_of([self._contents[layer] for layer in own])

    def pushed_sizes(self, image: Image, digest: str) -> dict[str, int] | None:
        """Return the size as pushed of each component and of the image; None if the engine cannot tell."""
        saved = self._saved(image, digest, None)
        if not saved.is_as_pushed:
            return None
        sizes = {WHOLE: saved.bytes}
        for name, layer in zip(layer_names(image, saved, self.templates), saved.layers, strict=True):
            sizes[name] = sizes.get(name, 0) + layer.bytes
        return sizes

    def _saved(self, image: Image, digest: str, contents: dict[str, LayerContents] | None) -> SavedImage:
        reported = self.clock()

        def on_progress(count: int) -> None:
            nonlocal reported
            if self.clock() - reported >= _REPORT_SECONDS:
                reported = self.clock()
                self.report(f"{image.name}: {format_bytes(count)} read")

        with self.engine.export_image(digest) as chunks:
            return image_archive.read(chunks, contents, on_progress)


def layer_names(image: Image, saved: SavedImage, templates: Mapping[str, str]) -> tuple[str, ...]:
    """Return the owner of each layer of an image; layers below those of its Dockerfile are the base's."""
    above = layer_owners(image, templates)
    below = len(saved.layers) - len(above)
    made_by = saved.made_by[below:] if below >= 0 else ()
    pairs = zip(above, made_by, strict=False)
    if below < 0 or any(made and not made.startswith(f"{owner.instruction} ") for owner, made in pairs):
        message = f"the layers of image `{image.name}` in the engine do not match its Dockerfile"
        facts = (
            ("in the engine", str(len(saved.layers))),
            ("in the Dockerfile", f"{len(above)}, without those of the base"),
        )
        raise EngineError(Diagnostic(message, facts=facts, hint=f"run `bake build {image.name}`"))
    return (*[image.base_part.component or "base"] * below, *(owner.name for owner in above))


def stored_images(
    engine: Engine, images: Sequence[Image], named: Sequence[str], report: Reporter
) -> tuple[tuple[Image, Digest], ...]:
    """Return the images that the engine has. Raises UsageError if an image in `named` is missing."""
    pairs = [(image, engine.image(image.reference)) for image in images]
    built = tuple((image, Digest(stored.digest)) for image, stored in pairs if stored)
    missing = [image.name for image, stored in pairs if not stored]
    named_missing = [name for name in missing if name in named]
    if named_missing or not built:
        raise UsageError(*(_not_built(name) for name in (named_missing or missing)[:_LARGEST]))
    if missing:
        report(f"{len(missing)} of {len(images)} images are missing: not built from their current recipes")
    return built


def _not_built(name: str) -> Diagnostic:
    message = f"image `{name}` is missing: it was not built from its current recipe"
    return Diagnostic(message, hint=f"run `bake build {name}`")


def require_budgets(reader: SizeReader, built: Sequence[BuiltImage], state: Path) -> None:
    """Raise BuildError if images exceed their size budgets; sizes are cached under `state`."""
    errors: list[Diagnostic] = []
    for image in built:
        sizes = _pushed_sizes(reader, image, state) if image.image.budgets else None
        if sizes is None:
            continue
        errors += [
            _exceeded(budget, sizes, reader, image)
            for budget in image.image.budgets
            if sizes.get(budget.name, 0) > budget.bytes
        ]
    if errors:
        raise BuildError(*errors)


def _pushed_sizes(reader: SizeReader, built: BuiltImage, state: Path) -> Mapping[str, int] | None:
    path = state / "sizes" / f"{built.digest.removeprefix('sha256:')}.json"
    try:
        return {str(name): int(size) for name, size in json.loads(path.read_text()).items()}
    except (OSError, ValueError, AttributeError, TypeError):
        sizes = reader.pushed_sizes(built.image, built.digest)
    if sizes is None:
        reader.report(
            f"note: the size budget of {built.image.name} is not checked, "
            "because this engine stores layers unpacked"
        )
        return None
    write_whole(path, json.dumps(sizes, indent=2, sort_keys=True) + "\n")
    return sizes


def _exceeded(budget: Budget, sizes: Mapping[str, int], reader: SizeReader, built: BuiltImage) -> Diagnostic:
    size, image = sizes[budget.name], built.image.name
    if budget.name == WHOLE:
        message = f"image `{image}` exceeds its size budget"
        owners = ((name, number) for name, number in sizes.items() if name != WHOLE)
        largest = Table("largest components as pushed", _rows(sorted(owners, key=lambda item: -item[1])))
    else:
        message = f"`{budget.name}` of image `{image}` exceeds its size budget"
        directories = reader.directories(built.image, built.digest, budget.name)
        rows = _rows([(directory.path, directory.bytes) for directory in directories])
        largest = Table("largest directories, unpacked", rows)
    label = f"the size as pushed is {format_bytes(size)}, {format_bytes(size - budget.bytes)} more"
    hint = f"run `bake sizes {image}` for details"
    return Diagnostic(message, budget.location, label, hint=hint, tables=(largest,))


def _rows(sizes: Sequence[tuple[str, int]]) -> tuple[tuple[str, ...], ...]:
    return tuple((name, format_bytes(size)) for name, size in sizes[:_LARGEST])
