"""Faults of sources and servers: kinds, whether they are temporary, and descriptions for the user.

Error messages never contain credentials or the query of a URL.
"""

import re
import socket
import ssl
from collections.abc import Iterator
from enum import Enum

from bakehouse.errors import Diagnostic
from bakehouse.fetch.connection import redacted

_TUNNEL = re.compile(r"Tunnel connection failed: (\d+)")


class Fault(Enum):
    """Kind of a failed request. The value describes it for developers only."""

    NAME = "the host name does not exist"
    NAME_SERVER = "the name server does not answer"
    UNREACHABLE = "the connection is refused, or the network is unreachable"
    NO_CONNECTION = "the connection times out"
    CERTIFICATE = "the certificate is not trusted"
    NOT_TLS = "the server does not use TLS"
    TLS = "TLS fails in another way"
    PROXY = "the proxy fails or does not answer"
    PROXY_LOGIN = "the proxy requires credentials"
    SILENT = "no byte arrives until the timeout"
    SLOW = "few bytes arrive"
    CUT_OFF = "the connection ends before the response does"
    SETTINGS = "the source cannot be used with these settings"
    ADDRESS = "the URL is invalid"
    LOGIN = "the server requires other credentials"
    DENIED = "the server denies access, with which S3 also hides missing files"
    MISSING = "the server answers, but lacks the file"
    BUSY = "the server fails or is overloaded"
    REJECTED = "the server rejects the request"
    CONTENT = "the response is not the expected one"

    @property
    def is_down(self) -> bool:
        """Return whether the whole server is unavailable for now."""
        return self in _DOWN

    @property
    def may_pass(self) -> bool:
        """Return whether the same request may succeed within a minute."""
        return self in _TEMPORARY

    @property
    def is_worth_a_retry(self) -> bool:
        """Return whether to repeat the request at once, although there are other sources."""
        return self in (Fault.UNREACHABLE, Fault.CUT_OFF, Fault.BUSY)


_TEMPORARY = {
    *(Fault.NAME_SERVER, Fault.UNREACHABLE, Fault.NO_CONNECTION, Fault.TLS, Fault.PROXY),
    *(Fault.SILENT, Fault.SLOW, Fault.CUT_OFF, Fault.BUSY),
}
_DOWN = {
    *(_TEMPORARY - {Fault.BUSY}),
    *(Fault.NAME, Fault.CERTIFICATE, Fault.NOT_TLS, Fault.PROXY_LOGIN, Fault.SETTINGS),
}


class SourceError(Exception):
    """A source or server did not send what was requested."""

    def __init__(self, reason: str, fault: Fault = Fault.CONTENT) -> None:
        super().__init__(reason)
        self.reason = reason
        self.fault = fault


def fault_of_status(status: int) -> Fault | None:
    """Return the fault of an HTTP status; None for a success."""
    match status:
        case _ if status < 400:
            return None
        case 401:
            return Fault.LOGIN
        case 403:
            return Fault.DENIED
        case 404 | 410:
            return Fault.MISSING
        case 407:
            return Fault.PROXY_LOGIN
        case 408 | 429:
            return Fault.BUSY
        case _:
            return Fault.BUSY if status >= 500 else Fault.REJECTED


def status_error(status: int) -> SourceError:
    """Return the failure of a response that is not the content of a file."""
    fault = fault_of_status(status) or Fault.REJECTED
    reasons = {
        Fault.MISSING: "does not have the file",
        Fault.PROXY_LOGIN: "its proxy requires credentials (407)",
        Fault.LOGIN: f"refused access ({status})",
        Fault.DENIED: f"refused access ({status})",
    }
    return SourceError(reasons.get(fault, f"answered with {status}"), fault)


