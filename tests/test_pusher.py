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

from bakehouse.plan import Digest
from bakehouse.pusher import DockerPusher, docker_login
from bakehouse.registry import Credentials
from bakehouse.transfer import Fault, TransferError, Watch

HOST = "registry.example.com"


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Docker's own configuration, in a folder of the test's."""
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


@contextlib.contextmanager
def engine(*lines: bytes) -> Iterator[DockerPusher]:
    """One that says this of a push, and then no more."""
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
        (lambda: Watch(60.0, time.monotonic() + 1.0), Fault.LATE),
        (lambda: Watch(1.0, time.monotonic() + 60.0), Fault.STALLED),
    ],
    ids=["deadline", "stall"],
)
def test_an_engine_that_falls_silent_is_not_waited_for(watch: Callable[[], Watch], fault: Fault) -> None:
    """The engine of the overlay2 store says nothing while nothing moves."""
    with engine(PUSHING) as pushing, pytest.raises(TransferError) as caught:
        pushing.push(Digest("sha256:" + "0" * 64), f"{HOST}/a:b", None, watch(), lambda _: None)
    assert caught.value.fault is fault
