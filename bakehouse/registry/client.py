"""Client of the registry API of the OCI distribution specification."""

import contextlib
import hashlib
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlencode, urljoin

from bakehouse.fetch.connection import origin_of
from bakehouse.fetch.faults import SourceError
from bakehouse.fetch.http_client import HttpReply, HttpRequest, basic_authorization
from bakehouse.fetch.retry import Retries, RetryPolicy
from bakehouse.registry.http_errors import RegistryError, document, error_in
from bakehouse.registry.manifest import KINDS, Manifest, UnreadableManifestError, digest_of, parse
from bakehouse.registry.registry import Credentials, Registry
from bakehouse.util.deadline import bounded
from bakehouse.util.oci import DOCKER_HUB, Digest, is_loopback

_CHALLENGE = re.compile(r'\b(\w+)="([^"]*)"')
_MAX_MANIFEST_BYTES = 4 * 1024**2
_PART_BYTES = 16 * 1024**2
"""Bytes of a blob that one request downloads."""
_MAX_PAGES = 10_000
"""Limit of the pages of a list. A page has at least one entry, and usually 100."""
_HEADERS = {"Accept": "*/*", "Accept-Encoding": "gzip", "User-Agent": "bakehouse"}
_API_HOSTS = {DOCKER_HUB: "registry-1.docker.io"}
"""Hosts of the registry API that differ from those in references."""
_TO_STORAGE = (302, 303, 307)
"""Redirects to a blob in another storage; permanent ones lead to another registry, or to a login page."""


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
        self._is_loopback = is_loopback(registry.host)

    def ping(self) -> None:
        """Raise RegistryError if the host does not answer as a registry, or rejects the login."""
        response = self.request("GET", "/v2/")
        if "docker-distribution-api-version" not in response.headers and response.content.strip() not in (
            b"",
            b"{}",
            b"true",
        ):
            message = "the response is not that of a registry"
            raise RegistryError(response.status, "", message)

    def tags(self) -> tuple[str, ...]:
        """Return all tags; raise RegistryError with NAME_UNKNOWN for a missing repository."""
        return tuple(tag for page in self._pages("tags/list") for tag in _tags(page))

    def manifest(self, reference: str) -> Manifest | None:
        """Return the manifest of a tag or digest; None if it does not exist."""
        response = self._find("GET", f"manifests/{reference}", {"Accept": ", ".join(KINDS)})
        if response is None:
            return None
        try:
            manifest = parse(response.content[:_MAX_MANIFEST_BYTES], response.headers.get("Content-Type", ""))
        except UnreadableManifestError as error:
            message = f"the response for `{reference}` is not a manifest"
            raise RegistryError(response.status, "", message) from error
        if ":" in reference and manifest.digest != reference:
            # Without this check, another manifest could get a release tag.
            message = f"the response for {reference} has another digest"
            raise RegistryError(response.status, "", message)
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

    def download(self, digest: Digest, size: int, path: Path) -> None:
        """Write a blob to a file, in parts; raise RegistryError if it does not have its digest."""
        hashed = hashlib.sha256()
        with path.open("wb") as file:
            while (start := file.tell()) < size:
                headers = {"Range": f"bytes={start}-{min(start + _PART_BYTES, size) - 1}"}
                response = self.request("GET", f"blobs/{digest}", headers)
                content = response.content
                if response.status != HTTPStatus.PARTIAL_CONTENT:
                    # Ranges are optional: the response is the whole blob
                    content = content[start:]
                if not content:
                    break
                hashed.update(content)
                file.write(content)
        if f"sha256:{hashed.hexdigest()}" != digest:
            raise RegistryError(200, "", f"the response for {digest} has another digest")

    def has_blob(self, digest: Digest, size: int, *, attempts: int = 0) -> bool:
        """Return whether a blob of this size exists, without downloading it."""
        response = self._find("HEAD", f"blobs/{digest}", attempts=attempts)
        if response is None:
            return False
        if response.status != 200:
            # A redirect to another storage does not have the size of the blob.
            return response.status in _TO_STORAGE
        return response.headers.get("Content-Length", str(size)) == str(size)

    def tag(self, manifest: Manifest, tag: str) -> None:
        """Set `tag` on a stored manifest."""
        self.put_manifest(manifest, tag)

    def put_manifest(self, manifest: Manifest, reference: str) -> HttpReply:
        """Store a manifest under a tag or its digest."""
        headers = {"Content-Type": manifest.media_type}
        return self.request("PUT", f"manifests/{reference}", headers, manifest.content)

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

    def _pages(self, path: str) -> Iterator[HttpReply]:
        """Responses to a request for a list and for its continuations."""
        requested: set[str] = set()
        while path:
            if path in requested or len(requested) == _MAX_PAGES:
                message = f"the list `{path}` never ends"
                raise RegistryError(200, "", message)
            requested.add(path)
            response = self.request("GET", path)
            yield response
            path = response.next_url

    def _find(
        self, method: str, path: str, headers: dict[str, str] | None = None, *, attempts: int = 0
    ) -> HttpReply | None:
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
    ) -> HttpReply:
        """Send a request; retry temporary failures (a silent registry once), and log in again once.

        `path` may be a URL that the registry returned. `attempts` replaces the number of the retry policy;
        `patience` is added to its timeout, in seconds.
        """
        renewed = False
        retries = Retries(self.retry_policy, attempts)
        while True:
            try:
                return self._send(method, path, dict(headers or {}), content, patience)
            except RegistryError as error:
                # A response to HEAD has no body, so it cannot report an expired login.
                is_wordless = method == "HEAD" and error.status == 403
                if (error.is_expired or is_wordless) and not renewed:
                    renewed = True
                    self._bearer = ""
                    self.registry.credentials(renew=True)
                    continue
                if not retries.add(may_pass=error.may_pass, is_stalled=error.is_stalled):
                    raise
                delay = f" in {error.retry_after:.0f} s" if error.retry_after else ""
                self._progress(f"{self.registry.host} failed, retrying{delay}: {error.answer}")
                if not retries.wait(error.retry_after):
                    raise

    def _send(
        self, method: str, path: str, headers: dict[str, str], content: bytes | Body | None, patience: float
    ) -> HttpReply:
        host = _API_HOSTS.get(self.registry.host, self.registry.host)
        root = f"{'http' if self._is_loopback else 'https'}://{host}/v2/{self.name}/"
        url = urljoin(root, path)
        timeout = self.retry_policy.timeout
        request = HttpRequest(
            method,
            url,
            timeout,
            timeout + patience,
            {**_HEADERS, **headers},
            content,
            authorization="",
            # The redirect itself shows that a blob exists.
            is_redirected=method != "HEAD",
        )
        if origin_of(url) != origin_of(root):
            # A registry may redirect uploads to another host, which must not get the login.
            response, credentials = self._exchange(request), None
        else:
            credentials = self.registry.credentials()
            response = self._exchange(replace(request, authorization=self._login(credentials)))
            challenge = response.headers.get("WWW-Authenticate", "")
            if response.status == 401 and challenge.lower().startswith("bearer "):
                self._bearer = self._token(dict(_CHALLENGE.findall(challenge)), credentials)
                response = self._exchange(replace(request, authorization=self._login(credentials)))
        if response.status < 400:
            return response
        raise error_in(response, credentials)

    def _login(self, credentials: Credentials | None) -> str | None:
        """Return the header of a login; None for the credentials of ~/.netrc."""
        if self._bearer:
            return f"Bearer {self._bearer}"
        return self._basic(credentials)

    def _basic(self, credentials: Credentials | None) -> str | None:
        if credentials:
            return basic_authorization(credentials.username, credentials.password)
        # On loopback, ignore ~/.netrc.
        return "" if self._is_loopback else None

    def _token(self, challenge: dict[str, str], credentials: Credentials | None) -> str:
        query = {name: value for name, value in challenge.items() if name in ("service", "scope")}
        realm, timeout = challenge.get("realm", ""), self.retry_policy.timeout
        url = f"{realm}{'&' if '?' in realm else '?'}{urlencode(query)}"
        login = self._basic(credentials)
        response = self._exchange(HttpRequest("GET", url, timeout, timeout, _HEADERS, authorization=login))
        if response.status >= 400:
            raise error_in(response, credentials)
        token = document(response)
        return str(token.get("token") or token.get("access_token") or "")

    def _exchange(self, request: HttpRequest) -> HttpReply:
        try:
            return bounded(lambda: self.registry.client.send(request), self.retry_policy.until)
        except SourceError as error:
            raise RegistryError(None, "", error.reason, fault=error.fault) from error


def _tags(page: HttpReply) -> list[str]:
    tags = document(page).get("tags") or []
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        message = "the response is not a list of tags"
        raise RegistryError(page.status, "", message)
    return tags
