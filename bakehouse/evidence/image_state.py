"""Compute how far an image was made from the records of its layers. States are never stored."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from bakehouse.catalog.project import ProjectSettings
from bakehouse.evidence.step_layers import RowsByKey, StepLayer, by_key, read
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
        if self.missing or not self.layers:
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


def image_state(
    keys: Iterable[str], layers: Sequence[ImageLayer], platform: str, rows: RowsByKey
) -> ImageState:
    """Return the state of an image by its keys and layers. Without layers, the rows of its keys decide."""
    own = [row for key in {*keys} for row in rows.get((key[:KEY_DIGITS], platform), ())]
    covered = [layer for layer in layers if layer.key]
    found = [(rows.get((layer.key, platform), ()), layer.is_pinned) for layer in covered] or [(own, True)]
    results = [({row.digest for row in given if row.digest}, is_pinned) for given, is_pinned in found]
    differ = sum(len(digests) > 1 for digests, is_pinned in results if is_pinned)
    if covered:
        differ += len({row.digest for row in own if row.digest}) > 1
    return ImageState(
        layers=len(found),
        known=sum(bool(digests) for digests, is_pinned in results if is_pinned),
        not_pinned=sum(not is_pinned for _, is_pinned in found),
        stubs=tuple(sorted({name for given, _ in found for row in _stubs(given) for name in row.stubs})),
        missing=sum(not given for given, _ in found),
        differ=differ,
    )


def _stubs(rows: Collection[StepLayer]) -> Collection[StepLayer]:
    """Return rows of rehearsals; none if a build has others."""
    return () if any(row.digest for row in rows) else rows


def known_layers(project: ProjectSettings, *, committed: bool = False) -> RowsByKey:
    """Return the rows of the repository, and also those of this machine unless `committed`."""
    rows = read(project.images)
    return by_key(rows if committed else rows | read(project.state))


def state_of(image: "Image", layers: RowsByKey) -> ImageState:
    return image_state((image.recipe_key, image.key), image.layer_keys, image.platform, layers)
