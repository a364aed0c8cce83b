"""HTTP server that gives build steps their files, downloading each file when a step asks for it.

`serve` offers the files of a plan below a secret prefix: `sha256/<hash>/<file>` is a file,
`simple/<project>/` is a page of a package index. `serve_stubs` offers a directory of stub packages as an apt
repository. apt uses that server as a proxy, with the secret as password. Both answer only GET and HEAD, and
serve no other files of this machine.
"""

import base64
import contextlib
import html
import re
import secrets
import threading
from collections.abc import Callable, Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from packaging.utils import canonicalize_name

from bakehouse.engine.protocol import EngineHost
from bakehouse.fetch.downloader import Fetcher, MissingError, StoppedError
from bakehouse.fetch.required_files import RequiredFile, RequiredFiles
from bakehouse.util.files import open_file

STUB_HOST = "stubs.bakehouse.invalid"
"""Host name of the stub repository in a base's sources list; apt reaches the server as a proxy for it."""
_PACKAGE_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+%~!-]*")
_IDLE_SECONDS = 1800
"""pip keeps its connection open while it compiles, and uses it again."""

Find = Callable[[str], "str | Path | None"]
"""Returns an HTML page, a file or None for a quoted URL path."""


@contextlib.contextmanager
def serve(files: RequiredFiles, fetcher: Fetcher, host: EngineHost) -> Iterator[str]:
    """Serve the files of a plan on a free port, and yield the URL for containers with its secret prefix."""
    index = FileIndex(files, fetcher)
    token = secrets.token_urlsafe(24)

    def find(path: str) -> str | Path | None:
        prefix, *parts = [unquote(part) for part in path.split("/")[1:]] or [""]
        if not secrets.compare_digest(prefix.encode(), token.encode()):
            return None
        match parts:
            case ["sha256", sha256, name]:
                return index.file(sha256, name)
            case ["simple", project, ""]:
                return index.page(project)
        return None

    with _serve(find, host) as url:
        yield f"{url}/{token}"


@contextlib.contextmanager
def serve_stubs(repository: Path, host: EngineHost) -> Iterator[str]:
    """Serve a directory of stub packages as `/apt/` on a free port.

    Yields the URL of a proxy for `STUB_HOST`, with a secret password.
    """
    user, token = "apt", secrets.token_urlsafe(24)

    def find(path: str) -> Path | None:
        match [part for part in unquote(path).split("/") if part not in ("", ".")]:
            case ["apt", name] if _PACKAGE_FILE.fullmatch(name):
                file = repository / name
                return file if file.is_file() and not file.is_symlink() else None
        return None

    authorization = f"Basic {base64.b64encode(f'{user}:{token}'.encode()).decode()}"
    with _serve(find, host, authorization) as url:
        yield url.replace("://", f"://{user}:{token}@")


class FileIndex:
    """Index of the files of a plan, by checksum and by Python project."""

    def __init__(self, files: RequiredFiles, fetcher: Fetcher) -> None:
        self._fetcher = fetcher
        self._files = {(str(file.sha256), file.file): file for file in files.files if file.sha256}
        self._projects: dict[str, list[RequiredFile]] = {}
        for file in self._files.values():
            # The wheel of a component may also be in the lock of another image
            is_artifact = file.kind == "url" and file.file.endswith(".whl")
            if is_artifact or file.kind in ("wheel", "sdist"):
                project = file.file.partition("-")[0] if is_artifact else file.project
                self._projects.setdefault(canonicalize_name(project), []).append(file)
        self._stages: dict[RequiredFile, list[tuple[RequiredFile, ...]]] = {}
        for stage in files.stages:
            for file in stage:
                self._stages.setdefault(file, []).append(stage)

    def file(self, sha256: str, name: str) -> Path | None:
        """Download a file, start the downloads of its stage's other files, and return its path."""
        file = self._files.get((sha256, name))
        if file is None:
            return None
        stages = self._stages.get(file, [])
        # If several stages need the file, the stage of the request is unknown, and some may be built already.
        for other in stages[0] if len(stages) == 1 else ():
            if other.sha256 and other != file:
                self._fetcher.ask(other)
        try:
            return self._fetcher.get(file)
        except (MissingError, StoppedError, OSError):
            return None

    def page(self, project: str) -> str | None:
        """Return the package index page of a Python project."""
        files = self._projects.get(canonicalize_name(project))
        if files is None:
            return None
        lines = [
            f'<a href="../../sha256/{file.sha256}/{quote(file.file)}#sha256={file.sha256}">'
            f"{html.escape(file.file)}</a><br>\n"
            for file in files
        ]
        return f"<!DOCTYPE html><html><body>\n{''.join(lines)}</body></html>\n"


@contextlib.contextmanager
def _serve(find: Find, host: EngineHost, authorization: str = "") -> Iterator[str]:
    members = {"find": staticmethod(find), "authorization": authorization}
    with _Server((host.listen, 0), type("Handler", (_Handler,), members)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield f"http://{host.address}:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_SECONDS
    # Otherwise the body waits 40 ms until the client acknowledges the headers
    disable_nagle_algorithm = True
    find: Find
    authorization: str
    """Required header of proxy requests; empty if paths contain the secret."""

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the path of a request can contain the secret prefix."""

    def _answer(self, *, with_body: bool) -> None:
        sent = self.headers.get("Proxy-Authorization", "").encode()
        if self.authorization and not secrets.compare_digest(sent, self.authorization.encode()):
            self.send_error(HTTPStatus.PROXY_AUTHENTICATION_REQUIRED)
            return
        content = self.find(urlsplit(self.path).path)
        if content is None:
            self.send_error(HTTPStatus.NOT_FOUND)
        elif isinstance(content, str):
            body = content.encode()
            self._send_headers("text/html; charset=utf-8", len(body))
            if with_body:
                self.wfile.write(body)
        else:
            with open_file(content) as file:
                self._send_headers("application/octet-stream", content.stat().st_size)
                if with_body:
                    self.connection.sendfile(file)

    def _send_headers(self, content_type: str, length: int) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(length))
        self.end_headers()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    """Many steps connect at once: a connection beyond the queue hangs until its client times out."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect during an answer."""
