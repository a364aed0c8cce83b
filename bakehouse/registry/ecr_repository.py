"""Repositories of Amazon ECR: creation, comparison with the settings, and lifecycle rules."""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from bakehouse.catalog.registry_settings import Creation
from bakehouse.errors import PublishError, Reason, RegistryAuthError
from bakehouse.util.aws import Aws

SIGNATURES = ("sha256-*.sig", "sha256-*.att", "sha256-*.sbom")
"""Tags that cosign moves with each signature, attestation and SBOM.

Together with the moving tag, these are four tag patterns. ECR allows five.
"""
_PULL = ("ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer")
_SID = "BakehousePull"
_KEEP_ALL = 10_000
"""A rule that keeps this many images exempts them from later rules; it expires none in practice."""


@dataclass(frozen=True, slots=True)
class EcrRepository:
    """One repository, with the settings that Bakehouse would create it with."""

    aws: Aws
    api: Any
    owner: Mapping[str, str]
    """`registryId` of the account, if it is not that of the credentials."""
    name: str
    moving_tag: str
    creation: Creation

    @property
    def _arguments(self) -> dict[str, str]:
        return {"repositoryName": self.name, **self.owner}

    def create(self) -> None:
        """Create the repository with immutable tags, except the moving tag and signatures.

        A repository that exists already is left unchanged.
        """
        creation = self.creation
        arguments: dict[str, Any] = {
            "imageTagMutability": "IMMUTABLE_WITH_EXCLUSION",
            "imageTagMutabilityExclusionFilters": [
                {"filterType": "WILDCARD", "filter": pattern} for pattern in (self.moving_tag, *SIGNATURES)
            ],
            "imageScanningConfiguration": {"scanOnPush": creation.scan_on_push},
            "tags": [{"Key": key, "Value": value} for key, value in sorted(creation.tags.items())],
        }
        if creation.encryption:
            arguments["encryptionConfiguration"] = _encryption(creation.encryption)
        with self.aws.translate_errors(f"create the repository `{self.name}`"):
            try:
                self.api.create_repository(**self._arguments, **arguments)
            except self.api.exceptions.RepositoryAlreadyExistsException:
                # Another push created it meanwhile.
                return
        if policy := lifecycle_policy(creation):
            with self.aws.translate_errors(f"set the lifecycle policy of `{self.name}`"):
                self.api.put_lifecycle_policy(**self._arguments, lifecyclePolicyText=policy)
        # Only ARNs of accounts need the partition, which costs a request.
        partition = str(self.aws.identity["Arn"]).split(":")[1] if creation.pull_accounts else "aws"
        if policy_document := pull_policy(creation, partition):
            with self.aws.translate_errors(f"let other accounts pull from `{self.name}`"):
                self.api.set_repository_policy(**self._arguments, policyText=json.dumps(policy_document))

    def differences(self) -> tuple[Reason, ...]:
        """Return which tags of an existing repository can move, or cannot; empty for a missing one."""
        try:
            with self.aws.translate_errors(f"describe the repository `{self.name}`"):
                response = self.api.describe_repositories(repositoryNames=[self.name], **self.owner)
        except RegistryAuthError:
            return ()
        except PublishError as error:
            if isinstance(error.__cause__, self.api.exceptions.RepositoryNotFoundException):
                return ()
            raise
        [description] = response["repositories"]
        return tuple(map(Reason, _mutability(description, self.moving_tag)))

    def expiring_rule(self, tags: Collection[str]) -> str:
        """Return the lifecycle rule that would expire an image with these tags; empty if none would."""
        with self.aws.translate_errors(f"read the lifecycle policy of `{self.name}`"):
            try:
                response = self.api.get_lifecycle_policy(**self._arguments)
            except self.api.exceptions.LifecyclePolicyNotFoundException:
                return ""
        return expiring_rule(str(response["lifecyclePolicyText"]), tags)


