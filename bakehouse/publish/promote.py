"""Promotes a candidate in a registry to a release by giving its digest a release tag.

Nothing is pushed, so neither an engine nor a local image is needed.
"""

from dataclasses import replace

from bakehouse.cluster.smoke_report import SmokeReport, release_blockers
from bakehouse.errors import Diagnostic, PublishError, Reason
from bakehouse.plan.model import Image, ImageKey
from bakehouse.publish.diagnostics import PushDiagnostics
from bakehouse.publish.push import PushOptions
from bakehouse.publish.releases import ReleaseRecord
from bakehouse.publish.tags import PublishedImage, ReleaseTags, immutable_tag
from bakehouse.publish.target import ReleaseTarget
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
    options: PushOptions,
    progress: Reporter,
) -> PublishedImage:
    """Give a candidate its release tag, once its digest passed the checks that `image` requires.

    A digest that is released already keeps its tag.
    """
    if candidate.candidate:
        _check_tested(candidate, report, image.required)
    key, digest = ImageKey(candidate.key), Digest(candidate.digest)
    target = ReleaseTarget(
        *(candidate.image, key, digest, registry, candidate.repository),
        tag=immutable_tag(candidate.image, options.day, key),
        form=FORMS[image.format],
    )

    def wait() -> None:
        progress(f"{candidate.image}: waiting for another push of it on this machine")

    try:
        remote = _remote(registry, candidate.repository, options)
        with exclusive(options.locks / f"push-{candidate.image}.lock", wait, options.until):
            target = replace(target, registry=remote.registry)
            return _promote(ReleaseTags(remote, target, PushDiagnostics(target, "promote")), progress)
    except OverdueError as error:
        raise PushDiagnostics(target, "promote").overdue() from error


def _promote(tags: ReleaseTags, progress: Reporter) -> PublishedImage:
    remote, target, diagnostics = tags.remote, tags.target, tags.diagnostics
    subject = f"{target.image}: {short(target.digest)}"
    try:
        manifest = remote.manifest(target.digest)
    except RegistryError as error:
        raise diagnostics.unanswered(error) from error
    if manifest is None:
        raise diagnostics.candidate_gone()
    tags.check(manifest)
    if released := tags.find_release(lambda: None):
        progress(f"{subject} is released already, as {released[0]}")
        return tags.published(*released, was_there=True, candidate=False)
    try:
        remote.tag(manifest, target.tag)
    except RegistryError as error:
        # An immutable tag that another push has set meanwhile looks like a lost answer.
        if not tags.find_target():
            raise diagnostics.untagged(error) from error
    progress(f"{subject} is released as {target.tag}")
    return tags.published(target.tag, tags.read_back(), was_there=False, candidate=False)


def _remote(registry: Registry, repository: str, options: PushOptions) -> Repository:
    """Client of a repository, bounded by the deadline."""
    retry_policy = replace(options.retry_policy, until=options.until)
    return Repository(DeadlineRegistry(registry, options.until), repository, retry_policy)


def move_tag(published: PublishedImage, registry: Registry, options: PushOptions) -> None:
    """Move the tag that is the image's own name to a release."""
    tag = published.image
    try:
        remote = _remote(registry, published.repository, options)
        current = remote.manifest(tag)
        if current is None or current.digest != published.digest:
            manifest = remote.manifest(published.digest)
            assert manifest, "a release that was read back is gone"
            remote.tag(manifest, tag)
    except (RegistryError, OverdueError) as error:
        facts = (("answer", str(error)), ("released", published.image_uri))
        hint = f"except `{tag}` from the immutability of tags, or omit `--move-tag`"
        message = f"`{published.image}` is released, but the moving tag `{tag}` could not be set"
        raise PublishError(Diagnostic(message, facts=facts, hint=hint)) from error


def _check_tested(candidate: ReleaseRecord, report: SmokeReport | None, required: tuple[str, ...]) -> None:
    if reasons := release_blockers(report, required):
        facts = (("candidate", candidate.image_uri),)
        hint = (
            f"run `bake smoke {candidate.image} --image-uri {candidate.image_uri} --report FILE` where "
            f"these checks can run, then `bake promote {candidate.image} --report FILE` here"
        )
        message = f"`{candidate.image}` cannot be released yet"

        raise PublishError(
            Diagnostic(message, reasons=tuple(Reason(text) for text in reasons), facts=facts, hint=hint)
        )
