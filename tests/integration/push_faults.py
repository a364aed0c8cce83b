"""Faults of registries during a push; each can be used with any pusher."""

import base64
import contextlib
import itertools
import json
import os
import select
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from bakehouse.builder.built_image import BuiltImage
from bakehouse.builder.pack import Packer
from bakehouse.engine import docker
from bakehouse.registry.manifest import FORMS, Manifest
from tests.integration.ports import kept_port
from tests.integration.pushing import TAG
from tests.support.proxy import LOST, Forward, Proxy, Reply, Request, error_body
from tests.support.registry import registry_program

UPLOADS = "/blobs/uploads/"
ENDING = "PUT|PATCH"
"""HTTP methods that send the bytes of a layer."""
JSON = {"Content-Type": "application/json"}
USER, OLD, NEW = "ci", "an-old-token", "a-new-token"
_LINES = itertools.count(1)


class LocalRegistry:
    """Debian's docker-registry as a process, which can be killed and started again."""

    def __init__(self, directory: Path, port: int, data: Path | None = None) -> None:
        self.port = port
        self._config = directory / "registry.json"
        self._program = registry_program(directory / "program")
        storage = {"filesystem": {"rootdirectory": str(data or directory / "data")}}
        document: dict[str, Any] = {
            "version": "0.1",
            "log": {"level": "error", "accesslog": {"disabled": True}},
            "storage": storage,
            "http": {"addr": f"127.0.0.1:{self.port}"},
        }
        self._config.write_text(json.dumps(document))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        quiet = subprocess.DEVNULL
        command = [*self._program, "serve", str(self._config)]
        self._process = subprocess.Popen(command, stdout=quiet, stderr=quiet)
        for _ in range(200):
            with contextlib.suppress(OSError):
                urlopen(f"http://127.0.0.1:{self.port}/v2/", timeout=2).close()
                return
            time.sleep(0.05)
        message = "the registry does not answer"
        raise TimeoutError(message)

    def kill(self) -> None:
        if self._process:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()


@contextlib.contextmanager
def local_registry(directory: Path, data: Path | None = None) -> Iterator[LocalRegistry]:
    """A running local registry."""
    with kept_port() as port:
        registry = LocalRegistry(directory, port, data)
        registry.start()
        try:
            yield registry
        finally:
            registry.kill()