def lifecycle_policy(creation: Creation) -> str:
    """Return the lifecycle policy of a new repository; the default one expires only untagged images."""
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
    """Return the policy that lets accounts and an organization pull; empty if none are configured."""
    statements = []
    if creation.pull_accounts:
        accounts = [f"arn:{partition}:iam::{account}:root" for account in creation.pull_accounts]
        statements.append(_statement(_SID, {"AWS": accounts}))
    if creation.pull_organization:
        condition = {"StringEquals": {"aws:PrincipalOrgID": creation.pull_organization}}
        statements.append({**_statement(f"{_SID}Organization", "*"), "Condition": condition})
    return {"Version": "2012-10-17", "Statement": statements} if statements else {}


def _statement(sid: str, principal: object) -> dict[str, Any]:
    return {"Sid": sid, "Effect": "Allow", "Principal": principal, "Action": list(_PULL)}


def _encryption(setting: str) -> dict[str, str]:
    if setting in ("AES256", "KMS"):
        return {"encryptionType": setting}
    return {"encryptionType": "KMS", "kmsKey": setting}


def _mutability(description: Mapping[str, Any], moving_tag: str) -> Iterator[str]:
    """Release tags must be immutable; the moving tag and signatures must not."""
    mutability = str(description.get("imageTagMutability", "MUTABLE"))
    filters = description.get("imageTagMutabilityExclusionFilters", ())
    patterns = [exclusion["filter"] for exclusion in filters]
    release = f"{moving_tag}-20260101-00000000"
    if mutability == "MUTABLE" or (mutability == "MUTABLE_WITH_EXCLUSION" and not patterns):
        yield "its tags are mutable, so a push can move a release's tag"
        return
    if mutability == "MUTABLE_WITH_EXCLUSION":
        # Here the patterns select the immutable tags.
        if not _matches(patterns, release):
            yield "its tags are mutable, and no pattern of immutable tags matches releases"
        return
    if not _matches(patterns, moving_tag):
        yield f"its tags are immutable without an exception for `{moving_tag}`, so `--move-tag` fails"
    signature = f"sha256-{'0' * 64}"
    missing = [tag for tag in SIGNATURES if not _matches(patterns, tag.replace("sha256-*", signature))]
    if missing:
        names = ", ".join(f"`{tag}`" for tag in missing)
        yield f"its tags are immutable without an exception for {names}, so an image can be signed only once"
    if _matches(patterns, release):
        yield "an exception to its immutability matches releases, so their tags can be moved"


def _matches(patterns: Collection[str], tag: str) -> bool:
    return any(fnmatchcase(tag, pattern) for pattern in patterns)


def expiring_rule(policy: str, tags: Collection[str]) -> str:
    """Return the rule of a policy that would expire an image with these tags; empty if none would.

    The first rule that selects an image decides; ECR's later rules do not apply to it.
    """
    for rule in sorted(json.loads(policy)["rules"], key=lambda rule: int(rule["rulePriority"])):
        if _selects(rule["selection"], tags):
            return "" if _keeps_all(rule["selection"]) else _description(rule)
    return ""


def _selects(selection: Mapping[str, Any], tags: Collection[str]) -> bool:
    if selection["tagStatus"] == "any":
        return True
    if selection["tagStatus"] == "untagged":
        return not tags
    prefixes = [f"{prefix}*" for prefix in selection.get("tagPrefixList", ())]
    # Each pattern of a rule has to match a tag of the image.
    patterns = [*prefixes, *selection.get("tagPatternList", ())]
    return all(any(fnmatchcase(tag, pattern) for tag in tags) for pattern in patterns)


def _keeps_all(selection: Mapping[str, Any]) -> bool:
    return selection["countType"] == "imageCountMoreThan" and int(selection["countNumber"]) >= _KEEP_ALL


def _description(rule: Mapping[str, Any]) -> str:
    selection = rule["selection"]
    number = selection["countNumber"]
    if selection["countType"] == "imageCountMoreThan":
        when = f"all but the newest {number}"
    else:
        when = f"after {number} {selection.get('countUnit', 'days')}"
    described = f" ({rule['description']})" if rule.get("description") else ""
    return f"rule {rule['rulePriority']}{described} expires {selection['tagStatus']} images, {when}"
