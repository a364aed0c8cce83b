"""The registry that Bakehouse brings, as its own processes."""

import contextlib
import http.server
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from bakehouse.builder.built_image import BuiltImage
from bakehouse.engine.docker import connect
from bakehouse.errors import Diagnostic, PublishError
from bakehouse.fetch.retry import RetryPolicy
from bakehouse.plan.model import Image
from bakehouse.registry.client import Repository
from bakehouse.registry.local_registry import EmbeddedRegistry, RegistryContainer
from bakehouse.registry.manifest import digest_of
from tests.integration.ports import kept_port
from tests.support.programs import started
from tests.support.registry import registry_at, registry_image

pytestmark = [pytest.mark.engine, pytest.mark.timeout(120)]

CONNECT = """
import socket, sys
for target in sys.argv[1:]:
    host, port = target.split(":")
    try:
        socket.create_connection((host, int(port)), timeout=3)
        print("reached", target)
    except OSError:
        print("unreachable")
"""
USER = """
import sys, pathlib
from tests.support.registry import registry_at
with registry_at(pathlib.Path(sys.argv[1]), int(sys.argv[2])):
    print("inside", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def port() -> Iterator[int]:
    with kept_port() as port:
        yield port


@contextlib.contextmanager
def another_process(state: Path, port: int) -> Iterator["subprocess.Popen[str]"]:
    """Another process that uses the registry until its standard input ends."""
    command = [sys.executable, "-c", USER, str(state), str(port)]
    with started(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "inside\n"
        yield process


def docker(*arguments: str) -> str:
    """Run the docker client and return its output."""
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def answers(port: int) -> bool:
    try:
        urlopen(f"http://127.0.0.1:{port}/v2/", timeout=5).close()
    except OSError:
        return False
    return True


def falls_silent(port: int) -> bool:
    for _ in range(100):
        if not answers(port):
            return True
        time.sleep(0.1)
    return False


def test_it_answers_while_it_is_used_and_is_gone_afterwards(tmp_path: Path, port: int) -> None:
    with registry_at(tmp_path, port) as registry:
        assert registry.host == f"127.0.0.1:{port}"
        assert answers(port)
    assert not answers(port)


def test_a_second_run_finds_what_the_first_stored(tmp_path: Path, port: int) -> None:
    digest = digest_of(b"kept")
    with registry_at(tmp_path, port) as registry:
        begin = Request(f"http://{registry.host}/v2/kept/blobs/uploads/", method="POST")
        with urlopen(begin) as response:
            location = response.headers["Location"]
        kind = {"Content-Type": "application/octet-stream"}
        urlopen(Request(f"{location}&digest={digest}", b"kept", kind, method="PUT")).close()
    with registry_at(tmp_path, port) as registry:
        assert Repository(registry, "kept", RetryPolicy()).blob(digest) == b"kept"


def test_who_comes_second_shares_it_and_outlives_the_first(tmp_path: Path, port: int) -> None:
    with another_process(tmp_path, port) as first, registry_at(tmp_path, port):
        first.communicate("\n")
        time.sleep(0.5)
        assert answers(port)
    assert falls_silent(port)


def test_who_started_it_may_leave_first(tmp_path: Path, port: int) -> None:
    with contextlib.ExitStack() as second:
        with registry_at(tmp_path, port):
            second.enter_context(another_process(tmp_path, port))
        assert answers(port)
    assert falls_silent(port)


def test_many_that_begin_at_once_start_one(tmp_path: Path, port: int) -> None:
    with contextlib.ExitStack() as stack:
        threads = [
            threading.Thread(target=stack.enter_context, args=(registry_at(tmp_path, port),))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert answers(port)
    assert falls_silent(port)


def test_a_killed_user_leaves_nothing_running(tmp_path: Path, port: int) -> None:
    with another_process(tmp_path, port) as user:
        user.kill()
    assert falls_silent(port)
    with registry_at(tmp_path, port):
        assert answers(port)


@pytest.mark.parametrize(
    "seconds", [0.8, *(pytest.param(seconds, marks=pytest.mark.release) for seconds in (0.4, 1.2, 1.6))]
)
def test_a_user_that_is_killed_at_the_start_leaves_nothing(tmp_path: Path, port: int, seconds: float) -> None:
    with started([sys.executable, "-c", USER, str(tmp_path), str(port)], stdin=subprocess.PIPE) as user:
        time.sleep(seconds)
        user.kill()
    deadline = time.monotonic() + 60
    while any(str(tmp_path) in command for _, command in _processes()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not answers(port)
    for what in ("network", "container"):
        listed = docker(
            what,
            "ls",
            "--quiet",
            *(("--all",) if what == "container" else ()),
            "--filter",
            f"name=bakehouse-registry-{port}",
        )
        assert listed == ""


def test_a_killed_keeper_takes_the_registry_with_it(tmp_path: Path, port: int) -> None:
    with another_process(tmp_path, port):
        (keeper,) = [
            process
            for process, command in _processes()
            if "registry_keeper" in command and str(tmp_path) in command
        ]
        os.kill(keeper, signal.SIGKILL)
        assert falls_silent(port)
    with registry_at(tmp_path, port):
        assert answers(port)


def test_a_port_taken_by_something_else(tmp_path: Path) -> None:
    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    with pytest.raises(PublishError) as caught:
        registry_at(tmp_path, server.server_port).__enter__()
    server.shutdown()
    server.server_close()
    assert caught.value.diagnostics == (
        Diagnostic(
            f"port {server.server_port} of the local registry is used by another program",
            hint="set `registry_port` in [tool.bakehouse] or BAKEHOUSE_REGISTRY_PORT to a free port, "
            "or stop the other program",
        ),
    )


def test_a_port_taken_by_another_user(tmp_path: Path, port: int) -> None:
    with (
        registry_at(tmp_path / "their hömé", port) as theirs,
        pytest.raises(PublishError) as caught,
        registry_at(tmp_path / "ours", port),
    ):
        pass
    assert caught.value.diagnostics[0].message == (
        f"port {port} of the local registry is used by another local registry, in `{theirs.data.parent}`"
    )


def test_variables_of_the_user_do_not_configure_it(
    tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGISTRY_HTTP_ADDR", "0.0.0.0:6000")
    monkeypatch.setenv("REGISTRY_STORAGE_DELETE_ENABLED", "false")
    with registry_at(tmp_path, port):
        assert answers(port)
        name = f"bakehouse-registry-{port}"
        variables = json.loads(docker("inspect", name, "--format", "{{json .Config.Env}}"))
        assert {variable.partition("=")[0] for variable in variables} <= {"PATH", "REGISTRY_HTTP_HEADERS"}


def test_what_it_stores_belongs_to_the_user(tmp_path: Path, port: int) -> None:
    with registry_at(tmp_path, port) as registry:
        urlopen(Request(f"http://{registry.host}/v2/mine/blobs/uploads/", method="POST")).close()
        files = [*registry.data.rglob("*")]
    assert files
    assert {path.stat().st_uid for path in files} == {os.getuid()}


def test_a_registry_that_does_not_start_shows_its_log(tmp_path: Path, port: int) -> None:
    def missing() -> RegistryContainer:
        return RegistryContainer("bakehouse-registry:none", "0:0")

    with pytest.raises(PublishError) as caught:
        EmbeddedRegistry(tmp_path, port, missing).__enter__()
    [diagnostic] = caught.value.diagnostics
    assert (diagnostic.message, diagnostic.facts) == (
        "the local registry did not start",
        (("log", str(tmp_path / "registry.log")),),
    )
    assert "Unable to find image 'bakehouse-registry:none' locally" in diagnostic.tail


def test_nothing_of_it_is_left(tmp_path: Path, port: int) -> None:
    with registry_at(tmp_path, port) as registry:
        assert registry.host == f"127.0.0.1:{port}"
        assert answers(port)
    assert falls_silent(port)
    for what in ("network", "container"):
        assert docker(what, "ls", "--quiet", "--filter", f"name=bakehouse-registry-{port}") == ""


def test_a_container_of_a_killed_engine_is_replaced(tmp_path: Path, port: int) -> None:
    name = f"bakehouse-registry-{port}"
    docker("create", "--name", name, registry_image())
    with registry_at(tmp_path, port):
        assert answers(port)


def test_no_other_container_reaches_it(mpi_cpu: tuple[Image, BuiltImage], tmp_path: Path, port: int) -> None:
    _, built = mpi_cpu
    gateway = docker("network", "inspect", "bridge", "--format", "{{(index .IPAM.Config 0).Gateway}}")
    neighbour = ["run", "--rm", "--entrypoint", "python3", built.stored, "-c", CONNECT]
    with registry_at(tmp_path, port):
        [name] = docker("ps", "--quiet", "--filter", f"publish={port}").split()
        form = "{{range .NetworkSettings.Networks}}{{.IPAddress}} {{end}}"
        [address] = docker("inspect", name, "--format", form).split()
        socket.create_connection((address, 5000), timeout=5).close()
        targets = [f"{gateway}:{port}", f"host.docker.internal:{port}", f"{address}:5000"]
        assert docker(*neighbour, *targets) == "\n".join("unreachable" for _ in targets)
        for other in ("127.0.0.2", gateway):
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((other, port), timeout=5)


def _processes() -> Iterator[tuple[int, str]]:
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield int(entry.parent.name), entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")


def test_a_sweep_removes_what_a_killed_keeper_left_and_no_running_registry(tmp_path: Path, port: int) -> None:
    name = f"bakehouse-registry-{port}"
    names = ("ps", "--all", "--format", "{{.Names}}")
    with registry_at(tmp_path, port), contextlib.closing(connect()) as engine:
        engine.sweep()
        assert name in docker(*names).splitlines()
        (keeper,) = [
            process
            for process, command in _processes()
            if "registry_keeper" in command and str(tmp_path) in command
        ]
        os.kill(keeper, signal.SIGKILL)
        assert falls_silent(port)
        engine.sweep()
        assert name not in docker(*names).splitlines()
        assert name not in docker("network", "ls", "--format", "{{.Name}}").splitlines()
