"""HTTP client with the credentials, proxies and certificates of this machine; time and size are limited.

It sends each request once; `retry` has the policies for retries. Error messages never contain
credentials or the query of a URL.
"""

import base64
import contextlib
import io
import os
import re
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

from bakehouse.errors import EngineError
from bakehouse.fetch.connection import PORTS, ConnectionSettings, is_link_local, origin, origin_of, refusal
from bakehouse.fetch.credentials import LoginStore
from bakehouse.fetch.faults import Fault, SourceError, connection_error, status_error
from bakehouse.util.format import format_bytes, format_seconds

if TYPE_CHECKING:
    import urllib3

CONNECT_SECONDS = 5.0
READ_SECONDS = 10.0
_CHUNK = 1 << 16
"""Small, so that received bytes are kept if the connection breaks."""
_MAX_REDIRECTS = 5
MAX_REPLY_BYTES = 4 * 1024**2
"""Limit of a response without another one. It is the limit of registries for manifests."""
_REPLY_SECONDS = 60.0
_REPLY_BYTES_PER_SECOND = 100_000
"""Slowest transfer of a response that is kept in memory, after these seconds."""
_NO_ENCODINGS = ("", "identity", "aws-chunked")
"""S3 repeats `aws-chunked` of uploads, although it sends the object as it is."""
_ANY = "*/*"
_MAX_CONCURRENT_REQUESTS = 8
_SLOW_SECONDS = 20.0
MIN_BYTES = 20_000
"""Bytes that a source must send in that time."""
_RANGE = re.compile(r"bytes (?P<start>[0-9]{1,18})-[0-9]{1,18}/(?P<total>[0-9]{1,18}|\*)")
_LENGTH = re.compile("[0-9]{1,18}")
"""Numbers of bytes. Python refuses longer ones than 4,300 digits, and `isdigit` accepts superscripts."""
_NEXT = re.compile(r'<([^<>]*)>\s*;[^,]*\brel="?next\b')
_BODY_HEADERS = ("Content-Length", "Content-Type", "Content-Range")


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request, and how long to wait for its response."""

    method: str
    url: str
    connect_seconds: float
    read_seconds: float
    """Time limit for each read."""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | io.BytesIO | None = None
    authorization: str | None = None
    """Header for the server of `url` only; empty for none, None for the credentials of this machine."""
    is_redirected: bool = True
    """Follow redirects."""
    max_bytes: int = MAX_REPLY_BYTES
    """Limit of the response, after decompression."""
    file: IO[bytes] | None = None
    """File for the content of a success, at the position that the response states, instead of the reply."""


@dataclass(frozen=True, slots=True)
class HttpReply:
    """A complete response."""

    status: int
    reason: str
    headers: Mapping[str, str]
    """Their names are case-insensitive."""
    content: bytes
    """At most `max_bytes` of the request."""
    authorization: str = ""
    """Header that was sent, so that it can be removed from messages."""

    @property
    def next_url(self) -> str:
        """URL of the next page of a list, which may be relative; empty without one."""
        match = _NEXT.search(self.headers.get("Link", ""))
        return match[1] if match else ""


class SourceResponse(Protocol):
    """The bytes of a file, from `start` on."""

    start: int
    total: int | None
    """Size of the whole file; None if the source does not send it."""
    validator: str

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes; raise SourceError if they end too early."""


class TransferSpeed:
    """Check of the speed of one transfer."""

    def __init__(self) -> None:
        self._since, self._bytes = time.monotonic(), 0

    def add(self, count: int) -> None:
        """Count received bytes; raise SourceError if the transfer is too slow."""
        self._bytes += count
        if (seconds := time.monotonic() - self._since) < _SLOW_SECONDS:
            return
        if self._bytes < MIN_BYTES:
            reason = f"sent {format_bytes(self._bytes)} in {format_seconds(seconds)}: too slow"
            raise SourceError(reason, Fault.SLOW)
        self._since, self._bytes = time.monotonic(), 0


