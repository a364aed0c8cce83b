"""AWS through boto3: identity, region, clients, and boto3's exceptions as diagnostics."""

import contextlib
import json
import os
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache, cached_property
from importlib import resources
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from bakehouse.errors import Diagnostic, PublishError, Reason, RegistryAuthError
from bakehouse.util.format import format_bytes
from bakehouse.util.suggest import nearest

if TYPE_CHECKING:
    import boto3  # type: ignore[import-untyped]

_IDENTIFY = "determine the AWS identity"
_ASSUME = "assume the role "
_UNNAMED = "the AWS session"
_SESSION_NAME = "bakehouse"
"""Default name of the session in CloudTrail; AWS_ROLE_SESSION_NAME replaces it."""

_CHUNK_BYTES = 1 << 20
_EXPIRED = {"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"}
_NOT_ACCEPTED = {
    *("InvalidClientTokenId", "UnrecognizedClientException", "SignatureDoesNotMatch", "AuthFailure"),
    *("InvalidSignatureException", "InvalidAccessKeyId", "IncompleteSignature", "MissingAuthenticationToken"),
    *("MissingAuthenticationTokenException", "IncompleteSignatureException", "InvalidToken"),
}
_DENIED = {
    *("AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "NotAuthorized", "AllAccessDisabled"),
    # A HEAD response has no body with an error code.
    "403",
}
_BUSY = {
    *("Throttling", "ThrottlingException", "ThrottledException", "RequestLimitExceeded", "SlowDown"),
    *("TooManyRequestsException", "RequestThrottled", "InternalFailure", "InternalError"),
    *("InternalServerError", "ServiceUnavailable", "ServiceUnavailableException"),
}
_NOT_FOUND = {"ResourceNotFoundException", "ResourceNotFound", "NoSuchBucket", "NoSuchKey", "404"}
_OTHER_REGION = {"PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"}
"""Answers of S3 for a bucket in another region, if boto3 cannot determine the region."""
_REGION_IN_HOST = re.compile(r"\.([a-z]+(?:-[a-z]+)+-\d+)\.(?:[a-z]+\.)?(?:amazonaws|api\.aws)\b")
_VALUE = re.compile(r", value: .*?(?=, (?:type|valid)\b|$)")
_TOKEN = re.compile(r"[A-Za-z0-9+/=_%-]{100,}")
"""A session token, which a proxy or a signature error may repeat."""
_ACTION = re.compile(r"not authorized to perform: ([a-zA-Z0-9-]+:[a-zA-Z0-9]+)")


class AwsFault(Enum):
    """Kind of a failed request to AWS; the value describes it as a clause."""

    BUSY = "AWS is busy"
    UNREACHABLE = "AWS does not answer"
    UNAUTHENTICATED = "AWS credentials are missing or not accepted"
    DENIED = "the credentials lack a permission"
    NOT_FOUND = "it does not exist"
    REJECTED = "AWS rejected the request"


class AwsError(Exception):
    """Failed request to AWS, or one that boto3 could not send."""

    def __init__(self, fault: AwsFault, diagnostic: Diagnostic, code: str = "") -> None:
        super().__init__(diagnostic.message)
        self.fault = fault
        self.diagnostic = diagnostic
        self.code = code
        """Error code of AWS; empty if AWS did not answer."""

    def as_publish_error(self, diagnostic: Diagnostic | None = None) -> PublishError:
        """Return the error as `push` reports it, with its own exit code for credentials."""
        is_auth = self.fault in (AwsFault.UNAUTHENTICATED, AwsFault.DENIED)
        return (RegistryAuthError if is_auth else PublishError).of(diagnostic or self.diagnostic)


@dataclass(frozen=True, slots=True)
class Access:
    """Credentials and endpoints for AWS; empty fields leave the choice to boto3."""

    profile: str = ""
    role: str = ""
    """ARN of a role to assume."""
    fips: bool = False
    """Use endpoints with FIPS 140 modules."""
    dual_stack: bool = False
    """Use endpoints with IPv6."""


def object_content(response: Any, max_bytes: int = 16_000_000) -> bytes:
    """Return the content of an object of S3. Raises AwsError if it is larger."""
    content = bytearray()
    # The last read, which is empty, checks the length.
    while chunk := response["Body"].read(_CHUNK_BYTES):
        content += chunk
        if len(content) > max_bytes:
            raise AwsError(
                AwsFault.REJECTED, Diagnostic(f"the object has more than {format_bytes(max_bytes)}")
            )
    return bytes(content)


class Aws:
    """One AWS region with one identity."""

    def __init__(self, region: str | None, access: Access | None = None) -> None:
        self._given_region = region
        self.access = access or Access()
        self._lock = threading.RLock()

    @cached_property
    def region(self) -> str:
        if not self._own_session.region_name:
            raise PublishError(
                "no AWS region is set", hint="set `region` in [tool.bakehouse], or AWS_DEFAULT_REGION"
            )
        return str(self._own_session.region_name)

    @cached_property
    def identity(self) -> dict[str, str]:
        with self.translate_errors(_IDENTIFY):
            return dict(self.client("sts").get_caller_identity())

    def principal(self) -> str:
        """Return the authenticated identity, as the subject of a sentence."""
        return _subject(self.identity["Arn"])

    def client(self, service: str) -> Any:
        # boto3's sessions are not thread-safe, and several images may be pushed at once.
        with self._lock, self.translate_errors(f"reach AWS ({service})"):
            return self._session.client(service, region_name=self.region, config=self._config)

    @contextlib.contextmanager
    def translate_errors(self, action: str) -> Iterator[None]:
        """Raise boto3's exceptions as PublishError; `action` completes "could not …"."""
        try:
            with translate_errors(action, lambda: self._denied_principal(action)):
                yield
        except AwsError as error:
            diagnostic = error.diagnostic
            if error.fault is AwsFault.DENIED and action.startswith(_ASSUME):
                diagnostic = replace(diagnostic, hint="allow it in the role's trust policy too")
            raise error.as_publish_error(diagnostic) from error.__cause__

    @cached_property
    def _own_session(self) -> "boto3.Session":
        import boto3

        with self.translate_errors("read the AWS configuration"):
            return boto3.Session(region_name=self._given_region, profile_name=self.access.profile or None)

    @cached_property
    def _session(self) -> "boto3.Session":
        """Session of the user, or of the role to assume."""
        if not self.access.role:
            return self._own_session
        import boto3
        import botocore.session  # type: ignore[import-untyped]
        from botocore.credentials import (  # type: ignore[import-untyped]
            AssumeRoleCredentialFetcher,
            CredentialResolver,
        )

        role = self.access.role
        arguments = {"RoleSessionName": os.environ.get("AWS_ROLE_SESSION_NAME") or _SESSION_NAME}
        with self.translate_errors(f"read credentials for the role `{role}`"):
            own = self._own_session.get_credentials()
        if own is None:
            raise _no_credentials().as_publish_error()

        def client_creator(service: str, **arguments: Any) -> Any:
            return self._own_session.client(
                service, region_name=self.region, config=self._config, **arguments
            )

        fetcher = AssumeRoleCredentialFetcher(client_creator, own, role, extra_args=arguments)
        session = botocore.session.get_session()
        session.register_component("credential_provider", CredentialResolver([_role_provider(fetcher)]))
        with self.translate_errors(f"{_ASSUME}`{role}`"):
            # Fetch now, so that a refusal is reported for the role and not for the first request.
            session.get_credentials().get_frozen_credentials()
        return boto3.Session(botocore_session=session, region_name=self.region)

    @cached_property
    def _config(self) -> Any:
        from botocore.config import Config  # type: ignore[import-untyped]

        # None leaves the choice to the environment and ~/.aws.
        return Config(
            use_fips_endpoint=self.access.fips or None, use_dualstack_endpoint=self.access.dual_stack or None
        )

    def _denied_principal(self, action: str) -> str:
        # GetCallerIdentity needs no permission, so it works even if everything else is denied.
        if action == _IDENTIFY:
            return _UNNAMED
        is_assuming = action.startswith(_ASSUME)
        aws = Aws(self._given_region, replace(self.access, role="")) if is_assuming else self
        try:
            return aws.principal()
        except PublishError:
            # Report the denial anyway, for example in a network without an STS endpoint.
            return _UNNAMED


@contextlib.contextmanager
def translate_errors(action: str, principal: Callable[[], str] = lambda: _UNNAMED) -> Iterator[None]:
    """Raise boto3's exceptions as AwsError; `action` completes "could not …".

    Never repeats the text of a signature error. `principal` names the identity in a denial.
    """
    from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]
    from botocore.parsers import ResponseParserError  # type: ignore[import-untyped]

    try:
        yield
    except (ClientError, BotoCoreError) as error:
        response = getattr(error, "response", None)
        raise (_rejected(action, response, principal) if response else _unsent(action, error)) from error
    except ResponseParserError as error:
        hint = "check whether a proxy answers in place of AWS"
        cause = "the answer did not come from AWS"
        raise _failure(AwsFault.UNREACHABLE, action, cause, hint) from error
    except ValueError as error:
        # boto3 has no exception of its own for an unusable endpoint.
        hint = "set AWS_ENDPOINT_URL, or `endpoint_url` in ~/.aws/config, as in `https://host`"
        raise _failure(AwsFault.REJECTED, action, "boto3 rejects its settings", hint) from error


