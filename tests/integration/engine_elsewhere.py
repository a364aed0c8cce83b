"""An engine in network and mount namespaces of its own, reached through its socket.

It shares the kernel with this host. Its containers reach no port of this host, and it sees neither the
directories of tests nor of the project. A forwarder named `host.docker.internal` can lead to the host's
loopback address, as in Docker Desktop.
"""

import contextlib
import ctypes
import json
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from bakehouse.catalog.project import HOME
from bakehouse.engine.daemon_paths import CONTAINERD
from tests.integration.offline_engine import OfflineNetwork

FORWARDER = "10.213.0.77"
"""Address of the forwarder in the engine's network."""
_HIDDEN = (str(HOME), tempfile.gettempdir())
"""Directories that the engine sees empty."""
_NEW_NETWORK = 0x40000000
"""CLONE_NEWNET of sched.h."""
_ORIGINAL_DESTINATION = 80
"""SO_ORIGINAL_DST of linux/netfilter_ipv4.h."""
_STATE = Path("/var/tmp")
"""It is not hidden, and paths of sockets must be short."""


@dataclass(frozen=True)
class EngineElsewhere:
    """Address of the engine, and its network."""

    endpoint: str
    network: OfflineNetwork


@contextlib.contextmanager
def engine_elsewhere(*, with_forwarder: bool = False, store: str = CONTAINERD) -> Iterator[EngineElsewhere]:
    """Start an engine that is elsewhere; it is removed at the end."""
    home = Path(tempfile.mkdtemp(prefix="bh-", dir=_STATE))
    endpoint = f"unix://{home}/docker.sock"
    settings = {"features": {"containerd-snapshotter": store == CONTAINERD}}
    (home / "daemon.json").write_text(json.dumps(settings))
    try:
        with OfflineNetwork(f"bh{uuid4().hex[:6]}") as network, contextlib.ExitStack() as stack:
            options = ["--host-gateway-ip", FORWARDER] if with_forwarder else []
            command = [
                "dockerd", f"--config-file={home}/daemon.json", f"--data-root={home}/data",
                f"--exec-root={home}/exec", f"--pidfile={home}/pid", f"--host={endpoint}",
                f"--bridge={network.bridge}", *options,
            ]  # fmt: skip
            hide = "".join(f"mount -t tmpfs none {directory} && " for directory in _HIDDEN)
            if with_forwarder:
                address = [f"{FORWARDER}/24", "dev", network.bridge]
                subprocess.run(["ip", "-n", network.name, "address", "add", *address], check=True)
                stack.enter_context(_forwarder(network))
            inside = network.inside("unshare", "--mount", "sh", "-c", f'{hide}exec "$@"', "sh", *command)
            log = stack.enter_context((home / "log").open("wb"))
            process = subprocess.Popen(inside, cwd="/", stdout=log, stderr=log, start_new_session=True)
            try:
                while subprocess.run(["docker", "--host", endpoint, "info"], capture_output=True).returncode:
                    assert process.poll() is None, (home / "log").read_text()[-2000:]
                    time.sleep(0.2)
                yield EngineElsewhere(endpoint, network)
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(60)
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextlib.contextmanager
def _forwarder(network: OfflineNetwork) -> Iterator[None]:
    """Forward each port of `FORWARDER` to the same port of the loopback address of this host.

    The rules of the kernel redirect all ports to one. A thread in the other network accepts, and its
    connections to this host start in this network.
    """
    with _listener(network) as server:
        port = server.getsockname()[1]
        rule = f"-t nat -A PREROUTING -d {FORWARDER} -p tcp -j REDIRECT --to-ports {port}"
        subprocess.run(network.inside("iptables", "--wait", *rule.split()), check=True)
        threading.Thread(target=_accept, args=(server,), daemon=True).start()
        yield


def _listener(network: OfflineNetwork) -> socket.socket:
    """Return a socket that listens in the other network."""
    created: list[socket.socket] = []

    def create() -> None:
        with Path("/run/netns", network.name).open() as namespace:
            # Python has os.setns since 3.12 only.
            assert ctypes.CDLL(None).setns(namespace.fileno(), _NEW_NETWORK) == 0
        created.append(socket.create_server(("0.0.0.0", 0)))

    # Only this thread enters the network, and it ends.
    thread = threading.Thread(target=create)
    thread.start()
    thread.join()
    return created[0]


def _accept(server: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            inner, _ = server.accept()
            threading.Thread(target=_forward, args=(inner,), daemon=True).start()


def _forward(inner: socket.socket) -> None:
    """Copy the data of a connection to and from the port that it was opened to."""
    with inner, contextlib.suppress(OSError):
        _, port = struct.unpack_from(">HH", inner.getsockopt(socket.SOL_IP, _ORIGINAL_DESTINATION, 16))
        with socket.create_connection(("127.0.0.1", port)) as outer:
            back = threading.Thread(target=_copy, args=(outer, inner), daemon=True)
            back.start()
            _copy(inner, outer)
            back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