class HttpClient:
    """HTTP client with connection pools; thread-safe."""

    def __init__(self, settings: ConnectionSettings, environment: Mapping[str, str] = os.environ) -> None:
        self._settings, self._logins = settings, LoginStore(settings, environment)
        self._pools: dict[tuple[str, bool], urllib3.PoolManager] = {}
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def open(
        self, address: str, *, start: int = 0, validator: str = "", accept: str = _ANY
    ) -> Iterator["HttpResponse"]:
        """Open a URL at byte `start`, or at 0 if the server does not support ranges."""
        # Files are hashed as they are; pages may be compressed.
        encoding = "identity" if accept == _ANY else "gzip"
        headers = {"Accept": accept, "Accept-Encoding": encoding, "User-Agent": "bakehouse"}
        part = {"Range": f"bytes={start}-"} if start else {}
        if start and validator:
            part["If-Range"] = validator
        request = HttpRequest("GET", address, CONNECT_SECONDS, READ_SECONDS, {**headers, **part})
        response = self._send(request)
        if start and not response.has_start(start):
            # The file has changed or is shorter than the partial one, or the server does not support ranges.
            response.close()
            response = self._send(replace(request, headers=headers))
        try:
            if response.status not in (200, 206):
                raise status_error(response.status)
            if response.status == 206 and not response.has_start(start):
                reason = f"returned other bytes than the requested ones from {start} on"
                raise SourceError(reason)
            yield response
        finally:
            response.close()

    def send(self, request: HttpRequest) -> HttpReply:
        """Return the response to a request, with any status. Raises SourceError without one."""
        response = self._send(request)
        try:
            return response.reply(request)
        finally:
            response.close()

    def _send(self, request: HttpRequest) -> "HttpResponse":
        """Send a request and follow redirects, each with its own proxy and credentials."""
        login, is_first_server = None, True
        for _ in range(_MAX_REDIRECTS + 1):
            if not origin_of(request.url):
                reason = "its URL is invalid"
                raise SourceError(reason, Fault.ADDRESS)
            url = urlsplit(request.url)
            if is_link_local(url.hostname or ""):
                reason = f"leads to `{url.hostname}`, a link-local address"
                raise SourceError(reason, Fault.ADDRESS)
            if request.authorization is None:
                login = self._logins.of(url) or login
                authorization = basic_authorization(*login) if login else ""
            else:
                authorization = request.authorization if is_first_server else ""
            response = self._exchange(request, url, authorization)
            if not request.is_redirected or not response.target:
                return response
            response.close()
            target = response.target
            with contextlib.suppress(ValueError):
                target = urljoin(request.url, target)
            if reason := refusal(request.url, target):
                raise SourceError(reason, Fault.ADDRESS)
            if origin_of(target) != origin_of(request.url):
                login, is_first_server = None, False
            request = _redirected(request, target, response.status)
        reason = "redirects too often"
        raise SourceError(reason)

    def _exchange(self, request: HttpRequest, url: SplitResult, authorization: str) -> "HttpResponse":
        import urllib3

        headers = {**request.headers, **({"Authorization": authorization} if authorization else {})}
        if isinstance(request.body, io.BytesIO):
            request.body.seek(0)
            # Without a length, urllib3 sends it in chunks, which registries do not accept.
            headers["Content-Length"] = str(request.body.getbuffer().nbytes)
        proxy, seconds = self._settings.proxies.to(url), (request.connect_seconds, request.read_seconds)
        pool = self._pool(proxy, is_checked=not self._is_unchecked(url))
        try:
            response = pool.urlopen(
                request.method,
                _bare(url),
                body=request.body,
                headers=headers,
                preload_content=False,
                decode_content=False,
                timeout=urllib3.Timeout(connect=seconds[0], read=seconds[1]),
                redirect=False,
                retries=False,
            )
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise connection_error(error, proxy, seconds) from None
        return HttpResponse(response, request, proxy, authorization)

    def _pool(self, proxy: str, *, is_checked: bool) -> "urllib3.PoolManager":
        import urllib3

        from bakehouse.fetch import checked_connection

        with self._lock:
            if pool := self._pools.get((proxy, is_checked)):
                return pool
            context = _context(self._settings.certificates, is_checked=is_checked)
            options: dict[str, Any] = {
                "ssl_context": context,
                "maxsize": _MAX_CONCURRENT_REQUESTS,
                "num_pools": 32,
            }
            if not proxy:
                pool = urllib3.PoolManager(**options)
                pool.pool_classes_by_scheme = checked_connection.pools()
            else:
                url = _proxy(proxy)
                login = f"{unquote(url.username)}:{unquote(url.password or '')}" if url.username else None
                headers = urllib3.make_headers(proxy_basic_auth=login)
                try:
                    pool = urllib3.ProxyManager(
                        _bare(url), proxy_headers=headers, proxy_ssl_context=context, **options
                    )
                except urllib3.exceptions.HTTPError:
                    reason = f"`{url.scheme}` proxies are not supported"
                    raise SourceError(reason, Fault.SETTINGS) from None
            self._pools[proxy, is_checked] = pool
            return pool

    def _is_unchecked(self, url: SplitResult) -> bool:
        names = (url.hostname, f"{url.hostname}:{url.port or PORTS.get(url.scheme)}", "*")
        return any(name in self._settings.unchecked for name in names)


