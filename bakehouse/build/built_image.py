"""The result of a build: an image in the engine's store."""

from dataclasses import dataclass
from typing import Self

from bakehouse.engine.protocol import StoredImage
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

    @classmethod
    def stored_as(cls, stored: StoredImage, image: Image) -> Self:
        """Return an image that the engine has."""
        return cls(image, Digest(stored.digest), stored.bytes, stored.is_rehearsed)
