"""Client of the registry API of the OCI distribution specification."""

import contextlib
import hashlib
import io
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO
from urllib.parse import urlencode, urljoin, urlsplit

from bakehouse.fetch.connection import origin_of, refusal
from bakehouse.fetch.faults import Fault, SourceError
from bakehouse.fetch.http_client import MAX_REPLY_BYTES, HttpReply, HttpRequest, basic_authorization
from bakehouse.fetch.retry import Retries, RetryPolicy
from bakehouse.registry.http_errors import RegistryError, document, error_in
from bakehouse.registry.manifest import KINDS, Manifest, UnreadableManifestError, digest_of, parse
from bakehouse.registry.registry import Credentials, Registry
from bakehouse.util.deadline import bounded
from bakehouse.util.oci import DOCKER_HUB, Digest, is_loopback

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_CHALLENGE = re.compile(r'\b(\w+)="([^"]*)"')
_PART_BYTES = 16 * 1024**2
"""Bytes of a blob that one request downloads."""
_MAX_PAGES = 10_000
"""Limit of the pages of a list. A page has at least one entry, and usually 100."""
_MAX_LIST_BYTES = 4 * MAX_REPLY_BYTES
"""Limit of all pages of a list: more than 100,000 tags of the longest kind."""
_HEADERS = {"Accept": "*/*", "Accept-Encoding": "gzip", "User-Agent": "bakehouse"}
_API_HOSTS = {DOCKER_HUB: "registry-1.docker.io"}
"""Hosts of the registry API that differ from those in references."""
_PUBLIC_DOMAINS = ("ac", "co", "com", "edu", "gov", "net", "or", "org")
"""First labels of domains such as `co.uk`, below which everybody can have hosts."""
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
            manifest = parse(response.content, response.headers.get("Content-Type", ""))
        except UnreadableManifestError as error:
            message = f"the response for `{reference}` is not a manifest"
            raise RegistryError(response.status, "", message) from error
        stated = response.headers.get("Docker-Content-Digest", manifest.digest)
        if stated != manifest.digest or (":" in reference and manifest.digest != reference):
            # Without this check, another manifest could get a release tag.
            message = f"the response for {reference} has another digest"
            raise RegistryError(response.status, "", message)
        return manifest

    def digest_of(self, reference: str) -> Digest | None:
        """Return the digest of a tag or digest without its manifest; None if it does not exist."""
        response = self._find("HEAD", f"manifests/{reference}", {"Accept": ", ".join(KINDS)})
        if response is None:
            return None
        digest = response.headers.get("Docker-Content-Digest", "")
        if _DIGEST.fullmatch(digest) and (":" not in reference or digest == reference):
            return Digest(digest)
        # The header is optional, and may be wrong. Without it, only the manifest has the digest.
        manifest = self.manifest(reference)
        return manifest.digest if manifest else None

    def blob(self, digest: Digest, max_bytes: int = MAX_REPLY_BYTES) -> bytes:
        """Return the verified content of a digest."""
        content = self.request("GET", f"blobs/{digest}", limit=max_bytes).content
        if digest_of(content) != digest:
            raise RegistryError(200, "", f"the response for {digest} has another digest")
        return content

    def download(self, digest: Digest, size: int, path: Path) -> None:
        """Write a blob to a file, in parts; raise RegistryError if it does not have its digest."""
        with path.open("w+b") as file:
            while (start := file.seek(0, os.SEEK_END)) < size:
                headers = {"Range": f"bytes={start}-{min(start + _PART_BYTES, size) - 1}"}
                self.request("GET", f"blobs/{digest}", headers, file=file, limit=size)
                if file.seek(0, os.SEEK_END) <= start:
                    break
            file.seek(0)
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        if f"sha256:{sha256}" != digest:
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
        size = 0
        while path:
            if path in requested or len(requested) == _MAX_PAGES or size > _MAX_LIST_BYTES:
                message = f"the list `{path}` never ends"
                raise RegistryError(200, "", message)
            requested.add(path)
            response = self.request("GET", path)
            size += len(response.content)
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
        limit: int = MAX_REPLY_BYTES,
        file: IO[bytes] | None = None,
    ) -> HttpReply:
        """Send a request; retry temporary failures (a silent registry once), and log in again once.

        `path` may be a URL that the registry returned. `attempts` replaces the number of the retry policy;
        `patience` is added to its timeout, in seconds. The response has at most `limit` bytes, and goes to
        `file` if it is given.
        """
        timeout = self.retry_policy.timeout
        request = HttpRequest(
            method,
            urljoin(self._root, path),
            timeout,
            timeout + patience,
            {**_HEADERS, **(headers or {})},
            content,
            authorization="",
            # The redirect itself shows that a blob exists.
            is_redirected=method != "HEAD",
            max_bytes=limit,
            file=file,
        )
        renewed = False
        retries = Retries(self.retry_policy, attempts)
        while True:
            try:
                return self._send(request)
            except RegistryError as error:
                # A response to HEAD has no body, so it cannot report an expired login.
                is_wordless = method == "HEAD" and error.status == 403
                if (error.is_expired or is_wordless) and not renewed:
                    renewed = True
                    self._bearer = ""
                    self.registry.credentials(renew=True)
                    continue
                if not retries.add(
                    may_pass=error.may_pass, is_stalled=error.is_stalled, at_least=error.retry_after
                ):
                    raise
                delay = f" in {error.retry_after:.0f} s" if error.retry_after else ""
                self._progress(f"{self.registry.host} failed, retrying{delay}: {error.answer}")
                retries.wait()

    @property
    def _root(self) -> str:
        host = _API_HOSTS.get(self.registry.host, self.registry.host)
        return f"{'http' if self._is_loopback else 'https'}://{host}/v2/{self.name}/"

    def _send(self, request: HttpRequest) -> HttpReply:
        if reason := refusal(self._root, request.url):
            raise RegistryError(None, "", reason, fault=Fault.ADDRESS)
        if origin_of(request.url) != origin_of(self._root):
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
        if not may_ask_for_token(self._root, realm, has_password=credentials is not None):
            message = f"its token server `{origin_of(realm)}` is not its own, and gets no password"
            raise RegistryError(None, "", message, fault=Fault.ADDRESS)
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


