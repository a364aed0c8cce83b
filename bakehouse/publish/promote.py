"""Turns a candidate that lies in a registry into a release: the same digest gets its release tag.

Nothing is pushed: neither an engine nor the image has to be on this machine.
"""

from dataclasses import replace

from bakehouse.cluster.smoke_report import SmokeReport, release_blockers
from bakehouse.errors import Diagnostic, PublishError, Reason
from bakehouse.plan.model import Image, ImageKey
from bakehouse.publish.diagnostics import PushDiagnostics
from bakehouse.publish.push import PushOptions
from bakehouse.publish.releases import ReleaseRecord
from bakehouse.publish.tags import PublishedImage, ReleaseTags, immutable_tag
from bakehouse.registry.client import Repository
from bakehouse.registry.http_errors import RegistryError
from bakehouse.registry.manifest import FORMS, short
from bakehouse.registry.registry import DeadlineRegistry, Registry
from bakehouse.util.deadline import OverdueError
from bakehouse.util.file_lock import exclusive
from bakehouse.util.oci import Digest
from bakehouse.util.terminal import Reporter


def promote(
    candidate: ReleaseRecord,
    image: Image,
    report: SmokeReport | None,
    registry: Registry,
    publication: PushOptions,
    progress: Reporter,
) -> PublishedImage:
    """Give a candidate the tag of a release, once what the recipe requires of `image` was seen of its digest.

    One that is released already keeps the tag it has.
    """
    if candidate.candidate:
        _check_tested(candidate, report, image.required)
    key, digest = ImageKey(candidate.key), Digest(candidate.digest)
    tag = immutable_tag(candidate.image, publication.day, key)
    form = FORMS[image.format]
    refusals = PushDiagnostics(
        candidate.image, key, digest, registry, candidate.repository, tag, "promote", form
    )

    def wait() -> None:
        progress(f"{candidate.image}: waiting for another push of it on this machine")

    try:
        remote = _remote(registry, candidate.repository, publication)
        with exclusive(publication.locks / f"push-{candidate.image}.lock", wait, publication.until):
            tags = ReleaseTags(remote, replace(refusals, registry=remote.registry))
            return _promoted(tags, progress)
    except OverdueError as error:
        raise refusals.overdue() from error


def _promoted(tags: ReleaseTags, progress: Reporter) -> PublishedImage:
    remote, refusals = tags.remote, tags.refusals
    what = f"{refusals.name}: {short(refusals.digest)}"
    try:
        manifest = remote.manifest(refusals.digest)
    except RegistryError as error:
        raise refusals.unanswered(error) from error
    if manifest is None:
        raise refusals.candidate_gone()
    tags.check(manifest)
    found = tags.named(lambda: None)
    if found:
        progress(f"{what} is released already, as {found[0]}")
        return tags.published(*found, was_there=True, candidate=False)
    try:
        remote.tag(manifest, refusals.tag)
    except RegistryError as error:
        # An immutable tag that somebody else has set meanwhile, and a lost answer, look alike.
        if not tags.is_there():
            raise refusals.untagged(error) from error
    progress(f"{what} is released as {refusals.tag}")
    return tags.published(refusals.tag, tags.read_back(), was_there=False, candidate=False)


def _remote(registry: Registry, repository: str, publication: PushOptions) -> Repository:
    """A repository that is asked until the publication's deadline."""
    retry_policy = replace(publication.retry_policy, until=publication.until)
    return Repository(DeadlineRegistry(registry, publication.until), repository, retry_policy)


def move_alias(published: PublishedImage, registry: Registry, publication: PushOptions) -> None:
    """Let the tag that is the image's own name mean a release."""
    alias = published.image
    try:
        remote = _remote(registry, published.repository, publication)
        there = remote.manifest(alias)
        if there is None or there.digest != published.digest:
            manifest = remote.manifest(published.digest)
            assert manifest, "a release that was read back is gone"
            remote.tag(manifest, alias)
    except (RegistryError, OverdueError) as error:
        facts = (("answer", str(error)), ("released", published.image_uri))
        hint = f"except `{alias}` from the immutability of tags, or leave out `--move-tag`"
        message = f"`{published.image}` is released, but the moving tag `{alias}` could not be set"
        raise PublishError(Diagnostic(message, facts=facts, hint=hint)) from error


def _check_tested(candidate: ReleaseRecord, report: SmokeReport | None, required: tuple[str, ...]) -> None:
    if reasons := release_blockers(report, required):
        facts = (("candidate", candidate.image_uri),)
        hint = (
            f"run `bake smoke {candidate.image} --image-uri {candidate.image_uri} --report FILE` where "
            f"these checks can be made, then `bake promote {candidate.image} --report FILE` here"
        )
        message = f"`{candidate.image}` may not be released yet"
        told = tuple(Reason(text) for text in reasons)
        raise PublishError(Diagnostic(message, reasons=told, facts=facts, hint=hint))
