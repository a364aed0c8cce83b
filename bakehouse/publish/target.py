"""The image that is released, and the repository and tag that it is released to."""

from dataclasses import dataclass

from bakehouse.plan.model import ImageKey
from bakehouse.registry.manifest import FORMS, Form, Manifest
from bakehouse.registry.registry import Registry
from bakehouse.util.oci import Digest


@dataclass(frozen=True, slots=True)
class ReleaseTarget:
    """One image on its way to one tag."""

    image: str
    """Name of the image."""
    key: ImageKey
    digest: Digest
    """Digest that was built and tested."""
    registry: Registry
    repository: str
    tag: str
    form: Form = FORMS["docker"]
    """Manifest format that its recipe selects."""

    @property
    def place(self) -> str:
        """Host and repository."""
        return f"{self.registry.host}/{self.repository}"

    @property
    def reference(self) -> str:
        return f"{self.place}:{self.tag}"

    def matches_image(self, manifest: Manifest) -> bool:
        """Return whether a manifest is of the image, by its own digest or that of its configuration.

        An engine without the containerd store makes a manifest at each push. It knows the configuration,
        which names the content of every layer.
        """
        config = manifest.config.digest if manifest.config else None
        return self.digest in (manifest.digest, config)
