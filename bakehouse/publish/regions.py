"""Publishes one image to every registry of a destination; a failure in one does not stop the others."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bakehouse.errors import BakehouseError, Diagnostic, Problems, PublishError
from bakehouse.publish.releases import ReleasedRegion
from bakehouse.publish.tags import PublishedImage
from bakehouse.registry.ecr import EcrRegistry
from bakehouse.registry.registry import Registry
from bakehouse.util.oci import region_of

_HINT = "run the same command again to complete it; the ledger has what was published"


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

    def require_all(self) -> None:
        """Raise the failures, after the successes are recorded."""
        if self.interrupt:
            raise self.interrupt
        if not self.failures:
            return
        problems = Problems()
        for failure in self.failures:
            problems.extend(failure.diagnostics)
        problems.raise_as(type(self.failures[0]))


def for_each_region(
    registries: Sequence[Registry], publish: Callable[[Registry, PublishedImage | None], PublishedImage]
) -> RegionResults:
    """Publish to one registry after the other; raise only if none accepts the image.

    `publish` gets the first published image, whose tag the others reuse.
    """
    found: list[tuple[Registry, PublishedImage]] = []
    failures: list[tuple[Registry, BakehouseError]] = []
    interrupt: BaseException | None = None
    for registry in registries:
        try:
            first = found[0][1] if found else None
            published = publish(registry, first)
            if first and published.digest != first.digest:
                raise _another(first, published)
        except BakehouseError as error:
            failures.append((registry, error))
        except BaseException as error:
            if not found:
                raise
            interrupt = error
            break
        else:
            found.append((registry, published))
    if not found:
        _all_failed(failures)
    regions = places(found)
    names = ", ".join(one.region for one in regions)
    told = tuple(_told(registry, error, names) for registry, error in failures)
    return RegionResults(found[0][1], regions, told, interrupt)


def places(found: Sequence[tuple[Registry, PublishedImage]]) -> tuple[ReleasedRegion, ...]:
    """Return the AWS regions of an image as ledger records."""
    return tuple(
        ReleasedRegion(region, one.image_uri, one.tags[0])
        for registry, one in found
        if (region := region_in(registry))
    )


def region_in(registry: Registry) -> str:
    """Return the AWS region of a registry; empty outside AWS."""
    return registry.region if isinstance(registry, EcrRegistry) else region_of(registry.host)


def _told(registry: Registry, error: BakehouseError, names: str) -> BakehouseError:
    """Failure with its region, the published regions and a hint."""
    facts = (("region", region_in(registry)), ("published in", names))
    return type(error)(
        *(replace(one, facts=(*facts, *one.facts), hint=one.hint or _HINT) for one in error.diagnostics)
    )


def _all_failed(failures: Sequence[tuple[Registry, BakehouseError]]) -> None:
    problems = Problems()
    for _, error in failures:
        problems.extend(error.diagnostics)
    if len(failures) == 1:
        raise failures[0][1]
    problems.raise_as(type(failures[0][1]))


def _another(first: PublishedImage, published: PublishedImage) -> PublishError:
    facts = (("there", published.image_uri), ("first", first.image_uri))
    hint = "use an engine with the containerd image store, which pushes one manifest: run `bake doctor`"
    message = f"`{published.registry}` has a different manifest of `{published.image}`"
    return PublishError(Diagnostic(message, facts=facts, hint=hint))
