"""Target of a publication: an image, and the repository and tag that it gets."""

from collections.abc import Callable
from dataclasses import dataclass

from bakehouse.plan.model import ImageKey
from bakehouse.registry.manifest import FORMS, Form, Manifest, content_id
from bakehouse.registry.registry import Registry
from bakehouse.util.oci import PLATFORM, Digest


@dataclass(frozen=True, slots=True)
class ReleaseTarget:
    """Image, repository and tag of one publication."""

    image: str
    """Name of the image."""
    key: ImageKey
    digest: Digest
    """Configuration digest of what was built and tested."""
    registry: Registry
    repository: str
    tag: str
    form: Form = FORMS["docker"]
    """Manifest format that its recipe selects."""
    platform: str = PLATFORM
    config: Callable[[], bytes] | None = None
    """Reads its configuration."""

    @property
    def repository_uri(self) -> str:
        """Return the host and the repository."""
        return f"{self.registry.host}/{self.repository}"

    @property
    def reference(self) -> str:
        return f"{self.repository_uri}:{self.tag}"

    def matches_image(self, manifest: Manifest, read: Callable[[Digest], bytes]) -> bool:
        """Return whether a manifest is of the image, perhaps with other labels; `read` returns a blob."""
        if manifest.config is None or manifest.config.digest == self.digest:
            return manifest.config is not None
        if self.config is None:
            return False
        content, other = content_id(self.config()), read(manifest.config.digest)
        try:
            return bool(content_id(other) == content)
        except (ValueError, TypeError, AttributeError):
            # It is not the configuration of an image
            return False
