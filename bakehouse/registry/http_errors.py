"""Errors of registries, without secrets."""

import contextlib
import email.utils
import errno
import json
import re
import socket
import ssl
import time
from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from bakehouse.registry.registry import Credentials
from bakehouse.util.json_reader import parse_json

if TYPE_CHECKING:
    from requests import PreparedRequest, Response

_QUERY = re.compile(r"(https?://[^\s\"'?]+)\?[^\s\"']+")
_FULL = re.compile(rf'"Err": (?:{errno.ENOSPC}|{errno.EDQUOT})\b')
"""A full disk, as the registry of the distribution project reports it: by a number, without a text."""

_MOST_CHARACTERS = 2_000
"""Length of an error message that is read: some are complete pages."""
_QUOTA = re.compile(
    r"(?i)quota|exceed the configured upper limit|limit ?exceeded|insufficient storage|no space left"
)


class Unreached(StrEnum):
    """Permanent reason why there was no response."""

    NAME = "name"
    """The host name cannot be resolved."""
    TRUST = "trust"
    """The certificate is not trusted, or the host does not use TLS."""


class RegistryError(Exception):
    """Error response of a registry, or no response."""

    def __init__(
        self,
        status: int | None,
        code: str,
        text: str,
        *,
        unreached: Unreached | None = None,
        retry_after: float = 0.0,
        is_stalled: bool = False,
    ) -> None:
        super().__init__(text)
        self.unreached = unreached
        self.is_stalled = is_stalled
        """The registry was silent for too long."""
        self.retry_after = retry_after
        """Seconds that the registry asks to wait before a retry."""
        self.status = status
        """None without a response."""
        self.code = code
        """Error code of the registry API, such as NAME_UNKNOWN."""
        self.text = text

    @property
    def answer(self) -> str:
        """The registry's message with the HTTP status."""
        has_status = self.status is None or self.text.startswith("HTTP ")
        return self.text if has_status else f"HTTP {self.status}: {self.text}"

    @property
    def is_expired(self) -> bool:
        """Return whether a new login may help; ECR answers 403 to an expired token."""
        return self.status == 401 or (self.status == 403 and "expired" in self.text)

    @property
    def is_full(self) -> bool:
        """Return whether a quota or a disk is full, so that a retry cannot help."""
        # Rate limits also contain "limit exceeded".
        return self.status != 429 and (
            self.status in (412, 413, 507) or _QUOTA.search(f"{self.code} {self.text}") is not None
        )

    @property
    def is_corrupted(self) -> bool:
        """Return whether the registry received other bytes than were sent."""
        return self.code in ("DIGEST_INVALID", "SIZE_INVALID")

    @property
    def is_repository_missing(self) -> bool:
        """Return whether the repository does not exist; missing uploads and blobs are 404, too."""
        # NOT_FOUND is Harbor's code for a missing project.
        return self.status == 404 and self.code in ("NAME_UNKNOWN", "NOT_FOUND")

    @property
    def may_pass(self) -> bool:
        """Return whether a retry may help."""
        if self.status is None:
            return self.unreached is None
        return (self.status >= 500 or self.status == 429) and not self.is_full


def without_secrets(text: str, credentials: Credentials | None, authorization: str = "") -> str:
    """Return a text without the password, the login that was sent, and the queries of URLs.

    Queries may be signatures.
    """
    secrets = [authorization.rpartition(" ")[2]]
    if credentials:
        secrets += [credentials.password, quote(credentials.password, safe="")]
    for secret in filter(None, secrets):
        text = text.replace(secret, "***")
    return _QUERY.sub(r"\1", " ".join(text[:_MOST_CHARACTERS].split()))


def document(response: "Response") -> dict[str, Any]:
    """Return the JSON object in a response."""
    try:
        document = parse_json(response.content)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise RegistryError(response.status_code, "", "the response is not a JSON object")
    return document


def error_in(response: "Response", credentials: Credentials | None) -> RegistryError:
    """Return the error that a registry reports, without secrets."""
    try:
        first = parse_json(response.content)["errors"][0]
        code, text = str(first["code"]), str(first.get("message") or first["code"])
        if _FULL.search(json.dumps(first.get("detail"))):
            text = f"{text}: no space left on device"
    except (ValueError, KeyError, TypeError, IndexError):
        code, text = "", f"HTTP {response.status_code} {response.reason}"
    request: PreparedRequest | None = response.request
    authorization = request.headers.get("Authorization", "") if request else ""
    return RegistryError(
        response.status_code,
        code,
        without_secrets(text, credentials, authorization),
        retry_after=_seconds(response.headers.get("Retry-After", "")),
    )


def _seconds(retry_after: str) -> float:
    """Seconds in a `Retry-After` header, which has a number or a date."""
    if retry_after.isdecimal():
        return float(retry_after)
    with contextlib.suppress(ValueError):
        return max(0.0, email.utils.parsedate_to_datetime(retry_after).timestamp() - time.time())
    return 0.0


def unreached(error: Exception) -> tuple[Unreached | None, str]:
    """Return why there was no response, and a text without URLs, which may be signed."""
    for cause in _causes(error):
        if isinstance(cause, socket.gaierror) and cause.errno != socket.EAI_AGAIN:
            return Unreached.NAME, "its name cannot be resolved"
        if isinstance(cause, ssl.SSLCertVerificationError):
            return Unreached.TRUST, f"its certificate is not trusted: {cause.verify_message}"
        if isinstance(cause, ssl.SSLError) and cause.reason == "WRONG_VERSION_NUMBER":
            return Unreached.TRUST, "it does not use TLS"
    texts = (cause.strerror for cause in _causes(error) if isinstance(cause, OSError) and cause.strerror)
    detail = next((f": {text.lower()}" for text in texts), "")
    return None, f"none ({type(error).__name__}{detail})"


def is_timeout(error: Exception) -> bool:
    """Return whether there was no byte for too long, after the connection was made."""
    causes = list(_causes(error))
    return any(isinstance(cause, TimeoutError) for cause in causes) and not any(
        type(cause).__name__ == "ConnectTimeoutError" for cause in causes
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    pending = [error]
    while pending:
        cause = pending.pop()
        if cause is None or id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        nested = (argument for argument in cause.args if isinstance(argument, Exception))
        pending += [cause.__cause__, cause.__context__, *nested]
