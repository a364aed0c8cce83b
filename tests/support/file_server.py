"""File servers with configurable faults: cut or wrong content, silence, logins; they count requests."""

import base64
import contextlib
import gzip
import hashlib
import ssl
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, build_opener

from bakehouse.fetch.required_files import FileKind, RequiredFile
from bakehouse.util.oci import Sha256


@dataclass
class FileServer:
    """Its files by path, and what is wrong with it."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    """Content types by path."""
    cuts: list[int] = field(default_factory=list)
    """After how many bytes each of the next answers ends."""
    statuses: list[int] = field(default_factory=list)
    """Statuses of the next responses, whatever the request."""
    login: str = ""
    """`user:word`, without which nothing is given."""
    knows_ranges: bool = True
    etag: str = '"one"'
    gate: threading.Event | None = None
    """Event that a response waits for after its first half."""
    pause: float = 0.0
    """Seconds between two bytes; none where it is 0."""
    most: int = 0
    """Most bytes of the response to a range request; 0 is all."""
    shift: int = 0
    """Offset of the response from the requested start."""
    packs: bool = False
    """Compress responses if the client allows it."""
    is_proxy: bool = False
    redirects: dict[str, str] = field(default_factory=dict)
    requests: list[tuple[str, Message]] = field(default_factory=list)
    half_sent: threading.Event = field(default_factory=threading.Event)

    def put(self, content: bytes, name: str = "part-1.0.tar.gz", path: str = "") -> RequiredFile:
        """Hold a file at its place of a mirror, or at another one."""
        file = required_file(content, name)
        self.files[path or f"/{file.sha256}/{name}"] = content
        return file

    @property
    def paths(self) -> list[str]:
        return [path for path, _ in self.requests]

    def ranges(self) -> list[str]:
        return [headers.get("Range", "") for _, headers in self.requests]


def required_file(
    content: bytes,
    name: str = "part-1.0.tar.gz",
    kind: FileKind = "sdist",
    address: str = "part==1.0",
    *,
    has_size: bool = True,
) -> RequiredFile:
    sha256 = Sha256(hashlib.sha256(content).hexdigest())
    return RequiredFile(kind, name, sha256, len(content) if has_size else None, address)


@contextlib.contextmanager
def serving(certificate: Path | None = None, address: str = "127.0.0.1") -> Iterator[FileServer]:
    """Run a server on a free port; with TLS if given a certificate, whose key is next to it."""
    file_server = FileServer()
    handler = type("Handler", (_Handler,), {"file_server": file_server})
    with _Quiet((address, 0), handler) as server:
        scheme = "http"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, certificate.with_name("key.pem"))
            server.socket = context.wrap_socket(server.socket, server_side=True)
            scheme = "https"
        file_server.url = f"{scheme}://{address}:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield file_server
        finally:
            if file_server.gate:
                file_server.gate.set()
            server.shutdown()
            thread.join()


def company_certificate(directory: Path) -> Path:
    """A certificate for 127.0.0.1 that no system trusts, and its key."""
    certificate, key = directory / "company.pem", directory / "key.pem"
    subject = ["-subj", "/CN=a company", "-addext", "subjectAltName=IP:127.0.0.1"]
    openssl = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
    subprocess.run([*openssl, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    return certificate


def basic(login: str) -> str:
    return f"Basic {base64.b64encode(login.encode()).decode()}"


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        return


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # The body is sent after the headers, and would wait for their delayed acknowledgement
    disable_nagle_algorithm = True
    file_server: FileServer

    def log_message(self, format: str, *args: Any) -> None:
        return

    def do_GET(self) -> None:
        server = self.file_server
        server.requests.append((self.path, self.headers))
        header = "Proxy-Authorization" if server.is_proxy else "Authorization"
        if server.login and self.headers.get(header) != basic(server.login):
            self._end(407 if server.is_proxy else 401)
        elif server.statuses:
            self._end(server.statuses.pop(0))
        elif server.is_proxy:
            with build_opener(ProxyHandler({})).open(self.path) as response:
                self._give(response.read())
        elif to := server.redirects.get(self.path):
            self.send_response(302)
            self.send_header("Location", to)
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            content = server.files.get(urlsplit(self.path).path)
            if content is None:
                self._end(404)
            else:
                self._give(content)

    def _end(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _give(self, content: bytes) -> None:
        server, start = self.file_server, 0
        requested = self.headers.get("Range", "")
        is_same = self.headers.get("If-Range", server.etag) == server.etag
        if requested and server.knows_ranges and is_same:
            start = int(requested.removeprefix("bytes=").removesuffix("-"))
        if start and start >= len(content):
            self._end(416)
            return
        if server.packs and "gzip" in self.headers.get("Accept-Encoding", ""):
            content = gzip.compress(content)
        self.send_response(206 if start else 200)
        total, end = len(content), len(content)
        if start:
            start += server.shift
            end = min(start + server.most, total) if server.most else total
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{total}")
        if content[:2] == b"\x1f\x8b":
            self.send_header("Content-Encoding", "gzip")
        if server.etag:
            self.send_header("ETag", server.etag)
        self.send_header("Content-Type", server.kinds.get(self.path, "application/octet-stream"))
        self.send_header("Content-Length", str(end - start))
        self.end_headers()
        body = content[start:end]
        if server.cuts:
            self.wfile.write(body[: server.cuts.pop(0)])
            self.close_connection = True
            self.connection.close()
            return
        if server.gate:
            half = len(body) // 2
            self.wfile.write(body[:half])
            self.wfile.flush()
            server.half_sent.set()
            server.gate.wait()
            body = body[half:]
        if server.pause:
            for byte in body:
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
                threading.Event().wait(server.pause)
            return
        self.wfile.write(body)
