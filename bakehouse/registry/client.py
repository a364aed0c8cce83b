"""Client of the registry API of the OCI distribution specification."""

import contextlib
import io
import random
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from bakehouse.registry.http_errors import RegistryError, document, error_in, is_timeout, unreached
from bakehouse.registry.manifest import KINDS, Manifest, UnreadableManifestError, digest_of, parse
from bakehouse.registry.registry import Credentials, Registry
from bakehouse.util.deadline import NEVER, bounded
from bakehouse.util.oci import DOCKER_HUB, Digest, is_loopback

if TYPE_CHECKING:
    from requests import PreparedRequest, Response

_CHALLENGE = re.compile(r'\b(\w+)="([^"]*)"')
_MANIFEST_LIMIT = 4 * 1024**2
_MOST_PAGES = 10_000
"""Pages of a list, each of which has at least one entry, and usually 100."""
_PORTS = {"http": 80, "https": 443}
_API_HOSTS = {DOCKER_HUB: "registry-1.docker.io"}
"""Hosts of the registry API that differ from those in references."""
_TO_STORAGE = (302, 303, 307)
"""Redirects to a blob in another storage; permanent ones lead to another registry, or to a login page."""
_Login = Credentials | str | None
"""Name and password, or a complete header. Empty sends no login, None uses ~/.netrc."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Retries of failed requests to a registry."""

    attempts: int = 7
    """Seven attempts and their pauses take half a minute, in which a registry can be restarted."""
    pause: float = 0.5
    """Seconds before the second attempt; doubled before each further one."""
    timeout: float = 30.0
    """Seconds without a byte until a request times out."""
    until: float = NEVER
    """Deadline by time.monotonic()."""

    def wait(self, attempt: int, at_least: float = 0.0) -> bool:
        """Pause before the next attempt; return False if the deadline would pass first."""
        # Jitter: clients that failed together should not retry together.
        seconds = max(at_least, min(self.pause * 2**attempt, 15.0) * random.uniform(0.8, 1.0))
        if time.monotonic() + seconds >= self.until:
            return False
        time.sleep(seconds)
        return True


class Body(io.BytesIO):
    """Content of a request that reports how much of it was sent; its small reads keep timeouts short."""

    def __init__(self, content: bytes, moved: Callable[[int], None]) -> None:
        super().__init__(content)
        self._moved = moved

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        self._moved(len(data))
        return data


