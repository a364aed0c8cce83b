"""Asks a registry what it holds, over the distribution API: what was published is read back from there."""

import contextlib
import email.utils
import errno
import json
import random
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

from bakehouse.deadline import NEVER, bounded
from bakehouse.manifests import KINDS, Manifest, UnreadableManifestError, digest_of, parse
from bakehouse.plan import Digest
from bakehouse.registry import Credentials, Registry, is_loopback

if TYPE_CHECKING:
    from requests import PreparedRequest, Response

_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')
_QUERY = re.compile(r"(https?://[^\s\"'?]+)\?[^\s\"']+")
_FULL = re.compile(rf'"Err": (?:{errno.ENOSPC}|{errno.EDQUOT})\b')
"""How the registry of the distribution project says it, in no words."""
_MANIFEST_LIMIT = 4 * 1024**2


class Unreached(StrEnum):
    """Why there was no answer, where the reason is not going to pass."""

    NAME = "name"
    """Nobody knows an address for the host's name."""
    TRUST = "trust"
    """Its certificate is not trusted, or it speaks no TLS."""


class DistributionError(Exception):
    """A registry answered with an error, or not at all."""

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
        """Whether the same question may be answered later."""
        if self.status is None:
            return self.unreached is None
        return self.status >= 500 or self.status == 429


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a registry is asked again before its refusal counts."""

    attempts: int = 7
    """With the pauses between them, half a minute: a registry that is restarted is back by then."""
    pause: float = 0.5
    """Seconds before the second attempt; doubled for each one after."""
    timeout: float = 30.0
    """Seconds without a byte in one answer."""
    until: float = NEVER
    """By time.monotonic(): nothing is waited for any longer."""

    def wait(self, attempt: int, at_least: float = 0.0) -> bool:
        """Pause before the next attempt, or give False where the deadline would come first."""
        # Those who were refused together should not come back together.
        seconds = max(at_least, min(self.pause * 2**attempt, 15.0) * random.uniform(0.8, 1.0))
        if time.monotonic() + seconds >= self.until:
            return False
        time.sleep(seconds)
        return True


class Repository:
    """One repository of a registry."""

    def __init__(
        self, registry: Registry, name: str, patience: Patience, tell: Callable[[str], None] = lambda _: None
    ) -> None:
        self.registry = registry
        self.name = name
        self._patience = patience
        self._tell = tell
        self._bearer = ""
        self._scheme = "http" if is_loopback(registry.host) else "https"

    def tags(self) -> tuple[str, ...]:
        """Every tag; raises with NAME_UNKNOWN where there is no such repository."""
        tags: list[str] = []
        path = "tags/list"
        while path:
            answer = self._ask("GET", path)
            tags += _document(answer).get("tags") or ()
            path = answer.links.get("next", {}).get("url", "")
        return tuple(tags)

    def manifest(self, reference: str) -> Manifest | None:
        """What a tag or digest names; None where it names nothing."""
        try:
            answer = self._ask("GET", f"manifests/{reference}", {"Accept": ", ".join(KINDS)})
        except DistributionError as error:
            if error.status == 404:
                return None
            raise
        try:
            return parse(answer.content[:_MANIFEST_LIMIT], answer.headers.get("Content-Type", ""))
        except UnreadableManifestError as error:
            message = f"its answer for `{reference}` is no manifest"
            raise DistributionError(answer.status_code, "", message) from error

    def digest_of(self, reference: str) -> Digest | None:
        """The digest that a tag or digest names, without its manifest; None where it names nothing."""
        try:
            answer = self._ask("HEAD", f"manifests/{reference}", {"Accept": ", ".join(KINDS)})
        except DistributionError as error:
            if error.status == 404:
                return None
            raise
        return Digest(answer.headers.get("Docker-Content-Digest", ""))

    def blob(self, digest: Digest) -> bytes:
        """Bytes stored under a digest, which they are checked to have."""
        content = self._ask("GET", f"blobs/{digest}").content
        if digest_of(content) != digest:
            raise DistributionError(200, "", f"its answer for {digest} has another content")
        return content

    def has_blob(self, digest: Digest, size: int) -> bool:
        """Whether so many bytes are stored under a digest; they are not read."""
        try:
            answer = self._ask("HEAD", f"blobs/{digest}")
        except DistributionError as error:
            if error.status == 404:
                return False
            raise
        # Where blobs lie elsewhere, the answer is an address, of which the size is not known.
        told = answer.headers.get("Content-Length") if answer.status_code == 200 else None
        return told is None or int(told) == size

    def tag(self, manifest: Manifest, tag: str) -> None:
        """Let `tag` name a manifest that is stored already."""
        self._ask("PUT", f"manifests/{tag}", {"Content-Type": manifest.media_type}, manifest.content)

    def refusal(self) -> DistributionError | None:
        """What the registry says to someone who begins an upload; None where it lets us.

        The engine loses the registry's words when a push fails: they are asked for again here.
        """
        try:
            answer = self._ask("POST", "blobs/uploads/")
        except DistributionError as error:
            return error
        # ECR takes no such request; there an unfinished upload expires.
        with contextlib.suppress(DistributionError, KeyError):
            self._ask("DELETE", answer.headers["Location"])
        return None

    def _ask(
        self, method: str, path: str, headers: dict[str, str] | None = None, content: bytes | None = None
    ) -> "Response":
        """Send a request, again where that may help: after a failure of theirs, and once with a new login."""
        renewed = False
        attempt = 0
        while True:
            try:
                return self._send(method, path, dict(headers or {}), content)
            except DistributionError as error:
                if error.is_expired and not renewed:
                    renewed = True
                    self._bearer = ""
                    self.registry.credentials(renew=True)
                elif not error.may_pass or attempt >= self._patience.attempts - 1:
                    raise
                else:
                    self._tell(f"{self.registry.host} is asked again, its answer was: {error.text}")
                    if not self._patience.wait(attempt, error.retry_after):
                        raise
                    attempt += 1

    def _send(self, method: str, path: str, headers: dict[str, str], content: bytes | None) -> "Response":
        root = f"{self._scheme}://{self.registry.host}/v2/{self.name}/"
        credentials = self.registry.credentials()
        answer = self._exchange(method, urljoin(root, path), headers, content, credentials)
        challenge = answer.headers.get("WWW-Authenticate", "")
        if answer.status_code == 401 and challenge.lower().startswith("bearer "):
            self._bearer = self._token(dict(_CHALLENGE.findall(challenge)), credentials)
            answer = self._exchange(method, urljoin(root, path), headers, content, credentials)
        if answer.ok:
            return answer
        raise _error_in(answer, credentials)

    def _token(self, challenge: dict[str, str], credentials: Credentials | None) -> str:
        query = {name: value for name, value in challenge.items() if name in ("service", "scope")}
        self._bearer = ""
        answer = self._exchange("GET", challenge.get("realm", ""), {}, None, credentials, query)
        if not answer.ok:
            raise _error_in(answer, credentials)
        document = _document(answer)
        return str(document.get("token") or document.get("access_token") or "")

    def _exchange(
        self,
        method: str,
        url: str,
        headers: dict[str, str],
        content: bytes | None,
        credentials: Credentials | None,
        query: dict[str, str] | None = None,
    ) -> "Response":
        import requests

        def exchange() -> "Response":
            with requests.Session() as session:
                # On loopback neither a proxy nor ~/.netrc has a say.
                session.trust_env = self._scheme == "https"
                sent = dict(headers)
                if self._bearer:
                    sent["Authorization"] = f"Bearer {self._bearer}"
                    session.auth = _as_it_is
                elif credentials:
                    session.auth = (credentials.username, credentials.password)
                return session.request(
                    method,
                    url,
                    params=query,
                    headers=sent,
                    data=content,
                    timeout=self._patience.timeout,
                    # Where a blob lies is no answer to whether it is there.
                    allow_redirects=method != "HEAD",
                )

        try:
            return bounded(exchange, self._patience.until)
        except requests.RequestException as error:
            unreached, text = _unreached(error)
            raise DistributionError(None, "", text, unreached=unreached) from error


def without_secrets(text: str, credentials: Credentials | None) -> str:
    """Somebody else's words, fit to be shown: no password, no query of an address that may be signed."""
    if credentials:
        text = text.replace(credentials.password, "***")
    return _QUERY.sub(r"\1", " ".join(text.split()))


