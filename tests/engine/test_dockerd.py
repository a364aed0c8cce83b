"""Configuration of a new engine, and leftovers of a dead one."""

import itertools
import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bakehouse.engine import dockerd
from bakehouse.engine.daemon_paths import DaemonPaths
from bakehouse.engine.dockerd import GIGABYTE
from bakehouse.errors import EngineError
from tests.support.bridges import bridge
from tests.support.fake_commands import put
from tests.support.programs import started


@pytest.fixture
def paths(tmp_path: Path) -> DaemonPaths:
    paths = DaemonPaths.below(tmp_path)
    (paths.exec_root / "containerd").mkdir(parents=True)
    return paths


@pytest.fixture
def sleeper() -> Iterator[int]:
    """Process that is not an engine."""
    with started(["sleep", "60"]) as process:
        # For a moment after its start it still bears our name.
        while not Path(f"/proc/{process.pid}/cmdline").read_bytes().startswith(b"sleep"):
            time.sleep(0.01)
        yield process.pid
        process.kill()


def dead_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


@pytest.mark.parametrize(("free", "limit"), [(500, 40), (100, 40), (60, 30), (22, 11), (6, 10)])
def test_the_cache_gets_at_most_half_of_the_free_disk(free: int, limit: int) -> None:
    assert dockerd.cache_limit(free * GIGABYTE) == limit


@pytest.mark.parametrize(
    ("free", "former", "limit"), [(30, 30, 30), (25, 40, 25), (100, 30, 40), (8, 40, 10), (40, 10, 20)]
)
def test_a_limit_stays_while_that_much_is_free(free: int, former: int, limit: int) -> None:
    assert dockerd.cache_limit(free * GIGABYTE, former) == limit


def test_a_cache_that_fills_its_limit_has_the_same_limit_at_every_start() -> None:
    limit = first = dockerd.cache_limit(60 * GIGABYTE)
    for _ in range(5):
        limit = dockerd.cache_limit((60 - limit) * GIGABYTE, limit)
    assert limit == first


def test_a_machine_without_configuration() -> None:
    assert dockerd.configuration({}, 40) == {
        "builder": {"gc": {"enabled": True, "defaultKeepStorage": "40GB"}},
        "features": {"containerd-snapshotter": True},
    }


def test_the_owners_configuration_is_kept() -> None:
    owner = {
        "registry-mirrors": ["https://mirror.example"],
        "features": {"buildkit": True},
        "builder": {"gc": {"enabled": True, "defaultKeepStorage": "5GB"}},
    }

    assert dockerd.configuration(owner, 40) == {
        **owner,
        "features": {"buildkit": True, "containerd-snapshotter": True},
    }


def test_options_of_the_command_line_are_not_repeated() -> None:
    owner = {
        "hosts": ["tcp://0.0.0.0:2375"],
        "pidfile": "/p",
        "exec-root": "/e",
        "storage-driver": "overlay2",
    }

    assert dockerd.configuration(owner, 40).keys() == {"builder", "features"}


def test_an_engine_listens_on_a_unix_socket_only(tmp_path: Path) -> None:
    program = tmp_path / "dockerd"
    program.write_text('#!/bin/sh\necho "$@"\n')
    program.chmod(0o755)
    paths = DaemonPaths.below(tmp_path, (str(program),))
    paths.configured.write_text('{"hosts": ["tcp://0.0.0.0:2375"]}')
    with pytest.raises(EngineError, match="dockerd exited during its start"):
        dockerd.start(paths, print)

    arguments = paths.log.read_text().split()
    hosts = [value for name, value in itertools.pairwise(arguments) if name == "--host"]
    assert hosts == [f"unix://{tmp_path}/docker.sock"]
    assert "hosts" not in json.loads(paths.configuration.read_text())


def test_an_engine_gets_no_secret_of_the_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary-4711")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example")
    program = tmp_path / "dockerd"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    process = dockerd._launch(DaemonPaths.below(tmp_path, (str(program),)), print)
    try:
        environment = Path(f"/proc/{process}/environ").read_text()
    finally:
        os.kill(process, signal.SIGKILL)

    assert "canary-4711" not in environment
    assert "HTTPS_PROXY=http://proxy.example" in environment.split("\0")
    assert f"PATH={dockerd.program_path()}" in environment.split("\0")


