"""Signs that a published image was built again with the same digest."""

import contextlib
from collections.abc import Sequence

from bakehouse.catalog.project import Project
from bakehouse.errors import Diagnostic, DifferenceError, UsageError
from bakehouse.plan.model import Image
from bakehouse.publish.attest import Bundler, Documents, attach, bundler_of
from bakehouse.publish.ledger import open_ledger
from bakehouse.publish.publish import PublishOptions, push_options_for
from bakehouse.publish.releases import ReleaseRecord
from bakehouse.publish.statements import rebuild_of
from bakehouse.publish.tags import PublishedImage
from bakehouse.registry import destination
from bakehouse.registry.manifest import short
from bakehouse.util.oci import Digest
from bakehouse.util.terminal import Reporter


def require_bundler(project: Project) -> Bundler:
    """Return the project's signing key; raise UsageError without one."""
    if bundler := bundler_of(project):
        return bundler
    hint = "set `signing_key` in [tool.bakehouse], or BAKEHOUSE_SIGNING_KEY"
    raise UsageError(Diagnostic("`--sign` needs a signing key", hint=hint))


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
    published = [record for record in open_ledger(project).records(image.name) if record.key == image.key]
    locations = _locations(image, digest, published)
    documents = Documents(statements=(rebuild_of(image, digest, stores),), bundler=bundler)
    with contextlib.ExitStack() as stack:
        targets = [
            (stack.enter_context(destination.registry(project, each.registry, progress)), each)
            for each in locations
        ]
        options = push_options_for(project, PublishOptions())
        command = f"reproduce {image.name} --sign"
        attach(targets, lambda _: documents, options, progress, command).require_all()


def _locations(
    image: Image, digest: Digest, published: Sequence[ReleaseRecord]
) -> tuple[PublishedImage, ...]:
    """Return each registry that has the digest, once."""
    if not published:
        message = f"`{image.name}` was not published from this recipe"
        hint = "check out the commit that it was published from, which `bake releases` shows"
        raise UsageError(Diagnostic(message, facts=(("recipe's key", image.key),), hint=hint))
    locations = {
        location.image_uri: PublishedImage.recorded(location)
        for record in published
        if record.digest == digest
        for location in record.locations
    }
    if not locations:
        message = f"`{image.name}` was built again as {short(digest)}, but published with another digest"
        digests = dict.fromkeys(record.digest for record in published)
        facts = (("built", digest), *(("published", each) for each in digests))
        raise DifferenceError(Diagnostic(message, facts=facts))
    return tuple(locations.values())
