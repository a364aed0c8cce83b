"""Layers of the wheels of a stage: a function of the lock, so that one change rewrites one small layer."""

from collections.abc import Iterable
from hashlib import sha256

from bakehouse.catalog.python_lock import Package, normal_name

LARGE_BYTES = 10_000_000
"""A wheel of this size has a layer of its own; unpacked it is about three times as large."""
_LAYER_BYTES = 8_000_000
"""Desired size of the wheels in a layer of small ones."""
_MAX_LARGE, _MAX_SMALL = 20, 8


def wheel_layers(packages: Iterable[Package]) -> dict[str, tuple[Package, ...]]:
    """Return the packages of each layer, large ones first, by the name of the layer.

    A hash of the name selects the layer of a small package. The number of these layers is a power of two, so
    it seldom changes.
    """
    by_size = sorted(packages, key=lambda package: (-package.bytes, normal_name(package.name)))
    large = sorted((package for package in by_size[:_MAX_LARGE] if package.bytes >= LARGE_BYTES), key=_name)
    small = by_size[len(large) :]
    layers: dict[str, tuple[Package, ...]] = {normal_name(package.name): (package,) for package in large}
    count = 1
    while count < _MAX_SMALL and count * _LAYER_BYTES < sum(package.bytes for package in small):
        count *= 2
    groups: dict[int, list[Package]] = {}
    for package in small:
        number = int.from_bytes(sha256(normal_name(package.name).encode()).digest()[:4], "big")
        groups.setdefault(number % count, []).append(package)
    # An underscore is in no normalized name
    layers |= {f"small_{number + 1}": tuple(groups[number]) for number in sorted(groups)}
    return {name: tuple(sorted(group, key=_name)) for name, group in layers.items()}


def _name(package: Package) -> str:
    return normal_name(package.name)
