"""The configuration an engine is started with, and what a dead one leaves behind."""

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bakehouse import dockerd
from bakehouse.dockerd import GIGABYTE, Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(
        state=tmp_path / "state",
        socket=tmp_path / "s",
        data_root=tmp_path / "data",
        exec_root=tmp_path / "exec",
        pidfile=tmp_path / "pid",
        containerd=tmp_path / "c",
        configured=tmp_path / "daemon.json",
    )
    (place.exec_root / "containerd").mkdir(parents=True)
    return place


@pytest.fixture
def sleeper() -> Iterator[int]:
    """A process that has nothing to do with engines."""
    with subprocess.Popen(["sleep", "60"]) as process:
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


def test_a_machine_without_configuration() -> None:
    assert dockerd.configuration({}, 100 * GIGABYTE) == {
        "builder": {"gc": {"enabled": True, "defaultKeepStorage": "40GB"}},
        "features": {"containerd-snapshotter": True},
    }


def test_the_owners_configuration_is_kept() -> None:
    owner = {
        "registry-mirrors": ["https://mirror.example"],
        "features": {"buildkit": True},
        "builder": {"gc": {"enabled": True, "defaultKeepStorage": "5GB"}},
    }

    assert dockerd.configuration(owner, 100 * GIGABYTE) == {
        **owner,
        "features": {"buildkit": True, "containerd-snapshotter": True},
    }


def test_what_the_command_line_says_is_not_said_twice() -> None:
    owner = {
        "hosts": ["tcp://0.0.0.0:2375"],
        "pidfile": "/p",
        "exec-root": "/e",
        "storage-driver": "overlay2",
    }

    assert dockerd.configuration(owner, 100 * GIGABYTE).keys() == {"builder", "features"}


def test_nothing_to_clear(place: Place) -> None:
    assert dockerd.clear_remains(place) == ()


def test_what_a_dead_engine_left_is_cleared(place: Place) -> None:
    place.pidfile.write_text("4194304")
    inner = place.exec_root / "containerd" / "containerd.pid"
    inner.write_text("4194304\n")
    dead_socket(place.socket)
    dead_socket(place.containerd)

    assert dockerd.clear_remains(place) == (place.pidfile, inner, place.socket, place.containerd)
    assert not any(path.exists() for path in (place.pidfile, inner, place.socket, place.containerd))


def test_a_pid_that_another_program_has_now_is_a_dead_engines(place: Place, sleeper: int) -> None:
    place.pidfile.write_text(str(sleeper))
    inner = place.exec_root / "containerd" / "containerd.pid"
    inner.write_text(str(sleeper))

    assert dockerd.clear_remains(place) == (place.pidfile, inner)
    assert Path(f"/proc/{sleeper}").exists()


def test_a_living_process_keeps_its_pid_file(place: Place, sleeper: int) -> None:
    place.pidfile.write_text(str(sleeper))

    assert dockerd.process_of(place.pidfile, "sleep") == sleeper
    assert dockerd.process_of(place.pidfile, "sleep", "60") == sleeper
    assert dockerd.process_of(place.pidfile, "sleep", "61") is None


def test_a_socket_that_somebody_listens_on_stays(place: Place) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(place.socket))
        server.listen()

        assert dockerd.clear_remains(place) == ()


def test_a_damaged_pid_file_names_no_process(place: Place) -> None:
    place.pidfile.write_text("")

    assert dockerd.process_of(place.pidfile, "dockerd") is None


def test_no_engine_of_ours_to_stop(place: Place) -> None:
    place.pidfile.write_text(str(os.getpid()))

    assert dockerd.stop(place) is False


def test_nobody_answers_on_a_dead_socket(place: Place) -> None:
    dead_socket(place.socket)

    assert dockerd.answers(place.socket) is False


def test_the_cache_limit_of_another_machines_engine_is_not_known(place: Place) -> None:
    assert dockerd.configured_cache_limit("tcp://builder-1:2375", place) is None
