import contextlib
import http.server
import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import docker
import pytest
import requests

from bakehouse.engine import usage_lock
from bakehouse.engine.dockerd import DaemonPaths
from bakehouse.errors import Diagnostic, RegistryAuthError
from bakehouse.registry.docker_push import DockerPusher, docker_login
from bakehouse.registry.registry import Credentials
from bakehouse.registry.transfer import Fault, StallPolicy, TransferError
from bakehouse.util import tempdir
from bakehouse.util.oci import Digest

HOST = "registry.example.com"


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Docker's own configuration, in a directory of the test's."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    return tmp_path / "config.json"


def test_without_a_login_there_are_no_credentials(configured: Path) -> None:
    assert docker_login(HOST) is None


def test_a_login_is_found_in_dockers_file(configured: Path) -> None:
    configured.write_text(json.dumps({"auths": {HOST: {"auth": "Y2k6aHVudGVyMg=="}}}))
    assert docker_login(HOST) == Credentials("ci", "hunter2")
    assert docker_login("another.example.com") is None


def test_a_login_is_found_through_dockers_helper(
    configured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper = tmp_path / "docker-credential-test"
    helper.write_text('#!/bin/sh\necho \'{"Username": "ci", "Secret": "hunter2"}\'\n')
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    configured.write_text(json.dumps({"credHelpers": {HOST: "test"}}))
    assert docker_login(HOST) == Credentials("ci", "hunter2")


def test_a_failing_helper_is_reported_without_its_output(
    configured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper = tmp_path / "docker-credential-test"
    helper.write_text("#!/bin/sh\necho hunter2\nexit 1\n")
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    configured.write_text(json.dumps({"credHelpers": {HOST: "test"}}))
    with pytest.raises(RegistryAuthError) as caught:
        docker_login(HOST)
    assert caught.value.diagnostics == (
        Diagnostic(
            f"cannot read docker's login for `{HOST}`: its credential helper is missing or failed",
            hint=f"check `credHelpers` and `credsStore` in docker's settings, or run `docker login {HOST}`",
        ),
    )


class Dying:
    """An engine that dies when it is asked for this."""

    base_url, api_version = "http://127.0.0.1:9", "1.44"

    def __init__(self, *dead: str) -> None:
        self._dead = dead

    def tag(self, *_: object) -> None:
        self._answer("tag")

    def remove_image(self, *_: object, **__: object) -> None:
        self._answer("remove")

    def post(self, *_: object, **__: object) -> None:
        raise requests.ConnectionError

    def _answer(self, what: str) -> None:
        if what in self._dead:
            raise requests.ConnectionError


@pytest.mark.parametrize("dead", [("tag", "remove"), ("remove",)])
def test_an_engine_that_dies_is_a_failure_that_may_pass(tmp_path: Path, dead: tuple[str, ...]) -> None:
    pusher = DockerPusher(Dying(*dead), tmp_path)  # type: ignore[arg-type]
    with pytest.raises(TransferError) as caught:
        pusher.push(Digest("sha256:00"), f"{HOST}/x:y", None, StallPolicy(5.0), print)
    assert (caught.value.fault, caught.value.text) == (Fault.TRANSIENT, "the engine closed the connection")
    # A later push takes the name back.
    [note] = tmp_path.iterdir()
    assert note.read_text() == f"{HOST}/x:y\n"


def test_the_engine_is_not_restarted_under_a_push(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths, outcomes = DaemonPaths(state=tmp_path), list[bool]()
    monkeypatch.setattr("bakehouse.engine.usage_lock.DaemonPaths", lambda: paths)

    class Looking(Dying):
        def post(self, *_: object, **__: object) -> None:
            with usage_lock.exclusive_engine(paths) as is_alone:
                outcomes.append(is_alone)
            raise requests.ConnectionError

    pusher = DockerPusher(Looking(), tmp_path / "notes")  # type: ignore[arg-type]
    with pytest.raises(TransferError):
        pusher.push(Digest("sha256:00"), f"{HOST}/x:y", None, StallPolicy(5.0), print)
    assert outcomes == [False]


def test_names_that_can_not_be_taken_back_yet_are_kept_in_mind(tmp_path: Path) -> None:
    note = tmp_path / f"{tempdir.run_id()}.0123"
    note.write_text(f"{HOST}/x:y\n")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tempdir, "is_abandoned", lambda *_: True)
        DockerPusher(Dying("remove"), tmp_path)  # type: ignore[arg-type]
        assert note.exists()
        DockerPusher(Dying(), tmp_path)  # type: ignore[arg-type]
        assert not note.exists()


@contextlib.contextmanager
def engine(*lines: bytes) -> Iterator[DockerPusher]:
    """An engine that prints these lines for a push; an empty last line ends the stream."""
    ended = threading.Event()

    class Engine(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            is_push = "/push?" in self.path
            self.send_response(200 if is_push else 201)
            self.send_header(
                "Transfer-Encoding" if is_push else "Content-Length", "chunked" if is_push else "0"
            )
            self.end_headers()
            if is_push:
                for line in lines:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
                if lines[-1]:
                    ended.wait(60)

        def do_DELETE(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"[]")

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Engine)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    with tempfile.TemporaryDirectory() as notes:
        address = f"tcp://127.0.0.1:{server.server_port}"
        with contextlib.closing(docker.APIClient(base_url=address, version="1.43")) as api:
            try:
                yield DockerPusher(api, Path(notes))
            finally:
                ended.set()
                server.shutdown()
                server.server_close()


PUSHING = b'{"status":"Pushing","progressDetail":{"current":1,"total":9},"id":"cad945fc7c57"}\r\n'


@pytest.mark.parametrize(
    ("watch", "fault"),
    [
        (lambda: StallPolicy(60.0, time.monotonic() + 1.0), Fault.TIMED_OUT),
        (lambda: StallPolicy(1.0, time.monotonic() + 60.0), Fault.STALLED),
    ],
    ids=["deadline", "stall"],
)
def test_an_engine_that_falls_silent_is_not_waited_for(
    watch: Callable[[], StallPolicy], fault: Fault
) -> None:
    """The engine of the overlay2 store says nothing while nothing moves."""
    with engine(PUSHING) as pushing, pytest.raises(TransferError) as caught:
        pushing.push(Digest("sha256:" + "0" * 64), f"{HOST}/a:b", None, watch(), lambda _: None)
    assert caught.value.fault is fault


PUSHED = b'{"aux":{"Digest":"sha256:%s"}}' % (b"0" * 64)


def test_a_stream_that_is_cut_between_the_ends_of_a_line_is_read(tmp_path: Path) -> None:
    digest = Digest("sha256:" + "0" * 64)
    with engine(PUSHING[:-1], b"\n", PUSHED + b"\r\n", b"") as pushing:
        assert pushing.push(digest, f"{HOST}/a:b", None, StallPolicy(30.0), lambda _: None) == digest


def test_an_engine_that_breaks_off_within_a_line_is_a_failure_that_may_pass() -> None:
    with engine(PUSHING[:20] + b"\r\n") as pushing, pytest.raises(TransferError) as caught:
        pushing.push(Digest("sha256:" + "0" * 64), f"{HOST}/a:b", None, StallPolicy(30.0), lambda _: None)
    assert (caught.value.fault, caught.value.text) == (Fault.TRANSIENT, "the engine's response ended early")
