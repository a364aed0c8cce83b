"""Promotes a candidate to a release by giving its digest a release tag in each of its registries.

Nothing is pushed, so neither an engine nor a local image is needed.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import replace

from bakehouse.catalog.project import Project
from bakehouse.cluster import smoke_report
from bakehouse.cluster.smoke_report import SmokeReport, release_blockers
from bakehouse.errors import NotReleasableError, PublishError, Reason, UsageError
from bakehouse.ledger import image_uris
from bakehouse.ledger.ledger import open_ledger
from bakehouse.ledger.releases import ReleasedScan, ReleaseRecord
from bakehouse.plan.model import Image, ImageKey
from bakehouse.publish import ecr_scan, signed_report
from bakehouse.publish.attest import Attested, Documents, attach, bundler_of
from bakehouse.publish.diagnostics import PushDiagnostics
from bakehouse.publish.ecr_replication import Waiting
from bakehouse.publish.publish import (
    PublishOptions,
    for_each_region,
    push_options_for,
    require_not_expiring,
    warn_if_newer_release,
    with_same_release_day,
)
from bakehouse.publish.push import PushOptions
from bakehouse.publish.record import with_known, with_report, with_scans
from bakehouse.publish.tags import PublishedImage, ReleaseTags, immutable_tag
from bakehouse.publish.target import ReleaseTarget
from bakehouse.registry import destination
from bakehouse.registry.client import Repository
from bakehouse.registry.http_errors import RegistryError
from bakehouse.registry.manifest import FORMS, short
from bakehouse.registry.registry import DeadlineRegistry, Registry
from bakehouse.trust import policy, scan_results
from bakehouse.trust.bundle import Statement
from bakehouse.trust.statements import results_of, signature_of
from bakehouse.util.deadline import OverdueError
from bakehouse.util.file_lock import exclusive
from bakehouse.util.oci import Digest
from bakehouse.util.terminal import Reporter


def promote_image(
    project: Project, image: Image, progress: Reporter, options: PublishOptions
) -> ReleaseRecord:
    """Release an image's newest candidate, by the smoke reports of all machines."""
    ledger = open_ledger(project)
    records = ledger.records(image.name)
    candidate = image_uris.to_promote(
        project.images, image.name, registry=options.registry, image_uri=options.image_uri
    )
    if candidate.candidate:
        require_same_key(candidate, image)
    report = _smoke_report(project, candidate, options)
    push_options = push_options_for(project, options)
    locations = _all_locations(candidate, records)
    bundler = bundler_of(project)
    waived = policy.waivers_of(project)
    released: list[tuple[Registry, PublishedImage]] = []
    attested = Attested()
    scans: tuple[ReleasedScan, ...] = ()

    def sign(registry: Registry, published: PublishedImage, *statements: Statement) -> None:
        nonlocal attested
        if bundler and statements:
            documents = Documents(statements=statements, bundler=bundler)
            command = f"promote {image.name}"
            targets = [(registry, published)]
            attested += attach(targets, lambda _: documents, push_options, progress, command)

    def promote_in(registry: Registry, first: PublishedImage | None) -> PublishedImage:
        nonlocal scans
        location = locations[registry.host]
        # Before anything is signed.
        _check_tested(location, report, image)
        there = PublishedImage.recorded(location)
        sign(registry, there, *results_of(image, there.digest, report))
        if project.policy:
            attested.require_all()
            retry_policy = replace(push_options.retry_policy, until=push_options.until)
            max_age = smoke_report.MAX_AGE
            statements = policy.check(project.policy, location, registry, retry_policy, waived, max_age)
            if "scan" in project.policy.require:
                signed_scans = scan_results.read_scans(statements, image.name).newest
                scans = tuple(scan_results.summarize(scan, waived) for scan in signed_scans)
        same_day = with_same_release_day(push_options, first)
        published = promote(location, image, report, registry, same_day, progress)
        until = push_options.until
        require_not_expiring(registry, published, ledger, progress, until, move_tag=options.move_tag)
        released.append((registry, published))
        sign(registry, published, signature_of(image, published.digest))
        return published

    with contextlib.ExitStack() as stack:
        registries = [
            stack.enter_context(destination.registry(project, host, progress)) for host in locations
        ]
        candidate = _scanned(project, candidate, registries[0], progress, options, push_options)
        results = for_each_region(registries, promote_in)
        record = candidate
        if candidate.candidate:
            assert report, "a promotion without a report"
            record = replace(candidate, candidate=False, date=push_options.day.isoformat())
            record = with_report(record, report, image)
        first = results.published
        record = replace(
            record,
            registry=first.registry,
            repository=first.repository,
            image_uri=first.image_uri,
            tags=first.tags,
            regions=results.regions,
        )
        record = with_scans(with_known(record, (), attested.artifacts), scans)
        # Before the moving tag, which a registry may reject: the image is released all the same.
        ledger.add(record)
        if options.move_tag and not results.interrupt:
            failures = _move_tags(released, push_options)
            results = replace(results, failures=(*results.failures, *failures))
    results.require_all()
    attested.require_all()
    if options.move_tag:
        progress(f"{image.name}: tag `{image.name}` now points to this release")
    warn_if_newer_release(project, record, progress)
    return record


