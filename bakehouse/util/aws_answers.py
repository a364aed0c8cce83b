"""Sorts what AWS answers, through boto3, by what it asks of us, and puts it into our words."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from bakehouse.errors import Diagnostic, Reason

if TYPE_CHECKING:
    from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]

_EXPIRED = {"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"}
_NOT_ACCEPTED = {
    *("InvalidClientTokenId", "UnrecognizedClientException", "SignatureDoesNotMatch", "AuthFailure"),
    *("InvalidSignatureException", "InvalidAccessKeyId", "IncompleteSignature", "MissingAuthenticationToken"),
    *("MissingAuthenticationTokenException", "IncompleteSignatureException", "InvalidToken"),
}
_DENIED = {
    *("AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "NotAuthorized", "AllAccessDisabled"),
    # The answer to HEAD has no words.
    "403",
}
_BUSY = {
    *("Throttling", "ThrottlingException", "ThrottledException", "RequestLimitExceeded", "SlowDown"),
    *("TooManyRequestsException", "RequestThrottled", "InternalFailure", "InternalError"),
    *("InternalServerError", "ServiceUnavailable", "ServiceUnavailableException"),
}
_ABSENT = {"ResourceNotFoundException", "ResourceNotFound", "NoSuchBucket", "NoSuchKey", "404"}
_VALUE = re.compile(r", value: .*?(?=, (?:type|valid)\b|$)")
_ACTION = re.compile(r"not authorized to perform: ([a-zA-Z0-9-]+:[a-zA-Z0-9]+)")


class Trouble(Enum):
    """What kind of thing stands between us and an answer."""

    BUSY = "AWS asks to come back later"
    SILENT = "AWS does not answer"
    NOT_LET_IN = "there are no credentials, or none that AWS accepts"
    DENIED = "the credentials may not do this"
    ABSENT = "there is no such thing"
    REFUSED = "AWS refuses it"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why AWS did not do what it was asked."""

    trouble: Trouble
    diagnostic: Diagnostic
    code: str = ""
    """AWS's own word for it; empty where it did not answer."""


def refusal(
    doing: str, error: "ClientError | BotoCoreError", principal: Callable[[], str] = lambda: "the AWS session"
) -> Refusal:
    """What an exception of boto3 says; the words of a refused signature are never repeated.

    `principal` names who asked, where that matters.
    """
    response = getattr(error, "response", None)
    return _answered(doing, response, principal) if response else _unready(doing, error)


def _answered(doing: str, response: Any, principal: Callable[[], str]) -> Refusal:
    answer = response.get("Error", {})
    code, text = str(answer.get("Code", "")), str(answer.get("Message", ""))
    if code in _EXPIRED:
        hint = "log in again (`aws sso login`, or your CI's own way)"
        return Refusal(Trouble.NOT_LET_IN, Diagnostic("the AWS session has expired", hint=hint), code)
    if code in _NOT_ACCEPTED:
        hint = "`aws sts get-caller-identity` shows which credentials are used"
        reasons = (Reason(f"it answered `{code}`"),)
        told = Diagnostic("AWS does not know these credentials", reasons=reasons, hint=hint)
        return Refusal(Trouble.NOT_LET_IN, told, code)
    action = _ACTION.search(text)
    if code in _DENIED or action:
        reasons = (Reason(f"{principal()} is valid but {f'lacks {action[1]}' if action else 'may not'}"),)
        told = Diagnostic(f"not allowed to {doing}", reasons=reasons, hint="use a role with that right")
        return Refusal(Trouble.DENIED, told, code)
    told = Diagnostic(f"could not {doing}", facts=(("answer", f"{code}: {text}"),))
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code in _BUSY or status >= 500:
        return Refusal(Trouble.BUSY, told, code)
    is_absent = code in _ABSENT or "not found" in text.lower()
    return Refusal(Trouble.ABSENT if is_absent else Trouble.REFUSED, told, code)


def no_credentials() -> Refusal:
    """There is nothing to log in with."""
    reason = Reason("there are none in the environment, in ~/.aws, or from the machine's role")
    hint = "`aws configure sso` or AWS_PROFILE gives some"
    told = Diagnostic("no AWS credentials were found", reasons=(reason,), hint=hint)
    return Refusal(Trouble.NOT_LET_IN, told)


def not_aws(doing: str) -> Refusal:
    """Something answered that speaks another language."""
    because = (("because", "the answer is none of AWS's"),)
    told = Diagnostic(f"could not {doing}", facts=because, hint="a proxy may answer in its place")
    return Refusal(Trouble.SILENT, told)


def unfit_settings(doing: str) -> Refusal:
    """boto3 can't use what it is told of AWS: it says so in no error of its own."""
    because = (("because", "boto3 does not take its settings"),)
    hint = "AWS_ENDPOINT_URL and `endpoint_url` in ~/.aws/config are like `https://host`"
    return Refusal(Trouble.REFUSED, Diagnostic(f"could not {doing}", facts=because, hint=hint))


def _unready(doing: str, error: Any) -> Refusal:
    """What stood in the way before AWS could answer."""
    import botocore.exceptions as botocore  # type: ignore[import-untyped]

    if isinstance(error, botocore.NoCredentialsError):
        return no_credentials()
    if isinstance(error, botocore.PartialCredentialsError):
        lacking = error.kwargs.get("cred_var", "a part")
        return _not_let_in(f"the AWS credentials are incomplete: `{lacking}` is missing")
    if isinstance(error, botocore.ProfileNotFound):
        hint = "AWS_PROFILE names one of `aws configure list-profiles`"
        return _not_let_in(f"there is no AWS profile `{error.kwargs.get('profile', '')}`", hint)
    expired = (botocore.UnauthorizedSSOTokenError, botocore.SSOTokenLoadError, botocore.TokenRetrievalError)
    if isinstance(error, expired):
        return _not_let_in("the AWS SSO session has expired", "`aws sso login`")
    if isinstance(error, botocore.CredentialRetrievalError):
        provider = error.kwargs.get("provider", "their source")
        return _not_let_in(f"AWS credentials could not be had from `{provider}`")
    if isinstance(error, (botocore.HTTPClientError, botocore.ConnectionError)):
        address = str(error.kwargs.get("endpoint_url", ""))
        facts = (("address", address),) if address else ()
        return Refusal(Trouble.SILENT, Diagnostic(f"could not {doing}: AWS does not answer", facts=facts))
    why = type(error).__name__
    telling = (
        *(botocore.ParamValidationError, botocore.InvalidRegionError, botocore.NoRegionError),
        *(botocore.ConfigParseError, botocore.ConfigNotFound, botocore.EndpointVariantError),
    )
    if isinstance(error, telling):
        # Whatever may be a secret is left out: it is ours to know what was given.
        why = _VALUE.sub("", " ".join(str(error).split()))
    return Refusal(Trouble.REFUSED, Diagnostic(f"could not {doing}", facts=(("because", why),)))


def _not_let_in(message: str, hint: str = "") -> Refusal:
    return Refusal(Trouble.NOT_LET_IN, Diagnostic(message, hint=hint))
