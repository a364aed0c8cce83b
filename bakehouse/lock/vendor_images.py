"""Digests of vendor bases: what their tags point to now, in registries that this machine can log in to."""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from bakehouse.catalog.pins import PinsFile, with_hosts
from bakehouse.catalog.project import ProjectSettings
from bakehouse.catalog.recipe import Recipe
from bakehouse.errors import Diagnostic, Location, Problems, PublishError, Reason, RecipeError
from bakehouse.fetch.retry import RetryPolicy
from bakehouse.lock.drift import Drift, DriftKind
from bakehouse.plan.planner import registry_host
from bakehouse.plan.workspace import Workspace
from bakehouse.registry import destination
from bakehouse.registry.client import Repository
from bakehouse.registry.ecr_endpoints import is_ecr
from bakehouse.registry.http_errors import RegistryError
from bakehouse.registry.registry import Registry
from bakehouse.resolve.resolver import resolve
from bakehouse.util.oci import PLATFORM, Digest, split_reference
from bakehouse.util.terminal import Reporter

_RETRIES = RetryPolicy(attempts=3)
_REFUSED = (401, 403)


@dataclass(frozen=True, slots=True)
class VendorImage:
    """A vendor base of images, or the base of their build stages."""

    reference: str
    """With the host of its registry; images of Docker Hub have none."""
    elsewhere: tuple[str, ...]
    """The same image in the registries of other regions."""
    digest: Digest | None
    """None if it is not pinned."""
    location: Location
    """Location of the digest, or of the base in the recipe without one."""
    users: tuple[str, ...]
    """Names of the images that use it."""


def vendor_images(workspace: Workspace, recipes: Iterable[Recipe]) -> tuple[VendorImage, ...]:
    """Return the vendor bases of images and of their build stages, each once, by reference."""
    problems = Problems()
    users: dict[str, list[str]] = {}
    images: dict[str, VendorImage] = {}
    for recipe in recipes:
        resolution = resolve(recipe, workspace.catalog)
        source, registries = resolution.base.spec.base, resolution.base.candidate.component.registries
        if source is None or source.suite:
            continue
        host = registry_host(resolution, workspace.project.region, problems)
        build_name, _, build_digest = source.build_reference.partition("@")
        bases = (
            (source.reference, source.digest, source.digest_location),
            (build_name, build_digest, source.build_location),
        )
        for name, digest, location in bases:
            reference = host + name
            if not name or recipe.name in users.setdefault(reference, []):
                continue
            users[reference].append(recipe.name)
            images[reference] = VendorImage(
                reference,
                tuple(other for other in with_hosts(name, registries) if other != reference),
                Digest(digest) if digest else None,
                location if digest and location else recipe.base.location,
                tuple(users[reference]),
            )
    problems.raise_as(RecipeError)
    return tuple(images[reference] for reference in sorted(images))


def pin(
    images: Iterable[VendorImage],
    project: ProjectSettings,
    pins: PinsFile,
    problems: Problems,
    report: Reporter,
    *,
    upgrade: bool,
) -> Iterator[str]:
    """Record the digests of images without one; yield a line for each.

    `upgrade` also records the digests of images whose tag has moved. Errors of images that cannot be read are
    added to `problems`, and do not stop the others.
    """
    open_images = [image for image in images if upgrade or image.digest is None]
    for image, answer in _ask(open_images, project, report):
        if isinstance(answer, Diagnostic):
            problems.add(answer)
        elif answer != image.digest:
            pins.record_image(image.reference, answer, image.elsewhere)
            yield f"{image.reference}: {f'{image.digest} -> ' if image.digest else ''}{answer}"


def drift(images: Iterable[VendorImage], project: ProjectSettings, report: Reporter) -> Iterator[Drift]:
    """Yield images whose tag has moved since their digest was recorded, and those that cannot be read."""
    for image, answer in _ask([image for image in images if image.digest], project, report):
        if isinstance(answer, Diagnostic):
            yield Drift(DriftKind.UNREAD, image.reference, answer.reasons[0].text, answer)
        elif answer != image.digest:
            text = f"{image.digest} -> {answer}"
            yield Drift(DriftKind.MOVED, image.reference, text, _moved(image, answer))


def _moved(image: VendorImage, digest: Digest) -> Diagnostic:
    return Diagnostic(
        f"the tag of `{image.reference}` has moved",
        image.location,
        facts=(("pinned", str(image.digest)), ("now", digest), ("used by", ", ".join(image.users))),
        hint=f"run `bake lock --upgrade {' '.join(image.users)}` to use it, then build and test again",
    )


class _UnreadError(Exception):
    """The manifest of an image cannot be read."""

    def __init__(self, reason: str, hint: str, *, is_down: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.hint = reason, hint
        self.is_down = is_down
        """Further requests to the registry would fail as well."""


def _ask(
    images: Sequence[VendorImage], project: ProjectSettings, report: Reporter
) -> Iterator[tuple[VendorImage, Digest | Diagnostic]]:
    """Yield the digest of each image's tag, or the error; a registry that is down is asked only once."""
    down: dict[str, _UnreadError] = {}
    with contextlib.ExitStack() as stack:
        registries: dict[str, Registry] = {}
        for image in images:
            host, repository, tag = split_reference(image.reference)
            error = down.get(host)
            if error is None:
                report(f"reading the digest of {image.reference}")
                try:
                    if host not in registries:
                        registries[host] = stack.enter_context(destination.registry(project, host, report))
                    digest = _digest(Repository(registries[host], repository, _RETRIES, report), tag, image)
                except (PublishError, RegistryError) as failure:
                    error = _unread(failure, host)
                except _UnreadError as failure:
                    error = failure
                else:
                    yield image, digest
                    continue
            if error.is_down:
                down[host] = error
            yield image, _diagnostic(image, host, error)


def _digest(repository: Repository, tag: str, image: VendorImage) -> Digest:
    """Return the digest of a tag, or the digest of `image` if only images for other platforms differ."""
    # Docker Hub does not count such requests
    if image.digest and repository.digest_of(tag) == image.digest:
        return image.digest
    manifest = repository.manifest(tag)
    if manifest is None:
        reason = f"it has no tag `{tag}` of `{repository.name}`"
        raise _UnreadError(reason, "check the name of the image; a vendor may have removed it")
    if manifest.image is None:
        reason = f"`{repository.name}:{tag}` has no image for {PLATFORM}"
        raise _UnreadError(reason, f"use an image for {PLATFORM}")
    if image.digest:
        pinned = repository.manifest(image.digest)
        if pinned and pinned.image == manifest.image:
            return image.digest
    return manifest.digest


def _unread(error: PublishError | RegistryError, host: str) -> _UnreadError:
    login = "log in to AWS with an account that may pull it" if is_ecr(host) else f"run `docker login {host}`"
    if isinstance(error, PublishError):
        cause = error.diagnostics[0]
        details = "".join(f": {reason.text}" for reason in cause.reasons)
        return _UnreadError(f"{cause.message}{details}", cause.hint or login, is_down=True)
    if error.status is None:
        return _UnreadError(error.text, "check the network and the proxy", is_down=True)
    return _UnreadError(error.text, login if error.status in _REFUSED else "run the command again later")


def _diagnostic(image: VendorImage, host: str, error: _UnreadError) -> Diagnostic:
    return Diagnostic(
        f"the digest of `{image.reference}` cannot be read",
        image.location,
        reasons=(Reason(f"`{host}`: {error.reason}"),),
        facts=(("used by", ", ".join(image.users)),),
        hint=error.hint,
    )