class Repository:
    """One repository of a registry."""

    def __init__(
        self,
        registry: Registry,
        name: str,
        retry_policy: RetryPolicy,
        progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.registry = registry
        self.name = name
        self.retry_policy = retry_policy
        self._progress = progress
        self._bearer = ""
        self._scheme = "http" if is_loopback(registry.host) else "https"

    def ping(self) -> None:
        """Raise RegistryError if the host does not answer as a registry, or rejects the login."""
        response = self.request("GET", "/v2/")
        if "docker-distribution-api-version" not in response.headers and response.content.strip() not in (
            b"",
            b"{}",
            b"true",
        ):
            message = "the response is not that of a registry"
            raise RegistryError(response.status_code, "", message)

    def tags(self) -> tuple[str, ...]:
        """Return all tags; raise RegistryError with NAME_UNKNOWN for a missing repository."""
        return tuple(tag for page in self._pages("tags/list") for tag in _tags(page))

    def manifest(self, reference: str) -> Manifest | None:
        """Return the manifest of a tag or digest; None if it does not exist."""
        response = self._find("GET", f"manifests/{reference}", {"Accept": ", ".join(KINDS)})
        if response is None:
            return None
        try:
            manifest = parse(response.content[:_MANIFEST_LIMIT], response.headers.get("Content-Type", ""))
        except UnreadableManifestError as error:
            message = f"the response for `{reference}` is not a manifest"
            raise RegistryError(response.status_code, "", message) from error
        if ":" in reference and manifest.digest != reference:
            # Without this check, another manifest could get a release tag.
            message = f"the response for {reference} has another digest"
            raise RegistryError(response.status_code, "", message)
        return manifest

    def digest_of(self, reference: str) -> Digest | None:
        """Return the digest of a tag or digest without its manifest; None if it does not exist."""
        response = self._find("HEAD", f"manifests/{reference}", {"Accept": ", ".join(KINDS)})
        if response is None:
            return None
        if digest := response.headers.get("Docker-Content-Digest"):
            return Digest(digest)
        # The header is optional. Without it, only the manifest has the digest.
        manifest = self.manifest(reference)
        return manifest.digest if manifest else None

    def blob(self, digest: Digest) -> bytes:
        """Return the verified content of a digest."""
        content = self.request("GET", f"blobs/{digest}").content
        if digest_of(content) != digest:
            raise RegistryError(200, "", f"the response for {digest} has another digest")
        return content

    def has_blob(self, digest: Digest, size: int, *, attempts: int = 0) -> bool:
        """Return whether a blob of this size exists, without downloading it."""
        response = self._find("HEAD", f"blobs/{digest}", attempts=attempts)
        if response is None:
            return False
        if response.status_code != 200:
            # A redirect to another storage does not have the size of the blob.
            return response.status_code in _TO_STORAGE
        return response.headers.get("Content-Length", str(size)) == str(size)

    def tag(self, manifest: Manifest, tag: str) -> None:
        """Set `tag` on a stored manifest."""
        self.request("PUT", f"manifests/{tag}", {"Content-Type": manifest.media_type}, manifest.content)

    def delete(self, digest: Digest) -> None:
        """Delete a manifest with all of its tags. Not every registry supports this."""
        self.request("DELETE", f"manifests/{digest}")

    def refusal(self) -> RegistryError | None:
        """Return the registry's error for a new upload; None if it accepts the upload."""
        try:
            response = self.request("POST", "blobs/uploads/")
        except RegistryError as error:
            return error
        # ECR does not support this request; its unfinished uploads expire.
        with contextlib.suppress(RegistryError, KeyError):
            self.request("DELETE", response.headers["Location"])
        return None

    def _pages(self, path: str) -> "Iterator[Response]":
        """Responses to a request for a list and for its continuations."""
        requested: set[str] = set()
        while path:
            if path in requested or len(requested) == _MOST_PAGES:
                message = f"the list `{path}` never ends"
                raise RegistryError(200, "", message)
            requested.add(path)
            response = self.request("GET", path)
            yield response
            path = response.links.get("next", {}).get("url", "")

    def _find(
        self, method: str, path: str, headers: dict[str, str] | None = None, *, attempts: int = 0
    ) -> "Response | None":
        """Return the response to a request; None for a 404."""
        try:
            return self.request(method, path, headers, attempts=attempts)
        except RegistryError as error:
            if error.status == 404:
                return None
            raise

    def request(
        self,
        method: str,
        path: str,
        headers: dict[str, str] | None = None,
        content: bytes | Body | None = None,
        *,
        attempts: int = 0,
        patience: float = 0.0,
    ) -> "Response":
        """Send a request; retry temporary failures (a silent registry once), and log in again once.

        `path` may be a URL that the registry returned. `attempts` replaces the number of the retry policy;
        `patience` is added to its timeout, in seconds.
        """
        renewed = False
        attempt = stalls = 0
        attempts = attempts or self.retry_policy.attempts
        while True:
            try:
                return self._send(method, path, dict(headers or {}), content, patience)
            except RegistryError as error:
                stalls += error.is_stalled
                # A response to HEAD has no body, which could name an expired login.
                is_wordless = method == "HEAD" and error.status == 403
                if (error.is_expired or is_wordless) and not renewed:
                    renewed = True
                    self._bearer = ""
                    self.registry.credentials(renew=True)
                elif not error.may_pass or attempt >= attempts - 1 or stalls > 1:
                    raise
                else:
                    delay = f" in {error.retry_after:.0f} s" if error.retry_after else ""
                    self._progress(f"{self.registry.host} failed, retrying{delay}: {error.answer}")
                    if not self.retry_policy.wait(attempt, error.retry_after):
                        raise
                    attempt += 1

    def _send(
        self, method: str, path: str, headers: dict[str, str], content: bytes | Body | None, patience: float
    ) -> "Response":
        host = _API_HOSTS.get(self.registry.host, self.registry.host)
        root = f"{self._scheme}://{host}/v2/{self.name}/"
        url = urljoin(root, path)
        if _origin(url) != _origin(root):
            # A registry may redirect uploads to another host, which must not get the login.
            response, credentials = self._exchange(method, url, headers, content, patience=patience), None
        else:
            credentials = self.registry.credentials()
            login = self._login(credentials)
            response = self._exchange(method, url, headers, content, login, patience=patience)
            challenge = response.headers.get("WWW-Authenticate", "")
            if response.status_code == 401 and challenge.lower().startswith("bearer "):
                self._bearer = self._token(dict(_CHALLENGE.findall(challenge)), credentials)
                login = self._login(credentials)
                response = self._exchange(method, url, headers, content, login, patience=patience)
        if response.ok:
            return response
        raise error_in(response, credentials)

    def _login(self, credentials: Credentials | None) -> _Login:
        return f"Bearer {self._bearer}" if self._bearer else credentials

    def _token(self, challenge: dict[str, str], credentials: Credentials | None) -> str:
        query = {name: value for name, value in challenge.items() if name in ("service", "scope")}
        response = self._exchange("GET", challenge.get("realm", ""), {}, None, credentials, query)
        if not response.ok:
            raise error_in(response, credentials)
        token = document(response)
        return str(token.get("token") or token.get("access_token") or "")

    def _exchange(
        self,
        method: str,
        url: str,
        headers: dict[str, str],
        content: bytes | Body | None,
        login: _Login = "",
        query: dict[str, str] | None = None,
        patience: float = 0.0,
    ) -> "Response":
        import requests

        timeout = self.retry_policy.timeout

        def exchange() -> "Response":
            if isinstance(content, Body):
                content.seek(0)
            with requests.Session() as session:
                # On loopback, ignore proxies and ~/.netrc.
                session.trust_env = self._scheme == "https"
                sent = dict(headers)
                if isinstance(login, Credentials):
                    session.auth = (login.username, login.password)
                elif login is not None:
                    session.auth = _unchanged
                    if login:
                        sent["Authorization"] = login
                return session.request(
                    method,
                    url,
                    params=query,
                    headers=sent,
                    data=content,
                    timeout=(timeout, timeout + patience),
                    # The redirect itself shows that a blob exists.
                    allow_redirects=method != "HEAD",
                )

        try:
            return bounded(exchange, self.retry_policy.until)
        except requests.RequestException as error:
            reason, text = unreached(error)
            raise RegistryError(None, "", text, unreached=reason, is_stalled=is_timeout(error)) from error


def _tags(page: "Response") -> list[str]:
    tags = document(page).get("tags") or []
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        message = "the response is not a list of tags"
        raise RegistryError(page.status_code, "", message)
    return tags


def _origin(url: str) -> tuple[str, str | None, int | None]:
    """Scheme, host and port of a URL."""
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return "", None, None


def _unchanged(request: "PreparedRequest") -> "PreparedRequest":
    """Authentication that keeps requests from replacing a bearer token by ~/.netrc."""
    return request
