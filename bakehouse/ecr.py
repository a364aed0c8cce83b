"""The only door to boto3: Amazon ECR as a registry, with whatever credentials boto3 finds by itself."""

import base64
import contextlib
import re
from collections.abc import Collection, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from bakehouse.errors import Diagnostic, PublishError, Reason, RegistryAuthError
from bakehouse.lifecycle import expiring_rule
from bakehouse.registry import ECR_HOST, Credentials

if TYPE_CHECKING:
    import boto3  # type: ignore[import-untyped]

_EXPIRED = {"ExpiredToken", "ExpiredTokenException", "RequestExpired"}
_NOT_ACCEPTED = {
    *("InvalidClientTokenId", "UnrecognizedClientException", "SignatureDoesNotMatch", "AuthFailure"),
    *("InvalidSignatureException", "InvalidAccessKeyId", "IncompleteSignature", "MissingAuthenticationToken"),
    *("MissingAuthenticationTokenException", "IncompleteSignatureException"),
}
_DENIED = {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "NotAuthorized"}
_ACTION = re.compile(r"not authorized to perform: ([a-zA-Z0-9-]+:[a-zA-Z0-9]+)")


def is_ecr(host: str) -> bool:
    """Whether a registry's address is one of Amazon ECR's."""
    return ECR_HOST.fullmatch(host) is not None


def registry_host(account: str, region: str) -> str:
    """The address of an account's registry: its ending is that of the region's partition."""
    import botocore.session  # type: ignore[import-untyped]

    known = botocore.session.get_session().get_data("partitions")["partitions"]
    for partition in known:
        if region in partition["regions"] or re.fullmatch(partition["regionRegex"], region):
            return f"{account}.dkr.ecr.{region}.{partition['outputs']['dnsSuffix']}"
    message = f"there is no AWS region `{region}`"
    raise PublishError(Diagnostic(message, hint="name one as in `eu-west-1`"))