def connection_error(error: Exception, proxy: str, seconds: tuple[float, float]) -> SourceError:
    """Convert a failure of urllib3. Its text can contain the URL, so it is left out.

    `seconds` are the timeouts of the connection and of reads.
    """
    from urllib3 import exceptions

    if isinstance(error, exceptions.ProxyError):
        return _proxy_error(error.original_error, f"its proxy `{redacted(proxy)}`")
    if isinstance(error, exceptions.NameResolutionError):
        temporary = any(getattr(cause, "errno", None) == socket.EAI_AGAIN for cause in _causes(error))
        return SourceError("its host name cannot be resolved", Fault.NAME_SERVER if temporary else Fault.NAME)
    if isinstance(error, exceptions.NewConnectionError):
        return SourceError(f"is unreachable: {_system_text(error)}", Fault.UNREACHABLE)
    if isinstance(error, exceptions.ConnectTimeoutError):
        return SourceError(f"no connection in {seconds[0]:.0f} s", Fault.NO_CONNECTION)
    if isinstance(error, exceptions.LocationValueError):
        return SourceError("its URL is invalid", Fault.ADDRESS)
    for cause in _causes(error):
        if isinstance(cause, TimeoutError | exceptions.ReadTimeoutError):
            return SourceError(f"silent for {seconds[1]:.0f} s", Fault.SILENT)
        if isinstance(cause, ssl.SSLCertVerificationError):
            reason = f"its certificate is not trusted: {cause.verify_message}"
            return SourceError(reason, Fault.CERTIFICATE)
        if isinstance(cause, ssl.SSLError) and cause.reason == "WRONG_VERSION_NUMBER":
            return SourceError("does not use TLS", Fault.NOT_TLS)
    if isinstance(error, exceptions.SSLError | ssl.SSLError):
        texts = (cause.reason for cause in _causes(error) if isinstance(cause, ssl.SSLError))
        return SourceError(f"TLS: {next(filter(None, texts), 'TLS failed')}", Fault.TLS)
    if isinstance(error, ValueError):
        # The cause can be a line feed in a token that a server sent.
        return SourceError("its URL or its login is invalid", Fault.ADDRESS)
    return SourceError("closed the connection", Fault.CUT_OFF)


def _proxy_error(cause: Exception, proxy: str) -> SourceError:
    status = _TUNNEL.match(str(cause))
    if status and status[1] == "407":
        return SourceError(f"{proxy} requires credentials (407)", Fault.PROXY_LOGIN)
    if status:
        return SourceError(f"{proxy} answered with {status[1]}", Fault.PROXY)
    return SourceError(f"{proxy} failed: {_system_text(cause)}", Fault.PROXY)


def unreachable(host: str, fault: Fault | None, reason: str) -> Diagnostic:
    """Return the error for the user if a host sent no response."""
    name = host.partition(":")[0]
    because = (("because", reason),)
    match fault:
        case Fault.NAME:
            hint = f"check the name; `getent hosts {name}` looks it up"
            return Diagnostic(f"cannot resolve `{host}`", hint=hint)
        case Fault.CERTIFICATE:
            hint = "set `ca` in [tool.bakehouse] to its CA certificate"
            return Diagnostic(f"`{host}` is not trusted", facts=because, hint=hint)
        case Fault.NOT_TLS:
            return Diagnostic(f"`{host}` does not use TLS", hint="check the host and its port")
        case Fault.PROXY | Fault.PROXY_LOGIN | Fault.SETTINGS:
            hint = "check `https_proxy` and `no_proxy`"
            return Diagnostic(f"`{host}` cannot be reached through a proxy", facts=because, hint=hint)
    hint = "check that it runs and is reachable from here"
    return Diagnostic(f"`{host}` does not answer", facts=(("answer", reason),), hint=hint)


def _system_text(error: Exception) -> str:
    """Return the text of the operating system for the root cause of a failure."""
    texts = (cause.strerror for cause in _causes(error) if isinstance(cause, OSError) and cause.strerror)
    return next(texts, "no connection").lower()


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and those that it was raised from or for."""
    seen: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        cause = pending.pop(0)
        if cause is None or id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        pending += [argument for argument in cause.args if isinstance(argument, BaseException)]
        pending += [getattr(cause, "original_error", None), cause.__cause__, cause.__context__]
