"""Pushes with the container engine, through the docker SDK's own HTTP session."""

import base64
import contextlib
import hashlib
import http.server
import json
import os
import threading
import time
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bakehouse.engine import usage_lock
from bakehouse.errors import Diagnostic, EngineError, RegistryAuthError
from bakehouse.registry.http_errors import without_secrets
from bakehouse.registry.manifest import Manifest, UnreadableManifestError, digest_of, parse
from bakehouse.registry.registry import Credentials
from bakehouse.registry.transfer import Fault, Layers, StallPolicy, TransferError, fault_in
from bakehouse.util import tempdir
from bakehouse.util.files import write_whole
from bakehouse.util.oci import Digest
from bakehouse.util.terminal import Reporter

if TYPE_CHECKING:
    from docker import APIClient
    from requests import Response

_ANSWER_SECONDS = 10.0
_SHOWING = StallPolicy(stall=_ANSWER_SECONDS)


class DockerPusher:
    """`Pusher` of a docker engine with the containerd store."""

    def __init__(self, api: "APIClient", notes: Path) -> None:
        self._api = api
        self._notes = notes
        """Directory with a file for each temporary name that a push gives to an image."""
        self._sweep()

    def manifest(self, image: Digest) -> Manifest | None:
        with RecordingRegistry(image) as recorder:
            try:
                self.push(image, recorder.reference, None, _SHOWING, lambda _: None)
            except TransferError as error:
                if error.fault is Fault.NOT_FOUND:
                    raise
            return recorder.manifest

    def push(
        self,
        image: Digest,
        reference: str,
        credentials: Credentials | None,
        watch: StallPolicy,
        progress: Reporter,
    ) -> Digest:
        layers = Layers(progress)
        try:
            with (
                usage_lock.engine_in_use(watch.until),
                self._named(image, reference),
                self._response(reference, credentials, watch) as response,
            ):
                for event in _events(response):
                    layers.see(event)
                    watch.check(layers.moved_at, layers.settling)
                    _listen_for(response, watch.idle_timeout(layers.settling))
        except TransferError as error:
            raise TransferError(error.fault, without_secrets(error.text, credentials)) from None
        finally:
            watch.pushed.update(layers.pushed)
        if layers.digest is None:
            message = "the engine reported no digest of the push"
            raise TransferError(Fault.TRANSIENT, message)
        return layers.digest

    @contextlib.contextmanager
    def _response(
        self, reference: str, credentials: Credentials | None, watch: StallPolicy
    ) -> Iterator["Response"]:
        """Stream of the engine's events. Closing it at the end of the context stops the push.

        The SDK's own `push` cannot be stopped, because its generator hides the response.
        """
        import requests

        name, _, tag = reference.rpartition(":")
        login = {"username": credentials.username, "password": credentials.password} if credentials else {}
        header = base64.urlsafe_b64encode(json.dumps(login).encode()).decode()
        try:
            response = self._api.post(
                f"{self._api.base_url}/v{self._api.api_version}/images/{name}/push",
                params={"tag": tag},
                headers={"X-Registry-Auth": header},
                stream=True,
                timeout=(_ANSWER_SECONDS, watch.idle_timeout()),
            )
            with contextlib.closing(response):
                if not response.ok:
                    text = str(response.json().get("message", response.reason))
                    raise TransferError(fault_in(text), text)
                yield response
        except requests.Timeout as error:
            raise _silence(watch) from error
        except requests.ConnectionError as error:
            # Within a stream, requests reports a read timeout as a lost connection.
            if "timed out" in str(error):
                raise _silence(watch) from error
            message = "the engine closed the connection"
            raise TransferError(Fault.TRANSIENT, message) from error
        except requests.RequestException as error:
            message = "the engine's response ended early"
            raise TransferError(Fault.TRANSIENT, message) from error

    @contextlib.contextmanager
    def _named(self, image: Digest, reference: str) -> Iterator[None]:
        """Give the image the name of the push, until the push has ended."""
        import requests
        from docker.errors import APIError, NotFound

        name, _, tag = reference.rpartition(":")
        unique = hashlib.sha256(f"{reference} {threading.get_ident()}".encode()).hexdigest()[:12]
        note = self._notes / f"{tempdir.run_id()}.{unique}"
        write_whole(note, reference + "\n")
        try:
            self._api.tag(image, name, tag)
            yield
        except NotFound as error:
            message = f"the engine does not have the image {image}"
            raise TransferError(Fault.NOT_FOUND, message) from error
        except APIError as error:
            text = str(error.explanation or error)
            raise TransferError(Fault.REFUSED, text) from error
        except requests.RequestException as error:
            message = "the engine closed the connection"
            raise TransferError(Fault.TRANSIENT, message) from error
        finally:
            self._forget(reference, note)

    def _sweep(self) -> None:
        """Remove the names that killed pushes left."""
        for note in tempdir.abandoned(self._notes):
            with contextlib.suppress(FileNotFoundError):
                self._forget(note.read_text().strip(), note)

    def _forget(self, reference: str, note: Path) -> None:
        import requests
        from docker.errors import APIError

        try:
            with contextlib.suppress(APIError):
                self._api.remove_image(reference, noprune=True)
        except requests.RequestException:
            # The engine has stopped. A later push removes the name.
            return
        note.unlink(missing_ok=True)


