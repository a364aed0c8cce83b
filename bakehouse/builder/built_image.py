"""The result of a build: an image in the engine's store."""

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from bakehouse.engine import usage_lock
from bakehouse.engine.protocol import Engine, StoredImage
from bakehouse.plan.model import Image
from bakehouse.registry.manifest import content_id, digest_of
from bakehouse.util.files import read_bytes, write_whole
from bakehouse.util.json_reader import parse_json
from bakehouse.util.oci import ContentId, Digest


@dataclass(frozen=True, slots=True)
class BuiltImage:
    """An image that BuildKit built; its contents match the recipe."""

    image: Image
    digest: Digest
    """Digest of its configuration, which names the content of every layer; the same on every engine."""
    stored: Digest
    """Digest in the engine's store, for requests to the engine."""
    bytes: int
    content: ContentId
    """Identity of what it contains: results of checks belong to it."""
    is_rehearsed: bool = False
    """True if the image contains stubs. Then it is not a build of the named image."""

    @classmethod
    def stored_as(cls, stored: StoredImage, image: Image, engine: Engine, state: Path) -> Self:
        """Return an image that the engine has."""
        config, content = identity_of(Digest(stored.digest), engine, state)
        return cls(image, config, Digest(stored.digest), stored.bytes, content, stored.is_rehearsed)


def identity_of(stored: Digest, engine: Engine, state: Path) -> tuple[Digest, ContentId]:
    """Return the digest of the configuration of a stored image, and its content ID."""
    config = read_configuration(stored, engine, state)
    return digest_of(config), content_id(config)


def read_configuration(stored: Digest, engine: Engine, state: Path) -> bytes:
    """Return the configuration of a stored image, and cache it.

    An engine with the containerd store names an image by its manifest, and may send the whole image.
    """
    path = state / "configurations" / f"{stored.removeprefix('sha256:')}.json"
    with contextlib.suppress(OSError, ValueError):
        config = read_bytes(path)
        parse_json(config)
        return config
    with usage_lock.engine_in_use():
        config = engine.read_config(stored)
    write_whole(path, config)
    return config
