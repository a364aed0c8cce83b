"""Turns a Plan into BuiltImages: one BuildKit graph for all of them, then declared compared with installed."""

from dataclasses import dataclass

from bakehouse.plan import Digest, Image


@dataclass(frozen=True, slots=True)
class BuiltImage:
    """An image that BuildKit made and that was found to hold what it declares."""

    image: Image
    digest: Digest
    """The manifest's digest in the engine's own store."""
    bytes: int
