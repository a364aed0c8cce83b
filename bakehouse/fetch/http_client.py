"""HTTP client with the credentials, proxies and certificates of this machine, and with time limits.

Error messages never contain credentials or the query of a URL.
"""

import contextlib
import os
import re
import ssl
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

from bakehouse.errors import EngineError
from bakehouse.fetch.connection import PORTS, ConnectionSettings, origin, origin_of, redacted
from bakehouse.fetch.credentials import LoginStore
from bakehouse.util.format import format_bytes

if TYPE_CHECKING:
    import urllib3

CONNECT_SECONDS = 5.0
READ_SECONDS = 10.0
NO_FILE = "does not have the file"
"""Reason of a server that answers, but lacks a file."""
_CHUNK = 1 << 16
"""Small, so that received bytes are kept if the connection breaks."""
_MOST_REDIRECTS = 5
_ANY = "*/*"
_AT_ONCE = 8
_RANGE = re.compile(r"bytes (?P<start>\d+)-\d+/(?P<total>\d+|\*)")
_TUNNEL = re.compile(r"Tunnel connection failed: (\d+)")


class SourceError(Exception):
    """A source did not send a file."""

    def __init__(
        self,
        reason: str,
        *,
        is_down: bool = False,
        is_worth_a_retry: bool = False,
        is_forbidden: bool = False,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_down = is_down
        """The whole server is unavailable for now."""
        self.is_worth_a_retry = is_worth_a_retry
        self.is_forbidden = is_forbidden
        """The server answered 403, with which S3 also hides missing files."""


class SourceResponse(Protocol):
    """The bytes of a file, from `start` on."""

    start: int
    total: int | None
    """Size of the whole file; None if the source does not send it."""
    validator: str

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes; raise SourceError if they end too early."""


class HttpClient:
    """HTTP client with connection pools, for many threads."""

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
        response = self._ask(address, {**headers, **part})
        if start and not response.goes_on(start):
            # The file is shorter than ours or different, or the server does not support ranges.
            response.close()
            response = self._ask(address, headers)
        try:
            _check(response.status)
            if response.status == 206 and not response.goes_on(start):
                reason = f"returned other bytes than the requested ones from {start} on"
                raise SourceError(reason)
            yield response
        finally:
            response.close()

    def _ask(self, address: str, headers: Mapping[str, str]) -> "HttpResponse":
        """Send a request and follow redirects, each with its own proxy and credentials."""
        import urllib3

        login = None
        for _ in range(_MOST_REDIRECTS + 1):
            if not origin_of(address):
                reason = "its URL is invalid"
                raise SourceError(reason)
            url = urlsplit(address)
            login = self._logins.of(url) or login
            authorization = urllib3.make_headers(basic_auth=":".join(login)) if login else {}
            proxy = self._settings.proxies.to(url)
            try:
                pool = self._pool(proxy, is_checked=not self._is_unchecked(url))
                response = _request(pool, _bare(url), {**headers, **authorization})
            except urllib3.exceptions.HTTPError as error:
                raise _source_error(error, proxy) from None
            answer = HttpResponse(response, proxy, address)
            target = response.get_redirect_location()
            if not target:
                return answer
            answer.close()
            with contextlib.suppress(ValueError):
                target = urljoin(address, target)
            login = login if origin_of(target) == origin_of(address) else None
            address = target
        reason = "redirects too often"
        raise SourceError(reason)

    def _pool(self, proxy: str, *, is_checked: bool) -> "urllib3.PoolManager":
        import urllib3

        with self._lock:
            if pool := self._pools.get((proxy, is_checked)):
                return pool
            context = _context(self._settings.certificates, is_checked=is_checked)
            options: dict[str, Any] = {"ssl_context": context, "maxsize": _AT_ONCE, "num_pools": 32}
            if not proxy:
                pool = urllib3.PoolManager(**options)
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
                    raise SourceError(reason, is_down=True) from None
            self._pools[proxy, is_checked] = pool
            return pool

    def _is_unchecked(self, url: SplitResult) -> bool:
        names = (url.hostname, f"{url.hostname}:{url.port or PORTS.get(url.scheme)}", "*")
        return any(name in self._settings.unchecked for name in names)


class HttpResponse:
    """A response, and the proxy and URL that it came from."""

    def __init__(self, response: "urllib3.BaseHTTPResponse", proxy: str, address: str) -> None:
        self._response, self._proxy, self.address = response, proxy, address
        self.status, headers = response.status, response.headers
        self._range = _RANGE.match(headers.get("Content-Range", "")) if self.status == 206 else None
        self.start = int(self._range["start"]) if self._range else 0
        length = headers.get("Content-Length", "")
        self.total = self.start + int(length) if length.isdigit() else None
        if self._range:
            # Some servers send only a part of the rest.
            self.total = int(self._range["total"]) if self._range["total"] != "*" else None
        tag = headers.get("ETag", "")
        self.validator = tag if tag and not tag.startswith("W/") else ""
        self.kind = headers.get("Content-Type", "").partition(";")[0].strip()

    def goes_on(self, start: int) -> bool:
        """Return whether the response fits the requested range."""
        if self.status == 206:
            return self._range is not None and self.start == start
        return self.status != 416

    def close(self) -> None:
        # A connection with unread bytes cannot be reused.
        self._response.close()
        self._response.release_conn()

    def chunks(self) -> Iterator[bytes]:
        import urllib3

        try:
            # Yield bytes at once, however few, so that a slow source is noticed.
            while chunk := self._response.read1(_CHUNK, decode_content=False):
                yield chunk
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise _source_error(error, self._proxy) from None

    def text(self, limit: int) -> str:
        """Read a page. Raises SourceError if it has more than `limit` bytes, or is too slow."""
        import urllib3

        # It imports this module
        from bakehouse.fetch.backoff import TransferSpeed

        data, speed = bytearray(), TransferSpeed()
        try:
            while chunk := self._response.read1(_CHUNK, decode_content=True):
                speed.add(len(chunk))
                data += chunk
                if len(data) > limit:
                    reason = f"answered with more than {format_bytes(limit)}"
                    raise SourceError(reason)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise _source_error(error, self._proxy) from None
        return data.decode(errors="replace")


def _request(
    pool: "urllib3.PoolManager", address: str, headers: Mapping[str, str]
) -> "urllib3.BaseHTTPResponse":
    import urllib3

    return pool.request(
        "GET",
        address,
        headers=headers,
        preload_content=False,
        decode_content=False,
        timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=READ_SECONDS),
        redirect=False,
        retries=False,
    )


def _proxy(address: str) -> SplitResult:
    try:
        url = urlsplit(address)
        origin(url)
    except ValueError:
        reason = "the URL of its proxy is invalid"
        raise SourceError(reason, is_down=True) from None
    return url


def _bare(url: SplitResult) -> str:
    query = f"?{url.query}" if url.query else ""
    return f"{origin(url)}{url.path}{query}"


def _context(certificates: Path | None, *, is_checked: bool) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if certificates:
        try:
            context.load_verify_locations(certificates)
        except OSError as error:
            raise EngineError(
                f"`{certificates}` contains no readable certificates",
                hint="set `ca` in [tool.bakehouse] or PIP_CERT to a file of certificates (PEM)",
            ) from error
    if not is_checked:
        import urllib3

        # The user has turned verification off for this host.
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _check(status: int) -> None:
    match status:
        case 200 | 206:
            return
        case 404 | 410:
            error = SourceError(NO_FILE)
        case 407:
            error = SourceError("its proxy requires credentials (407)", is_down=True)
        case 401 | 403:
            error = SourceError(f"refused access ({status})", is_forbidden=status == 403)
        case _:
            is_temporary = status >= 500 or status in (408, 429)
            error = SourceError(f"answered with {status}", is_worth_a_retry=is_temporary)
    raise error


def _source_error(error: Exception, proxy: str) -> SourceError:
    """Return a failure without the URL, which the text of urllib3 can contain."""
    from urllib3 import exceptions

    if isinstance(error, exceptions.MaxRetryError) and error.reason:
        error = error.reason
    if isinstance(error, exceptions.ProxyError):
        cause = str(error.original_error)
        via = f"its proxy `{redacted(proxy)}`"
        if "407" in cause:
            return SourceError(f"{via} requires credentials (407)", is_down=True)
        if status := _TUNNEL.match(cause):
            return SourceError(f"{via} answered with {status[1]}", is_down=True)
        return SourceError(f"{via} failed: {_cause(error.original_error)}", is_down=True)
    if isinstance(error, exceptions.NameResolutionError):
        return SourceError("its host name cannot be resolved", is_down=True)
    if isinstance(error, exceptions.NewConnectionError):
        return SourceError(f"is unreachable: {_cause(error)}", is_down=True, is_worth_a_retry=True)
    if isinstance(error, exceptions.ConnectTimeoutError):
        return SourceError(f"no connection in {CONNECT_SECONDS:.0f} s", is_down=True)
    if isinstance(error, exceptions.ReadTimeoutError):
        return SourceError(f"silent for {READ_SECONDS:.0f} s", is_down=True)
    if isinstance(error, exceptions.SSLError):
        return SourceError(_certificate(error), is_down=True)
    return SourceError("closed the connection", is_down=True, is_worth_a_retry=True)


def _certificate(error: Exception) -> str:
    cause = error.args[0] if error.args and isinstance(error.args[0], Exception) else error
    words = getattr(cause, "verify_message", "") or getattr(cause, "reason", "") or "TLS failed"
    return f"its certificate is not trusted: {words}" if "verify_message" in dir(cause) else f"TLS: {words}"


def _cause(error: BaseException) -> str:
    """Return the text of the operating system for the root cause of a failure."""
    while error is not None:
        if isinstance(error, OSError) and error.strerror:
            return error.strerror.lower()
        cause = error.__cause__ or error.__context__ or getattr(error, "original_error", None)
        if cause is None or cause is error:
            break
        error = cause
    return "no connection"
