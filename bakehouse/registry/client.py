"""Client of the registry API of the OCI distribution specification."""

import contextlib
import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from bakehouse.registry.http_errors import RegistryError, document, error_in, unreached
from bakehouse.registry.manifest import KINDS, Manifest, UnreadableManifestError, digest_of, parse
from bakehouse.registry.registry import Credentials, Registry
from bakehouse.util.deadline import NEVER, bounded
from bakehouse.util.oci import Digest, is_loopback

if TYPE_CHECKING:
    from requests import PreparedRequest, Response

_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')
_MANIFEST_LIMIT = 4 * 1024**2
_PORTS = {"http": 80, "https": 443}
_Login = Credentials | str | None
"""A name and a password, a header as it stands, empty for none at all; None leaves it to ~/.netrc."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Retries of failed requests to a registry."""

    attempts: int = 7
    """With the pauses between them, half a minute: a registry that is restarted is back by then."""
    pause: float = 0.5
    """Seconds before the second attempt; doubled for each one after."""
    timeout: float = 30.0
    """Seconds without a byte until a request times out."""
    until: float = NEVER
    """Deadline by time.monotonic()."""

    def wait(self, attempt: int, at_least: float = 0.0) -> bool:
        """Pause before the next attempt; return False where the deadline would pass first."""
        # Jitter: clients that failed together should not retry together.
        seconds = max(at_least, min(self.pause * 2**attempt, 15.0) * random.uniform(0.8, 1.0))
        if time.monotonic() + seconds >= self.until:
            return False
        time.sleep(seconds)
        return True


