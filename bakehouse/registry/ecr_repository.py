"""Makes repositories of Amazon ECR as the settings want them, and tells where one that is there differs."""

import json
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from bakehouse.catalog.registry_settings import Creation
from bakehouse.errors import PublishError, Reason, RegistryAuthError
from bakehouse.util.aws import Aws

SIGNATURES = ("sha256-*.sig", "sha256-*.att", "sha256-*.sbom")
"""The tags that cosign sets anew with each signature, attestation and SBOM: they have to be free to move.

With the alias they are four filters, and ECR takes five.
"""
_PULL = ("ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer")
_SID = "BakehousePull"


def create(
    aws: Aws, api: Any, owner: Mapping[str, str], repository: str, alias: str, creation: Creation
) -> None:
    """Make a repository whose tags are immutable but for the alias and signatures; others are left alone."""
    where = {"repositoryName": repository, **owner}
    arguments: dict[str, Any] = {
        "imageTagMutability": "IMMUTABLE_WITH_EXCLUSION",
        "imageTagMutabilityExclusionFilters": [
            {"filterType": "WILDCARD", "filter": pattern} for pattern in (alias, *SIGNATURES)
        ],
        "imageScanningConfiguration": {"scanOnPush": creation.scan_on_push},
        "tags": [{"Key": key, "Value": value} for key, value in sorted(creation.tags.items())],
    }
    if creation.encryption:
        arguments["encryptionConfiguration"] = _encryption(creation.encryption)
    with aws.translate_errors(f"create the repository `{repository}`"):
        try:
            api.create_repository(**where, **arguments)
        except api.exceptions.RepositoryAlreadyExistsException:
            # Another pusher made it meanwhile.
            return
    if policy := lifecycle_policy(creation):
        with aws.translate_errors(f"set the lifecycle policy of `{repository}`"):
            api.put_lifecycle_policy(**where, lifecyclePolicyText=policy)
    # Whose ARNs are named is asked only where some are.
    partition = _partition(aws) if creation.pull_accounts else "aws"
    if statements := pull_policy(creation, partition):
        with aws.translate_errors(f"let other accounts pull from `{repository}`"):
            api.set_repository_policy(**where, policyText=json.dumps(statements))


def differences(
    aws: Aws, api: Any, owner: Mapping[str, str], repository: str, alias: str, creation: Creation
) -> tuple[Reason, ...]:
    """What a repository has otherwise than it would be made; nothing is changed.

    What may not be read is left out. Nothing where there is no such repository yet.
    """
    where = {"registryId": owner["registryId"]} if owner else {}
    try:
        with aws.translate_errors(f"look at the repository `{repository}`"):
            [found] = api.describe_repositories(repositoryNames=[repository], **where)["repositories"]
    except RegistryAuthError:
        return ()
    except PublishError as error:
        if isinstance(error.__cause__, api.exceptions.RepositoryNotFoundException):
            return ()
        raise
    told = [*_tags(found, alias), *_settings(found, creation)]
    if creation.tags:
        told += _resource_tags(aws, api, found, creation)
    if wanted := lifecycle_policy(creation):
        told += _lifecycle(aws, api, {"repositoryName": repository, **owner}, wanted)
    if creation.pull_accounts or creation.pull_organization:
        told += _policies(aws, api, {"repositoryName": repository, **owner}, creation)
    return tuple(Reason(one) for one in told)


def lifecycle_policy(creation: Creation) -> str:
    """The policy that a repository gets, for images without tags alone: what the ledger holds has some."""
    if creation.lifecycle:
        return creation.lifecycle.read_text(encoding="utf-8")
    if not creation.untagged_days:
        return ""
    selection = {
        "tagStatus": "untagged",
        "countType": "sinceImagePushed",
        "countUnit": "days",
        "countNumber": creation.untagged_days,
    }
    rule = {
        "rulePriority": 1,
        "description": "images without a tag",
        "selection": selection,
        "action": {"type": "expire"},
    }
    return json.dumps({"rules": [rule]})


def pull_policy(creation: Creation, partition: str = "aws") -> dict[str, Any]:
    """The policy that lets accounts, and those of an organisation, pull; empty where nobody else is to."""
    statements = []
    if creation.pull_accounts:
        accounts = [f"arn:{partition}:iam::{account}:root" for account in creation.pull_accounts]
        statements.append(_statement(_SID, {"AWS": accounts}))
    if creation.pull_organization:
        only = {"StringEquals": {"aws:PrincipalOrgID": creation.pull_organization}}
        statements.append({**_statement(f"{_SID}Organization", "*"), "Condition": only})
    return {"Version": "2012-10-17", "Statement": statements} if statements else {}


def _statement(sid: str, principal: object) -> dict[str, Any]:
    return {"Sid": sid, "Effect": "Allow", "Principal": principal, "Action": list(_PULL)}


