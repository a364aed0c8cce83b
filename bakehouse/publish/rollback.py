"""Makes an earlier release of an image the latest again, in all registries that have it."""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from bakehouse.catalog.project import ProjectSettings
from bakehouse.errors import PublishError
from bakehouse.ledger import release_names
from bakehouse.ledger.releases import ReleasedRollback, ReleaseRecord, current_release, current_time
from bakehouse.ledger.store import open_ledger, select_images
from bakehouse.publish.options import PublishOptions, push_options_for
from bakehouse.publish.published_checks import require_not_expiring
from bakehouse.publish.push import PushOptions
from bakehouse.publish.retag import move_tags, open_repository
from bakehouse.publish.tags import PublishedImage
from bakehouse.registry import destination
from bakehouse.registry.http_errors import RegistryError
from bakehouse.registry.manifest import short
from bakehouse.registry.registry import Registry
from bakehouse.util.deadline import OverdueError
from bakehouse.util.oci import Digest
from bakehouse.util.terminal import Reporter


def roll_back(
    project: ProjectSettings, image: str, release: str, progress: Reporter, options: PublishOptions
) -> tuple[ReleaseRecord, ...]:
    """Record the release that `release` names as the latest again, and move the image's tag to it.

    Registries that the project does not publish to are ignored. The tag moves in registries that have one, or
    in all with `options.move_tag`. Neither the current recipe nor an engine is needed. Returns the record of
    each registry.
    """
    ledger = open_ledger(project)
    [name] = select_images(ledger, [image])
    # Look-ups in a ledger in S3 find only records of the present name
    history = [replace(record, image=name) for record in ledger.records(name) if record.is_released]
    # A former registry may be gone
    released = [record for record in history if project.publishes_to(record.registry, record.repository)]
    digest = release_names.find_digest(name, released, release)
    # The newest record of a registry has the latest facts, such as attachments
    records = tuple({record.place: record for record in released if record.digest == digest}.values())
    push_options = push_options_for(project, options)
    with contextlib.ExitStack() as stack:
        places = [
            (
                stack.enter_context(destination.registry(project, place.registry, progress)),
                PublishedImage.recorded(place),
            )
            for place in {place.place: place for record in records for place in record.locations}.values()
        ]
        tagged = [
            (registry, place)
            for registry, place in places
            if _has_tag(place, registry, push_options) or options.move_tag
        ]
        for registry, place in places:
            require_not_expiring(registry, place, ledger, progress, push_options.until)
        now = current_time()
        replaced = [_latest(history, record.place) for record in records]
        for record, latest in zip(records, replaced, strict=True):
            if latest.digest == digest:
                progress(f"{name}: {short(Digest(digest))} is the latest release already")
                continue
            rollback = ReleasedRollback(now, latest.digest)
            ledger.add(replace(record, date=now.partition("T")[0], time=now, rollback=rollback))
            progress(f"{name}: rolled back from {short(Digest(latest.digest))} to {short(Digest(digest))}")
        digests = {latest.digest for latest in replaced} - {digest}
        former = [place for record in history if record.digest in digests for place in record.locations]
        for uri in _unmoved_tags(former, places, push_options):
            progress(f"warning: tag `{uri}` was not moved, because this release is in another repository")

        def report(place: PublishedImage) -> None:
            tag = f"{place.registry}/{place.repository}:{place.moving_tag}"
            progress(f"{place.image}: tag `{tag}` now points to this release")

        if failures := move_tags(tagged, push_options, report):
            raise PublishError.of(*(diagnostic for error in failures for diagnostic in error.diagnostics))
    return records


def _latest(history: Sequence[ReleaseRecord], place: str) -> ReleaseRecord:
    """Return the current release of a registry that has one."""
    latest = current_release(history, lambda record: record.place == place)
    assert latest
    return latest


def _has_tag(place: PublishedImage, registry: Registry, options: PushOptions) -> bool:
    """Return whether a registry has the moving tag. Raises PublishError if it no longer has the release."""
    repository = open_repository(registry, place.repository, options)
    try:
        if repository.digest_of(place.digest) is None:
            raise PublishError(
                f"`{place.registry}` no longer has {short(Digest(place.digest))}",
                facts=(("image URI", place.image_uri),),
                hint="nothing was changed; run `bake releases --verify` for the releases that still exist",
            )
        return repository.digest_of(place.moving_tag) is not None
    except (RegistryError, OverdueError) as error:
        raise PublishError(
            f"could not query `{place.registry}`: {error}", hint="nothing was changed"
        ) from error


def _unmoved_tags(
    replaced: Iterable[ReleaseRecord], places: Sequence[tuple[Registry, PublishedImage]], options: PushOptions
) -> Iterator[str]:
    """Yield the moving tags in other repositories of the same registries that have a replaced release."""
    repositories = {
        (record.registry, record.repository): PublishedImage.recorded(record) for record in replaced
    }
    for registry, place in places:
        for former in repositories.values():
            if former.registry == place.registry and former.repository != place.repository:
                repository = open_repository(registry, former.repository, options)
                # The roll-back is recorded already
                with contextlib.suppress(RegistryError, OverdueError):
                    if repository.digest_of(former.moving_tag) not in (None, place.digest):
                        yield f"{former.registry}/{former.repository}:{former.moving_tag}"
