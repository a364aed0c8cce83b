"""Estimate of the disk space of images on an engine, from the sizes in their locks."""

from collections.abc import Collection, Iterable, Mapping

from bakehouse.catalog.apt_lock import Deb
from bakehouse.plan.model import BootstrappedBase, Image
from bakehouse.util.hashing import key_of

_UNPACKED_RATIO = 3.2
"""Size of an installed wheel relative to the wheel file, measured with torch 2.13 and CUDA 13.0."""
_UNPACKED_DEB_RATIO = 3.2
"""Size of installed Debian packages relative to their files. The base of Debian 13 has a ratio of 2.9."""
_SYSTEM_BYTES = 600_000_000
"""Size of a vendor base with distribution packages, whose locks have no size."""


def layer_bytes(image: Image) -> Mapping[str, int]:
    """Return the estimated unpacked size of each part of an image, by key. Shared parts have equal keys."""
    base = image.base
    toolchain = key_of(base.reference, image.toolchain, [deb.sha256 for deb in image.toolchain_debs])
    system = key_of(toolchain, image.apt, [deb.sha256 for deb in image.apt_debs])
    if isinstance(base, BootstrappedBase):
        sizes = {
            base.reference: _unpacked(base.debs),
            toolchain: _unpacked(image.toolchain_debs),
            system: _unpacked(image.apt_debs),
        }
    else:
        sizes = {system: _SYSTEM_BYTES}
    for stage in image.stages:
        packages = sum(package.bytes for package in (*stage.wheels, *stage.sdists))
        sizes[stage.key] = int(packages * _UNPACKED_RATIO)
    if own := sum(file.size for file in image.content.own_files):
        sizes[image.key] = own
    return sizes


def expected_bytes(images: Iterable[Image], kept: Collection[str] = ()) -> int:
    """Estimate the unpacked size of images. Shared layers count once; layers in `kept` do not count."""
    sizes = {key: size for image in images for key, size in layer_bytes(image).items()}
    return sum(size for key, size in sizes.items() if key not in kept)


def _unpacked(debs: Iterable[Deb]) -> int:
    return int(sum(deb.bytes for deb in debs) * _UNPACKED_DEB_RATIO)