def find_candidate(project: Project, image: str, registry: str, image_uri: str) -> ReleaseRecord:
    """Return the candidate that `promote` would release, also if only the team's ledger has it."""
    open_ledger(project).records(image)
    return image_uris.to_promote(project.images, image, registry=registry, image_uri=image_uri)


def require_same_key(candidate: ReleaseRecord, image: Image) -> None:
    """Raise UsageError for a candidate of another recipe: the present one may require fewer checks."""
    if candidate.key != image.key:
        facts = (("recipe's key", image.key), ("candidate's key", candidate.key))
        raise UsageError(
            f"the candidate of `{image.name}` was not built from this recipe",
            facts=facts,
            hint="check out the commit that it was published from, which `bake releases` shows",
        )


def _smoke_report(project: Project, candidate: ReleaseRecord, options: PublishOptions) -> SmokeReport | None:
    """Merged smoke reports of a candidate, including those from other machines."""
    digests = [Digest(digest) for digest in (candidate.digest, candidate.config) if digest]
    verify = signed_report.verifier(project.policy) if options.reports else None
    for path in options.reports:
        smoke_report.attach(path, candidate.image, digests, project.state, verify)
    reports = [
        report
        for digest in digests
        if (report := smoke_report.load_all(project.state, digest, only_recent=True))
    ]
    return smoke_report.merge_reports(reports) if reports else None


def _move_tags(
    released: Sequence[tuple[Registry, PublishedImage]], options: PushOptions
) -> tuple[PublishError, ...]:
    """Move the moving tag in each registry that has the release; return the failures."""
    failures = []
    for registry, published in released:
        try:
            move_tag(published, registry, options)
        except PublishError as error:
            failures.append(error)
    return tuple(failures)


def _scanned(
    project: Project,
    candidate: ReleaseRecord,
    registry: Registry,
    progress: Reporter,
    options: PublishOptions,
    push_options: PushOptions,
) -> ReleaseRecord:
    """Candidate with the result of a scan, if one is requested; recorded even if findings fail it."""
    settings = destination.settings_of(project, candidate.registry)
    severity = options.fail_on or (settings.scan if settings else "")
    if not severity:
        return candidate
    published = PublishedImage.recorded(candidate)
    waiting = Waiting(until=push_options.until)
    scan = ecr_scan.scan(ecr_scan.require_scanning(registry), published, progress, waiting)
    candidate = scan.recorded(candidate)
    try:
        ecr_scan.require_clean(scan, severity, published)
    except PublishError:
        # The record of a release stays unchanged.
        if candidate.candidate:
            open_ledger(project).add(candidate)
        raise
    return candidate


def _all_locations(candidate: ReleaseRecord, records: Sequence[ReleaseRecord]) -> dict[str, ReleaseRecord]:
    """Candidate in each registry, including those that an earlier promotion did not reach."""
    earlier = {
        location.registry: location
        for record in records
        if candidate.image_uri in {location.image_uri for location in record.locations}
        for location in record.locations
    }
    # The candidate's own registries come first.
    own = {location.registry: location for location in candidate.locations}
    return own | {host: location for host, location in earlier.items() if host not in own}


def promote(
    candidate: ReleaseRecord,
    image: Image,
    report: SmokeReport | None,
    registry: Registry,
    options: PushOptions,
    progress: Reporter,
) -> PublishedImage:
    """Give a candidate its release tag in one registry, once it passed the checks that `image` requires.

    A digest that is released already keeps its tag.
    """
    _check_tested(candidate, report, image)
    key, digest = ImageKey(candidate.key), Digest(candidate.digest)
    target = ReleaseTarget(
        *(candidate.image, key, digest, registry, candidate.repository),
        tag=immutable_tag(candidate.image, options.day, key),
        form=FORMS[image.format],
        platform=image.platform,
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
    with diagnostics.translate_errors():
        manifest = remote.manifest(target.digest)
    if manifest is None:
        raise diagnostics.candidate_gone()
    tags.check(manifest)
    if manifest.config:
        tags = replace(tags, target=replace(target, digest=manifest.config.digest))
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
        raise PublishError(
            f"`{published.image}` is released, but the moving tag `{tag}` could not be set",
            facts=facts,
            hint=f"except `{tag}` from the immutability of tags, or omit `--move-tag`",
        ) from error


def _check_tested(candidate: ReleaseRecord, report: SmokeReport | None, image: Image) -> None:
    """Raise NotReleasableError for a candidate that has not passed its required checks."""
    if candidate.candidate and (reasons := release_blockers(report, image.required, image.smoke)):
        facts = (("candidate", candidate.image_uri),)
        raise NotReleasableError(
            f"`{candidate.image}` cannot be released yet",
            reasons=tuple(Reason(text) for text in reasons),
            facts=facts,
            hint=(
                f"run `bake smoke {candidate.image} --image-uri {candidate.image_uri} --report FILE` where "
                f"these checks can run, then `bake promote {candidate.image} --report FILE` here"
            ),
        )
