"""Sizes of images in the engine's store, and checks of their size budgets."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bakehouse.analysis.layers import LayerContents, readers_into
from bakehouse.analysis.sizes import DirectorySize, ImageSize, directories_of, size_of, trims_of
from bakehouse.builder.built_image import BuiltImage
from bakehouse.builder.pack import PackedImage, Packer
from bakehouse.catalog.size_budget import WHOLE, Budget
from bakehouse.engine.image_archive import SavedImage, instructions
from bakehouse.errors import BuildError, Diagnostic, EngineError, Table, UsageError
from bakehouse.plan.dockerfile import layer_owners
from bakehouse.plan.model import Image
from bakehouse.registry.manifest import FORMS
from bakehouse.util.format import format_bytes
from bakehouse.util.terminal import Reporter

_REPORT_SECONDS = 5.0
_MAX_ROWS = 5


@dataclass(slots=True)
class SizeReader:
    """Reads the sizes of images, compressed for a push; shared layers are read once."""

    packer: Packer
    templates: Mapping[str, str]
    report: Reporter
    clock: Callable[[], float] = time.monotonic
    _contents: dict[str, LayerContents] = field(default_factory=dict)

    def size(self, built: BuiltImage) -> ImageSize:
        """Return the sizes of an image."""
        image, packed = built.image, self._packed(built)
        saved = self._saved(built)
        names = layer_names(image, saved.made_by, self.templates)
        contents = [self._contents[layer.digest] for layer in saved.layers]
        size = size_of(image.name, packed, names, saved.made_by, contents)
        choices = [(stage.name, trim) for stage in image.stages for trim in stage.trims]
        return replace(size, trims=trims_of(choices, list(zip(names, contents, strict=True))))

    def directories(self, built: BuiltImage, owner: str) -> tuple[DirectorySize, ...]:
        """Return the directories of one component's layers, independent of other layers."""
        saved = self._saved(built)
        names = layer_names(built.image, saved.made_by, self.templates)
        own = (layer.digest for name, layer in zip(names, saved.layers, strict=True) if name == owner)
        return directories_of([self._contents[layer] for layer in own])

    def pushed_sizes(self, built: BuiltImage) -> dict[str, int]:
        """Return the size as pushed of each component and of the image."""
        packed = self._packed(built)
        sizes = {WHOLE: packed.manifest.bytes}
        made_by = instructions(packed.config, len(packed.layers))
        for name, layer in zip(layer_names(built.image, made_by, self.templates), packed.layers, strict=True):
            sizes[name] = sizes.get(name, 0) + layer.bytes
        return sizes

    def _packed(self, built: BuiltImage) -> PackedImage:
        def report(text: str) -> None:
            self.report(f"{built.image.name}: {text}")

        return self.packer.pack(built, FORMS[built.image.format], report)

    def _saved(self, built: BuiltImage) -> SavedImage:
        reported = self.clock()

        def on_progress(count: int) -> None:
            nonlocal reported
            if self.clock() - reported >= _REPORT_SECONDS:
                reported = self.clock()
                self.report(f"{built.image.name}: {format_bytes(count)} read")

        return self.packer.engine.read_image(built.stored, readers_into(self._contents), on_progress)


def layer_names(image: Image, made_by: Sequence[str], templates: Mapping[str, str]) -> tuple[str, ...]:
    """Return the owner of each layer of an image by its instruction; the lower ones are the base's."""
    above = layer_owners(image, templates)
    below = len(made_by) - len(above)
    pairs = zip(above, made_by[below:] if below >= 0 else (), strict=False)
    if below < 0 or any(made and not made.startswith(f"{owner.instruction} ") for owner, made in pairs):
        message = f"the layers of image `{image.name}` in the engine do not match its Dockerfile"
        facts = (
            ("in the engine", str(len(made_by))),
            ("in the Dockerfile", f"{len(above)}, without those of the base"),
        )
        raise EngineError(message, facts=facts, hint=f"run `bake build {image.name}`")
    return (*[image.base_part.component or "base"] * below, *(owner.name for owner in above))


def stored_images(
    packer: Packer, images: Sequence[Image], named: Sequence[str], report: Reporter
) -> tuple[BuiltImage, ...]:
    """Return the images that the engine has. Raises UsageError if an image in `named` is missing."""
    engine, cache = packer.engine, packer.cache
    pairs = [(image, engine.image(image.reference)) for image in images]
    built = tuple(BuiltImage.stored_as(stored, image, engine, cache) for image, stored in pairs if stored)
    missing = [image.name for image, stored in pairs if not stored]
    named_missing = [name for name in missing if name in named]
    if named_missing or not built:
        raise UsageError.of(*(_not_built(name) for name in (named_missing or missing)[:_MAX_ROWS]))
    if missing:
        report(f"{len(missing)} of {len(images)} images are missing: not built from their current recipes")
    return built


def _not_built(name: str) -> Diagnostic:
    message = f"image `{name}` is missing: it was not built from its current recipe"
    return Diagnostic(message, hint=f"run `bake build {name}`")


def require_budgets(reader: SizeReader, built: Sequence[BuiltImage]) -> None:
    """Raise BuildError if images exceed their size budgets."""
    errors: list[Diagnostic] = []
    for image in built:
        sizes = reader.pushed_sizes(image) if image.image.budgets else {}
        errors += [
            _exceeded(budget, sizes, reader, image)
            for budget in image.image.budgets
            if sizes.get(budget.name, 0) > budget.bytes
        ]
    if errors:
        raise BuildError.of(*errors)


def _exceeded(budget: Budget, sizes: Mapping[str, int], reader: SizeReader, built: BuiltImage) -> Diagnostic:
    size, image = sizes[budget.name], built.image.name
    if budget.name == WHOLE:
        message = f"image `{image}` exceeds its size budget"
        owners = ((name, number) for name, number in sizes.items() if name != WHOLE)
        largest = Table("largest components as pushed", _rows(sorted(owners, key=lambda item: -item[1])))
    else:
        message = f"`{budget.name}` of image `{image}` exceeds its size budget"
        directories = reader.directories(built, budget.name)
        rows = _rows([(directory.path, directory.bytes) for directory in directories])
        largest = Table("largest directories, unpacked", rows)
    label = f"the size as pushed is {format_bytes(size)}, {format_bytes(size - budget.bytes)} more"
    hint = f"run `bake sizes {image}` for details"
    return Diagnostic(message, budget.location, label, hint=hint, tables=(largest,))


def _rows(sizes: Sequence[tuple[str, int]]) -> tuple[tuple[str, ...], ...]:
    return tuple((name, format_bytes(size)) for name, size in sizes[:_MAX_ROWS])