def test_nothing_to_clear(paths: DaemonPaths) -> None:
    assert dockerd.clear_remains(paths) == ()


def test_what_a_dead_engine_left_is_cleared(paths: DaemonPaths) -> None:
    paths.pidfile.write_text("4194304")
    inner = paths.exec_root / "containerd" / "containerd.pid"
    inner.write_text("4194304\n")
    dead_socket(paths.socket)
    dead_socket(paths.containerd)

    assert dockerd.clear_remains(paths) == (paths.pidfile, inner, paths.socket, paths.containerd)
    assert not any(path.exists() for path in (paths.pidfile, inner, paths.socket, paths.containerd))


def test_a_containerd_that_dies_with_its_dockerd_is_waited_for(
    paths: DaemonPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = paths.exec_root / "containerd"
    commands = put(tmp_path, monkeypatch, containerd="sleep 0.5")
    with started([str(commands / "containerd"), str(inner)]) as process:
        (inner / "containerd.pid").write_text(str(process.pid))
        while dockerd.process_of(inner / "containerd.pid", "containerd") is None:
            time.sleep(0.01)

        assert dockerd.clear_remains(paths) == (inner / "containerd.pid",)


def test_a_pid_that_another_program_has_now_is_a_dead_engines(paths: DaemonPaths, sleeper: int) -> None:
    paths.pidfile.write_text(str(sleeper))
    inner = paths.exec_root / "containerd" / "containerd.pid"
    inner.write_text(str(sleeper))

    assert dockerd.clear_remains(paths) == (paths.pidfile, inner)
    assert Path(f"/proc/{sleeper}").exists()


def test_a_living_process_keeps_its_pid_file(paths: DaemonPaths, sleeper: int) -> None:
    paths.pidfile.write_text(str(sleeper))

    assert dockerd.process_of(paths.pidfile, "sleep") == sleeper
    assert dockerd.process_of(paths.pidfile, "sleep", "60") == sleeper
    assert dockerd.process_of(paths.pidfile, "sleep", "61") is None


def test_a_live_socket_stays(paths: DaemonPaths) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(paths.socket))
        server.listen()

        assert dockerd.clear_remains(paths) == ()


def test_a_damaged_pid_file_names_no_process(paths: DaemonPaths) -> None:
    paths.pidfile.write_text("")

    assert dockerd.process_of(paths.pidfile, "dockerd") is None


def test_no_engine_of_ours_to_stop(paths: DaemonPaths) -> None:
    paths.pidfile.write_text(str(os.getpid()))

    assert dockerd.stop(paths) is False


def test_a_dead_socket_does_not_answer(paths: DaemonPaths) -> None:
    dead_socket(paths.socket)

    assert dockerd.answers(paths.socket) is False


IP = 'echo "$@" > asked'


def test_a_bridge_keeps_the_address_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    put(tmp_path, monkeypatch, ip=IP)
    bridge(tmp_path, "1")
    messages: list[str] = []
    dockerd.fix_address("br0", messages.append, tmp_path / "net")
    assert (tmp_path / "asked").read_text() == "link set dev br0 address 02:00:00:00:00:01\n"
    assert messages == []


@pytest.mark.parametrize(("name", "address_type"), [("br0", "3"), ("other", "1")])
def test_a_fixed_address_and_a_missing_bridge_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, address_type: str
) -> None:
    monkeypatch.chdir(tmp_path)
    put(tmp_path, monkeypatch, ip=IP)
    bridge(tmp_path, address_type)
    dockerd.fix_address(name, print, tmp_path / "net")
    assert not (tmp_path / "asked").exists()


def test_an_address_that_cannot_be_kept_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, monkeypatch, ip="echo Operation not permitted >&2; exit 2")
    bridge(tmp_path, "1")
    messages: list[str] = []
    dockerd.fix_address("br0", messages.append, tmp_path / "net")
    assert messages == [
        "note: the address of br0 may change during a build, which stalls downloads: Operation not permitted"
    ]
