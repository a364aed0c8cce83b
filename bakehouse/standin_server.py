"""Serves stand-ins to the steps of a rehearsal: by sha256, as a page for pip, as a repository for apt.

Nothing else of the machine can be read, so that nothing needs to be kept secret.
"""

import contextlib
import re
import threading
from collections.abc import Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

HOST = "standins.bakehouse.invalid"
"""What a base's stand-in calls the server; apt reaches it as a proxy for that name."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+%~!-]*")


@contextlib.contextmanager
def serve(folder: Path, address: str) -> Iterator[str]:
    """Serve `folder`/files/<sha256>/<file> and `folder`/apt on a free port of `address`; gives the URL.

    Raises OSError where this machine doesn't have the address.
    """
    handler = type("Handler", (_Handler,), {"folder": folder})
    with _Server((address, 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield f"http://{address}:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    """Many steps ask at once: a connection that finds no place hangs until its program gives up."""

    # A client that goes away in the middle is the client's business.
    def handle_error(self, request: Any, client_address: Any) -> None:
        return


class _Handler(BaseHTTPRequestHandler):
    folder: Path
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it."""

    def _answer(self, *, with_body: bool) -> None:
        parts = [one for one in unquote(urlsplit(self.path).path).split("/") if one not in ("", ".")]
        found = self._find(parts)
        if found is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        kind, body = found
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def _find(self, parts: list[str]) -> tuple[str, bytes] | None:
        match parts:
            case ["packages"]:
                return "text/html", self._page().encode()
            case ["sha256", digest, name] if _NAME.fullmatch(digest) and _NAME.fullmatch(name):
                return self._file(self.folder / "files" / digest / name)
            case ["apt", name] if _NAME.fullmatch(name):
                return self._file(self.folder / "apt" / name)
        return None

    def _page(self) -> str:
        """All packages with their checksums: two of the same name may have different bytes."""
        paths = sorted(
            path for path in self.folder.glob("files/*/*") if path.suffix in (".whl", ".gz", ".zip")
        )
        links = [
            f'<a href="/sha256/{digest}/{quote(name)}#sha256={digest}">{name}</a><br>\n'
            for digest, name in ((path.parent.name, path.name) for path in paths)
        ]
        return f"<!DOCTYPE html><html><body>\n{''.join(links)}</body></html>\n"

    def _file(self, path: Path) -> tuple[str, bytes] | None:
        return ("application/octet-stream", path.read_bytes()) if path.is_file() else None