def summarize(error: PublishError) -> str:
    """Return an AWS error on one line."""
    diagnostic = error.diagnostics[0]
    reasons = (reason.text for reason in diagnostic.reasons)
    return "; ".join((diagnostic.message, *reasons, *(value for _, value in diagnostic.facts)))


def _rejected(action: str, response: Any, principal: Callable[[], str]) -> AwsError:
    """Classify an error response of AWS."""
    code, text = (str(response.get("Error", {}).get(key, "")) for key in ("Code", "Message"))
    if code in _EXPIRED:
        hint = "log in again (`aws sso login`, or your CI's login step)"
        diagnostic = Diagnostic("the AWS session has expired", hint=hint)
        return AwsError(AwsFault.UNAUTHENTICATED, diagnostic, code)
    if code in _NOT_ACCEPTED:
        hint = "run `aws sts get-caller-identity` to see which credentials are used"
        reasons = (Reason(f"AWS answered `{code}`"),)
        diagnostic = Diagnostic("AWS rejected the credentials", reasons=reasons, hint=hint)
        return AwsError(AwsFault.UNAUTHENTICATED, diagnostic, code)
    permission = _ACTION.search(text)
    if code in _DENIED or permission:
        lack = f"lacks {permission[1]}" if permission else "lacks the permission"
        reasons = (Reason(f"{principal()} is valid but {lack}"),)
        hint = "use a role with that permission"
        diagnostic = Diagnostic(f"not allowed to {action}", reasons=reasons, hint=hint)
        return AwsError(AwsFault.DENIED, diagnostic, code)
    answer = _TOKEN.sub("***", f"{code}: {text}")
    hint = "set `region` in [tool.bakehouse] to that of the bucket" if code in _OTHER_REGION else ""
    diagnostic = Diagnostic(f"could not {action}", facts=(("answer", answer),), hint=hint)
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code in _BUSY or status >= 500:
        return AwsError(AwsFault.BUSY, diagnostic, code)
    is_missing = code in _NOT_FOUND or "not found" in text.lower()
    return AwsError(AwsFault.NOT_FOUND if is_missing else AwsFault.REJECTED, diagnostic, code)


