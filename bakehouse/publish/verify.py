"""Compares ledger records with their registries: digests, tags and attachments."""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from bakehouse.errors import Diagnostic, PublishError
from bakehouse.publish.releases import ReleaseRecord
from bakehouse.registry.client import Repository, RetryPolicy
from bakehouse.registry.http_errors import RegistryError
from bakehouse.registry.manifest import short
from bakehouse.registry.registry import DeadlineRegistry, Registry
from bakehouse.util.deadline import OverdueError
from bakehouse.util.oci import Digest

_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Verified:
    """Comparison of one record with its registry."""

    record: ReleaseRecord
    missing: tuple[str, ...]
    """Differences from the ledger, as clauses."""


def verify(
    records: Sequence[ReleaseRecord], registry_of: Callable[[str], Registry], retry_policy: RetryPolicy
) -> tuple[Verified, ...]:
    """Look up the manifest, tags and attachments of each record in each region.

    Only headers are downloaded, where a registry puts digests into them.
    """
    records = [one for record in records for one in record.places]
    hosts = dict.fromkeys(record.registry for record in records)
    registries = {host: DeadlineRegistry(registry_of(host), retry_policy.until) for host in hosts}
    for registry in registries.values():
        # Once, before threads would: boto3's sessions are not made for those. Each record tells a failure.
        with contextlib.suppress(PublishError, OverdueError):
            registry.credentials()

    def ask(record: ReleaseRecord) -> Verified:
        repository = Repository(registries[record.registry], record.repository, retry_policy)
        return Verified(record, tuple(_missing(repository, record)))

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return tuple(pool.map(ask, records))


def _missing(repository: Repository, record: ReleaseRecord) -> Iterable[str]:
    try:
        if repository.digest_of(record.digest) is None:
            yield f"{record.registry} no longer has {short(record.digest)}"
            return
        for tag in record.tags:
            found = repository.digest_of(tag)
            if found is None:
                yield f"tag `{tag}` is missing"
            elif found != record.digest:
                yield f"tag `{tag}` points to {short(found)}, not {short(record.digest)}"
        for one in record.artifacts:
            if repository.digest_of(Digest(one.digest)) is None:
                yield f"its {one.media_type}, {short(one.digest)}, is missing"
    except (RegistryError, OverdueError, PublishError) as error:
        yield f"could not ask {record.registry}: {error}"


def require_all(verified: Sequence[Verified]) -> None:
    """Raise PublishError with a diagnostic for each difference."""
    wrong = [_told(one.record, why) for one in verified for why in one.missing]
    if wrong:
        raise PublishError(*wrong)


def _told(record: ReleaseRecord, why: str) -> Diagnostic:
    return Diagnostic(f"`{record.image}` of {record.date}: {why}", facts=(("address", record.image_uri),))
