"""Promotes a candidate to a release by giving its digest a release tag in each of its registries.

Nothing is pushed, so neither an engine nor a local image is needed.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import replace

from bakehouse.catalog.project import ProjectSettings
from bakehouse.cluster import smoke_report
from bakehouse.errors import PublishError, UsageError
from bakehouse.evidence import check_rows
from bakehouse.evidence.gate import check_candidate
from bakehouse.evidence.known_checks import MAX_AGE, KnownChecks, known_checks
from bakehouse.evidence.page_rows import contents_of
from bakehouse.evidence.step_layers import by_key, read
from bakehouse.fetch.retry import RetryPolicy
from bakehouse.ledger import image_uris
from bakehouse.ledger.releases import ReleaseRecord, current_time
from bakehouse.ledger.store import open_ledger
from bakehouse.plan.model import Image
from bakehouse.publish import ecr_scan
from bakehouse.publish.attest import Attested, Documents, attach, bundler_of
from bakehouse.publish.diagnostics import diagnostics_of
from bakehouse.publish.ecr_scan import Waiting
from bakehouse.publish.options import PublishOptions, push_options_for
from bakehouse.publish.published_checks import require_not_expiring, warn_if_newer_release
from bakehouse.publish.record import with_known_facts, with_state
from bakehouse.publish.regions import RegionResults, for_each_region, with_same_release_day
from bakehouse.publish.release_copy import copy_to
from bakehouse.publish.retag import find_release_tag, move_tags, open_repository, tag_release
from bakehouse.publish.tags import PublishedImage, release_day, release_repository
from bakehouse.registry import destination
from bakehouse.registry.client import Repository
from bakehouse.registry.manifest import content_id, short
from bakehouse.registry.registry import Registry
from bakehouse.trust import policy, signed_report
from bakehouse.trust.bundle import Statement
from bakehouse.trust.statements import results_of, signature_of
from bakehouse.util.directory_handles import repository_around
from bakehouse.util.oci import ContentId, Digest
from bakehouse.util.terminal import Reporter


def content_of(record: ReleaseRecord, remote: Repository, command: str) -> ContentId:
    """Return the content ID of a recorded image. Raises PublishError, with the `command` to repeat."""
    diagnostics = diagnostics_of(record, remote, command)
    with diagnostics.translate_errors():
        manifest = remote.manifest(record.digest)
        if manifest is None:
            raise diagnostics.candidate_gone()
        config = remote.blob(manifest.config.digest) if manifest.config else b""
    try:
        return content_id(config)
    except (ValueError, TypeError, AttributeError) as error:
        raise PublishError(f"`{record.image_uri}` has no configuration of an image") from error


def promote_image(
    project: ProjectSettings, image: Image, progress: Reporter, options: PublishOptions
) -> ReleaseRecord:
    """Release an image's newest candidate, based on the results of all machines."""
    return Promotion(project, image, progress, options).run()


