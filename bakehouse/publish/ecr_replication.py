"""Waits for Amazon ECR to replicate an image to another region, if a rule of the account does so."""

import time
from dataclasses import dataclass
from typing import Any

from bakehouse.errors import PublishError, RegistryAuthError
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
    """Seconds between two requests."""
    until: float = NEVER
    """Deadline by time.monotonic()."""

    def is_over(self, since: float) -> bool:
        now = time.monotonic()
        return now - since >= self.seconds or now >= self.until


def await_replica(
    source: EcrRegistry,
    target: EcrRegistry,
    published: PublishedImage,
    progress: Reporter,
    waiting: Waiting,
) -> None:
    """Wait until an image is replicated to another region; return at once if no rule applies.

    Raises PublishError if the replication fails or takes too long.
    """
    since = time.monotonic()
    try:
        if bounded(lambda: _is_covered(source, target, published.repository), waiting.until):
            progress(f"{published.image}: waiting for Amazon ECR to replicate it to {target.region}")
            _await(source, target, published, waiting, since)
    except OverdueError as error:
        raise _late(target, published, since) from error


def _await(
    source: EcrRegistry, target: EcrRegistry, published: PublishedImage, waiting: Waiting, since: float
) -> None:
    while True:
        status = bounded(lambda: _status(source, target, published), waiting.until)
        match status.get("status"):
            case "COMPLETE":
                return
            case "FAILED":
                facts = (("image", published.image_uri), ("code", str(status.get("failureCode", ""))))
                raise PublishError(
                    f"Amazon ECR could not replicate `{published.image}` to {target.region}",
                    facts=facts,
                    hint="run `aws ecr describe-registry`, "
                    "and check the rules and the permissions of the region",
                )
            case None if published.was_there:
                # The image is older than the rule. ECR replicates only later pushes.
                return
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
    return PublishError(message, facts=facts, hint=hint)


def _is_covered(source: EcrRegistry, target: EcrRegistry, repository: str) -> bool:
    """Return whether a rule of the account replicates a repository to the target."""
    try:
        with source.aws.translate_errors("read the registry's replication"):
            response = source.api.describe_registry()
    except RegistryAuthError:
        # Permission to push does not include reading the rules.
        return False
    if source.account != response["registryId"]:
        # Rules of another account cannot be read.
        return False
    rules = response["replicationConfiguration"].get("rules", ())
    return any(_applies(rule, target, repository) for rule in rules)


def _applies(rule: Any, target: EcrRegistry, repository: str) -> bool:
    prefixes = [selection["filter"] for selection in rule.get("repositoryFilters", ())]
    if prefixes and not any(repository.startswith(prefix) for prefix in prefixes):
        return False
    destinations = {(registry["region"], registry["registryId"]) for registry in rule["destinations"]}
    return (target.region, target.account) in destinations


def _status(source: EcrRegistry, target: EcrRegistry, published: PublishedImage) -> dict[str, Any]:
    with source.aws.translate_errors(f"read the replication status of `{published.image}`"):
        response = source.api.describe_image_replication_status(
            repositoryName=published.repository,
            imageId={"imageDigest": published.digest},
            **source.owner,
        )
    for status in response.get("replicationStatuses", ()):
        if status["region"] == target.region and status.get("registryId", target.account) == target.account:
            return dict(status)
    return {}
