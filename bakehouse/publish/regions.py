"""Publishes an image to several registries, one after the other."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bakehouse.errors import BakehouseError, Problems, PublishError
from bakehouse.ledger.releases import ReleasedRegion, ReleaseRecord
from bakehouse.publish.push import PushOptions
from bakehouse.publish.tags import PublishedImage, release_day
from bakehouse.registry.ecr import EcrRegistry
from bakehouse.registry.registry import Registry
from bakehouse.util.oci import region_of

_COMPLETE_HINT = "run the same command again to complete it; the ledger has what was published"


@dataclass(frozen=True, slots=True)
class RegionResults:
    """Results of publishing an image to several registries."""

    published: PublishedImage
    """Image in the first registry that accepted it."""
    regions: tuple[ReleasedRegion, ...]
    failures: tuple[BakehouseError, ...]
    """Failures of the others."""
    interrupt: BaseException | None = None
    """Interrupt, such as Ctrl-C, before all were tried."""

    def recorded(self, record: ReleaseRecord) -> ReleaseRecord:
        """Return a record of the image with its places."""
        at = self.published
        return replace(
            record,
            registry=at.registry,
            repository=at.repository,
            image_uri=at.image_uri,
            tags=at.tags,
            regions=self.regions,
        )

    def require_all(self) -> None:
        """Raise the failures, after the successes are recorded."""
        if self.interrupt:
            raise self.interrupt
        _raise_all(self.failures)


def for_each_region(
    registries: Sequence[Registry], publish: Callable[[Registry, PublishedImage | None], PublishedImage]
) -> RegionResults:
    """Publish to one registry after the other; raise only if none accepts the image.

    `publish` gets the first published image, whose tag the others reuse.
    """
    results: list[tuple[Registry, PublishedImage]] = []
    failures: list[tuple[Registry, BakehouseError]] = []
    interrupt: BaseException | None = None
    for registry in registries:
        try:
            first = results[0][1] if results else None
            published = publish(registry, first)
            if first and published.digest != first.digest:
                raise _different_manifest(first, published)
        except BakehouseError as error:
            failures.append((registry, error))
        except BaseException as error:
            if not results:
                raise
            interrupt = error
            break
        else:
            results.append((registry, published))
    if not results:
        if len(failures) == 1:
            raise failures[0][1]
        _raise_all([error for _, error in failures])
    regions = released_regions(results)
    names = ", ".join(region.region for region in regions)
    errors = tuple(_with_region(registry, error, names) for registry, error in failures)
    return RegionResults(results[0][1], regions, errors, interrupt)


def _raise_all(failures: Sequence[BakehouseError]) -> None:
    problems = Problems()
    for failure in failures:
        problems.extend(failure.diagnostics)
    if failures:
        problems.raise_as(type(failures[0]))


def _with_region(registry: Registry, error: BakehouseError, published_in: str) -> BakehouseError:
    """Failure with its region, the published regions and a hint."""
    facts = (("region", _region(registry)), ("published in", published_in))
    return type(error).of(
        *(
            replace(diagnostic, facts=(*facts, *diagnostic.facts), hint=diagnostic.hint or _COMPLETE_HINT)
            for diagnostic in error.diagnostics
        )
    )


def _different_manifest(first: PublishedImage, published: PublishedImage) -> PublishError:
    facts = (("there", published.image_uri), ("first", first.image_uri))
    hint = "another version of Bakehouse compressed it; delete the existing release, and push again"
    message = f"`{published.registry}` has a different manifest of `{published.image}`"
    return PublishError(message, facts=facts, hint=hint)


def released_regions(published: Sequence[tuple[Registry, PublishedImage]]) -> tuple[ReleasedRegion, ...]:
    """Return the AWS regions of an image as ledger records."""
    return tuple(
        ReleasedRegion(region, image.image_uri, image.tags[0])
        for registry, image in published
        if (region := _region(registry))
    )


def _region(registry: Registry) -> str:
    """AWS region of a registry; empty outside AWS."""
    return registry.region if isinstance(registry, EcrRegistry) else region_of(registry.host)


def with_same_release_day(options: PushOptions, first: PublishedImage | None) -> PushOptions:
    """Return options with the day of the first region's tag, so that all regions have the same tag."""
    day = release_day(first.tags[0]) if first else None
    return replace(options, day=day) if day else options