class RecordingRegistry:
    """Registry on loopback that claims to have every layer, and records the manifest of a push.

    The engine's API has no request for a manifest of its store.
    """

    def __init__(self, image: Digest) -> None:
        self.image = image
        self.manifest: Manifest | None = None
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._answers())
        self._server.daemon_threads = True
        self.reference = f"127.0.0.1:{self._server.server_port}/bakehouse-shows-manifest:x"

    def __enter__(self) -> "RecordingRegistry":
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answers(self) -> type[http.server.BaseHTTPRequestHandler]:
        recorder = self

        class Answers(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # The engine tries TLS first. After a response in HTTP/0.9 it would not try plain HTTP.
            default_request_version = "HTTP/1.1"
            timeout = _ANSWER_SECONDS

            def handle(self) -> None:
                with contextlib.suppress(ConnectionError):
                    super().handle()

            def do_HEAD(self) -> None:
                self._answer(HTTPStatus.OK if "/blobs/" in self.path else HTTPStatus.NOT_FOUND)

            def do_PUT(self) -> None:
                content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                with contextlib.suppress(UnreadableManifestError):
                    recorder.manifest = parse(content, self.headers.get("Content-Type", ""))
                # The engine sends an index after its manifests. The last request is rejected, because the
                # engine would remember this registry as a source of each layer.
                digest = digest_of(content)
                last = digest == recorder.image
                self._answer(HTTPStatus.BAD_REQUEST if last else HTTPStatus.CREATED, digest)

            def do_POST(self) -> None:
                self._answer(HTTPStatus.BAD_REQUEST)

            def _answer(self, status: HTTPStatus, digest: str = "") -> None:
                self.send_response(status)
                self.send_header("Docker-Content-Digest", digest)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        return Answers


def connect(notes: Path) -> DockerPusher:
    """Return a pusher for the engine that `docker` uses; remove what killed pushes left there."""
    import docker
    from docker.context import ContextAPI
    from docker.errors import DockerException

    try:
        if os.environ.get("DOCKER_HOST"):
            api = docker.from_env().api
        else:
            context = ContextAPI.get_current_context()
            api = docker.APIClient(base_url=context.Host, tls=context.TLSConfig or False)
    except DockerException as error:
        hint = "run `bake doctor`"
        raise EngineError(Diagnostic("no container engine answers", hint=hint)) from error
    return DockerPusher(api, notes)


def docker_login(host: str) -> Credentials | None:
    """Return the login of `docker login` for a registry, from docker's file or credential helper."""
    from docker.auth import load_config
    from docker.errors import DockerException

    try:
        authentication = load_config().resolve_authconfig(host) or {}
    except DockerException:
        # The helper's own message may contain secrets.
        message = f"cannot read docker's login for `{host}`: its credential helper is missing or failed"
        hint = f"check `credHelpers` and `credsStore` in docker's settings, or run `docker login {host}`"
        raise RegistryAuthError(Diagnostic(message, hint=hint)) from None
    # The names are lower case in the file, but not in a helper's output.
    login = {name.lower(): value for name, value in authentication.items()}
    username, password = login.get("username"), login.get("password")
    return Credentials(username, password) if username and password else None


def _events(response: "Response") -> Iterator[dict[str, Any]]:
    """Yield the events in the engine's stream."""
    for line in response.iter_lines():
        # A chunk that ends between the two characters of a line ending yields an empty line.
        if not line:
            continue
        try:
            yield json.loads(line)
        except ValueError as error:
            message = "the engine's response ended early"
            raise TransferError(Fault.TRANSIENT, message) from error


def _listen_for(response: "Response", seconds: float) -> None:
    """Limit the silence from now on; the timeout of requests was set when the request was sent."""
    sock = getattr(response.raw.connection, "sock", None)
    if sock:
        sock.settimeout(seconds)


def _silence(watch: StallPolicy) -> TransferError:
    # A timeout that equals the deadline may end shortly before it.
    overdue = time.monotonic() >= watch.until - 0.2
    text = "the deadline passed" if overdue else f"the engine was silent for {watch.stall:g} s"
    return TransferError(Fault.TIMED_OUT if overdue else Fault.STALLED, text)
