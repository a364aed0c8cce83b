"""Turns a BuiltImage and its SmokeReport into a PublishedImage."""

from dataclasses import dataclass

from bakehouse.plan import Digest


@dataclass(frozen=True, slots=True)
class PublishedImage:
    """An image that lies in a registry under a digest read back from there."""

    image: str
    registry: str
    repository: str
    tags: tuple[str, ...]
    digest: Digest

    @property
    def image_uri(self) -> str:
        return f"{self.registry}/{self.repository}@{self.digest}"
