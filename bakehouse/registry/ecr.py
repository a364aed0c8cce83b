"""Amazon ECR as a registry: its login, its repositories, with whatever credentials AWS is asked with."""

import base64
import threading
from collections.abc import Collection
from datetime import UTC
from functools import cached_property
from typing import Any

from bakehouse.catalog.registry_settings import Creation
from bakehouse.errors import Diagnostic, PublishError, Reason, RegistryAuthError
from bakehouse.registry import ecr_repository
from bakehouse.registry.ecr_endpoints import registry_host
from bakehouse.registry.lifecycle import expiring_rule
from bakehouse.registry.registry import Credentials
from bakehouse.util.aws import Access, Aws, summarize
from bakehouse.util.oci import ECR_HOST, Digest
from bakehouse.util.terminal import Reporter


class EcrRegistry:
    """A `Registry` in Amazon ECR; `host` and `region` are found out where they aren't given."""

    def __init__(
        self,
        *,
        host: str | None = None,
        region: str | None = None,
        account: str = "",
        access: Access | None = None,
        create: bool = False,
        creation: Creation | None = None,
    ) -> None:
        named = ECR_HOST.fullmatch(host or "")
        self._given_host = host
        self.aws = Aws(named["region"] if named else region, access)
        owner = named["account"] if named else account
        self.owner = {"registryId": owner} if owner else {}
        """What requests name another account by."""
        self._create = create
        self._creation = creation or Creation()
        self._token: Credentials | None = None
        self._logging_in = threading.Lock()

    @cached_property
    def host(self) -> str:
        if self._given_host:
            return self._given_host
        access = self.aws.access
        return registry_host(self.account, self.region, fips=access.fips, dual_stack=access.dual_stack)

    @property
    def region(self) -> str:
        return self.aws.region

    @property
    def account(self) -> str:
        """Whose registry it is."""
        return self.owner.get("registryId") or self.aws.identity["Account"]

    def credentials(self, *, renew: bool = False) -> Credentials:
        # What `expiresAt` promises is not relied on: a token is used until the registry refuses it.
        with self._logging_in:
            if self._token is None or renew:
                with self.aws.translate_errors("log in to Amazon ECR"):
                    answer = self.api.get_authorization_token()
                encoded = answer["authorizationData"][0]["authorizationToken"]
                username, _, password = base64.b64decode(encoded).decode().partition(":")
                self._token = Credentials(username, password)
            return self._token

    def make_repository(self, repository: str, alias: str) -> None:
        if not self._create:
            message = f"there is no repository `{repository}` in `{self.host}`"
            hint = "add `--create`, or ask whoever owns the account for it"
            raise PublishError(Diagnostic(message, hint=hint))
        ecr_repository.create(self.aws, self.api, self.owner, repository, alias, self._creation)

    def differences(self, repository: str, alias: str) -> tuple[Reason, ...]:
        """What a repository that is there has otherwise than the settings say; it is not changed."""
        return ecr_repository.differences(self.aws, self.api, self.owner, repository, alias, self._creation)

    def require_not_expiring(self, repository: str, tags: Collection[str], progress: Reporter) -> None:
        """Raise PublishError where a lifecycle rule of the repository would some day expire such an image.

        Where the rules can't be read, that is said: what was published is there all the same.
        """
        try:
            with self.aws.translate_errors(f"read the lifecycle policy of `{repository}`"):
                policy = self._policy(repository)
        except RegistryAuthError:
            # Who may push need not be let to read it.
            return
        except PublishError as error:
            if isinstance(error.__cause__, self.api.exceptions.LifecyclePolicyNotFoundException):
                return
            place = f"`{self.host}/{repository}`"
            words = summarize(error)
            progress(f"warning: could not read the lifecycle policy of {place}; not checked: {words}")
            return
        if rule := expiring_rule(policy, tags):
            message = f"`{self.host}/{repository}` would lose it: {rule}"
            hint = "limit the rule to untagged images: what the ledger holds has to stay"
            raise PublishError(Diagnostic(message, hint=hint))

    def _policy(self, repository: str) -> str:
        answer = self.api.get_lifecycle_policy(repositoryName=repository, **self.owner)
        return str(answer["lifecyclePolicyText"])

    def pushed(self, repository: str, digest: Digest) -> str:
        """When a digest was pushed; who did it is in another service's log."""
        with self.aws.translate_errors(f"describe the images of `{repository}`"):
            found = self.api.describe_images(
                repositoryName=repository, imageIds=[{"imageDigest": digest}], **self.owner
            )
        at = found["imageDetails"][0].get("imagePushedAt")
        return f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC, CloudTrail's PutImage tells by whom" if at else ""

    def principal(self) -> str:
        try:
            return self.aws.principal()
        except PublishError:
            # It is part of a refusal, which is told also where nobody can say who we are.
            return "the AWS session"

    def known_problems(self) -> tuple[Reason, ...]:
        return ()

    @cached_property
    def api(self) -> Any:
        return self.aws.client("ecr")
