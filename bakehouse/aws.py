"""A door to boto3: who we are in AWS, in which account and region, and what AWS answers in our words."""

import contextlib
import os
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from bakehouse.errors import Diagnostic, PublishError, Reason, RegistryAuthError

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
_WHO = "find out who we are in AWS"
_SESSION_NAME = "bakehouse"
"""What AWS's own log calls us; AWS_ROLE_SESSION_NAME gives another."""


@dataclass(frozen=True, slots=True)
class Access:
    """How AWS is reached; empty is what boto3 finds by itself."""

    profile: str = ""
    role: str = ""
    """The ARN of a role to assume."""
    fips: bool = False
    """Through endpoints with FIPS 140 modules."""
    dual_stack: bool = False
    """Through endpoints with IPv6."""


class Aws:
    """AWS in one region, with one identity."""

    def __init__(self, region: str | None, access: Access | None = None) -> None:
        self._given_region = region
        self.access = access or Access()
        self._asking = threading.RLock()

    @cached_property
    def region(self) -> str:
        if not self._own_session.region_name:
            hint = "set `region` in [tool.bakehouse], or AWS_DEFAULT_REGION"
            raise PublishError(Diagnostic("no AWS region is set", hint=hint))
        return str(self._own_session.region_name)

    @cached_property
    def identity(self) -> dict[str, str]:
        with self.told_as(_WHO):
            return dict(self.client("sts").get_caller_identity())

    def whom(self) -> str:
        """Whom AWS sees, as the subject of a sentence."""
        return _subject(self.identity["Arn"])

    def client(self, service: str) -> Any:
        # Sessions of boto3 are not made for threads, and several images may be pushed at once.
        with self._asking, self.told_as(f"reach AWS ({service})"):
            return self._session.client(service, region_name=self.region, config=self._config)

    @contextlib.contextmanager
    def told_as(self, doing: str) -> Iterator[None]:
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

    @cached_property
    def _own_session(self) -> "boto3.Session":
        import boto3

        with self.told_as("read the AWS configuration"):
            return boto3.Session(region_name=self._given_region, profile_name=self.access.profile or None)

    @cached_property
    def _session(self) -> "boto3.Session":
        """The session that asks: our own, or that of the role."""
        if not self.access.role:
            return self._own_session
        import boto3
        import botocore.session  # type: ignore[import-untyped]
        from botocore.credentials import (  # type: ignore[import-untyped]
            AssumeRoleCredentialFetcher,
            CredentialResolver,
        )

        role = self.access.role
        told = {"RoleSessionName": os.environ.get("AWS_ROLE_SESSION_NAME") or _SESSION_NAME}
        with self.told_as(f"read credentials for the role `{role}`"):
            own = self._own_session.get_credentials()
        if own is None:
            raise _no_credentials()

        def client_creator(service: str, **arguments: Any) -> Any:
            return self._own_session.client(
                service, region_name=self.region, config=self._config, **arguments
            )

        fetcher = AssumeRoleCredentialFetcher(client_creator, own, role, extra_args=told)
        session = botocore.session.get_session()
        session.register_component("credential_provider", CredentialResolver([_role_provider(fetcher)]))
        with self.told_as(f"assume the role `{role}`"):
            # Now, so that a refusal is told as one, and not as that of the first request.
            session.get_credentials().get_frozen_credentials()
        return boto3.Session(botocore_session=session, region_name=self.region)

    @cached_property
    def _config(self) -> Any:
        from botocore.config import Config  # type: ignore[import-untyped]

        # None leaves it to the environment and to ~/.aws.
        return Config(
            use_fips_endpoint=self.access.fips or None, use_dualstack_endpoint=self.access.dual_stack or None
        )

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
        reason = Reason(f"{self._denied_whom(doing)} is valid but {lacks}")
        hint = "use a role with that right; nothing was pushed"
        if doing.startswith("assume the role"):
            hint = "the role's trust policy has to name it too"
        return Diagnostic(f"not allowed to {doing}", reasons=(reason,), hint=hint)

    def _denied_whom(self, doing: str) -> str:
        # Whoever may do nothing at all may still ask who they are.
        if doing == _WHO:
            return "the AWS session"
        if doing.startswith("assume the role"):
            return Aws(self._given_region, Access(self.access.profile, "", self.access.fips)).whom()
        return self.whom()


def _role_provider(fetcher: Any) -> Any:
    """What gives boto3 a role's credentials, and new ones before they expire: a push may outlast them."""
    from botocore.credentials import (
        CredentialProvider,
        DeferredRefreshableCredentials,
    )

    class RoleProvider(CredentialProvider):  # type: ignore[misc]
        METHOD = "assume-role"

        def load(self) -> Any:
            return DeferredRefreshableCredentials(method=self.METHOD, refresh_using=fetcher.fetch_credentials)

    return RoleProvider()


def _subject(arn: str) -> str:
    kind, _, name = arn.rpartition(":")[2].partition("/")
    if kind == "assumed-role":
        role, _, session = name.partition("/")
        return f"the AWS session `{session}` (role {role})"
    return f"the AWS {kind} `{name}`" if name else f"the AWS account's {kind} user"


def _no_credentials() -> RegistryAuthError:
    reason = Reason("there are none in the environment, in ~/.aws, or from the machine's role")
    hint = "`aws configure sso` or AWS_PROFILE gives some"
    return RegistryAuthError(Diagnostic("no AWS credentials were found", reasons=(reason,), hint=hint))


def unready(doing: str, error: Any) -> PublishError:
    """What stood in the way before AWS could answer."""
    import botocore.exceptions as botocore

    if isinstance(error, botocore.NoCredentialsError):
        return _no_credentials()
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
