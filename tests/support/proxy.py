"""An HTTP proxy that a test can tell to fail: in front of a registry, or of moto."""

import contextlib
import http.client
import http.server
import itertools
import re
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Self

_NUMBERS = itertools.count()
_OWN = ("transfer-encoding", "content-length", "connection", "expect", "date", "server")
"""Headers that each connection has of its own."""


@dataclass
class Request:
    """One request that came to a proxy."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    connection: socket.socket


@dataclass
class Reply:
    """A response; status 0 closes the connection without one."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


LOST = Reply(0)
Answer = Callable[[Request], Reply | None]
"""Answers a request itself, or gives None to pass it on."""


Forward = Callable[[Request], Reply]


@dataclass
class Fault:
    """A fault, the requests that it affects, and how often."""

    method: str
    path: str
    answer: Callable[[Request, Forward], Reply]
    times: int = 1_000_000
    seen: int = 0

    def takes(self, request: Request) -> bool:
        return (
            self.times > 0
            and re.fullmatch(self.method, request.method) is not None
            and re.search(self.path, request.path) is not None
        )


class Proxy:
    """Passes requests on to a server on this machine by default."""

    def __init__(self, port: int) -> None:
        self.upstream = port
        self.faults: list[Fault] = []
        self.requests: list[Request] = []
        self.hung_up = threading.Event()
        """A client went away while its request was stalled."""
        self.answers: list[Answer] = []
        self._lock = threading.Lock()
        # Each has an address of its own. The engine does not send a layer again to a repository of the same
        # address, whatever the port.
        number = next(_NUMBERS)
        self._address = f"127.1.{number // 250}.{number % 250 + 1}"
        self._server = http.server.ThreadingHTTPServer((self._address, 0), _handler(self))
        self._server.daemon_threads = True
        self.port = self._server.server_port

    @property
    def host(self) -> str:
        return f"{self._address}:{self.port}"

    @contextmanager
    def running(self) -> Iterator[Self]:
        thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()

    def fail(self, method: str, path: str, status: int, body: bytes = b"", times: int = 1_000_000) -> Fault:
        """Answer such requests with an error."""
        headers = {"Content-Type": "application/json"}
        return self.do(method, path, lambda _, __: Reply(status, headers, body), times)

    def lose_reply(self, method: str, path: str, times: int = 1) -> Fault:
        """Pass the request on, but drop the response."""

        def lose(request: Request, forward: Forward) -> Reply:
            forward(request)
            return LOST

        return self.do(method, path, lose, times)

    def stall(self, method: str, path: str, times: int = 1_000_000) -> Fault:
        """Say nothing until the client hangs up."""

        def silence(request: Request, _: Forward) -> Reply:
            if select.select([request.connection], [], [], 60)[0]:
                self.hung_up.set()
            return LOST

        return self.do(method, path, silence, times)

    def do(
        self, method: str, path: str, answer: Callable[[Request, Forward], Reply], times: int = 1_000_000
    ) -> Fault:
        fault = Fault(method, path, answer, times)
        self.faults.append(fault)
        return fault

    def seen(self, method: str, path: str) -> int:
        return sum(
            re.fullmatch(method, request.method) is not None and re.search(path, request.path) is not None
            for request in self.requests
        )

    def reply(self, request: Request) -> Reply:
        with self._lock:
            self.requests.append(request)
            fault = next((fault for fault in self.faults if fault.takes(request)), None)
            if fault:
                fault.times -= 1
                fault.seen += 1
        if fault:
            return fault.answer(request, self.forward)
        for answer in self.answers:
            if reply := answer(request):
                return reply
        return self.forward(request)

    def forward(self, request: Request) -> Reply:
        connection = http.client.HTTPConnection("127.0.0.1", self.upstream, timeout=30)
        try:
            headers = {name: value for name, value in request.headers.items() if name.lower() not in _OWN}
            connection.request(request.method, request.path, request.body, headers)
            response = connection.getresponse()
            forwarded = {name: value for name, value in response.getheaders() if name.lower() not in _OWN}
            if request.method == "HEAD":
                forwarded["Content-Length"] = response.getheader("Content-Length", "0")
            return Reply(response.status, forwarded, response.read())
        finally:
            connection.close()


def _handler(proxy: Proxy) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        # Docker asks over TLS first, and goes on in plain HTTP only after an answer with a status line.
        default_request_version = "HTTP/1.1"

        def handle(self) -> None:
            with contextlib.suppress(ConnectionError):
                super().handle()

        def _pass(self) -> None:
            # A client may write one header in several lines, as docker does with `Accept`.
            headers = {name: ", ".join(self.headers.get_all(name, ())) for name in self.headers}
            reply = proxy.reply(Request(self.command, self.path, headers, self._body(), self.connection))
            if reply.status == 0:
                self.close_connection = True
                return
            self.send_response(reply.status)
            for name, value in {"Content-Length": str(len(reply.body)), **reply.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(reply.body)

        do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _pass

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length", 0)))
            chunks = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                chunks.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(chunks)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    return Handler


def error_body(code: str, message: str) -> bytes:
    """An error as registries write it."""
    return b'{"errors":[{"code":"%s","message":"%s"}]}' % (code.encode(), message.encode())
