"""What the servers of files for the steps of a build have in common: HTTP on one address, GET and HEAD."""

import contextlib
import threading
from collections.abc import Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit


@contextlib.contextmanager
def serve(handler: type["Handler"], address: str) -> Iterator[str]:
    """Serve on a free port of `address`; gives the URL.

    Raises OSError where this machine doesn't have the address.
    """
    with _Server((address, 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield f"http://{address}:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class Handler(BaseHTTPRequestHandler):
    """Answers with what `find` gives for a path."""

    protocol_version = "HTTP/1.1"
    timeout = 1800
    """Without a further question. pip keeps its connection while it compiles, and asks over it again."""

    def find(self, path: str) -> str | Path | None:
        """A page of HTML, a file, or None. `path` is as the client sent it: quoted."""
        raise NotImplementedError

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def log_message(self, format: str, *args: Any) -> None:
        """A request's path can hold a secret: nothing is logged."""

    def _answer(self, *, with_body: bool) -> None:
        found = self.find(urlsplit(self.path).path)
        if found is None:
            self.send_error(HTTPStatus.NOT_FOUND)
        elif isinstance(found, str):
            body = found.encode()
            self._head("text/html; charset=utf-8", len(body))
            if with_body:
                self.wfile.write(body)
        else:
            with found.open("rb") as file:
                self._head("application/octet-stream", found.stat().st_size)
                if with_body:
                    self.connection.sendfile(file)

    def _head(self, kind: str, length: int) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(length))
        self.end_headers()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    """Many steps ask at once: a connection that finds no place hangs until its program gives up."""

    # A client that goes away in the middle is the client's business.
    def handle_error(self, request: Any, client_address: Any) -> None:
        return