def _encryption(wanted: str) -> dict[str, str]:
    if wanted in ("AES256", "KMS"):
        return {"encryptionType": wanted}
    return {"encryptionType": "KMS", "kmsKey": wanted}


def _partition(aws: Aws) -> str:
    return str(aws.identity["Arn"]).split(":")[1]


def _tags(found: Mapping[str, Any], alias: str) -> Iterator[str]:
    """What is said of tags: release tags have to stay, the alias and signatures have to be free to move."""
    mutability = str(found.get("imageTagMutability", "MUTABLE"))
    patterns = [one["filter"] for one in found.get("imageTagMutabilityExclusionFilters", ())]
    if mutability == "MUTABLE" or (mutability == "MUTABLE_WITH_EXCLUSION" and not patterns):
        yield "its tags are not immutable: whoever may push can move a release's tag"
        return
    if mutability == "MUTABLE_WITH_EXCLUSION":
        # There the patterns are of tags that stay.
        if not any(fnmatchcase(f"{alias}-20260101-00000000", pattern) for pattern in patterns):
            yield "its tags are not immutable: no pattern of its exceptions is for releases"
        return
    if not any(fnmatchcase(alias, pattern) for pattern in patterns):
        yield f"its tags are immutable without an exception for `{alias}`: `--alias` can't move it"
    signature = f"sha256-{'0' * 64}"
    lacking = [one for one in SIGNATURES if not _excepts(patterns, one.replace("sha256-*", signature))]
    if lacking:
        names = ", ".join(f"`{one}`" for one in lacking)
        yield f"its tags are immutable without an exception for {names}: an image can be signed once"
    if any(fnmatchcase(f"{alias}-20260101-00000000", pattern) for pattern in patterns):
        yield "an exception to its immutability is for releases too: their tags can be moved"


def _excepts(patterns: list[str], tag: str) -> bool:
    return any(fnmatchcase(tag, pattern) for pattern in patterns)


def _settings(found: Mapping[str, Any], creation: Creation) -> Iterator[str]:
    scans = bool(found.get("imageScanningConfiguration", {}).get("scanOnPush"))
    if creation.scan_on_push and not scans:
        yield "it does not scan on push, as `scan_on_push` wants"
    has = found.get("encryptionConfiguration", {})
    wanted = _encryption(creation.encryption) if creation.encryption else {}
    if wanted and (
        has.get("encryptionType", "AES256") != wanted["encryptionType"]
        or wanted.get("kmsKey") not in (None, has.get("kmsKey"))
    ):
        what = has.get("kmsKey") or has.get("encryptionType", "AES256")
        yield f"it is encrypted with {what}, which can't be changed, not with {creation.encryption}"


def _resource_tags(aws: Aws, api: Any, found: Mapping[str, Any], creation: Creation) -> Iterator[str]:
    try:
        with aws.translate_errors("read the tags of the repository"):
            tags = api.list_tags_for_resource(resourceArn=found["repositoryArn"])["tags"]
    except RegistryAuthError:
        return
    has = {one["Key"]: one["Value"] for one in tags}
    for key, value in sorted(creation.tags.items()):
        if has.get(key) != value:
            what = f"is `{has[key]}`" if key in has else "is missing"
            yield f"its tag `{key}` {what}, not `{value}`"


def _lifecycle(aws: Aws, api: Any, where: Mapping[str, str], wanted: str) -> Iterator[str]:
    try:
        with aws.translate_errors("read the repository's lifecycle policy"):
            has = api.get_lifecycle_policy(**where)["lifecyclePolicyText"]
    except RegistryAuthError:
        return
    except PublishError as error:
        if not isinstance(error.__cause__, api.exceptions.LifecyclePolicyNotFoundException):
            raise
        yield "it has no lifecycle policy, as `untagged_days` or `lifecycle` wants"
        return
    if json.loads(has) != json.loads(wanted):
        yield "its lifecycle policy is another than `untagged_days` or `lifecycle` wants"


def _policies(aws: Aws, api: Any, where: Mapping[str, str], creation: Creation) -> Iterator[str]:
    """The accounts that may not pull, as far as the policy tells; conditions are taken at their word."""
    try:
        with aws.translate_errors("read the repository's policy"):
            text = api.get_repository_policy(**where)["policyText"]
    except RegistryAuthError:
        return
    except PublishError as error:
        if not isinstance(error.__cause__, api.exceptions.RepositoryPolicyNotFoundException):
            raise
        text = ""
    for account in creation.pull_accounts:
        if account not in text:
            yield f"its policy does not name the account {account}, which is to pull"
    if creation.pull_organization and creation.pull_organization not in text:
        yield f"its policy does not name the organisation {creation.pull_organization}, which is to pull"
