"""Amazon ECR as a registry: login, and its repositories."""

import base64
import threading
from collections.abc import Collection
from datetime import UTC
from functools import cached_property
from pathlib import Path
from typing import Any

from bakehouse.catalog.registry_settings import Creation
from bakehouse.errors import PublishError, Reason, RegistryAuthError
from bakehouse.fetch.http_client import HttpClient
from bakehouse.registry.ecr_endpoints import registry_host
from bakehouse.registry.ecr_repository import EcrRepository
from bakehouse.registry.registry import Credentials, open_client
from bakehouse.util.aws import Access, Aws, summarize
from bakehouse.util.oci import ECR_HOST, Digest
from bakehouse.util.terminal import Reporter


class EcrRegistry:
    """`Registry` in Amazon ECR; `host` and `region` default to those of the AWS session."""

    def __init__(
        self,
        *,
        host: str | None = None,
        region: str | None = None,
        account: str = "",
        access: Access | None = None,
        create: bool = False,
        creation: Creation | None = None,
        ca: Path | None = None,
    ) -> None:
        parts = ECR_HOST.fullmatch(host or "")
        self._given_host = host
        self.aws = Aws(parts["region"] if parts else region, access)
        owner = parts["account"] if parts else account
        self.owner = {"registryId": owner} if owner else {}
        """Argument of requests that selects the account."""
        self._create = create
        self._creation = creation or Creation()
        self._ca = ca
        self._token: Credentials | None = None
        self._login_lock = threading.Lock()

    @cached_property
    def host(self) -> str:
        if self._given_host:
            return self._given_host
        access = self.aws.access
        return registry_host(self.account, self.region, fips=access.fips, dual_stack=access.dual_stack)

    @cached_property
    def client(self) -> HttpClient:
        return open_client(self.host, self._ca)

    @property
    def region(self) -> str:
        return self.aws.region

    @property
    def account(self) -> str:
        """Id of the account that owns the registry."""
        return self.owner.get("registryId") or self.aws.identity["Account"]

    def credentials(self, *, renew: bool = False) -> Credentials:
        # A token is used until the registry rejects it, because `expiresAt` is not reliable.
        with self._login_lock:
            if self._token is None or renew:
                with self.aws.translate_errors("log in to Amazon ECR"):
                    response = self.api.get_authorization_token()
                encoded = response["authorizationData"][0]["authorizationToken"]
                username, _, password = base64.b64decode(encoded).decode().partition(":")
                self._token = Credentials(username, password)
            return self._token

    def create_repository(self, repository: str, moving_tag: str) -> None:
        if not self._create:
            raise PublishError(
                f"there is no repository `{repository}` in `{self.host}`",
                hint="add `--create`, or ask the owner of the account to create it",
            )
        self._repository(repository, moving_tag).create()

    def differences(self, repository: str, moving_tag: str) -> tuple[Reason, ...]:
        """Return how an existing repository differs from the settings; it is not changed."""
        return self._repository(repository, moving_tag).differences()

    def require_not_expiring(self, repository: str, tags: Collection[str], progress: Reporter) -> None:
        """Raise PublishError if a lifecycle rule of the repository would expire an image with these tags.

        Without permission to read the policy, the check is skipped. If reading fails otherwise, print a
        warning, because the image is published anyway.
        """
        name = f"`{self.host}/{repository}`"
        try:
            rule = self._repository(repository).expiring_rule(tags)
        except RegistryAuthError:
            return
        except PublishError as error:
            reason = summarize(error)
            progress(f"warning: could not read the lifecycle policy of {name}; not checked: {reason}")
            return
        if rule:
            raise PublishError(
                f"{name} would expire the image: {rule}",
                hint="limit the rule to untagged images, because recorded images must stay",
            )

    def _repository(self, name: str, moving_tag: str = "") -> EcrRepository:
        return EcrRepository(self.aws, self.api, self.owner, name, moving_tag, self._creation)

    def pushed(self, repository: str, digest: Digest) -> str:
        """Return when a digest was pushed; the log of CloudTrail has the identity."""
        with self.aws.translate_errors(f"describe the images of `{repository}`"):
            response = self.api.describe_images(
                repositoryName=repository, imageIds=[{"imageDigest": digest}], **self.owner
            )
        time = response["imageDetails"][0].get("imagePushedAt")
        return (
            f"{time.astimezone(UTC):%Y-%m-%d %H:%M} UTC; CloudTrail's PutImage names the user" if time else ""
        )

    def principal(self) -> str:
        try:
            return self.aws.principal()
        except PublishError:
            # It is part of an error message, which is printed even if STS does not respond.
            return "the AWS session"

    def known_problems(self) -> tuple[Reason, ...]:
        return ()

    @cached_property
    def api(self) -> Any:
        return self.aws.client("ecr")
