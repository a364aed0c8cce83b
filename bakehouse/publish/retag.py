"""Gives images that a registry has already another tag: the tag of a release, or the moving tag."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from bakehouse.errors import PublishError
from bakehouse.evidence.gate import check_candidate
from bakehouse.evidence.known_checks import KnownChecks
from bakehouse.ledger.releases import ReleaseRecord
from bakehouse.plan.model import Image, ImageKey
from bakehouse.publish.diagnostics import PushDiagnostics
from bakehouse.publish.push import PushOptions
from bakehouse.publish.tags import PublishedImage, ReleaseTags, immutable_tag
from bakehouse.publish.target import ReleaseTarget
from bakehouse.registry.http_errors import RegistryError
from bakehouse.registry.manifest import FORMS, Manifest, short
from bakehouse.registry.referrers import ArtifactRepository
from bakehouse.registry.registry import DeadlineRegistry, Registry
from bakehouse.util.deadline import OverdueError
from bakehouse.util.file_lock import exclusive
from bakehouse.util.oci import Digest
from bakehouse.util.terminal import Reporter


def tag_release(
    candidate: ReleaseRecord,
    image: Image,
    state: KnownChecks,
    registry: Registry,
    options: PushOptions,
    progress: Reporter,
) -> PublishedImage:
    """Give a candidate its release tag in one registry, once it passed its checks.

    A digest that is released already keeps its tag.
    """
    check_candidate(candidate, state)
    target = _target(candidate, image, registry, options)

    def wait() -> None:
        progress(f"{candidate.image}: waiting for another push of it on this machine")

    try:
        remote = open_repository(registry, candidate.repository, options)
        with exclusive(options.locks / f"push-{candidate.image}.lock", wait, options.until):
            target = replace(target, registry=remote.registry)
            return _tag_release(ReleaseTags(remote, target, PushDiagnostics(target, "promote")), progress)
    except OverdueError as error:
        raise PushDiagnostics(target, "promote").overdue() from error


def find_release_tag(
    record: ReleaseRecord, image: Image, registry: Registry, options: PushOptions
) -> str | None:
    """Return the release tag that a registry has for the digest of a record, or None.

    Raises PublishError if the registry has another configuration for it: a commit can change a record.
    """
    target = _target(record, image, registry, options)
    diagnostics = PushDiagnostics(target, "promote")
    try:
        remote = open_repository(registry, record.repository, options)
        with diagnostics.translate_errors():
            manifest = remote.manifest(target.digest)
        if manifest is None:
            raise diagnostics.candidate_gone()
        config = manifest.config.digest if manifest.config else ""
        if record.config and record.config != config:
            raise PublishError(
                f"the record of `{record.image_uri}` names another configuration than the registry",
                facts=(("record", record.config), ("registry", config)),
                hint="restore `releases.json`, or publish the candidate again",
            )
        tags = ReleaseTags(remote, replace(target, registry=remote.registry), diagnostics)
        released = _by_configuration(tags, manifest).find_release(lambda: None)
    except OverdueError as error:
        raise diagnostics.overdue() from error
    return released[0] if released and released[1].digest == record.digest else None


def _target(record: ReleaseRecord, image: Image, registry: Registry, options: PushOptions) -> ReleaseTarget:
    key = ImageKey(record.key)
    return ReleaseTarget(
        image=record.image,
        key=key,
        digest=Digest(record.digest),
        registry=registry,
        repository=record.repository,
        tag=immutable_tag(record.image, options.day, key),
        form=FORMS[image.format],
        platform=image.platform,
    )


def _tag_release(tags: ReleaseTags, progress: Reporter) -> PublishedImage:
    remote, target, diagnostics = tags.remote, tags.target, tags.diagnostics
    subject = f"{target.image}: {short(target.digest)}"
    with diagnostics.translate_errors():
        manifest = remote.manifest(target.digest)
    if manifest is None:
        raise diagnostics.candidate_gone()
    tags.check_manifest(manifest)
    tags = _by_configuration(tags, manifest)
    if released := tags.find_release(lambda: None):
        progress(f"{subject} is released already, as {released[0]}")
        return tags.published(*released, was_there=True, candidate=False)
    try:
        remote.tag(manifest, target.tag)
    except RegistryError as error:
        # An immutable tag that another push has set meanwhile looks like a lost response.
        if not tags.find_target():
            raise diagnostics.untagged(error) from error
    progress(f"{subject} is released as {target.tag}")
    return tags.published(target.tag, tags.read_back(), was_there=False, candidate=False)


def _by_configuration(tags: ReleaseTags, manifest: Manifest) -> ReleaseTags:
    """Return tags that recognise the image of a manifest by its configuration."""
    if manifest.config is None:
        return tags
    config = manifest.config.digest
    return replace(tags, target=replace(tags.target, digest=config, config=lambda: tags.remote.blob(config)))


def move_tags(
    releases: Iterable[tuple[Registry, PublishedImage]],
    options: PushOptions,
    report: Callable[[PublishedImage], None] = lambda _: None,
) -> tuple[PublishError, ...]:
    """Move the moving tag of each repository to its release, report each, and return the failures."""
    failures = []
    for registry, published in releases:
        try:
            move_tag(published, registry, options)
            report(published)
        except PublishError as error:
            failures.append(error)
    return tuple(failures)


def move_tag(published: PublishedImage, registry: Registry, options: PushOptions) -> None:
    """Move the moving tag of a repository to a release."""
    tag = published.moving_tag
    try:
        remote = open_repository(registry, published.repository, options)
        current = remote.manifest(tag)
        if current is None or current.digest != published.digest:
            manifest = remote.manifest(published.digest)
            assert manifest, "a release that was read back is gone"
            remote.tag(manifest, tag)
    except (RegistryError, OverdueError) as error:
        facts = (("answer", str(error)), ("released", published.image_uri))
        raise PublishError(
            f"`{published.image}` is released, but the moving tag `{tag}` could not be set",
            facts=facts,
            hint=f"except `{tag}` from the immutability of tags, or omit `--move-tag`",
        ) from error


def open_repository(registry: Registry, repository: str, options: PushOptions) -> ArtifactRepository:
    """Return the client of a repository, bounded by the deadline."""
    retry_policy = replace(options.retry_policy, until=options.until)
    return ArtifactRepository(DeadlineRegistry(registry, options.until), repository, retry_policy)