def _as_it_is(request: "PreparedRequest") -> "PreparedRequest":
    """Keeps ~/.netrc from replacing a bearer token."""
    return request


def _document(answer: "Response") -> dict[str, Any]:
    """The JSON object that an answer is."""
    try:
        document = answer.json()
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise DistributionError(answer.status_code, "", "its answer is no JSON object")
    return document


def _error_in(answer: "Response", credentials: Credentials | None) -> DistributionError:
    try:
        first = answer.json()["errors"][0]
        code, text = str(first["code"]), str(first.get("message") or first["code"])
        if _FULL.search(json.dumps(first.get("detail"))):
            text = f"{text}: no space left on device"
    except (ValueError, KeyError, TypeError, IndexError):
        code, text = "", f"HTTP {answer.status_code} {answer.reason}"
    return DistributionError(
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


def _unreached(error: Exception) -> tuple[Unreached | None, str]:
    """What stood in the way, and its words: those of requests may hold a signed address."""
    for cause in _causes(error):
        if isinstance(cause, socket.gaierror) and cause.errno != socket.EAI_AGAIN:
            return Unreached.NAME, "no address is known for its name"
        if isinstance(cause, ssl.SSLCertVerificationError):
            return Unreached.TRUST, f"its certificate is not trusted: {cause.verify_message}"
        if isinstance(cause, ssl.SSLError) and cause.reason == "WRONG_VERSION_NUMBER":
            return Unreached.TRUST, "it speaks no TLS"
    return None, f"none ({type(error).__name__})"


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
