"""The result of a build: an image in the engine's store."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from bakehouse.engine import usage_lock
from bakehouse.engine.protocol import Engine, StoredImage
from bakehouse.plan.model import Image
from bakehouse.registry.manifest import digest_of
from bakehouse.util.files import read_text, write_whole
from bakehouse.util.oci import Digest


@dataclass(frozen=True, slots=True)
class BuiltImage:
    """An image that BuildKit built; its contents match the recipe."""

    image: Image
    digest: Digest
    """Digest of its configuration, which names the content of every layer; the same on every engine."""
    stored: Digest
    """Digest in the engine's store, for requests to the engine."""
    bytes: int
    is_rehearsed: bool = False
    """True if the image contains stubs. Then it is not a build of the named image."""

    @classmethod
    def stored_as(cls, stored: StoredImage, image: Image, engine: Engine, state: Path) -> Self:
        """Return an image that the engine has."""
        digest = configuration_digest(Digest(stored.digest), engine, state)
        return cls(image, digest, Digest(stored.digest), stored.bytes, stored.is_rehearsed)


def configuration_digest(stored: Digest, engine: Engine, state: Path) -> Digest:
    """Return the digest of the configuration of a stored image, and cache it under `state`.

    An engine with the containerd store names an image by its manifest and does not show the configuration.
    """
    path = _path(stored, state)
    try:
        return Digest(read_text(path).strip())
    except OSError:
        pass
    with usage_lock.engine_in_use():
        config = engine.read_config(stored)
    return record_configuration(stored, digest_of(config), state)


def record_configuration(stored: Digest, digest: Digest, state: Path) -> Digest:
    """Remember the digest of the configuration of a stored image, and return it."""
    write_whole(_path(stored, state), digest + "\n")
    return digest


def _path(stored: Digest, state: Path) -> Path:
    return state / "configurations" / stored.removeprefix("sha256:")
