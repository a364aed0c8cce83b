"""Layers that several images share."""

from collections.abc import Sequence
from dataclasses import dataclass

from bakehouse.analysis.sizes import ImageSize, LayerSize


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
