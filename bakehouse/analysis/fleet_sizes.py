"""Compares sizes: what images share, and what one weighs beside another or beside its last release."""

from collections.abc import Sequence
from dataclasses import dataclass

from bakehouse.analysis.sizes import ImageSize, LayerSize, PartSize


@dataclass(frozen=True, slots=True)
class SharedLayer:
    """A layer, and the images that have it."""

    layer: LayerSize
    images: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FleetSize:
    """What the layers of several images weigh, each as often as it is used, and stored once."""

    images: tuple[str, ...]
    all_stored: int
    once_stored: int
    all_unpacked: int
    once_unpacked: int
    layers: tuple[SharedLayer, ...]
    """Each once, the most bytes first that need not be stored again."""


@dataclass(frozen=True, slots=True)
class PartDifference:
    """What a part weighs in two images; 0 where one lacks it."""

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
    """What an image weighs more or less than another, by part: the largest differences first."""

    before: str
    after: str
    stored: int
    unpacked: int
    parts: tuple[PartDifference, ...]
    """Those that differ."""
    shared_layers: int
    shared_stored: int


@dataclass(frozen=True, slots=True)
class ReleaseDifference:
    """An image beside what was released of it, of which the ledger knows the bytes and the versions."""

    image: str
    date: str
    digest: str
    before: int
    after: int | None
    """None on an engine that stores layers unpacked: what they weigh as pushed is not known there."""
    is_same: bool
    parts: tuple[tuple[str, str, str], ...]
    """Each whose version differs, with the one before and the one now; empty where there is none."""
    anew: tuple[PartSize, ...] | None
    """What is in layers that the release has not; None where its image is not in the engine."""


def fleet_size(sizes: Sequence[ImageSize]) -> FleetSize:
    """What images share, layer by layer."""
    layers: dict[str, LayerSize] = {}
    users: dict[str, list[str]] = {}
    for size in sizes:
        for digest, layer in {one.digest: one for one in size.layers}.items():
            layers.setdefault(digest, layer)
            users.setdefault(digest, []).append(size.image)
    found = (SharedLayer(layer, tuple(users[digest])) for digest, layer in layers.items())
    return FleetSize(
        images=tuple(size.image for size in sizes),
        all_stored=sum(layer.stored * len(users[digest]) for digest, layer in layers.items()),
        once_stored=sum(layer.stored for layer in layers.values()),
        all_unpacked=sum(layer.unpacked * len(users[digest]) for digest, layer in layers.items()),
        once_unpacked=sum(layer.unpacked for layer in layers.values()),
        layers=tuple(sorted(found, key=_spared)),
    )


def _spared(shared: SharedLayer) -> tuple[int, int, str]:
    layer = shared.layer
    return (-layer.stored * (len(shared.images) - 1), -layer.stored, layer.digest)


def size_difference(before: ImageSize, after: ImageSize) -> SizeDifference:
    """What `after` weighs beside `before`."""
    old, new = ({part.name: part for part in size.parts} for size in (before, after))
    found = (
        PartDifference(name, old.get(name, _none(name)), new.get(name, _none(name)))
        for name in {**old, **new}
    )
    parts = [one for one in found if one.before != one.after]
    there = {layer.digest for layer in before.layers}
    shared = {layer.digest: layer.stored for layer in after.layers if layer.digest in there}
    return SizeDifference(
        before=before.image,
        after=after.image,
        stored=after.stored - before.stored,
        unpacked=after.unpacked - before.unpacked,
        parts=tuple(sorted(parts, key=lambda one: (-abs(one.stored), -abs(one.unpacked), one.name))),
        shared_layers=len(shared),
        shared_stored=sum(shared.values()),
    )


def _none(name: str) -> PartSize:
    return PartSize(name, 0, 0, 0)