def _unsent(action: str, error: Any) -> AwsError:
    """Classify a failure before AWS could answer."""
    import botocore.exceptions as botocore

    if isinstance(error, botocore.NoCredentialsError):
        return _no_credentials()
    if isinstance(error, botocore.PartialCredentialsError):
        missing = error.kwargs.get("cred_var", "a part")
        return _unauthenticated(f"the AWS credentials are incomplete: `{missing}` is missing")
    if isinstance(error, botocore.ProfileNotFound):
        hint = "set AWS_PROFILE to one of `aws configure list-profiles`"
        return _unauthenticated(f"AWS profile `{error.kwargs.get('profile', '')}` does not exist", hint)
    expired = (botocore.UnauthorizedSSOTokenError, botocore.SSOTokenLoadError, botocore.TokenRetrievalError)
    if isinstance(error, expired):
        return _unauthenticated("the AWS SSO session has expired", "run `aws sso login`")
    if isinstance(error, botocore.CredentialRetrievalError):
        provider = error.kwargs.get("provider", "their source")
        return _unauthenticated(f"could not get AWS credentials from `{provider}`")
    if isinstance(error, (botocore.HTTPClientError, botocore.ConnectionError)):
        url = str(error.kwargs.get("endpoint_url", ""))
        facts = (("address", url),) if url else ()
        message = f"could not {action}: AWS does not answer"
        diagnostic = Diagnostic(message, facts=facts, hint=_region_hint(url))
        return AwsError(AwsFault.UNREACHABLE, diagnostic)
    cause = type(error).__name__
    explanatory = (
        *(botocore.ParamValidationError, botocore.InvalidRegionError, botocore.NoRegionError),
        *(botocore.ConfigParseError, botocore.ConfigNotFound, botocore.EndpointVariantError),
    )
    if isinstance(error, explanatory):
        # The values may be secret.
        cause = _VALUE.sub("", " ".join(str(error).split()))
    return _failure(AwsFault.REJECTED, action, cause)


