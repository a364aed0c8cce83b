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

from bakehouse.registry.registry import Credentials

if TYPE_CHECKING:
    from requests import Response

_QUERY = re.compile(r"(https?://[^\s\"'?]+)\?[^\s\"']+")
_FULL = re.compile(rf'"Err": (?:{errno.ENOSPC}|{errno.EDQUOT})\b')
"""How the registry of the distribution project says it, in no words."""


class Unreached(StrEnum):
    """Why there was no answer, where the reason is not going to pass."""

    NAME = "name"
    """The host name cannot be resolved."""
    TRUST = "trust"
    """Its certificate is not trusted, or it speaks no TLS."""


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
    ) -> None:
        super().__init__(text)
        self.unreached = unreached
        self.retry_after = retry_after
        """Seconds after which the registry wants to be asked again."""
        self.status = status
        """None where there was no answer."""
        self.code = code
        """The registry's own word for it, such as NAME_UNKNOWN."""
        self.text = text

    @property
    def is_expired(self) -> bool:
        """Whether logging in again may help: ECR says 403 to a token that was right once."""
        return self.status == 401 or (self.status == 403 and "expired" in self.text)

    @property
    def may_pass(self) -> bool:
        """Return whether a retry may help."""
        if self.status is None:
            return self.unreached is None
        return self.status >= 500 or self.status == 429


def without_secrets(text: str, credentials: Credentials | None) -> str:
    """Somebody else's words, fit to be shown: no password, no query of an address that may be signed."""
    if credentials:
        text = text.replace(credentials.password, "***")
    return _QUERY.sub(r"\1", " ".join(text.split()))


def document(answer: "Response") -> dict[str, Any]:
    """Return the JSON object in a response."""
    try:
        document = answer.json()
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise RegistryError(answer.status_code, "", "its answer is no JSON object")
    return document


def error_in(answer: "Response", credentials: Credentials | None) -> RegistryError:
    """What a registry refused, in its words, without ours that are secret."""
    try:
        first = answer.json()["errors"][0]
        code, text = str(first["code"]), str(first.get("message") or first["code"])
        if _FULL.search(json.dumps(first.get("detail"))):
            text = f"{text}: no space left on device"
    except (ValueError, KeyError, TypeError, IndexError):
        code, text = "", f"HTTP {answer.status_code} {answer.reason}"
    return RegistryError(
        answer.status_code,
        code,
        without_secrets(text, credentials),
        retry_after=_seconds(answer.headers.get("Retry-After", "")),
    )


def _seconds(retry_after: str) -> float:
    """The header's value, which is a number of seconds or a date."""
    if retry_after.isdecimal():
        return float(retry_after)
    with contextlib.suppress(ValueError):
        return max(0.0, email.utils.parsedate_to_datetime(retry_after).timestamp() - time.time())
    return 0.0


def unreached(error: Exception) -> tuple[Unreached | None, str]:
    """What stood in the way, and its words: those of requests may hold a signed address."""
    for cause in _causes(error):
        if isinstance(cause, socket.gaierror) and cause.errno != socket.EAI_AGAIN:
            return Unreached.NAME, "no address is known for its name"
        if isinstance(cause, ssl.SSLCertVerificationError):
            return Unreached.TRUST, f"its certificate is not trusted: {cause.verify_message}"
        if isinstance(cause, ssl.SSLError) and cause.reason == "WRONG_VERSION_NUMBER":
            return Unreached.TRUST, "it speaks no TLS"
    told = (one.strerror for one in _causes(error) if isinstance(one, OSError) and one.strerror)
    why = next((f": {words.lower()}" for words in told), "")
    return None, f"none ({type(error).__name__}{why})"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        waiting += [
            one.__cause__,
            one.__context__,
            *(each for each in one.args if isinstance(each, Exception)),
        ]
