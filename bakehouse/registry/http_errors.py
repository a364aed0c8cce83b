"""Errors of registries, without secrets."""

import contextlib
import email.utils
import errno
import json
import re
import time
from typing import Any
from urllib.parse import quote

from bakehouse.fetch.faults import Fault, fault_of_status
from bakehouse.fetch.http_client import HttpReply
from bakehouse.registry.registry import Credentials
from bakehouse.util.json_reader import parse_json

_QUERY = re.compile(r"(https?://[^\s\"'?]+)\?[^\s\"']+")
_FULL = re.compile(rf'"Err": (?:{errno.ENOSPC}|{errno.EDQUOT})\b')
"""Error of the distribution project's registry for a full disk: a number without a text."""

_MAX_CHARACTERS = 2_000
"""Length of an error message that is read: some are complete pages."""
_QUOTA = re.compile(
    r"(?i)quota|exceed the configured upper limit|limit ?exceeded|insufficient storage|no space left"
)


class RegistryError(Exception):
    """Error response of a registry, or no response."""

    def __init__(
        self,
        status: int | None,
        code: str,
        text: str,
        *,
        fault: Fault | None = None,
        retry_after: float = 0.0,
    ) -> None:
        super().__init__(text)
        self.fault = fault
        """The cause of a missing response."""
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
    def is_stalled(self) -> bool:
        """Return whether the registry was silent for too long."""
        return self.fault is Fault.SILENT

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
        """Return whether the registry received bytes that differ from those sent."""
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
            return self.fault is None or self.fault.may_pass
        return fault_of_status(self.status) is Fault.BUSY and not self.is_full


def without_secrets(text: str, credentials: Credentials | None, authorization: str = "") -> str:
    """Return a text without the password, the login that was sent, and the queries of URLs.

    Queries may be signatures.
    """
    secrets = [authorization.rpartition(" ")[2]]
    if credentials:
        secrets += [credentials.password, quote(credentials.password, safe="")]
    for secret in filter(None, secrets):
        text = text.replace(secret, "***")
    return _QUERY.sub(r"\1", " ".join(text[:_MAX_CHARACTERS].split()))


def document(response: HttpReply) -> dict[str, Any]:
    """Return the JSON object in a response."""
    try:
        document = parse_json(response.content)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise RegistryError(response.status, "", "the response is not a JSON object")
    return document


def error_in(response: HttpReply, credentials: Credentials | None) -> RegistryError:
    """Return the error that a registry reports, without secrets."""
    try:
        first = parse_json(response.content)["errors"][0]
        code, text = str(first["code"]), str(first.get("message") or first["code"])
        if _FULL.search(json.dumps(first.get("detail"))):
            text = f"{text}: no space left on device"
    except (ValueError, KeyError, TypeError, IndexError):
        code, text = "", f"HTTP {response.status} {response.reason}"
    return RegistryError(
        response.status,
        code,
        without_secrets(text, credentials, response.authorization),
        retry_after=_seconds(response.headers.get("Retry-After", "")),
    )


def _seconds(retry_after: str) -> float:
    """Seconds in a `Retry-After` header, which has a number or a date."""
    if retry_after.isdecimal():
        return float(retry_after)
    with contextlib.suppress(ValueError, OverflowError):
        return max(0.0, email.utils.parsedate_to_datetime(retry_after).timestamp() - time.time())
    return 0.0
