"""Compute how far an image was made from the records of its layers. States are never stored."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from bakehouse.catalog.project import ProjectSettings
from bakehouse.evidence.step_layers import RowsByKey, by_key, read
from bakehouse.plan.image_layer import KEY_DIGITS, ImageLayer
from bakehouse.util.format import format_count

if TYPE_CHECKING:
    from bakehouse.plan.model import Image


class Level(StrEnum):
    """Levels of images, the highest first."""

    BUILT = "built"
    REHEARSED = "rehearsed"
    RENDERED = "rendered"


@dataclass(frozen=True, slots=True)
class ImageState:
    """Numbers of the layers of an image by their records."""

    layers: int
    """All layers above the base, without those of training code."""
    known: int = 0
    """Layers that were made from real files, and that their keys determine."""
    not_pinned: int = 0
    """Layers that read what nothing pins, so that no result is that of their keys."""
    stubs: tuple[str, ...] = ()
    """Stubs in the layers that ran only with stubs."""
    missing: int = 0
    """Layers whose steps never ran."""
    differ: int = 0
    """Steps that gave different layers: the image is not reproducible."""

    @property
    def level(self) -> Level:
        if not self.layers:
            return Level.BUILT if self.known else Level.RENDERED
        if self.missing:
            return Level.RENDERED
        return Level.BUILT if self.known == self.layers else Level.REHEARSED

    @property
    def text(self) -> str:
        """The level with its limits, such as `rehearsed; 2 of 7 layers known`."""
        facts = [self.level.value]
        if self.known and self.known < self.layers:
            facts.append(f"{self.known} of {format_count(self.layers, 'layer')} known")
        if self.not_pinned:
            facts.append("not pinned")
        if self.differ:
            facts.append("not reproducible")
        return "; ".join(facts)


def image_state(key: str, layers: Sequence[ImageLayer], platform: str, rows: RowsByKey) -> ImageState:
    """Return the state of an image by its key and layers. Without layers, its content decides."""
    known = not_pinned = missing = differ = 0
    stubs: set[str] = set()
    covered = [layer for layer in layers if layer.key]
    for layer in covered:
        found = rows.get((layer.key, platform), ())
        digests = {row.digest for row in found if row.digest}
        used = [row.stubs for row in found if row.stubs]
        known += bool(digests) and layer.is_pinned
        not_pinned += not layer.is_pinned
        differ += len(digests) > 1 and layer.is_pinned
        missing += not found
        if not digests and used:
            stubs.update(*used)
    contents = {row.digest for row in rows.get((key[:KEY_DIGITS], platform), ()) if row.digest}
    differ += len(contents) > 1
    if not covered:
        known = len(contents)
    return ImageState(len(covered), known, not_pinned, tuple(sorted(stubs)), missing, differ)


def known_layers(project: ProjectSettings, *, committed: bool = False) -> RowsByKey:
    """Return the rows of the repository, and also those of this machine unless `committed`."""
    rows = read(project.images)
    return by_key(rows if committed else rows | read(project.state))


def state_of(image: "Image", layers: RowsByKey) -> ImageState:
    return image_state(image.key, image.layer_keys, image.platform, layers)
