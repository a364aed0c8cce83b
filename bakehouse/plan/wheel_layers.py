"""Layers of the wheels of a stage: a function of the lock, so that one change rewrites one small layer."""

from collections.abc import Iterable
from hashlib import sha256

from bakehouse.catalog.python_lock import Package, normal_name

LARGE_BYTES = 10_000_000
"""A wheel of this size has a layer of its own; unpacked it is about three times as large."""
SDISTS = "~from_sdists"
"""End of the name of the layer of the packages of source distributions."""
_LAYER_BYTES = 8_000_000
"""Desired size of the wheels in a layer of small ones."""
_MAX_LARGE, _MAX_SMALL = 20, 8


def wheel_layers(
    owner: str, packages: Iterable[Package], max_small: int = _MAX_SMALL
) -> dict[str, tuple[Package, ...]]:
    """Return the packages of each layer, those that rarely change first, by the name `OWNER~LAYER`.

    Source distributions are in a layer of their own, because only a build step makes their wheels. A hash of
    the name selects the layer of a small package. The number of these layers is a power of two, so it seldom
    changes.
    """
    ordered = sorted(packages, key=lambda package: (-package.bytes, _name(package)))
    built = [package for package in ordered if package.is_sdist]
    wheels = [package for package in ordered if not package.is_sdist]
    large = [package for package in wheels[:_MAX_LARGE] if package.bytes >= LARGE_BYTES]
    small = wheels[len(large) :]
    count = 1
    while count < max_small and count * _LAYER_BYTES < sum(package.bytes for package in small):
        count *= 2
    groups: dict[int, list[Package]] = {}
    for package in small:
        number = int.from_bytes(sha256(_name(package).encode()).digest()[:4], "big")
        groups.setdefault(number % count, []).append(package)
    # An underscore is in no normalized name
    layers = {
        **({owner + SDISTS: built} if built else {}),
        **{f"{owner}~{_name(package)}": [package] for package in sorted(large, key=_name)},
        **{f"{owner}~small_{number + 1}": groups[number] for number in sorted(groups)},
    }
    return {name: tuple(sorted(group, key=_name)) for name, group in layers.items()}


def _name(package: Package) -> str:
    return normal_name(package.name)
