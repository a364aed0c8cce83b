"""Signs that a published image was built again with the same digest."""

from collections.abc import Sequence

from bakehouse.catalog.project import Project
from bakehouse.errors import DifferenceError
from bakehouse.plan.model import Image
from bakehouse.publish.attest import Bundler
from bakehouse.publish.signing import require_published, sign_published
from bakehouse.registry.manifest import short
from bakehouse.trust.statements import rebuild_of
from bakehouse.util.oci import Digest
from bakehouse.util.terminal import Reporter


def sign_rebuild(
    project: Project,
    image: Image,
    digest: Digest,
    stores: Sequence[str],
    bundler: Bundler,
    progress: Reporter,
) -> None:
    """Attach a signed statement to a published image, in every registry that has it.

    `digest` is that of the rebuilt image; `stores` are the image stores of the engines that built it.
    Raises DifferenceError if the image was published with another digest.
    """
    published = require_published(project, image)
    records = [record for record in published if record.digest == digest]
    if not records:
        message = f"`{image.name}` was built again as {short(digest)}, but published with another digest"
        digests = dict.fromkeys(record.digest for record in published)
        facts = (("built", digest), *(("published", each) for each in digests))
        raise DifferenceError(message, facts=facts)
    statement = rebuild_of(image, digest, stores)
    sign_published(project, records, statement, bundler, progress, f"reproduce {image.name} --sign")
