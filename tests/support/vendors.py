"""Stubs of all vendors behind one HTTPS proxy: Docker Hub, Amazon ECR with its logins, servers of files.

Clients reach them by their real names, through the proxy of their environment. Every file and image exists.
"""

import base64
import contextlib
import json
import os
import re
import ssl
import subprocess
import threading
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

from bakehouse.registry.manifest import DOCKER_INDEX, DOCKER_MANIFEST, digest_of
from bakehouse.util.oci import ECR_HOST
from tests.support.proxy import Reply, error_body

HUB, HUB_LOGIN = "registry-1.docker.io", "auth.docker.io"
NGC = "nvcr.io"
_MANIFEST = re.compile(r"/v2/(?P<repository>.+)/manifests/(?P<reference>[^/]+)")
_JSON = {"Content-Type": "application/json"}


@dataclass
class Vendors:
    """The stubs, and what is wrong with them."""

    address: str = ""
    certificate: Path = Path()
    down: set[str] = field(default_factory=set)
    """Hosts that do not answer."""
    removed: set[str] = field(default_factory=set)
    """Images without their host, and URLs of files, that are gone."""
    moved: dict[str, int] = field(default_factory=dict)
    """How often the tag of an image has moved."""
    rebuilt: dict[str, int] = field(default_factory=dict)
    """How often the other platforms of an image were built anew."""
    refused: set[str] = field(default_factory=set)
    """AWS accounts whose registries reject all requests."""
    requests: list[str] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        """Environment of a process that uses the stubs, with a login to AWS."""
        return {
            "HTTPS_PROXY": self.address,
            "https_proxy": self.address,
            "NO_PROXY": "",
            "no_proxy": "",
            "REQUESTS_CA_BUNDLE": str(self.certificate),
            "BAKEHOUSE_CA": str(self.certificate),
            "AWS_CA_BUNDLE": str(self.certificate),
            "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
            "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_MAX_ATTEMPTS": "1",
            "DOCKER_CONFIG": str(self.certificate.parent / "no-docker-logins"),
        }

    def digest(self, image: str) -> str:
        """The digest of an image without its host."""
        repository, _, tag = image.rpartition(":")
        return digest_of(self._image(repository, tag)[0])

    def reply(self, method: str, url: str, headers: dict[str, str]) -> Reply:
        """Answer a request."""
        self.requests.append(f"{method} {url}")
        parts = urlsplit(url)
        host = parts.hostname or ""
        if host == HUB_LOGIN:
            scope = parse_qs(parts.query)["scope"][0]
            return Reply(200, _JSON, json.dumps({"token": f"hub {scope}".replace(" ", "-")}).encode())
        if host.startswith("api.ecr."):
            return self._ecr_login(host.split(".")[2], headers["Authorization"])
        if host in (HUB, NGC) or ECR_HOST.fullmatch(host):
            return self._registry(host, parts.path, headers.get("Authorization", ""))
        if url in self.removed:
            return Reply(404)
        return Reply(200, {}, f"stub of {url}".encode())

    def _ecr_login(self, region: str, authorization: str) -> Reply:
        if f"/{region}/ecr/" not in authorization:
            return Reply(400, _JSON, b'{"__type": "InvalidSignatureException", "message": "wrong region"}')
        token = base64.b64encode(f"AWS:token-{region}".encode()).decode()
        data = {"authorizationToken": token, "expiresAt": 1.8e9, "proxyEndpoint": "https://x.example"}
        return Reply(200, _JSON, json.dumps({"authorizationData": [data]}).encode())

    def _registry(self, host: str, path: str, authorization: str) -> Reply:
        match = _MANIFEST.fullmatch(path)
        assert match
        repository, reference = match["repository"], match["reference"]
        if host == HUB:
            scope = f"repository:{repository}:pull"
            if authorization != f"Bearer hub-{scope}":
                challenge = f'Bearer realm="https://{HUB_LOGIN}/token",service="registry.docker.io"'
                return Reply(401, {"WWW-Authenticate": f'{challenge},scope="{scope}"'}, b"{}")
        elif ecr := ECR_HOST.fullmatch(host):
            login = base64.b64encode(f"AWS:token-{ecr['region']}".encode()).decode()
            if authorization != f"Basic {login}":
                return Reply(401, {}, b"Not Authorized")
            if ecr["account"] in self.refused:
                return Reply(403, _JSON, error_body("DENIED", "not allowed to perform: ecr:BatchGetImage"))
        for tag, generation in self._tags(repository, reference):
            content, kind = self._image(repository, tag, generation)
            digest = digest_of(content)
            if reference in (tag, digest) and f"{repository}:{tag}" not in self.removed:
                return Reply(200, {"Content-Type": kind, "Docker-Content-Digest": digest}, content)
        return Reply(404, _JSON, error_body("MANIFEST_UNKNOWN", "manifest unknown"))

    def _tags(self, repository: str, reference: str) -> Iterator[tuple[str, int | None]]:
        """A tag as it is now; for a digest, all images that were asked for, as they have ever been."""
        if not reference.startswith("sha256:"):
            yield reference, None
            return
        for name, generation in {**self.moved, **self.rebuilt}.items():
            if name.startswith(f"{repository}:"):
                yield from ((name.rpartition(":")[2], number) for number in range(generation + 1))

    def _image(self, repository: str, tag: str, generation: int | None = None) -> tuple[bytes, str]:
        """The manifest of an image and its media type; NVIDIA's are indexes."""
        name = f"{repository}:{tag}"
        moved = self.moved.get(name, 0) if generation is None or name not in self.moved else generation
        config = {"mediaType": "x", "digest": digest_of(f"{name} {moved}".encode()), "size": 1}
        document = {"schemaVersion": 2, "mediaType": DOCKER_MANIFEST, "config": config, "layers": []}
        content = json.dumps(document).encode()
        if not repository.startswith("nvidia/"):
            return content, DOCKER_MANIFEST
        rebuilt = self.rebuilt.get(name, 0) if generation is None or name not in self.rebuilt else generation
        members = [
            {**_descriptor(content), "platform": {"os": "linux", "architecture": "amd64"}},
            {**_descriptor(b"%d" % rebuilt), "platform": {"os": "linux", "architecture": "arm64"}},
        ]
        index = {"schemaVersion": 2, "mediaType": DOCKER_INDEX, "manifests": members}
        return json.dumps(index).encode(), DOCKER_INDEX


