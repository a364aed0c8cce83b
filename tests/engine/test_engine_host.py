"""Probes of engines whose containers connect to this host, or do not."""

import contextlib
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bakehouse.engine import engine_host, probe_program
from bakehouse.engine.protocol import Container, ContainerSpec, EngineHost
from bakehouse.errors import EngineError
from tests.support.fake_engine import FakeEngine, Run

BOOT_ID = "11111111-2222-3333-4444-555555555555"
RESULT = struct.pack("<5Q", 0, 4096, 0, 0, 1000) + bytes(80) + BOOT_ID.encode()
NO_ADDRESS = "198.51.100.1"
"""An address of no machine (RFC 5737)."""
Connect = Callable[[str, int, bytes], bytes]
"""Returns the bytes that a container sends, given the address, the port and the token of its program."""


class Engine(FakeEngine):
    """An engine whose containers may see the files of this host, and may connect to it."""

    def __init__(self, connect: Connect, *, name: str = "", sees_files: bool = False) -> None:
        super().__init__(self._behave)
        self._connect, self._name, self._sees_files = connect, name, sees_files

    @contextlib.contextmanager
    def container(self, spec: ContainerSpec) -> Iterator[Container]:
        if spec.shared_directories and not self._sees_files:
            raise EngineError("bind source path does not exist")
        with super().container(spec) as container:
            yield container

    def _behave(self, spec: ContainerSpec) -> Run:
        if spec.shared_directories:
            [(path, directory)] = spec.shared_directories.items()
            return Run(files={f"{path}/token": (Path(directory) / "token").read_bytes()})
        [program] = spec.files.values()
        address, port, token = parsed(program)
        sent = self._connect(address, port, token) if port else b""
        if sent:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as client:
                client.sendall(sent)
        hosts = f"127.0.0.1\tlocalhost\n{self._name}\thost.docker.internal\n" if self._name else ""
        return Run(files={"/found": RESULT, "/etc/hosts": hosts.encode()})


def parsed(program: bytes) -> tuple[str, int, bytes]:
    """Return the address, the port and the token of a program."""
    at = program.index(probe_program.BOOT_ID.encode()) + len(probe_program.BOOT_ID) + 1
    return (
        socket.inet_ntoa(program[at + 4 : at + 8]),
        int(struct.unpack_from(">H", program, at + 2)[0]),
        program[at + 16 :],
    )


def probed(engine: Engine, gateway: str, tmp_path: Path, architecture: str = "amd64") -> EngineHost:
    (tmp_path / "boot_id").write_text(f"{BOOT_ID}\n")
    return engine_host.probe(engine, "empty", architecture, gateway, tmp_path / "boot_id", 0.2)


def test_an_engine_of_this_host_shares_all(tmp_path: Path) -> None:
    engine = Engine(lambda address, port, token: token, sees_files=True)

    assert probed(engine, "127.0.0.1", tmp_path) == EngineHost(
        "127.0.0.1", "127.0.0.1", shares_files=True, same_kernel=True, free=4096000
    )
    assert [spec.network for spec in engine.specs] == ["none", "bridge"]


def test_a_gateway_that_is_elsewhere_is_not_used(tmp_path: Path) -> None:
    host = probed(Engine(lambda *sent: b""), NO_ADDRESS, tmp_path)

    assert host == EngineHost(
        problem=f"`{NO_ADDRESS}` is not an address of this host", same_kernel=True, free=4096000
    )


def test_a_firewall_between_containers_and_this_host_is_found(tmp_path: Path) -> None:
    host = probed(Engine(lambda *sent: b"", name="127.0.0.1"), "127.0.0.1", tmp_path)

    assert (host.address, host.problem) == ("", "a container does not reach `127.0.0.1`")


def test_a_connection_of_another_program_is_no_answer(tmp_path: Path) -> None:
    host = probed(Engine(lambda address, port, token: b"x" * 16), "127.0.0.1", tmp_path)

    assert host.problem == "a container does not reach `127.0.0.1`"


def test_a_forwarder_named_host_docker_internal_is_used(tmp_path: Path) -> None:
    """Docker Desktop forwards connections to that name to the loopback address of the host."""
    engine = Engine(lambda address, port, token: token, name="192.0.2.254")

    host = probed(engine, NO_ADDRESS, tmp_path)

    assert (host.address, host.listen, host.problem) == ("192.0.2.254", "127.0.0.1", "")
    assert engine.specs[-1].extra_hosts == {"host.docker.internal": "host-gateway"}


def test_all_addresses_that_were_tried_are_named(tmp_path: Path) -> None:
    host = probed(Engine(lambda *sent: b"", name="192.0.2.254"), NO_ADDRESS, tmp_path)

    assert host.problem == (
        f"`{NO_ADDRESS}` is not an address of this host, and a container does not reach `192.0.2.254`"
    )


def test_an_engine_without_a_bridge_reaches_nothing(tmp_path: Path) -> None:
    host = probed(Engine(lambda *sent: b""), "", tmp_path)

    assert (host.problem, host.free) == ("the engine has no default bridge network", 4096000)


def test_another_kernel_is_found(tmp_path: Path) -> None:
    engine = Engine(lambda address, port, token: token)
    (tmp_path / "other").write_text("66666666-2222-3333-4444-555555555555\n")

    host = engine_host.probe(engine, "empty", "amd64", "127.0.0.1", tmp_path / "other", 0.2)

    assert not host.same_kernel


@pytest.mark.parametrize("boot_id", ["none", "empty"])
def test_a_host_without_boot_id_has_another_kernel(tmp_path: Path, boot_id: str) -> None:
    (tmp_path / "empty").write_text("")

    host = engine_host.probe(
        Engine(lambda *sent: b""), "empty", "amd64", "127.0.0.1", tmp_path / boot_id, 0.2
    )

    assert not host.same_kernel


def test_an_architecture_without_program_is_not_known(tmp_path: Path) -> None:
    host = probed(Engine(lambda *sent: b"", sees_files=True), "127.0.0.1", tmp_path, "s390x")

    assert host == EngineHost(problem="it is not known for s390x", shares_files=True)