class EcrRegistry:
    """A `Registry` in Amazon ECR; `host` and `region` are found out where they aren't given."""

    def __init__(self, *, host: str | None = None, region: str | None = None, create: bool = False) -> None:
        named = ECR_HOST.fullmatch(host or "")
        self._given_host = host
        self._given_region = named["region"] if named else region
        self._owner = {"registryId": named["account"]} if named else {}
        self._create = create
        self._token: Credentials | None = None

    @cached_property
    def host(self) -> str:
        return self._given_host or registry_host(self._identity["Account"], self._region)

    def credentials(self, *, renew: bool = False) -> Credentials:
        # What `expiresAt` promises is not relied on: a token is used until the registry refuses it.
        if self._token is None or renew:
            with self._told_as("log in to Amazon ECR"):
                answer = self._client("ecr").get_authorization_token()
            encoded = answer["authorizationData"][0]["authorizationToken"]
            username, _, password = base64.b64decode(encoded).decode().partition(":")
            self._token = Credentials(username, password)
        return self._token

    def make_repository(self, repository: str, alias: str) -> None:
        if not self._create:
            message = f"there is no repository `{repository}` in `{self.host}`"
            hint = "add `--create`, or ask whoever owns the account for it"
            raise PublishError(Diagnostic(message, hint=hint))
        arguments: dict[str, Any] = {
            "repositoryName": repository,
            "imageTagMutability": "IMMUTABLE_WITH_EXCLUSION",
            "imageTagMutabilityExclusionFilters": [{"filterType": "WILDCARD", "filter": alias}],
        }
        client = self._client("ecr")
        with (
            self._told_as(f"create the repository `{repository}`"),
            contextlib.suppress(client.exceptions.RepositoryAlreadyExistsException),
        ):
            client.create_repository(**arguments, **self._owner)

    def require_kept(self, repository: str, tags: Collection[str]) -> None:
        """Raise PublishError where a lifecycle rule of the repository would some day expire such an image."""
        client = self._client("ecr")
        try:
            with self._told_as(f"read the lifecycle policy of `{repository}`"):
                policy = self._policy(client, repository)
        except RegistryAuthError:
            # Who may push need not be let to read it.
            return
        except PublishError as error:
            if isinstance(error.__cause__, client.exceptions.LifecyclePolicyNotFoundException):
                return
            raise
        if rule := expiring_rule(policy, tags):
            message = f"`{self.host}/{repository}` would lose it: {rule}"
            hint = "limit the rule to untagged images: what the ledger holds has to stay"
            raise PublishError(Diagnostic(message, hint=hint))

    def _policy(self, client: Any, repository: str) -> str:
        answer = client.get_lifecycle_policy(repositoryName=repository, **self._owner)
        return str(answer["lifecyclePolicyText"])

    def whom(self) -> str:
        arn = str(self._identity["Arn"])
        kind, _, name = arn.rpartition(":")[2].partition("/")
        if kind == "assumed-role":
            role, _, session = name.partition("/")
            return f"the AWS session `{session}` (role {role})"
        return f"the AWS {kind} `{name}`" if name else f"the AWS account's {kind} user"

    def troubles(self) -> tuple[Reason, ...]:
        return ()

    @cached_property
    def _session(self) -> "boto3.Session":
        import boto3

        with self._told_as("read the AWS configuration"):
            return boto3.Session(region_name=self._given_region)

    @cached_property
    def _region(self) -> str:
        if not self._session.region_name:
            hint = "set `region` in [tool.bakehouse], or AWS_DEFAULT_REGION"
            raise PublishError(Diagnostic("no AWS region is set", hint=hint))
        return str(self._session.region_name)

    @cached_property
    def _identity(self) -> dict[str, str]:
        with self._told_as("find out who we are in AWS"):
            return dict(self._client("sts").get_caller_identity())

    def _client(self, service: str) -> Any:
        with self._told_as(f"reach AWS ({service})"):
            return self._session.client(service, region_name=self._region)

    @contextlib.contextmanager
    def _told_as(self, doing: str) -> Iterator[None]:
        """Turn boto3's exceptions into ours; the words of a refused signature are never repeated."""
        from botocore.exceptions import (  # type: ignore[import-untyped]
            BotoCoreError,
            ClientError,
        )

        try:
            yield
        except ClientError as error:
            raise self._refused(doing, error.response["Error"]) from error
        except BotoCoreError as error:
            raise unready(doing, error) from error

    def _refused(self, doing: str, answer: Any) -> PublishError:
        code, text = str(answer.get("Code", "")), str(answer.get("Message", ""))
        if code in _EXPIRED:
            hint = "get new credentials (`aws sso login`, or your CI's own way), then repeat the command"
            return RegistryAuthError(Diagnostic("the AWS session has expired", hint=hint))
        if code in _NOT_ACCEPTED:
            reason = Reason(f"it answered `{code}`")
            hint = "`aws sts get-caller-identity` shows which credentials are used"
            message = "AWS does not know these credentials"
            return RegistryAuthError(Diagnostic(message, reasons=(reason,), hint=hint))
        if code in _DENIED:
            return RegistryAuthError(self._denied(doing, text))
        return PublishError(Diagnostic(f"could not {doing}", facts=(("answer", f"{code}: {text}"),)))

    def _denied(self, doing: str, text: str) -> Diagnostic:
        action = _ACTION.search(text)
        lacks = f"lacks {action[1]}" if action else "may not"
        # Whoever may do nothing at all may still ask who they are.
        who = self.whom() if doing != "find out who we are in AWS" else "the AWS session"
        reason = Reason(f"{who} is valid but {lacks}")
        hint = "use a role with that right; nothing was pushed"
        return Diagnostic(f"not allowed to {doing}", reasons=(reason,), hint=hint)


def unready(doing: str, error: Any) -> PublishError:
    """What stood in the way before AWS could answer."""
    import botocore.exceptions as botocore

    if isinstance(error, botocore.NoCredentialsError):
        reason = Reason("there are none in the environment, in ~/.aws, or from the machine's role")
        hint = "`aws configure sso` or AWS_PROFILE gives some"
        return RegistryAuthError(Diagnostic("no AWS credentials were found", reasons=(reason,), hint=hint))
    if isinstance(error, botocore.PartialCredentialsError):
        lacking = error.kwargs.get("cred_var", "a part")
        return RegistryAuthError(Diagnostic(f"the AWS credentials are incomplete: `{lacking}` is missing"))
    if isinstance(error, botocore.ProfileNotFound):
        message = f"there is no AWS profile `{error.kwargs.get('profile', '')}`"
        hint = "AWS_PROFILE names one of `aws configure list-profiles`"
        return RegistryAuthError(Diagnostic(message, hint=hint))
    expired = (botocore.UnauthorizedSSOTokenError, botocore.SSOTokenLoadError, botocore.TokenRetrievalError)
    if isinstance(error, expired):
        return RegistryAuthError(Diagnostic("the AWS SSO session has expired", hint="`aws sso login`"))
    if isinstance(error, botocore.CredentialRetrievalError):
        provider = error.kwargs.get("provider", "their source")
        return RegistryAuthError(Diagnostic(f"AWS credentials could not be had from `{provider}`"))
    if isinstance(error, (botocore.HTTPClientError, botocore.ConnectionError)):
        address = str(error.kwargs.get("endpoint_url", ""))
        facts = (("address", address),) if address else ()
        return PublishError(Diagnostic(f"could not {doing}: AWS does not answer", facts=facts))
    return PublishError(Diagnostic(f"could not {doing}", facts=(("because", type(error).__name__),)))
