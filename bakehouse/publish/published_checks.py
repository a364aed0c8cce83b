"""Checks of a published image: expiry by a lifecycle rule, settings of its repository, newer releases."""

from bakehouse.catalog.project import ProjectSettings
from bakehouse.errors import PublishError, Reason
from bakehouse.ledger import image_uris
from bakehouse.ledger.releases import ReleaseRecord, clock_warning
from bakehouse.ledger.store import Ledger
from bakehouse.publish.tags import PublishedImage
from bakehouse.registry.ecr import EcrRegistry
from bakehouse.registry.manifest import short
from bakehouse.registry.registry import Registry
from bakehouse.util.aws import summarize
from bakehouse.util.deadline import OverdueError, bounded
from bakehouse.util.oci import Digest
from bakehouse.util.terminal import Reporter


def differences(registry: EcrRegistry, published: PublishedImage, until: float) -> tuple[Reason, ...]:
    """Return how a repository differs from the settings, or why the comparison failed."""
    try:
        return bounded(lambda: registry.differences(published.repository, published.image), until)
    except PublishError as error:
        cause = summarize(error)
    except OverdueError as error:
        cause = str(error)
    return (Reason(f"not compared with the settings: {cause}"),)


def require_not_expiring(
    registry: Registry,
    published: PublishedImage,
    ledger: Ledger,
    progress: Reporter,
    until: float,
    *,
    move_tag: bool = False,
) -> None:
    """Raise PublishError for an image that a lifecycle rule would expire by any of its tags."""
    if isinstance(registry, EcrRegistry):
        locations = (location for record in ledger.records(published.image) for location in record.locations)
        recorded = {
            tag
            for location in locations
            if location.image_uri == published.image_uri
            for tag in location.tags
        }
        moving = [published.moving_tag] if move_tag else []

        def report(line: str) -> None:
            progress(f"{published.image}: {line}")

        tags = {*published.tags, *moving, *recorded}
        try:
            bounded(lambda: registry.require_not_expiring(published.repository, tags, report), until)
        except OverdueError as error:
            repository = f"`{registry.host}/{published.repository}`"
            report(f"warning: could not read the lifecycle policy of {repository}; not checked: {error}")


def warn_if_newer_release(project: ProjectSettings, record: ReleaseRecord, progress: Reporter) -> None:
    """Report a release that is not the newest, which look-ups return."""
    if record.candidate:
        return
    newest = image_uris.newest(project, record.image, registry=record.registry)
    if newest.digest != record.digest:
        progress(
            f"{record.image}: {short(Digest(record.digest))} was released before "
            f"{short(Digest(newest.digest))} of {newest.date}, "
            f"which `bake uri {record.image}` still returns"
        )
    if warning := clock_warning(newest):
        progress(warning)
