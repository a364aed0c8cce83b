"""The result of a build: an image in the engine's store."""

from dataclasses import dataclass

from bakehouse.plan.model import Image
from bakehouse.util.oci import Digest


@dataclass(frozen=True, slots=True)
class BuiltImage:
    """An image that BuildKit built; its contents match the recipe."""

    image: Image
    digest: Digest
    """Manifest digest in the engine's store; the image id if the engine has no containerd store."""
    bytes: int
    is_rehearsed: bool = False
    """True if the image contains stubs: whatever its name, it is not a build of that image."""
