"""Each fault of a connection or response: its kind, its text, and whether it may pass."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bakehouse.errors import Diagnostic
from bakehouse.fetch.connection import ConnectionSettings, Proxies
from bakehouse.fetch.faults import Fault, SourceError, fault_of_status, unreachable
from bakehouse.fetch.http_client import HttpClient, HttpRequest
from tests.support.errors import raised
from tests.support.file_server import company_certificate, serving


def failure(url: str, *, seconds: float = 5.0, **settings: object) -> SourceError:
    client = HttpClient(ConnectionSettings(**settings), {})  # type: ignore[arg-type]
    return raised(SourceError, client.send, HttpRequest("GET", url, seconds, seconds, authorization=""))


@contextlib.contextmanager
def answering(*, answer: bytes = b"", keep: bool = False) -> Iterator[str]:
    """Accept connections, and answer each with the same bytes."""
    ended = threading.Event()

    def work(server: socket.socket) -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                connection.recv(65536)
                connection.sendall(answer)
                if keep:
                    ended.wait(10)

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=work, args=(server,), daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        ended.set()


def test_a_name_that_does_not_exist() -> None:
    error = failure("https://nowhere.invalid/")

    assert (error.fault, error.reason) == (Fault.NAME, "its host name cannot be resolved")


def test_a_name_server_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(*arguments: object, **options: object) -> object:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    error = failure("https://somewhere.example/")

    assert (error.fault, error.reason) == (Fault.NAME_SERVER, "its host name cannot be resolved")
    assert error.fault.may_pass
    assert not Fault.NAME.may_pass


def test_a_refused_connection() -> None:
    error = failure("http://127.0.0.1:9/")

    assert (error.fault, error.reason) == (Fault.UNREACHABLE, "is unreachable: connection refused")


@pytest.mark.parametrize("start", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"])
def test_silence(start: bytes) -> None:
    with answering(answer=start, keep=True) as host:
        error = failure(f"http://{host}/", seconds=0.3)

    assert (error.fault, error.reason) == (Fault.SILENT, "silent for 0 s")


@pytest.mark.parametrize("start", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"])
def test_a_response_that_is_cut_off(start: bytes) -> None:
    with answering(answer=start) as host:
        error = failure(f"http://{host}/")

    assert (error.fault, error.reason) == (Fault.CUT_OFF, "closed the connection")


def test_tls(tmp_path: Path) -> None:
    with serving(company_certificate(tmp_path)) as server:
        untrusted = failure(server.url)
    with answering(answer=b"HTTP/1.1 400 Bad Request\r\n\r\n") as host:
        plain = failure(f"https://{host}/")

    assert untrusted.fault is Fault.CERTIFICATE
    assert untrusted.reason.startswith("its certificate is not trusted: self")
    assert (plain.fault, plain.reason) == (Fault.NOT_TLS, "does not use TLS")


@pytest.mark.parametrize(
    ("proxy", "fault", "reason"),
    [
        ("http://127.0.0.1:9", Fault.PROXY, "its proxy `http://127.0.0.1:9` failed: connection refused"),
        ("ftp://127.0.0.1", Fault.SETTINGS, "`ftp` proxies are not supported"),
        ("http://[", Fault.SETTINGS, "the URL of its proxy is invalid"),
    ],
)
def test_a_proxy_that_fails(proxy: str, fault: Fault, reason: str) -> None:
    error = failure("https://server.example/", proxies=Proxies({"https": proxy}))

    assert (error.fault, error.reason) == (fault, reason)


@pytest.mark.parametrize(
    ("status", "fault", "end"),
    [
        ("407 Proxy Authentication Required", Fault.PROXY_LOGIN, "requires credentials (407)"),
        ("503 Service Unavailable", Fault.PROXY, "answered with 503"),
    ],
)
def test_a_proxy_that_refuses_a_tunnel(status: str, fault: Fault, end: str) -> None:
    with answering(answer=f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode()) as host:
        error = failure("https://server.example/", proxies=Proxies({"https": f"http://u:secret@{host}"}))

    assert (error.fault, error.reason) == (fault, f"its proxy `http://{host}` {end}")


@pytest.mark.parametrize("authorization", ["Bearer a\r\nX: y", "Bearer \u2603"])
def test_a_login_that_does_not_fit_into_a_header(authorization: str) -> None:
    """A token service may return such a token."""
    client = HttpClient(ConnectionSettings(), {})
    with answering() as host, pytest.raises(SourceError) as caught:
        client.send(HttpRequest("GET", f"http://{host}/", 5, 5, authorization=authorization))

    assert (caught.value.fault, caught.value.reason) == (Fault.ADDRESS, "its URL or its login is invalid")


def test_statuses() -> None:
    faults = {status: fault_of_status(status) for status in (200, 307, 400, 401, 403, 404, 407, 410)}

    assert list(faults.values()) == [
        *(None, None, Fault.REJECTED, Fault.LOGIN, Fault.DENIED, Fault.MISSING, Fault.PROXY_LOGIN),
        Fault.MISSING,
    ]
    assert {fault_of_status(status) for status in (408, 429, 500, 502, 503, 504)} == {Fault.BUSY}


def test_each_fault_that_passes_is_worth_waiting_for() -> None:
    """A fault that is permanent on a whole server must not be retried; see `docs/explanation/pushing.md`."""
    permanent = {fault for fault in Fault if not fault.may_pass}

    assert {fault for fault in permanent if fault.is_down} == {
        *(Fault.NAME, Fault.CERTIFICATE, Fault.NOT_TLS, Fault.PROXY_LOGIN, Fault.SETTINGS)
    }
    assert {fault for fault in Fault if fault.is_worth_a_retry} <= set(Fault) - permanent


@pytest.mark.parametrize(
    ("fault", "message", "hint"),
    [
        (Fault.NAME, "cannot resolve `a.example:1`", "check the name; `getent hosts a.example` looks it up"),
        (
            Fault.CERTIFICATE,
            "`a.example:1` is not trusted",
            "set `ca` in [tool.bakehouse] to its CA certificate",
        ),
        (Fault.NOT_TLS, "`a.example:1` does not use TLS", "check the host and its port"),
        (
            Fault.PROXY,
            "`a.example:1` cannot be reached through a proxy",
            "check `https_proxy` and `no_proxy`",
        ),
        (Fault.SILENT, "`a.example:1` does not answer", "check that it runs and is reachable from here"),
    ],
)
def test_the_message_for_a_host_without_a_response(fault: Fault, message: str, hint: str) -> None:
    diagnostic = unreachable("a.example:1", fault, "the reason")

    assert (diagnostic.message, diagnostic.hint) == (message, hint)


def test_the_reason_is_in_the_message() -> None:
    facts = (("answer", "closed the connection"),)
    hint = "check that it runs and is reachable from here"

    assert unreachable("a.example", Fault.CUT_OFF, "closed the connection") == Diagnostic(
        "`a.example` does not answer", facts=facts, hint=hint
    )
