"""Releases of absent components that are made for a build of PyTorch or another component in the image."""

from collections.abc import Iterable, Iterator

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.component import Component, Release
from bakehouse.resolve.candidate import Candidate


def companions(chosen: Iterable[Candidate], catalog: Catalog) -> Iterator[str]:
    """Yield the package and version, such as `torchvision==0.28.0+cpu`, of each absent component.

    Only wheels with a local version, such as `torch==2.13.0+cpu`, have them. An index without a companion for
    that build has one for another build of the same release, which cannot be loaded next to it.
    """
    chosen = tuple(chosen)
    present = {name for candidate in chosen for name in candidate.provided}
    for candidate in chosen:
        locals_ = {wheel.version.partition("+")[2] for wheel in candidate.wheels.values()} - {""}
        for name in sorted(catalog.links.recommended(candidate.name) - present if locals_ else ()):
            component = catalog.components.get(name)
            if component and component.upstream and name in component.upstream.projects:
                release = _release_for(candidate, component)
                yield from (f"{name}=={release.version}+{local}" for local in sorted(locals_) if release)


def _release_for(candidate: Candidate, component: Component) -> Release | None:
    """Return the newest release of a component that requires the candidate's release."""
    for release in component.releases:
        for variant in release.variants:
            for requirement in variant.spec.requires:
                if requirement.name == candidate.name and requirement.allows(candidate.release.version):
                    return release
    return None
