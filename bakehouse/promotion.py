"""Turns a candidate that lies in a registry into a release: the same digest gets its release tag.

Nothing is pushed: neither an engine nor the image has to be on this machine.
"""

from bakehouse.distribution import DistributionError, Repository
from bakehouse.errors import Diagnostic, PublishError, Reason
from bakehouse.locks import exclusive
from bakehouse.manifests import FORMS, short
from bakehouse.plan import Digest, Image, ImageKey
from bakehouse.push import Publication
from bakehouse.refusals import Refusals
from bakehouse.registry import Registry, immutable_tag
from bakehouse.release_tags import PublishedImage, ReleaseTags
from bakehouse.releases import ReleaseRecord
from bakehouse.smoke_report import SmokeReport, lacking
from bakehouse.transfer import Progress


def promote(
    candidate: ReleaseRecord,
    image: Image,
    report: SmokeReport | None,
    registry: Registry,
    publication: Publication,
    progress: Progress,
) -> PublishedImage:
    """Give a candidate the tag of a release, once what the recipe requires of `image` was seen of its digest.

    One that is released already keeps the tag it has.
    """
    if candidate.candidate:
        _check_tested(candidate, report, image.required)
    key, digest = ImageKey(candidate.key), Digest(candidate.digest)
    tag = immutable_tag(candidate.image, publication.day, key)
    remote = Repository(registry, candidate.repository, publication.patience)
    form = FORMS[image.format]
    refusals = Refusals(candidate.image, key, digest, registry, candidate.repository, tag, "promote", form)
    tags = ReleaseTags(remote, refusals)
    with exclusive(publication.locks / f"push-{candidate.image}.lock"):
        try:
            manifest = remote.manifest(digest)
        except DistributionError as error:
            raise refusals.unanswered(error) from error
        if manifest is None:
            raise refusals.candidate_gone()
        tags.check(manifest)
        found = tags.named(lambda: None)
        if found:
            progress(f"{candidate.image}: {short(digest)} is released already, as {found[0]}")
            return tags.published(*found, was_there=True, candidate=False)
        try:
            remote.tag(manifest, tag)
        except DistributionError as error:
            # An immutable tag that somebody else has set meanwhile, and a lost answer, look alike.
            if not tags.is_there():
                raise refusals.unanswered(error) from error
        progress(f"{candidate.image}: {short(digest)} is released as {tag}")
        return tags.published(tag, tags.read_back(), was_there=False, candidate=False)


def move_alias(published: PublishedImage, registry: Registry, publication: Publication) -> None:
    """Let the tag that is the image's own name mean a release."""
    remote = Repository(registry, published.repository, publication.patience)
    alias = published.image
    try:
        there = remote.manifest(alias)
        if there is None or there.digest != published.digest:
            manifest = remote.manifest(published.digest)
            assert manifest, "a release that was read back is gone"
            remote.tag(manifest, alias)
    except DistributionError as error:
        facts = (("answer", error.text), ("released", published.image_uri))
        hint = f"except `{alias}` from the immutability of tags, or leave out `--alias`"
        message = f"`{published.image}` is released, but the moving tag `{alias}` could not be set"
        raise PublishError(Diagnostic(message, facts=facts, hint=hint)) from error


def _check_tested(candidate: ReleaseRecord, report: SmokeReport | None, required: tuple[str, ...]) -> None:
    if reasons := lacking(report, required):
        facts = (("candidate", candidate.image_uri),)
        hint = (
            f"run `./bake smoke {candidate.image} --image-uri {candidate.image_uri} --report FILE` where "
            f"these checks can be made, then `./bake promote {candidate.image} --report FILE` here"
        )
        message = f"`{candidate.image}` may not be released yet"
        told = tuple(Reason(text) for text in reasons)
        raise PublishError(Diagnostic(message, reasons=told, facts=facts, hint=hint))