class HttpResponse:
    """A response whose content has not been read."""

    def __init__(
        self, response: "urllib3.BaseHTTPResponse", request: HttpRequest, proxy: str, authorization: str
    ) -> None:
        self._response, self._proxy, self._authorization = response, proxy, authorization
        self._seconds, self.address = (request.connect_seconds, request.read_seconds), request.url
        self.target = response.get_redirect_location() or ""
        """URL of a redirect, which may be relative."""
        self.status, headers = response.status, response.headers
        self._range = _RANGE.match(headers.get("Content-Range", "")) if self.status == 206 else None
        self.start = int(self._range["start"]) if self._range else 0
        length = headers.get("Content-Length", "")
        self.total = self.start + int(length) if _LENGTH.fullmatch(length) else None
        if self._range:
            # Some servers send only a part of the rest.
            self.total = int(self._range["total"]) if self._range["total"] != "*" else None
        tag = headers.get("ETag", "")
        self.validator = tag if tag and not tag.startswith("W/") else ""
        self.kind = headers.get("Content-Type", "").partition(";")[0].strip()

    def has_start(self, start: int) -> bool:
        """Return whether the response fits the requested range."""
        if self.status == 206:
            return self._range is not None and self.start == start
        return self.status != 416

    def close(self) -> None:
        # A connection with unread bytes cannot be reused.
        self._response.close()
        self._response.release_conn()

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes that were sent. Files are hashed as they are."""
        import urllib3

        try:
            # Yield even a few bytes at once, so that a slow source is detected.
            while chunk := self._response.read1(_CHUNK, decode_content=False):
                yield chunk
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise connection_error(error, self._proxy, self._seconds) from None

    def text(self, limit: int) -> str:
        """Read a page. Raises SourceError if it has more than `limit` bytes, or is too slow."""
        return self._content(limit).decode(errors="replace")

    def reply(self, request: HttpRequest) -> HttpReply:
        """Read the response within the limits of its request."""
        content = b""
        if request.file and self.status in (200, 206):
            # Without support for ranges, the response is the whole file.
            request.file.seek(self.start)
            request.file.truncate()
            for chunk in self._limited(request.max_bytes):
                request.file.write(chunk)
        else:
            content = self._content(request.max_bytes)
        response = self._response
        return HttpReply(self.status, response.reason or "", response.headers, content, self._authorization)

    def _content(self, limit: int) -> bytes:
        data, until = bytearray(), time.monotonic() + _REPLY_SECONDS + limit / _REPLY_BYTES_PER_SECOND
        for chunk in self._limited(limit):
            data += chunk
            if time.monotonic() > until:
                reason = f"sent {format_bytes(len(data))} of its response in time: too slow"
                raise SourceError(reason, Fault.SLOW)
        return bytes(data)

    def _limited(self, limit: int) -> Iterator[bytes]:
        """Yield decompressed content; raise SourceError before it exceeds `limit`, or if it is too slow."""
        count, speed = 0, TransferSpeed()
        for chunk in self._decompressed():
            speed.add(len(chunk))
            count += len(chunk)
            if count > limit:
                reason = f"answered with more than {format_bytes(limit)}"
                raise SourceError(reason)
            yield chunk

    def _decompressed(self) -> Iterator[bytes]:
        """Yield chunks of limited size.

        urllib3 before 2.6 decompresses all that it has received at once, in any encoding.
        """
        encodings = self._response.headers.get("Content-Encoding", "").lower().split(",")
        names = [name.strip() for name in encodings if name.strip() not in _NO_ENCODINGS]
        if names and names not in (["gzip"], ["x-gzip"]):
            reason = f"answered in the encoding `{', '.join(names)[:40]}`, which was not requested"
            raise SourceError(reason)
        if not names:
            yield from self.chunks()
            return
        from bakehouse.util.archive_reader import ArchiveError, decompress

        try:
            yield from decompress(self.chunks(), "gzip")
        except ArchiveError:
            reason = "closed the connection"
            raise SourceError(reason, Fault.CUT_OFF) from None


def basic_authorization(user: str, password: str) -> str:
    """Return the Authorization header for a user and password."""
    login = f"{user}:{password}"
    try:
        data = login.encode("latin-1")
    except UnicodeEncodeError:
        data = login.encode()
    return f"Basic {base64.b64encode(data).decode()}"


def _redirected(request: HttpRequest, target: str, status: int) -> HttpRequest:
    """Return the request for the target of a redirect, which changes its method as in browsers."""
    is_get = request.method != "HEAD" and (
        status in (302, 303) or (status == 301 and request.method == "POST")
    )
    if not is_get:
        return replace(request, url=target)
    headers = {name: value for name, value in request.headers.items() if name not in _BODY_HEADERS}
    return replace(request, method="GET", url=target, headers=headers, body=None)


def _proxy(address: str) -> SplitResult:
    try:
        url = urlsplit(address)
        origin(url)
    except ValueError:
        reason = "the URL of its proxy is invalid"
        raise SourceError(reason, Fault.SETTINGS) from None
    return url


def _bare(url: SplitResult) -> str:
    query = f"?{url.query}" if url.query else ""
    return f"{origin(url)}{url.path}{query}"


def _context(certificates: tuple[Path, ...], *, is_checked: bool) -> ssl.SSLContext:
    context = ssl.create_default_context()
    for path in certificates:
        try:
            context.load_verify_locations(capath=path) if path.is_dir() else context.load_verify_locations(
                path
            )
        except OSError as error:
            raise EngineError(
                f"`{path}` contains no readable certificates",
                hint="set `ca` in [tool.bakehouse] or PIP_CERT to a file of certificates (PEM)",
            ) from error
    if not is_checked:
        import urllib3

        # The user has turned verification off for this host.
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
