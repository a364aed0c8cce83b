"""Waits for Amazon ECR to replicate an image to another region, where a rule of the account does so."""

import time
from dataclasses import dataclass
from typing import Any

from bakehouse.errors import Diagnostic, PublishError, RegistryAuthError
from bakehouse.publish.tags import PublishedImage
from bakehouse.registry.ecr import EcrRegistry
from bakehouse.registry.manifest import short
from bakehouse.util.deadline import NEVER, OverdueError, bounded
from bakehouse.util.format import format_seconds
from bakehouse.util.terminal import Reporter


@dataclass(frozen=True, slots=True)
class Waiting:
    """Limits on waiting for AWS."""

    seconds: float = 1800.0
    pause: float = 5.0
    """Seconds between two questions."""
    until: float = NEVER
    """By time.monotonic(): when everything has to have ended."""

    def is_over(self, since: float) -> bool:
        now = time.monotonic()
        return now - since >= self.seconds or now >= self.until


def await_replica(
    source: EcrRegistry,
    target: EcrRegistry,
    published: PublishedImage,
    progress: Reporter,
    waiting: Waiting,
) -> bool:
    """Wait until an image is replicated to another region; return False where no rule applies.

    Raises PublishError where ECR failed to, or takes too long.
    """
    since = time.monotonic()
    try:
        if not bounded(lambda: _is_covered(source, target, published.repository), waiting.until):
            return False
        progress(f"{published.image}: waiting for Amazon ECR to replicate it to {target.region}")
        return _await(source, target, published, waiting, since)
    except OverdueError as error:
        raise _late(target, published, since) from error


def _await(
    source: EcrRegistry, target: EcrRegistry, published: PublishedImage, waiting: Waiting, since: float
) -> bool:
    while True:
        status = bounded(lambda: _status(source, target, published), waiting.until)
        match status.get("status"):
            case "COMPLETE":
                return True
            case "FAILED":
                facts = (("image", published.image_uri), ("code", str(status.get("failureCode", ""))))
                message = f"Amazon ECR could not replicate `{published.image}` to {target.region}"
                hint = "`aws ecr describe-registry` shows what is replicated; the region's own rights count"
                raise PublishError(Diagnostic(message, facts=facts, hint=hint))
            case None if published.was_there:
                # It is older than the rule: ECR replicates what is pushed from then on.
                return False
        if waiting.is_over(since):
            raise _late(target, published, since)
        time.sleep(waiting.pause)


def _late(target: EcrRegistry, published: PublishedImage, since: float) -> PublishError:
    message = (
        f"Amazon ECR has not replicated `{published.image}` to {target.region} "
        f"in {format_seconds(time.monotonic() - since)}"
    )
    facts = (("image", published.image_uri), ("digest", short(published.digest)))
    hint = "run the same command again later; published images stay"
    return PublishError(Diagnostic(message, facts=facts, hint=hint))


def _is_covered(source: EcrRegistry, target: EcrRegistry, repository: str) -> bool:
    """Whether a rule of the account carries a repository's images there."""
    try:
        with source.aws.translate_errors("read the registry's replication"):
            answer = source.api.describe_registry()
    except RegistryAuthError:
        # Who may push need not be let to read it.
        return False
    if source.account != answer["registryId"]:
        # Another account's rules can't be read.
        return False
    rules = answer["replicationConfiguration"].get("rules", ())
    return any(_carries(rule, source, target, repository) for rule in rules)


def _carries(rule: Any, source: EcrRegistry, target: EcrRegistry, repository: str) -> bool:
    prefixes = [one["filter"] for one in rule.get("repositoryFilters", ())]
    if prefixes and not any(repository.startswith(prefix) for prefix in prefixes):
        return False
    there = {(one["region"], one["registryId"]) for one in rule["destinations"]}
    return (target.region, target.account) in there


def _status(source: EcrRegistry, target: EcrRegistry, published: PublishedImage) -> dict[str, Any]:
    with source.aws.translate_errors(f"ask for the replication of `{published.image}`"):
        answer = source.api.describe_image_replication_status(
            repositoryName=published.repository,
            imageId={"imageDigest": published.digest},
            **source.owner,
        )
    for one in answer.get("replicationStatuses", ()):
        if one["region"] == target.region and one.get("registryId", target.account) == target.account:
            return dict(one)
    return {}
