"""A small S3 whose conditional writes are atomic, and whose clock stands; moto has neither."""

import contextlib
import hashlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


@dataclass
class S3Server:
    """Objects by their paths, with the times of their last writes."""

    url: str = ""
    objects: dict[str, tuple[bytes, datetime]] = field(default_factory=dict)
    writing: threading.Lock = field(default_factory=threading.Lock)

    def age(self, part: str, time: timedelta) -> None:
        """Let objects with a part in their paths be older."""
        with self.writing:
            for path, (content, written) in self.objects.items():
                if part in path:
                    self.objects[path] = (content, written - time)

    def put(self, path: str, content: bytes, if_match: str | None, if_none_match: str | None) -> int:
        """Write an object if its conditions hold; return the status of HTTP."""
        with self.writing:
            stored = self.objects.get(path)
            if if_match is not None and (stored is None or etag(stored[0]) != if_match):
                return 412 if stored else 404
            if if_none_match == "*" and stored is not None:
                return 412
            self.objects[path] = (content, NOW)
            return 200

    def listing(self, bucket: str, prefix: str) -> bytes:
        entries = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>{time:%Y-%m-%dT%H:%M:%S.000Z}</LastModified>"
            f"<Size>{len(content)}</Size></Contents>"
            for path, (content, time) in sorted(self.objects.items())
            for key in [path.removeprefix(f"/{bucket}/")]
            if key.startswith(prefix)
        )
        return f"<ListBucketResult><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>".encode()


def etag(content: bytes) -> str:
    return f'"{hashlib.md5(content, usedforsecurity=False).hexdigest()}"'


@contextlib.contextmanager
def s3_server() -> Iterator[S3Server]:
    s3 = S3Server()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            address = urlsplit(self.path)
            query = parse_qs(address.query)
            stored = s3.objects.get(unquote(address.path))
            if "list-type" in query:
                self._answer(200, s3.listing(address.path.split("/")[1], query.get("prefix", [""])[0]))
            elif stored is None:
                self._answer(404, b"<Error><Code>NoSuchKey</Code><Message>missing</Message></Error>")
            else:
                self._answer(200, *stored)

        def do_PUT(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            path = unquote(urlsplit(self.path).path)
            status = s3.put(path, content, self.headers["If-Match"], self.headers["If-None-Match"])
            code = {404: "NoSuchKey", 412: "PreconditionFailed"}.get(status)
            error = f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode() if code else b""
            self._answer(status, error, version=etag(content))

        def _answer(
            self, status: int, body: bytes, modified: datetime | None = None, version: str = ""
        ) -> None:
            self.send_response_only(status)
            self.send_header("Date", format_datetime(NOW, usegmt=True))
            self.send_header("ETag", version or etag(body))
            if modified:
                self.send_header("Last-Modified", format_datetime(modified, usegmt=True))
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    s3.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield s3
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
