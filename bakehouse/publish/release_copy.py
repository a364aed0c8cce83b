"""Copies the releases of images to another registry, with their documents and records."""

import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace

from bakehouse.catalog.project import ProjectSettings
from bakehouse.errors import Problems, PublishError, UsageError
from bakehouse.ledger.releases import ReleaseRecord, withdrawn
from bakehouse.ledger.store import open_ledger, select_images
from bakehouse.publish import preflight
from bakehouse.publish.diagnostics import diagnostics_of
from bakehouse.publish.options import PublishOptions, push_options_for
from bakehouse.publish.published_checks import require_not_expiring
from bakehouse.publish.push import PushOptions
from bakehouse.publish.regions import for_each_region
from bakehouse.publish.retag import open_repository
from bakehouse.publish.tags import PublishedImage, ReleaseTags
from bakehouse.registry import destination
from bakehouse.registry.image_copy import copy_image
from bakehouse.registry.local_registry import EmbeddedRegistry
from bakehouse.registry.manifest import short
from bakehouse.registry.registry import Registry
from bakehouse.util.deadline import OverdueError
from bakehouse.util.format import format_bytes
from bakehouse.util.oci import Digest
from bakehouse.util.terminal import Reporter

_COMMAND = "promote --registry"
_CLOCK_SECONDS = 1.1
"""The ledger in S3 orders records of a day by S3's clock, which has whole seconds."""


def copy_releases(
    project: ProjectSettings, images: Sequence[str], progress: Reporter, options: PublishOptions
) -> tuple[ReleaseRecord, ...]:
    """Copy releases that a registry lacks, record them with their days, and return their records there.

    `options.image_uri` selects one release. A release keeps its digest and its tags. Failures are raised
    after all other releases were copied, except later ones of the same image and day: a new ledger in S3
    would order them before the one that failed.
    """
    destination.check_selection(project, options.registry)
    ledger = open_ledger(project)
    releases = {
        name: _selected(ledger.records(name), options.image_uri, progress)
        for name in select_images(ledger, images)
    }
    names = [name for name, records in releases.items() if records]
    if options.image_uri and not names:
        hint = "run `bake releases` to list all releases"
        raise UsageError(f"`{options.image_uri}` is not a release", hint=hint)
    preflight.check_access(project, options.registry, names, create=options.create)
    copied: dict[str, ReleaseRecord] = {}
    problems = Problems()
    with destination.destination(project, options.registry, progress, create=options.create) as target:
        for name in names:
            repository, known = f"{target.prefix}/{name}", ledger.records(name)
            copier = ReleaseCopier(project, repository, target.registries, progress, options, known)
            day = failed_day = ""
            for record in releases[name]:
                if record.date == failed_day:
                    progress(
                        f"{name}: skipped {short(Digest(record.digest))}, "
                        f"because an earlier release of {failed_day} was not copied"
                    )
                    continue
                try:
                    copy = copier.copy(record)
                except PublishError as error:
                    problems.extend(error.diagnostics)
                    failed_day = record.date
                    continue
                if project.ledger and record.date == day:
                    time.sleep(_CLOCK_SECONDS)
                day = record.date
                ledger.add(copy)
                copied[copy.image_uri] = copy
        for registry in target.registries:
            if copied and project.keep_registry and isinstance(registry, EmbeddedRegistry):
                registry.keep()
    problems.raise_as(PublishError)
    return tuple(copied.values())


def _selected(records: Sequence[ReleaseRecord], image_uri: str, progress: Reporter) -> list[ReleaseRecord]:
    """Return the releases to copy: the one with `image_uri`, otherwise all that were not rolled back."""
    released = [record for record in records if record.is_released]
    if image_uri:
        return [
            record
            for record in released
            if image_uri in {location.image_uri for location in record.locations}
        ]
    rolled_back = withdrawn(records)
    selected = [record for record in released if (record.place, record.digest) not in rolled_back]
    # Another registry may still have a release as it was
    for digest in sorted({digest for _, digest in rolled_back} - {record.digest for record in selected}):
        progress(f"{records[0].image}: skipped {short(Digest(digest))}, which was rolled back")
    return selected