def may_ask_for_token(registry: str, realm: str, *, has_password: bool) -> bool:
    """Return whether the token server that a registry names may be asked, with the password if there is one.

    Only a server at the origin of the registry needs no TLS. The password goes to servers of the same domain
    only, such as `auth.docker.io` for `registry-1.docker.io`.
    """
    if origin_of(realm) == origin_of(registry) != "":
        return True
    if not realm.startswith("https://") or not origin_of(realm) or refusal(registry, realm):
        return False
    hosts = [(urlsplit(address).hostname or "").rstrip(".") for address in (registry, realm)]
    return not has_password or hosts[0] == hosts[1] or _share_domain(*hosts)


def _share_domain(first: str, second: str) -> bool:
    """Return whether one of two hosts is in the domain of the other, or next to it."""
    domains = [_domain(host) for host in (first, second)]
    return all(domains) and any(
        f".{host}".endswith(f".{domain}") for host, domain in ((first, domains[1]), (second, domains[0]))
    )


def _domain(host: str) -> str:
    """Return the domain that contains a host; empty for an address, or if others have hosts in the domain."""
    labels = host.split(".")
    if ":" in host or labels[-1].isdecimal() or len(labels) < 2:
        return ""
    domain = labels[1:] if len(labels) > 2 else labels
    is_public = len(domain) == 2 and len(domain[1]) == 2 and domain[0] in _PUBLIC_DOMAINS
    return ".".join(labels if is_public else domain)


def _tags(page: HttpReply) -> list[str]:
    tags = document(page).get("tags") or []
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        message = "the response is not a list of tags"
        raise RegistryError(page.status, "", message)
    return tags
