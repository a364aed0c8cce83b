"""Compares ledger records with their registries: digests, tags, attachments and signed statements."""

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from bakehouse.catalog.project import ProjectSettings
from bakehouse.errors import Diagnostic, PublishError, TrustError
from bakehouse.fetch.retry import RetryPolicy
from bakehouse.ledger.releases import ReleaseRecord, current_release
from bakehouse.publish.push import SIX_HOURS
from bakehouse.publish.tags import release_day
from bakehouse.registry import destination
from bakehouse.registry.client import Repository
from bakehouse.registry.http_errors import RegistryError
from bakehouse.registry.manifest import short
from bakehouse.registry.registry import DeadlineRegistry, Registry
from bakehouse.util.deadline import OverdueError
from bakehouse.util.oci import Digest
from bakehouse.util.terminal import Reporter

_THREADS = 8


@dataclass(frozen=True, slots=True)
class Verified:
    """Comparison of one record with its registry."""

    record: ReleaseRecord
    missing: tuple[str, ...]
    """Differences from the ledger, as clauses."""


def verify_releases(
    project: ProjectSettings, records: Sequence[ReleaseRecord], progress: Reporter
) -> tuple[Verified, ...]:
    """Compare records with the registries that the project's settings describe.

    The current releases are compared with the project's policy, too.
    """
    with contextlib.ExitStack() as stack:

        def registry_of(host: str) -> Registry:
            return stack.enter_context(destination.registry(project, host, progress))

        retry_policy = RetryPolicy(until=time.monotonic() + SIX_HOURS)
        verified = verify(records, registry_of, retry_policy)
        if (rules := project.policy) is None:
            return verified
        # Most projects have none, and its checks take long to import.
        from bakehouse.trust import policy

        policy.require_consent(project)
        for place in {(record.image, record.place) for record in records}:
            at_place = [record for record in records if (record.image, record.place) == place]
            if record := current_release(at_place, lambda _: True):
                try:
                    policy.check_image(rules, record, registry_of(record.registry), retry_policy)
                except TrustError as error:
                    texts = [reason.text for item in error.diagnostics for reason in item.reasons]
                    refusals = tuple(f"the policy refuses it: {text}" for text in texts or [str(error)])
                    verified = tuple(
                        replace(item, missing=(*item.missing, *refusals)) if item.record == record else item
                        for item in verified
                    )
        return verified


def verify(
    records: Sequence[ReleaseRecord], registry_of: Callable[[str], Registry], retry_policy: RetryPolicy
) -> tuple[Verified, ...]:
    """Look up the manifest, tags and attachments of each record in each region.

    Only headers are downloaded from registries whose headers contain digests.
    """
    records = [location for record in records for location in record.locations]
    hosts = dict.fromkeys(record.registry for record in records)
    registries = {host: DeadlineRegistry(registry_of(host), retry_policy.until) for host in hosts}
    for registry in registries.values():
        # Before the threads, because sessions of boto3 are not thread-safe. Each record reports a failure.
        with contextlib.suppress(PublishError, OverdueError):
            registry.credentials()

    def compare(record: ReleaseRecord) -> Verified:
        repository = Repository(registries[record.registry], record.repository, retry_policy)
        return Verified(record, tuple(_missing(repository, record)))

    with ThreadPoolExecutor(_THREADS) as pool:
        return tuple(pool.map(compare, records))


def _missing(repository: Repository, record: ReleaseRecord) -> Iterable[str]:
    try:
        if repository.digest_of(record.digest) is None:
            yield f"{record.registry} no longer has {short(record.digest)}"
            return
        for tag in record.tags:
            digest = repository.digest_of(tag)
            if digest is None:
                yield f"tag `{tag}` is missing"
            elif digest != record.digest:
                yield f"tag `{tag}` points to {short(digest)}, not {short(record.digest)}"
            if not record.rollback and (day := release_day(tag)) and day.isoformat() != record.date:
                yield f"tag `{tag}` is of {day}"
        for artifact in record.artifacts:
            if repository.digest_of(Digest(artifact.digest)) is None:
                yield f"its {artifact.media_type}, {short(artifact.digest)}, is missing"
    except (RegistryError, OverdueError, PublishError) as error:
        yield f"could not query {record.registry}: {error}"


def require_all(verified: Sequence[Verified]) -> None:
    """Raise PublishError with a diagnostic for each difference."""
    diagnostics = [
        Diagnostic(
            f"`{result.record.image}` of {result.record.date}: {difference}",
            facts=(("image URI", result.record.image_uri),),
        )
        for result in verified
        for difference in result.missing
    ]
    if diagnostics:
        raise PublishError.of(*diagnostics)