class Promotion:
    """Promotion of an image's newest candidate in all registries that have it."""

    def __init__(
        self, project: ProjectSettings, image: Image, progress: Reporter, options: PublishOptions
    ) -> None:
        self._project = project
        self._image = image
        self._progress = progress
        self._options = options
        self._ledger = open_ledger(project)
        records = self._ledger.records(image.name)
        self._candidate = image_uris.to_promote(
            project, image.name, registry=options.registry, image_uri=options.image_uri
        )
        if not any(project.publishes_to(at.registry, at.repository) for at in self._candidate.locations):
            progress(
                f"{image.name}: promoting its candidate in `{self._candidate.registry}`; "
                f"look-ups search `{project.registry}`"
            )
        self._states: dict[ContentId, KnownChecks] = {}
        self._push_options = push_options_for(project, options)
        self._locations = _all_locations(self._candidate, records)
        policy.require_consent(project)
        self._bundler = bundler_of(project)
        self._registries: list[Registry] = []
        self._released: list[tuple[Registry, PublishedImage]] = []
        self._attested = Attested()

    def run(self) -> ReleaseRecord:
        """Release the candidate. Successful registries are recorded before failures of others are raised."""
        options = self._options
        with contextlib.ExitStack() as stack:
            registries = [
                stack.enter_context(
                    destination.registry(self._project, host, self._progress, create=options.create)
                )
                for host in self._locations
            ]
            self._registries = registries
            if self._candidate.candidate:
                self._require_same(self._candidate, registries[0])
            self._accept_reports(registries[0])
            candidate = self._scan(registries[0])
            results = for_each_region(registries, self._release)
            record = self._record(candidate, results)
            # Before the moving tag, which a registry may reject: the image is released anyway.
            self._ledger.add(record)
            if self._options.move_tag and not results.interrupt:
                failures = move_tags(self._released, self._push_options)
                results = replace(results, failures=(*results.failures, *failures))
        results.require_all()
        self._attested.require_all()
        if self._options.move_tag:
            self._progress(
                f"{self._image.name}: tag `{results.published.moving_tag}` now points to this release"
            )
        warn_if_newer_release(self._project, record, self._progress)
        return record

    def _scan(self, registry: Registry) -> ReleaseRecord:
        """Return the candidate with the result of a scan, if one is requested.

        The result is recorded even if its findings are an error.
        """
        candidate = self._candidate
        settings = destination.settings_of(self._project, candidate.registry)
        severity = self._options.fail_on or (settings.scan if settings else "")
        if not severity:
            return candidate
        published = PublishedImage.recorded(candidate)
        waiting = Waiting(until=self._push_options.until)
        scan = ecr_scan.scan(ecr_scan.require_scanning(registry), published, self._progress, waiting)
        candidate = scan.recorded(candidate)
        try:
            ecr_scan.require_clean(scan, severity, published)
        except PublishError:
            # The record of a release stays unchanged.
            if candidate.candidate:
                self._ledger.add(candidate)
            raise
        return candidate

    def _release(self, registry: Registry, first: PublishedImage | None) -> PublishedImage:
        """Give the candidate its release tag in one registry, with signatures before and after."""
        location = self._in_release_repository(registry, self._locations[registry.host])
        tag = find_release_tag(location, self._image, registry, self._push_options)
        if not location.candidate and not tag and not self._is_released():
            # A commit can contain a record of a release that never happened.
            self._require_same(location, registry)
            location = replace(location, candidate=True)
        known = self._known(location, registry)
        # Before anything is signed.
        check_candidate(location, known)
        published = PublishedImage.recorded(location)
        # The record may have a former name of the image
        image = replace(self._image, name=published.image)
        self._sign(registry, published, *results_of(image, published.digest, known))
        self._require_policy(registry, location)
        options = with_same_release_day(self._push_options, first)
        published = tag_release(location, self._image, known, registry, options, self._progress)
        until, move = self._push_options.until, self._options.move_tag
        require_not_expiring(registry, published, self._ledger, self._progress, until, move_tag=move)
        self._released.append((registry, published))
        self._sign(registry, published, signature_of(image, published.digest))
        return published

    def _require_same(self, location: ReleaseRecord, registry: Registry) -> None:
        """Raise UsageError for another recipe, unless this machine built the same bytes from this one."""
        if location.key != self._image.key:
            built = contents_of(self._image, by_key(read(self._project.state)))
            if self._content(self._locations[registry.host], registry) not in built:
                require_same_key(location, self._image)

    def _accept_reports(self, registry: Registry) -> None:
        """Add the results of report files to those of this machine."""
        if not self._options.reports:
            return
        project, image = self._project, self._image.name
        content = self._content(self._locations[registry.host], registry)
        verify = signed_report.verifier(project.policy)
        for path in self._options.reports:
            smoke_report.require_outside(path, repository_around(project.root))
            report = smoke_report.read_file(path, image, content, MAX_AGE, verify)
            check_rows.record(project.state, content, report.checks)

    def _known(self, location: ReleaseRecord, registry: Registry) -> KnownChecks:
        """Return the results of the checks of the candidate in a registry."""
        content = self._content(location, registry)
        if content not in self._states:
            self._states[content] = known_checks(self._project, self._image, content, max_age=MAX_AGE)
        return self._states[content]

    def _content(self, location: ReleaseRecord, registry: Registry) -> ContentId:
        remote = open_repository(registry, location.repository, self._push_options)
        return content_of(location, remote, f"promote {self._image.name}")

    def _in_release_repository(self, registry: Registry, location: ReleaseRecord) -> ReleaseRecord:
        """Copy a tested candidate from the repository of candidates; return the record as of its place."""
        repository = release_repository(location.repository)
        if repository == location.repository:
            return location
        check_candidate(location, self._known(location, registry))
        copy_to(registry, registry, repository, location, self._push_options, create=self._options.create)
        self._progress(f"{location.image}: copied {short(Digest(location.digest))} to {repository}")
        uri = f"{registry.host}/{repository}@{location.digest}"
        return replace(location, repository=repository, image_uri=uri)

    def _is_released(self) -> bool:
        """Return whether a registry has a release tag of the recorded digest."""
        for registry in self._registries:
            location = self._locations[registry.host]
            with contextlib.suppress(PublishError):
                if find_release_tag(location, self._image, registry, self._push_options):
                    return True
        return False

    def _sign(self, registry: Registry, published: PublishedImage, *statements: Statement) -> None:
        """Attach signed statements, if the project has a key."""
        if self._bundler and statements:
            documents = Documents(statements=statements, bundler=self._bundler)
            command = f"promote {self._image.name}"
            targets = [(registry, published)]
            self._attested += attach(
                targets, lambda _: documents, self._push_options, self._progress, command
            )

    def _require_policy(self, registry: Registry, location: ReleaseRecord) -> None:
        """Raise an error for an image that the project's policy rejects."""
        rules = self._project.policy
        if not rules:
            return
        self._attested.require_all()
        retry_policy = replace(self._push_options.retry_policy, until=self._push_options.until)
        policy.check_image(rules, location, registry, retry_policy, MAX_AGE)

    def _record(self, candidate: ReleaseRecord, results: RegionResults) -> ReleaseRecord:
        """Return the record of the release."""
        record = candidate
        if candidate.candidate:
            day = release_day(results.published.tags[0]) or self._push_options.day
            record = replace(candidate, candidate=False, date=day.isoformat(), time=current_time())
            for known in self._states.values():
                record = with_state(record, known, self._image)
        return with_known_facts(results.recorded(record), (), self._attested.artifacts)


def find_candidate(project: ProjectSettings, image: str, registry: str, image_uri: str) -> ReleaseRecord:
    """Return the candidate that `promote` would release, also if only the team's ledger has it."""
    open_ledger(project).records(image)
    return image_uris.to_promote(project, image, registry=registry, image_uri=image_uri)


def content_in_registry(project: ProjectSettings, candidate: ReleaseRecord, progress: Reporter) -> ContentId:
    """Return the content ID of a candidate by its registry."""
    with destination.registry(project, candidate.registry, progress) as registry:
        remote = Repository(registry, candidate.repository, RetryPolicy(), progress)
        return content_of(candidate, remote, f"smoke {candidate.image}")


def require_same_key(candidate: ReleaseRecord, image: Image) -> None:
    """Raise UsageError for a candidate of another recipe: the current one may require fewer checks."""
    if candidate.key != image.key:
        facts = (("recipe's key", image.key), ("candidate's key", candidate.key))
        raise UsageError(
            f"the candidate of `{image.name}` was not built from this recipe",
            facts=facts,
            hint="check out the commit that it was published from, which `bake releases` shows",
        )


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
