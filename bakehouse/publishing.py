"""Publishes built images and promotes candidates, and writes both into the ledger."""

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from bakehouse import (
    ecr,
    image_uris,
    promotion,
    provision,
    push,
    pusher,
    recording,
    revisions,
    smoke_report,
    verification,
)
from bakehouse.build import BuiltImage
from bakehouse.distribution import Patience
from bakehouse.embedded_registry import EmbeddedRegistry
from bakehouse.errors import BakehouseError, Diagnostic, EngineError, PublishError, UsageError
from bakehouse.ledger import Ledger
from bakehouse.plan import Digest, Image
from bakehouse.project import Project
from bakehouse.push_queue import PushQueue
from bakehouse.registry import NamedRegistry, Registry
from bakehouse.release_tags import PublishedImage
from bakehouse.releases import ReleaseRecord
from bakehouse.workspace import Say


@dataclass(frozen=True, slots=True)
class Terms:
    """Where images are published, and as what."""

    registry: str = ""
    """`local`, `ecr` or a host; empty is the project's."""
    create: bool = False
    """Make an ECR repository that is not there."""
    stage: bool = False
    """As candidates."""
    alias: bool = False
    """Let the moving tag follow."""
    image_uri: str = ""
    """What is to be promoted; empty is the newest candidate."""
    reports: tuple[Path, ...] = ()
    """Smoke reports that other machines made."""
    deadline: float = 0.0
    """Seconds that pushing may take, all images and attempts together; 0 is six hours."""


def push_images(
    project: Project, built: Sequence[BuiltImage], say: Say, terms: Terms
) -> tuple[ReleaseRecord, ...]:
    """Push what may be released, or candidates, and write it into the ledger."""
    provision.ensure(provision.ask_at_terminal, say)
    ledger = Ledger(project)
    publication, revision = _publication(project, terms), revisions.current(project.root)
    queue = PushQueue()
    with registry(project, terms, say) as target:

        def publish(one: BuiltImage) -> tuple[PublishedImage, ReleaseRecord]:
            report = smoke_report.known(project.state, one.digest)
            pushing = pusher.connect(project.state / "pushes")
            published = push.publish(one, report, target, pushing, publication, say, queue)
            _require_kept(target, published, ledger, terms)
            record = recording.record_of(published, one.image, report, publication.day, revision)
            ledger.add(record)
            return published, record

        outcomes = queue.each([partial(publish, one) for one in built])
    done = [one for one in outcomes if not isinstance(one, BakehouseError)]
    _tell_bytes([published for published, _ in done], say)
    failures = [one for one in outcomes if isinstance(one, BakehouseError)]
    if failures:
        for _, record in done:
            say(f"{record.image}: published as {record.image_uri}")
        kinds = {type(one) for one in failures}
        kind = kinds.pop() if len(kinds) == 1 else PublishError
        raise kind(*(told for one in failures for told in one.diagnostics))
    return tuple(record for _, record in done)


def _tell_bytes(published: Sequence[PublishedImage], say: Say) -> None:
    """What a push of many has spared, in all."""
    if len(published) < 2 or any(one.sent is None for one in published):
        return
    sent, whole = sum(one.sent or 0 for one in published), sum(one.bytes for one in published)
    say(f"{len(published)} images of {whole / 1e6:.1f} MB: {sent / 1e6:.1f} MB had to be sent")


def promote_image(project: Project, image: Image, say: Say, terms: Terms) -> ReleaseRecord:
    """Release an image's newest candidate, by what was seen of it on all machines."""
    ledger = Ledger(project)
    ledger.records(image.name)
    candidate = image_uris.to_promote(
        project.images, image.name, registry=terms.registry or None, image_uri=terms.image_uri
    )
    if candidate.candidate and candidate.key != image.key:
        # What a recipe requires today may be less than what it required then
        facts = (("recipe's key", image.key), ("candidate's key", candidate.key))
        hint = "check out the commit that it was staged from: `./bake releases` tells it"
        message = f"the candidate of `{image.name}` was not built from this recipe"
        raise UsageError(Diagnostic(message, facts=facts, hint=hint))
    digests = [Digest(digest) for digest in (candidate.digest, candidate.config) if digest]
    for path in terms.reports:
        smoke_report.attach(path, image.name, digests, project.state)
    found = [report for digest in digests if (report := smoke_report.known(project.state, digest))]
    report = smoke_report.together(found) if found else None
    publication = _publication(project, terms)
    with registry(project, replace(terms, registry=candidate.registry), say) as target:
        published = promotion.promote(candidate, image, report, target, publication, say)
        _require_kept(target, published, ledger, terms)
        record = candidate
        if candidate.candidate:
            assert report, "a promotion without a report"
            released = replace(candidate, candidate=False, tags=published.tags)
            record = recording.with_report(
                replace(released, date=publication.day.isoformat()), report, image.required
            )
            ledger.add(record)
        if terms.alias:
            promotion.move_alias(published, target, publication)
            say(f"{image.name}: the tag `{image.name}` means it now")
    return record


def _require_kept(target: Registry, published: PublishedImage, ledger: Ledger, terms: Terms) -> None:
    """Let nothing into the ledger that the registry is going to expire, by whichever of its tags."""
    if isinstance(target, ecr.EcrRegistry):
        known = [one for one in ledger.records(published.image) if one.image_uri == published.image_uri]
        alias = [published.image] if terms.alias else []
        target.require_kept(
            published.repository, {*published.tags, *alias, *(tag for one in known for tag in one.tags)}
        )


def verify(project: Project, records: Sequence[ReleaseRecord], say: Say) -> tuple[verification.Verified, ...]:
    """Ask the registries of records for each of them."""
    with contextlib.ExitStack() as stack:

        def registry_of(host: str) -> Registry:
            return stack.enter_context(registry(project, Terms(registry=host), say))

        return verification.verify(records, registry_of, Patience())


def _publication(project: Project, terms: Terms) -> push.Publication:
    publication = push.Publication(
        day=datetime.now(UTC).date(),
        locks=project.state / "locks",
        prefix=project.repository_prefix,
        stage=terms.stage,
        revision=revisions.current(project.root),
        history=partial(_history, project),
    )
    if terms.deadline:
        return replace(publication, until=time.monotonic() + terms.deadline)
    return publication


def _history(project: Project, image: str, digest: Digest) -> str:
    # It is asked where a push has failed already.
    with contextlib.suppress(BakehouseError):
        return recording.told_of(Ledger(project).records(image), digest)
    return ""


@contextlib.contextmanager
def registry(project: Project, terms: Terms, say: Say) -> Iterator[Registry]:
    """The registry that a project names: the embedded one, Amazon ECR, or another."""
    name = terms.registry or project.registry
    own = f"127.0.0.1:{project.registry_port}"
    if name in ("local", own):
        # Where it can't be installed, the registry's image takes its place.
        with contextlib.suppress(EngineError):
            provision.ensure_tools(provision.ask_at_terminal, say, "docker-registry")
        with EmbeddedRegistry(project.state / "registry", project.registry_port) as embedded:
            yield embedded
    elif name == "ecr" or ecr.is_ecr(name):
        host = None if name == "ecr" else name
        yield ecr.EcrRegistry(host=host, region=project.region, create=terms.create)
    else:
        yield NamedRegistry(name, pusher.docker_login)
