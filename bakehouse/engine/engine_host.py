"""Probe of the network, files and disk that an engine shares with this host, from inside a container.

An engine can run in a virtual machine, behind ssh or in its own namespaces. Its name and its endpoint do not
show this, because a socket of this host can lead anywhere. So a small program in a container tests it.
"""

import contextlib
import secrets
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from bakehouse.engine import probe_program
from bakehouse.engine.probe_program import ProbeResult
from bakehouse.engine.protocol import ContainerSpec, Engine, EngineHost
from bakehouse.errors import EngineError
from bakehouse.util.tempdir import scratch_directory

HOST_NAME = "host.docker.internal"
"""Name of this host in containers of Docker Desktop."""
LOOPBACK = "127.0.0.1"
"""Forwarders of virtual machines connect to this address of the host."""
SECONDS = 5.0
"""Time limit for a connection without an answer."""
_POLL_SECONDS = 0.1
_SHARED = "/host"
_TOKEN_FILE = "token"
_NO_BRIDGE = "the engine has no default bridge network"


def probe(
    engine: Engine,
    image: str,
    architecture: str,
    gateway: str,
    boot_id: Path = Path(probe_program.BOOT_ID),
    seconds: float = SECONDS,
) -> EngineHost:
    """Return the facts about this host that the containers of an engine find.

    `image` is an empty image. `gateway` is the address of the engine's default bridge, empty without one.
    """
    with scratch_directory() as directory:
        host = EngineHost(shares_files=sees(engine, image, directory))
        if architecture not in probe_program.ARCHITECTURES:
            return replace(host, problem=f"it is not known for {architecture}")
        probe = _Probe(engine, image, architecture, directory, seconds)
        first = probe.attempt("bridge" if gateway else "none", gateway, gateway)
        if first.result:
            own = boot_id.read_text().strip() if boot_id.exists() else ""
            host = replace(host, same_kernel=first.result.boot_id == own, free=first.result.free)
        if not gateway:
            return replace(host, problem=_NO_BRIDGE)
        if not first.problem:
            return replace(host, address=gateway, listen=gateway)
        # Without a forwarder, the name leads to the gateway
        if first.named_address in ("", gateway):
            return replace(host, problem=first.problem)
        second = probe.attempt("bridge", first.named_address, LOOPBACK)
    if second.problem:
        return replace(host, problem=f"{first.problem}, and {second.problem}")
    return replace(host, address=first.named_address, listen=LOOPBACK)


def sees(engine: Engine, image: str, directory: Path) -> bool:
    """Return whether a container sees a directory of this host.

    `image` is an empty image. The engine reads a test file, so no program runs in the container.
    """
    token = secrets.token_bytes(16)
    (directory / _TOKEN_FILE).write_bytes(token)
    spec = ContainerSpec(image, ("/none",), shared_directories={_SHARED: str(directory)})
    try:
        with engine.container(spec) as container:
            return container.read(f"{_SHARED}/{_TOKEN_FILE}").get(_TOKEN_FILE) == token
    except EngineError:
        # An engine refuses a directory that its machine does not have.
        return False
    finally:
        (directory / _TOKEN_FILE).unlink()


@dataclass(frozen=True, slots=True)
class _Attempt:
    """Result of one container."""

    problem: str
    """Reason why it did not connect to this host; empty if it did."""
    result: ProbeResult | None
    named_address: str
    """Address of `HOST_NAME` in the container."""


@dataclass(frozen=True, slots=True)
class _Probe:
    engine: Engine
    image: str
    architecture: str
    directory: Path
    seconds: float

    def attempt(self, network: str, address: str, listen: str) -> _Attempt:
        """Let a container connect to `address`, which should reach `listen` on this host."""
        token = secrets.token_bytes(16)
        with contextlib.ExitStack() as stack:
            problem, port, server = "", 0, None
            if listen:
                try:
                    server = stack.enter_context(socket.create_server((listen, 0)))
                    port = server.getsockname()[1]
                except OSError:
                    problem = f"`{listen}` is not an address of this host"
            program = probe_program.build(self.architecture, address or LOOPBACK, port, token)
            spec = ContainerSpec(
                self.image,
                (f"/{probe_program.PATH}",),
                network=network,
                files={f"/{probe_program.PATH}": program},
                extra_hosts={HOST_NAME: "host-gateway"} if network != "none" else {},
            )
            with self.engine.container(spec) as container:
                container.start(self.directory / "log")
                until = time.monotonic() + self.seconds
                # After its exit, a container makes no more connections.
                while container.wait(_POLL_SECONDS) is None and time.monotonic() < until:
                    pass
                contents = container.read(probe_program.RESULT)
                hosts = container.read("/etc/hosts")
            if server and not _received(server, token):
                problem = f"a container does not reach `{address}`"
        result = None
        for content in contents.values():
            with contextlib.suppress(ValueError):
                result = ProbeResult.of(content)
        return _Attempt(problem, result, _address_in(hosts))


def _received(server: socket.socket, token: bytes) -> bool:
    """Return whether a connection that is waiting sent the token."""
    for connection in _waiting(server):
        with connection, contextlib.suppress(OSError):
            connection.settimeout(1)
            if secrets.compare_digest(connection.recv(len(token), socket.MSG_WAITALL), token):
                return True
    return False


def _waiting(server: socket.socket) -> Iterator[socket.socket]:
    server.setblocking(False)
    while True:
        try:
            yield server.accept()[0]
        except BlockingIOError:
            return


def _address_in(hosts: Mapping[str, bytes]) -> str:
    """Return the IPv4 address of `HOST_NAME` in /etc/hosts."""
    lines = b"".join(hosts.values()).decode(errors="replace").splitlines()
    addresses = [fields[0] for line in lines if HOST_NAME in (fields := line.split())[1:]]
    return next((address for address in addresses if ":" not in address), "")