@dataclass
class Scene:
    """A registry, the proxy in front of it, and where pushers find their login."""

    registry: LocalRegistry
    proxy: Proxy
    token: Path
    """A file with the token that a login gives now."""
    host: str = ""
    """Registry that a pusher uses instead of the proxy."""

    @property
    def location(self) -> str:
        return self.host or self.proxy.host

    def put(self, content: bytes, repository: str, tag: str, media_type: str) -> None:
        """Push a manifest of blobs that `blob` stored, as another pusher would have."""
        self._ask("PUT", f"/v2/{repository}/manifests/{tag}", content, {"Content-Type": media_type})

    def blob(self, content: bytes, repository: str, digest: str) -> None:
        begun = self._ask("POST", f"/v2/{repository}/blobs/uploads/", b"", {})
        location = (
            begun.headers["Location"].partition(f":{self.registry.port}")[2] or begun.headers["Location"]
        )
        joint = "&" if "?" in location else "?"
        self._ask("PUT", f"{location}{joint}digest={digest}", content, {})

    def _ask(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Reply:
        with socket.socket() as unconnected:
            return self.proxy.forward(Request(method, path, headers, body, unconnected))


@dataclass(frozen=True)
class Layout:
    """An image as an OCI layout."""

    directory: Path
    manifest: Manifest
    image: BuiltImage

    def blob(self, digest: str) -> Path:
        return self.directory / "blobs" / "sha256" / digest.removeprefix("sha256:")

    def put(self, scene: Scene, repository: str) -> None:
        """Push it to the registry under the tag."""
        for part in (self.manifest.config, *self.manifest.layers):
            assert part
            scene.blob(self.blob(part.digest).read_bytes(), repository, part.digest)
        scene.put(self.manifest.content, repository, TAG, self.manifest.media_type)


Layouts = Mapping[str, Layout]


def layout(directory: Path, image: BuiltImage) -> Layout:
    """An image of the engine's as it is published."""
    with contextlib.closing(docker.connect()) as engine:
        packed = Packer(engine, directory / "state").pack(image, FORMS["docker"], lambda _: None)
    whole = Layout(directory, packed.manifest, image)
    contents = {packed.manifest.digest: packed.manifest.content, image.digest: packed.config}
    contents |= {layer.digest: layer.path.read_bytes() for layer in packed.layers}
    for digest, content in contents.items():
        whole.blob(digest).parent.mkdir(parents=True, exist_ok=True)
        whole.blob(digest).write_bytes(content)
    manifest = packed.manifest
    entry = {"mediaType": manifest.media_type, "digest": manifest.digest, "size": len(manifest.content)}
    (directory / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
    (directory / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return whole


Arrange = Callable[[Scene], contextlib.AbstractContextManager[None] | None]


@dataclass(frozen=True)
class PushFault:
    """One of them."""

    name: str
    arrange: Arrange
    cause: str = ""
    """Pattern of a correct message; empty if the push has to succeed."""
    disk: bool = False
    """The registry's disk is small."""
    there: str = ""
    """Content of the tag before the push: `same` or `other`."""


def _corrupt(request: Request, forward: Forward) -> Reply:
    if request.body:
        middle = len(request.body) // 2
        changed = bytes([request.body[middle] ^ 1])
        request.body = request.body[:middle] + changed + request.body[middle + 1 :]
    return forward(request)


def corrupted(scene: Scene, times: int) -> None:
    """Change the bytes of uploads during the transfer; requests without bytes are not counted."""
    left = [times]

    def answer(request: Request, forward: Forward) -> Reply:
        if request.body and left[0] > 0:
            left[0] -= 1
            return _corrupt(request, forward)
        return forward(request)

    scene.proxy.do(ENDING, UPLOADS, answer)


def throttled(scene: Scene, seconds: float, retry_after: str) -> None:
    """From the first upload on everything is refused for a while, with the time to come back."""
    ends: list[float] = []

    def answer(request: Request, forward: Forward) -> Reply:
        if not ends and request.method == "POST":
            ends.append(time.monotonic() + seconds)
        if ends and time.monotonic() < ends[0]:
            body = error_body("TOOMANYREQUESTS", "Rate exceeded")
            return Reply(429, {**JSON, "Retry-After": retry_after}, body)
        return forward(request)

    scene.proxy.do("[A-Z]+", "", answer)


def outage(scene: Scene, seconds: float) -> None:
    """After the first bytes, the registry does not answer for a while."""
    ends: list[float] = []

    def answer(request: Request, forward: Forward) -> Reply:
        if not ends and request.method in ("PUT", "PATCH"):
            ends.append(time.monotonic() + seconds)
        return LOST if ends and time.monotonic() < ends[0] else forward(request)

    scene.proxy.do("[A-Z]+", "", answer)


def restarted(scene: Scene) -> None:
    """The registry is killed while it takes the first bytes, and is back a second later."""

    def answer(request: Request, forward: Forward) -> Reply:
        scene.registry.kill()
        threading.Timer(1.0, scene.registry.start).start()
        return LOST

    scene.proxy.do(ENDING, UPLOADS, answer, 1)

    def unreachable(request: Request, forward: Forward) -> Reply:
        try:
            return forward(request)
        except OSError:
            return LOST

    scene.proxy.do("[A-Z]+", "", unreachable)


@contextlib.contextmanager
def slow_line(scene: Scene, rate: float) -> Iterator[None]:
    """So many bytes a second reach the proxy."""
    with relay(scene.proxy.host, rate) as scene.host:
        yield


@contextlib.contextmanager
def relay(target: str, rate: float = 0.0) -> Iterator[str]:
    """Another address of a server, with so many bytes a second to it: an engine takes it for another one."""
    address = f"127.2.0.{next(_LINES) % 250 + 1}"
    with contextlib.ExitStack() as stack:
        waiting = stack.enter_context(socket.create_server((address, 0)))
        if rate:
            # Bytes in the socket's buffer count as sent.
            waiting.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        waiting.settimeout(0.2)
        ended = threading.Event()
        talks: list[tuple[socket.socket, threading.Thread]] = []
        host, _, port = target.partition(":")

        def accept() -> None:
            while not ended.is_set():
                with contextlib.suppress(OSError):
                    client = waiting.accept()[0]
                    client.settimeout(None)
                    server = socket.create_connection((host, int(port)))
                    talk = threading.Thread(target=_connect, args=(client, server, rate), daemon=True)
                    talk.start()
                    talks[:] = [(client, talk), *(other for other in talks if other[1].is_alive())]

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield f"{address}:{waiting.getsockname()[1]}"
        finally:
            ended.set()
            thread.join()
            for client, talk in talks:
                with contextlib.suppress(OSError):
                    client.shutdown(socket.SHUT_RDWR)
                talk.join(5)


def _connect(client: socket.socket, server: socket.socket, rate: float) -> None:
    """Let both talk until both have ended."""
    with client, server:
        back = threading.Thread(target=_pump, args=(server, client, 0.0), daemon=True)
        back.start()
        _pump(client, server, rate)
        back.join()


def _pump(source: socket.socket, target: socket.socket, rate: float) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(4096 if rate else 65536):
            target.sendall(data)
            if rate:
                time.sleep(len(data) / rate)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def untrusted(scene: Scene) -> Iterator[None]:
    """TLS with a self-signed certificate, at an address that docker treats as remote."""
    directory = scene.token.parent
    key, certificate = directory / "key.pem", directory / "certificate.pem"
    request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=here"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*request, *files], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with socket.create_server((_own_address(), 0)) as waiting:
        waiting.settimeout(0.2)
        ended = threading.Event()

        def accept() -> None:
            while not ended.is_set():
                with contextlib.suppress(OSError):
                    client = waiting.accept()[0]
                    client.settimeout(5)
                    with context.wrap_socket(client, server_side=True) as talk:
                        talk.recv(4096)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        host, port = waiting.getsockname()
        scene.host = f"{host}:{port}"
        try:
            yield
        finally:
            ended.set()
            thread.join()


def _own_address() -> str:
    """One of this machine's addresses that is not on loopback; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])


def unknown_name(scene: Scene) -> None:
    scene.host = "registry.invalid"


def logins(scene: Scene, *, expires: bool) -> None:
    """Only the new token is taken; with `expires`, the old one until the first layer has arrived."""
    scene.token.write_text(OLD)
    valid = [OLD if expires else NEW]

    def answer(request: Request, forward: Forward) -> Reply:
        scheme, _, login = request.headers.get("Authorization", "").partition(" ")
        if scheme != "Basic":
            return Reply(401, {**JSON, "WWW-Authenticate": 'Basic realm="it"'}, _unauthorized())
        token = base64.b64decode(login).decode().partition(":")[2]
        if token != valid[0]:
            if expires:
                text = "Your authorization token has expired. Reauthenticate and try again."
                return Reply(403, JSON, error_body("DENIED", text))
            return Reply(401, {**JSON, "WWW-Authenticate": 'Basic realm="it"'}, _unauthorized())
        reply = forward(request)
        if expires and request.method == "PUT":
            valid[0] = NEW
            scene.token.write_text(NEW)
        return reply

    scene.proxy.do("[A-Z]+", "", answer)


def _unauthorized() -> bytes:
    return error_body("UNAUTHORIZED", "authentication required")


def immutable(scene: Scene) -> None:
    text = f"The image tag '{TAG}' already exists in the repository and cannot be overwritten"
    body = error_body("TAG_INVALID", f"{text} because the tag is immutable.")
    scene.proxy.fail("PUT", f"/manifests/{TAG}", 400, body)


def missing(scene: Scene) -> None:
    body = error_body("NAME_UNKNOWN", "The repository with that name does not exist in the registry")
    scene.proxy.fail("[A-Z]+", "/v2/.+/(blobs|manifests|tags)/", 404, body)


def quota(scene: Scene) -> None:
    text = "adding 1.0 MiB of storage resource, which when updated to current usage of 10.0 GiB will exceed"
    body = error_body("DENIED", f"{text} the configured upper limit of 10.0 GiB.")
    scene.proxy.fail("PUT", "/blobs/uploads/|/manifests/", 412, body)


def delayed(scene: Scene, seconds: float) -> None:
    """The registry takes its time to store a layer, and then has it."""

    def answer(request: Request, forward: Forward) -> Reply:
        time.sleep(seconds)
        return forward(request)

    scene.proxy.do("PUT", UPLOADS, answer, 1)


def _failing(method: str, path: str, status: int, times: int, **headers: str) -> Arrange:
    def arrange(scene: Scene) -> None:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        body = error_body("UNKNOWN", "unknown error")
        scene.proxy.do(method, path, lambda _, __: Reply(status, {**JSON, **sent}, body), times)

    return arrange


def _reset(scene: Scene) -> None:
    scene.proxy.do(ENDING, UPLOADS, lambda _, __: LOST, 1)


def _stalled(scene: Scene) -> None:
    def silence(request: Request, _: Forward) -> Reply:
        select.select([request.connection], [], [], 600)
        return LOST

    scene.proxy.do(ENDING, UPLOADS, silence)


def _forbidden(scene: Scene) -> None:
    scene.proxy.fail("POST", UPLOADS, 403, error_body("DENIED", "requested access to the resource is denied"))


def _lost_reply(scene: Scene) -> None:
    scene.proxy.lose_reply("PUT", "/manifests/")


def _nothing(scene: Scene) -> None:
    pass


FOR_EVER = 1_000_000
_BENT = "DIGEST_INVALID|(?i:digest invalid|did not match)|not what was"

FAULTS = (
    PushFault("none", _nothing),
    PushFault("one 500", _failing(ENDING, UPLOADS, 500, 1)),
    PushFault("one reset", _reset),
    PushFault("one 429, Retry-After 2 s", _failing("POST", UPLOADS, 429, 1, Retry_After="2")),
    PushFault("throttled 5 s, Retry-After 6 s", lambda scene: throttled(scene, 5, "6")),
    PushFault("one 503 on the manifest", _failing("PUT", "/manifests/", 503, 1)),
    PushFault("reply to the manifest lost", _lost_reply),
    PushFault("corrupt byte, once", lambda scene: corrupted(scene, 1)),
    PushFault("slow line, 40 kB/s", lambda scene: slow_line(scene, 40_000)),
    PushFault("12 s to store a layer", lambda scene: delayed(scene, 12)),
    PushFault("outage of 8 s", lambda scene: outage(scene, 8)),
    PushFault("registry killed, restarted", restarted),
    PushFault("token expires during the push", lambda scene: logins(scene, expires=True)),
    PushFault("tag taken by the same digest", immutable, there="same"),
    PushFault("tag taken by another", immutable, "immutable|already exists|is taken", there="other"),
    PushFault("500 for ever", _failing(ENDING, UPLOADS, 500, FOR_EVER), "500|(?i:internal server error)"),
    PushFault(
        "corrupt byte, always",
        lambda scene: corrupted(scene, FOR_EVER),
        _BENT,
    ),
    PushFault("stall", _stalled, "stall|no progress|timed? ?out|deadline"),
    PushFault("registry's disk full", _nothing, "(?i:no space|is full|quota)", disk=True),
    PushFault("quota", quota, "(?i:quota|exceed)"),
    PushFault("repository missing", missing, "(?i:name unknown|no repository|does not exist|NAME_UNKNOWN)"),
    PushFault(
        "401, stale login", lambda scene: logins(scene, expires=False), "(?i:unauthorized|authenti|creden)"
    ),
    PushFault("403", _forbidden, "(?i:denied|not allowed|forbidden)"),
    PushFault("name unknown to DNS", unknown_name, "no such host|no address|(?i:resol)"),
    PushFault("TLS not trusted", untrusted, "x509|certificate|trust"),
)


@contextlib.contextmanager
def scene(fault: PushFault, directory: Path, repository: str, layouts: Layouts) -> Iterator[Scene]:
    """The fault, ready for a pusher; `layouts` are what the tag may name before."""
    with contextlib.ExitStack() as stack:
        data = stack.enter_context(_small_disk(directory)) if fault.disk else None
        registry = stack.enter_context(local_registry(directory, data))
        proxy = stack.enter_context(Proxy(registry.port).running())
        token = directory / "token"
        token.write_text(NEW)
        scene = Scene(registry, proxy, token)
        if fault.there:
            layouts[fault.there].put(scene, repository)
        arranged = fault.arrange(scene)
        if arranged:
            stack.enter_context(arranged)
        proxy.requests.clear()
        yield scene


@contextlib.contextmanager
def _small_disk(directory: Path) -> Iterator[Path]:
    """Needs root."""
    data = directory / "small"
    data.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(data)], check=True)
    try:
        yield data
    finally:
        subprocess.run(["umount", "--lazy", str(data)], check=True)


def docker_configuration(directory: Path, token: Path) -> dict[str, str]:
    """Return the environment that logs in as docker does, with the current token of the file."""
    programs = directory / "bin"
    programs.mkdir()
    helper = programs / "docker-credential-faults"
    message = f'{{"Username": "{USER}", "Secret": "%s"}}'
    helper.write_text(f"#!/bin/sh\n[ \"$1\" = get ] && printf '{message}' \"$(cat '{token}')\"\n")
    helper.chmod(0o755)
    (directory / "config.json").write_text(json.dumps({"credsStore": "faults"}))
    return {"DOCKER_CONFIG": str(directory), "PATH": f"{programs}:{os.environ['PATH']}"}