class ReleaseCopier:
    """Copies the releases of one image; several records may have one digest."""

    def __init__(
        self,
        project: ProjectSettings,
        repository: str,
        registries: Sequence[Registry],
        progress: Reporter,
        options: PublishOptions,
        records: Sequence[ReleaseRecord],
    ) -> None:
        self._project = project
        self._repository = repository
        self._registries = registries
        self._progress = progress
        self._create = options.create
        self._options = push_options_for(project, options)
        self._copies: dict[str, ReleaseRecord | PublishError] = {
            record.digest: record for record in records if self._has_copy(record)
        }
        """Records of the releases that all registries have, and failures, by digest."""

    def _has_copy(self, record: ReleaseRecord) -> bool:
        """Return whether a record is that of a release in all registries."""
        places = {(location.registry, location.repository) for location in record.locations}
        targets = {(registry.host, self._repository) for registry in self._registries}
        return record.is_released and targets <= places

    def copy(self, record: ReleaseRecord) -> ReleaseRecord:
        """Copy the image of a record, and return the record of the copy. Raises PublishError."""
        place = self._copies.get(record.digest)
        if place is None:
            place = self._copies[record.digest] = self._copy(record)
        if isinstance(place, PublishError):
            raise place
        return replace(
            record,
            registry=place.registry,
            repository=place.repository,
            image_uri=place.image_uri,
            regions=place.regions,
            # A roll-back is one of its own registry
            rollback=None,
        )

    def _copy(self, record: ReleaseRecord) -> ReleaseRecord | PublishError:
        with contextlib.ExitStack() as stack:
            source = stack.enter_context(destination.registry(self._project, record.registry, self._progress))
            try:
                results = for_each_region(
                    self._registries, lambda registry, _: self._copy_to(registry, record, source)
                )
                results.require_all()
            except PublishError as error:
                return error
        return results.recorded(record)

    def _copy_to(self, registry: Registry, record: ReleaseRecord, from_registry: Registry) -> PublishedImage:
        """Copy the image of a record to one registry, and set its tags last."""
        repository, tags = self._repository, record.tags
        uploaded = copy_to(
            from_registry, registry, repository, record, self._options, tags, create=self._create
        )
        published = PublishedImage(record.image, registry.host, repository, tags, Digest(record.digest))
        ledger = open_ledger(self._project)
        require_not_expiring(registry, published, ledger, self._progress, self._options.until)
        self._progress(
            f"{record.image}: copied {short(Digest(record.digest))} to {registry.host}, "
            f"uploaded {format_bytes(uploaded)}"
        )
        return published


def copy_to(
    from_registry: Registry,
    registry: Registry,
    repository: str,
    record: ReleaseRecord,
    options: PushOptions,
    tags: Sequence[str] = (),
    *,
    create: bool,
) -> int:
    """Copy the image of a record with its documents to a repository; return the number of uploaded bytes."""
    source = open_repository(from_registry, record.repository, options)
    target = open_repository(registry, repository, options)
    try:
        with diagnostics_of(record, source, _COMMAND).translate_errors():
            manifest = source.manifest(record.digest)
        if manifest is None:
            raise PublishError(
                f"`{record.registry}` no longer has {short(Digest(record.digest))}",
                facts=(("image URI", record.image_uri),),
                hint="run `bake releases --verify` for the releases that still exist",
            )
        if create:
            target.registry.create_repository(repository, repository.rpartition("/")[2])
        diagnostics = diagnostics_of(record, target, _COMMAND)
        with diagnostics.translate_errors():
            for tag in tags:
                other = target.manifest(tag)
                if other and other.digest != record.digest:
                    raise ReleaseTags(target, diagnostics.target, diagnostics).taken(other)
            uploaded = copy_image(source, target, manifest)
            for tag in tags:
                target.tag(manifest, tag)
    except OverdueError as error:
        raise diagnostics_of(record, target, _COMMAND).overdue() from error
    return uploaded
