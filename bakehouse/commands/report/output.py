"""Destinations of the page: a directory, S3, or a server for this machine."""

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bakehouse.errors import UsageError
from bakehouse.util.aws import Aws
from bakehouse.util.files import display_path, write_whole

_FILE = "index.html"
_TYPE = "text/html; charset=utf-8"
_S3 = "s3://"
_UNUSABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR)
_HOSTS = ("localhost", "127.0.0.1", "::1")


def write(page: bytes, to: str, region: str | None) -> str:
    """Write the page to a directory or an S3 URL, and return its path or URL."""
    if not to.startswith(_S3):
        path = Path(to) / _FILE
        try:
            write_whole(path, page)
        except OSError as error:
            if error.errno not in _UNUSABLE:
                raise
            raise UsageError(
                f"cannot write `{display_path(path)}`: {os.strerror(error.errno).lower()}",
                hint="name a directory that you may write to: `bake report --to DIRECTORY`",
            ) from error
        return display_path(path)
    bucket, _, prefix = to.removeprefix(_S3).partition("/")
    if not bucket:
        raise UsageError(f"`{to}` does not name a bucket", hint="write it as `s3://our-bucket/report`")
    key = f"{prefix.rstrip('/')}/{_FILE}".lstrip("/")
    aws = Aws(region)
    with aws.translate_errors(f"write `{_S3}{bucket}/{key}`"):
        aws.client("s3").put_object(Bucket=bucket, Key=key, Body=page, ContentType=_TYPE)
    return f"{_S3}{bucket}/{key}"


@contextlib.contextmanager
def open_server(page: bytes) -> Iterator[tuple[str, ThreadingHTTPServer]]:
    """Yield the secret URL of a server on the loopback interface that has only the page, and the server."""
    path = f"/{secrets.token_urlsafe(24)}/"
    handler = type("Handler", (_Handler,), {"page": page, "secret_path": path})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        yield f"http://127.0.0.1:{server.server_port}{path}", server


def serve(server: ThreadingHTTPServer) -> None:
    """Answer requests until Ctrl-C."""
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()


class _Handler(BaseHTTPRequestHandler):
    page: bytes
    secret_path: str
    """Other users of this machine can connect, too."""

    def do_GET(self) -> None:
        # A page of another site must not read it through a name that resolves to this machine
        host = urlsplit(f"//{self.headers.get('Host', '')}").hostname
        if host not in _HOSTS:
            self.send_error(HTTPStatus.FORBIDDEN)
        elif not secrets.compare_digest(self.path.encode(), self.secret_path.encode()):
            self.send_error(HTTPStatus.NOT_FOUND)
        else:
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", _TYPE)
            self.send_header("Content-Length", str(len(self.page)))
            self.send_header("Content-Security-Policy", "frame-ancestors 'none'")
            self.send_header("Referrer-Policy", "no-referrer")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(self.page)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""