class Repository:
    """One repository of a registry."""

    def __init__(
        self,
        registry: Registry,
        name: str,
        retry_policy: RetryPolicy,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.registry = registry
        self.name = name
        self._retry_policy = retry_policy
        self._tell = tell
        self._bearer = ""
        self._scheme = "http" if is_loopback(registry.host) else "https"

    def tags(self) -> tuple[str, ...]:
        """Return all tags; raise RegistryError with NAME_UNKNOWN for a missing repository."""
        tags: list[str] = []
        path = "tags/list"
        while path:
            answer = self._ask("GET", path)
            tags += document(answer).get("tags") or ()
            path = answer.links.get("next", {}).get("url", "")
        return tuple(tags)

    def manifest(self, reference: str) -> Manifest | None:
        """Return the manifest of a tag or digest; None where it does not exist."""
        try:
            answer = self._ask("GET", f"manifests/{reference}", {"Accept": ", ".join(KINDS)})
        except RegistryError as error:
            if error.status == 404:
                return None
            raise
        try:
            found = parse(answer.content[:_MANIFEST_LIMIT], answer.headers.get("Content-Type", ""))
        except UnreadableManifestError as error:
            message = f"its answer for `{reference}` is no manifest"
            raise RegistryError(answer.status_code, "", message) from error
        if ":" in reference and found.digest != reference:
            # Without this check, another manifest could get a release tag.
            message = f"its answer for {reference} has another content"
            raise RegistryError(answer.status_code, "", message)
        return found

    def digest_of(self, reference: str) -> Digest | None:
        """Return the digest of a tag or digest without its manifest; None where it does not exist."""
        try:
            answer = self._ask("HEAD", f"manifests/{reference}", {"Accept": ", ".join(KINDS)})
        except RegistryError as error:
            if error.status == 404:
                return None
            raise
        if told := answer.headers.get("Docker-Content-Digest"):
            return Digest(told)
        # The header is a registry's own choice: without it there is but the manifest to go by.
        found = self.manifest(reference)
        return found.digest if found else None

    def blob(self, digest: Digest) -> bytes:
        """Return the verified content of a digest."""
        content = self._ask("GET", f"blobs/{digest}").content
        if digest_of(content) != digest:
            raise RegistryError(200, "", f"its answer for {digest} has another content")
        return content

    def has_blob(self, digest: Digest, size: int) -> bool:
        """Return whether a blob of this size exists, without reading it."""
        try:
            answer = self._ask("HEAD", f"blobs/{digest}")
        except RegistryError as error:
            if error.status == 404:
                return False
            raise
        # Where blobs lie elsewhere, the answer is an address, of which the size is not known.
        told = answer.headers.get("Content-Length") if answer.status_code == 200 else None
        return told is None or int(told) == size

    def tag(self, manifest: Manifest, tag: str) -> None:
        """Set `tag` on a stored manifest."""
        self._ask("PUT", f"manifests/{tag}", {"Content-Type": manifest.media_type}, manifest.content)

    def refusal(self) -> RegistryError | None:
        """What the registry says to someone who begins an upload; None where it lets us.

        The engine loses the registry's words when a push fails: they are asked for again here.
        """
        try:
            answer = self._ask("POST", "blobs/uploads/")
        except RegistryError as error:
            return error
        # ECR takes no such request; there an unfinished upload expires.
        with contextlib.suppress(RegistryError, KeyError):
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
            except RegistryError as error:
                # What is answered to HEAD has no words that would tell an old login.
                is_wordless = method == "HEAD" and error.status == 403
                if (error.is_expired or is_wordless) and not renewed:
                    renewed = True
                    self._bearer = ""
                    self.registry.credentials(renew=True)
                elif not error.may_pass or attempt >= self._retry_policy.attempts - 1:
                    raise
                else:
                    pause = f" in {error.retry_after:.0f} s" if error.retry_after else ""
                    self._tell(f"{self.registry.host} is asked again{pause}, its answer was: {error.text}")
                    if not self._retry_policy.wait(attempt, error.retry_after):
                        raise
                    attempt += 1

    def _send(self, method: str, path: str, headers: dict[str, str], content: bytes | None) -> "Response":
        root = f"{self._scheme}://{self.registry.host}/v2/{self.name}/"
        url = urljoin(root, path)
        if _origin(url) != _origin(root):
            # A registry may let content be sent elsewhere: nobody there is to see, or to ask for, its login.
            answer, credentials = self._exchange(method, url, headers, content), None
        else:
            credentials = self.registry.credentials()
            answer = self._exchange(method, url, headers, content, self._login(credentials))
            challenge = answer.headers.get("WWW-Authenticate", "")
            if answer.status_code == 401 and challenge.lower().startswith("bearer "):
                self._bearer = self._token(dict(_CHALLENGE.findall(challenge)), credentials)
                answer = self._exchange(method, url, headers, content, self._login(credentials))
        if answer.ok:
            return answer
        raise error_in(answer, credentials)

    def _login(self, credentials: Credentials | None) -> _Login:
        return f"Bearer {self._bearer}" if self._bearer else credentials

    def _token(self, challenge: dict[str, str], credentials: Credentials | None) -> str:
        query = {name: value for name, value in challenge.items() if name in ("service", "scope")}
        answer = self._exchange("GET", challenge.get("realm", ""), {}, None, credentials, query)
        if not answer.ok:
            raise error_in(answer, credentials)
        told = document(answer)
        return str(told.get("token") or told.get("access_token") or "")

    def _exchange(
        self,
        method: str,
        url: str,
        headers: dict[str, str],
        content: bytes | None,
        login: _Login = "",
        query: dict[str, str] | None = None,
    ) -> "Response":
        import requests

        def exchange() -> "Response":
            with requests.Session() as session:
                # On loopback, ignore proxies and ~/.netrc.
                session.trust_env = self._scheme == "https"
                sent = dict(headers)
                if isinstance(login, Credentials):
                    session.auth = (login.username, login.password)
                elif login is not None:
                    session.auth = _as_it_is
                    if login:
                        sent["Authorization"] = login
                return session.request(
                    method,
                    url,
                    params=query,
                    headers=sent,
                    data=content,
                    timeout=self._retry_policy.timeout,
                    # Where a blob lies is no answer to whether it is there.
                    allow_redirects=method != "HEAD",
                )

        try:
            return bounded(exchange, self._retry_policy.until)
        except requests.RequestException as error:
            why, text = unreached(error)
            raise RegistryError(None, "", text, unreached=why) from error


def _origin(url: str) -> tuple[str, str | None, int | None]:
    """Whom a request goes to, and over what."""
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return "", None, None


def _as_it_is(request: "PreparedRequest") -> "PreparedRequest":
    """Keeps ~/.netrc from replacing a bearer token."""
    return request
