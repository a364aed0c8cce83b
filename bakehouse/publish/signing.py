"""Signs statements about images that were published before, in each registry that has them."""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from bakehouse.catalog.project import ProjectSettings
from bakehouse.errors import DifferenceError, UsageError
from bakehouse.ledger.releases import ReleaseRecord
from bakehouse.ledger.store import open_ledger
from bakehouse.plan.model import Image
from bakehouse.publish.attest import Bundler, Documents, attach, bundler_of
from bakehouse.publish.options import PublishOptions, push_options_for
from bakehouse.publish.tags import PublishedImage
from bakehouse.registry import destination
from bakehouse.registry.manifest import short
from bakehouse.trust.bundle import Statement
from bakehouse.trust.statements import rebuild_of
from bakehouse.util.oci import Digest
from bakehouse.util.terminal import Reporter


def require_bundler(project: ProjectSettings) -> Bundler:
    """Return the project's signing key; raise UsageError without one."""
    if bundler := bundler_of(project):
        return bundler
    raise UsageError(
        "`--sign` needs a signing key", hint="set `signing_key` in [tool.bakehouse], or BAKEHOUSE_SIGNING_KEY"
    )


def require_published(project: ProjectSettings, image: Image) -> tuple[ReleaseRecord, ...]:
    """Return the records of an image with its current build key; raise UsageError without one."""
    records = tuple(record for record in open_ledger(project).records(image.name) if record.key == image.key)
    if not records:
        raise UsageError(
            f"`{image.name}` was not published from this recipe",
            facts=(("recipe's key", image.key),),
            hint="check out the commit that it was published from, which `bake releases` shows",
        )
    return records


def sign_published(
    project: ProjectSettings,
    records: Iterable[ReleaseRecord],
    statement_of: Callable[[str], Statement],
    bundler: Bundler,
    progress: Reporter,
    command: str,
) -> None:
    """Attach a signed statement to a digest in every registry that has it, by the image's name there.

    `command` repeats this after a failure. Raises PublishError.
    """
    locations = {
        location.image_uri: PublishedImage.recorded(location)
        for record in records
        for location in record.locations
    }

    def documents(published: PublishedImage) -> Documents:
        return Documents(statements=(statement_of(published.image),), bundler=bundler)

    with contextlib.ExitStack() as stack:
        targets = [
            (stack.enter_context(destination.registry(project, published.registry, progress)), published)
            for published in locations.values()
        ]
        options = push_options_for(project, PublishOptions())
        attach(targets, documents, options, progress, command).require_all()


def sign_rebuild(
    project: ProjectSettings,
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
        facts = (("built", digest), *(("published", published) for published in digests))
        raise DifferenceError(message, facts=facts)

    def statement(name: str) -> Statement:
        return rebuild_of(replace(image, name=name), digest, stores)

    sign_published(project, records, statement, bundler, progress, f"reproduce {image.name} --sign")