def _descriptor(content: bytes) -> dict[str, object]:
    return {"mediaType": DOCKER_MANIFEST, "digest": digest_of(content), "size": len(content)}


@contextlib.contextmanager
def vendors(directory: Path, hosts: Collection[str]) -> Iterator[Vendors]:
    """Run the stubs of some hosts; `directory` gets the certificate that they have."""
    stubs = Vendors(certificate=directory / "vendors.pem")
    names = ",".join(f"DNS:{host}" for host in sorted({*hosts, HUB, HUB_LOGIN}))
    key = directory / "vendors.key"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=vendors",
    ]
    command += ["-addext", f"subjectAltName={names}", "-keyout", str(key), "-out", str(stubs.certificate)]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(stubs.certificate, key)
    handler = type("Handler", (_Handler,), {"stubs": stubs, "context": context})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads, server.block_on_close = True, False
        stubs.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield stubs
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    # As in `tests.support.file_server`
    disable_nagle_algorithm = True
    protocol_version = "HTTP/1.1"
    stubs: Vendors
    context: ssl.SSLContext
    host = ""

    def handle(self) -> None:
        with contextlib.suppress(OSError):
            super().handle()

    def finish(self) -> None:
        with contextlib.suppress(OSError):
            super().finish()
        self.connection.close()

    def do_CONNECT(self) -> None:
        self.host = self.path.rpartition(":")[0]
        if self.host in self.stubs.down:
            self.send_error(502)
            return
        self.send_response(200)
        self.end_headers()
        self.wfile.flush()
        self.connection = self.context.wrap_socket(self.connection, server_side=True)
        self.rfile, self.wfile = self.connection.makefile("rb"), self.connection.makefile("wb")
        self.close_connection = False

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        url = f"https://{self.host}{quote(self.path, safe='/?&=%:,+')}"
        reply = self.stubs.reply(self.command, url, {**self.headers})
        self.send_response(reply.status)
        for name, value in {"Content-Length": str(len(reply.body)), **reply.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.body)

    do_GET = do_HEAD = do_POST = _answer

    def log_message(self, format: str, *arguments: object) -> None:
        pass
