"""Comparison of sizes: shared layers of images, and an image with another or with its last release."""

from collections.abc import Sequence
from dataclasses import dataclass

from bakehouse.analysis.sizes import ImageSize, LayerSize, PartSize


@dataclass(frozen=True, slots=True)
class SharedLayer:
    """A layer and the images that contain it."""

    layer: LayerSize
    images: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FleetSize:
    """The size of the layers of several images: counted for each image, and once."""

    images: tuple[str, ...]
    all_stored: int
    once_stored: int
    all_unpacked: int
    once_unpacked: int
    layers: tuple[SharedLayer, ...]
    """Each layer once; the ones that save most by sharing come first."""


@dataclass(frozen=True, slots=True)
class PartDifference:
    """The sizes of a component in two images; 0 if an image lacks it."""

    name: str
    before: PartSize
    after: PartSize

    @property
    def stored(self) -> int:
        return self.after.stored - self.before.stored

    @property
    def unpacked(self) -> int:
        return self.after.unpacked - self.before.unpacked


@dataclass(frozen=True, slots=True)
class SizeDifference:
    """The difference in size between two images, by component: largest differences first."""

    before: str
    after: str
    stored: int
    unpacked: int
    parts: tuple[PartDifference, ...]
    """Components whose size differs."""
    shared_layers: int
    shared_stored: int


@dataclass(frozen=True, slots=True)
class ReleaseDifference:
    """An image compared with its release. The ledger has the total size and the versions of the release."""

    image: str
    date: str
    digest: str
    before: int
    after: int
    is_same: bool
    parts: tuple[tuple[str, str, str], ...]
    """Components whose version differs: name, old and new version; empty if missing."""
    anew: tuple[PartSize, ...] | None
    """The sizes of layers that the release lacks; None if it was published from another machine."""


def fleet_size(sizes: Sequence[ImageSize]) -> FleetSize:
    """Return the layers of images and their total size."""
    layers: dict[str, LayerSize] = {}
    users: dict[str, list[str]] = {}
    for size in sizes:
        for digest, layer in {layer.digest: layer for layer in size.layers}.items():
            layers.setdefault(digest, layer)
            users.setdefault(digest, []).append(size.image)
    shared = (SharedLayer(layer, tuple(users[digest])) for digest, layer in layers.items())
    return FleetSize(
        images=tuple(size.image for size in sizes),
        all_stored=sum(layer.stored * len(users[digest]) for digest, layer in layers.items()),
        once_stored=sum(layer.stored for layer in layers.values()),
        all_unpacked=sum(layer.unpacked * len(users[digest]) for digest, layer in layers.items()),
        once_unpacked=sum(layer.unpacked for layer in layers.values()),
        layers=tuple(sorted(shared, key=_by_savings)),
    )


def _by_savings(shared: SharedLayer) -> tuple[int, int, str]:
    layer = shared.layer
    return (-layer.stored * (len(shared.images) - 1), -layer.stored, layer.digest)


def size_difference(before: ImageSize, after: ImageSize) -> SizeDifference:
    """Return the difference in size between two images."""
    old, new = ({part.name: part for part in size.parts} for size in (before, after))
    differences = (
        PartDifference(name, old.get(name, _none(name)), new.get(name, _none(name)))
        for name in {**old, **new}
    )
    parts = [part for part in differences if part.before != part.after]
    digests = {layer.digest for layer in before.layers}
    shared = {layer.digest: layer.stored for layer in after.layers if layer.digest in digests}
    return SizeDifference(
        before=before.image,
        after=after.image,
        stored=after.stored - before.stored,
        unpacked=after.unpacked - before.unpacked,
        parts=tuple(sorted(parts, key=lambda part: (-abs(part.stored), -abs(part.unpacked), part.name))),
        shared_layers=len(shared),
        shared_stored=sum(shared.values()),
    )


def _none(name: str) -> PartSize:
    return PartSize(name, 0, 0, 0)