@cache
def partitions(file: str = "partitions") -> Any:
    """Return the partitions in `partitions` or `endpoints`, files of botocore, which is slow to import."""
    return json.loads(resources.files("botocore").joinpath(f"data/{file}.json").read_bytes())["partitions"]


@cache
def regions() -> tuple[str, ...]:
    """Return the regions of all partitions that botocore lists."""
    names = (name for partition in partitions() for name in partition["regions"])
    return tuple(sorted(name for name in names if not name.endswith("-global")))


def _region_hint(url: str) -> str:
    """Return a hint if botocore does not list the region in the address of an endpoint."""
    match = _REGION_IN_HOST.search(urlsplit(url).hostname or "")
    if match is None or match[1] in (known := regions()):
        return ""
    near = nearest(match[1], known)
    return f"check the region `{match[1]}`" + (f"; did you mean `{near}`?" if near else "")


def _failure(fault: AwsFault, action: str, cause: str, hint: str = "") -> AwsError:
    return AwsError(fault, Diagnostic(f"could not {action}", facts=(("because", cause),), hint=hint))


def _no_credentials() -> AwsError:
    reason = Reason("there are none in the environment, in ~/.aws or from the instance role")
    hint = "run `aws configure sso`, or set AWS_PROFILE"
    diagnostic = Diagnostic("no AWS credentials were found", reasons=(reason,), hint=hint)
    return AwsError(AwsFault.UNAUTHENTICATED, diagnostic)


def _unauthenticated(message: str, hint: str = "") -> AwsError:
    return AwsError(AwsFault.UNAUTHENTICATED, Diagnostic(message, hint=hint))


def _role_provider(fetcher: Any) -> Any:
    """Return a provider of a role's credentials that renews them, because they can expire during a push."""
    from botocore.credentials import CredentialProvider, DeferredRefreshableCredentials

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
