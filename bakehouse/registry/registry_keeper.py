"""Runs a registry while it is used or kept: `python registry_keeper.py LOCK KEEP PORT MACHINE OPTIONS…`.

Every process that uses the registry holds a shared lock. This process waits for the exclusive lock, which the
kernel grants once the last of them has ended, even if it was killed. Then it stops the registry, unless the
file KEEP exists: that registry runs until `bake registry stop` removes the file, or until its directory is
removed. It runs as a script, so it does not import Bakehouse.

The registry is a container with a network of its own. Both are removed at the end. OPTIONS are those of
`docker run`, with the image. MACHINE is the start of the id of this process. Both have the id as a label, so
that the next run of Bakehouse can remove them if this process was killed.

The engine publishes the registry on PORT of its own loopback address. If that is not this host's, and no
forwarder leads there, this process relays connections to PORT of this host. So both sides use the same name.
"""

import ctypes
import fcntl
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

SERVICE = "bakehouse.service=registry"
"""Label of a container that belongs to no job."""
_CHECK_SECONDS = 0.1
_STOP_SECONDS = 10
_ABSENT_CHECKS = 3
_PR_SET_PDEATHSIG = 1
_LOOPBACK = "127.0.0.1"
PORT_INSIDE = 5000
_PUBLISH_SECONDS = 3.0
"""Time in which an engine, or its forwarder, publishes the port of a new container."""
_RELAY = f"""\
exec 3<>/dev/tcp/{_LOOPBACK}/{PORT_INSIDE} 4<&0
cat <&3 & cat <&4 >&3 &
wait -n
"""
"""Script in the registry's container that connects its input and output to the registry."""


def keep(lock_path: str, keep_path: str, command: list[str]) -> int:
    """Run `command` until no other process holds the lock and the file `keep_path` is gone.

    Keeps the lock until the command has stopped.
    """
    lock = os.open(lock_path, os.O_RDWR)
    registry = subprocess.Popen(command, preexec_fn=_die_with_parent)
    while registry.poll() is None:
        if Path(keep_path).exists():
            time.sleep(_CHECK_SECONDS)
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_CHECK_SECONDS)
        else:
            registry.terminate()
            try:
                registry.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                registry.kill()
            return 0
    return registry.returncode


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def container_name(port: int) -> str:
    """Name of the container of a port, of its network, and of its volume."""
    return f"bakehouse-registry-{port}"


def relay(name: str, port: int) -> None:
    """Relay connections to `port` of this host into the container, unless they reach it without a relay."""
    start = time.monotonic()
    while not _is_open(port):
        time.sleep(_CHECK_SECONDS)
        # The engine publishes the port before the container runs.
        if time.monotonic() - start > _PUBLISH_SECONDS and _docker("exec", name, "bash", "-c", ":") == 0:
            break
    if _is_open(port):
        return
    server = socket.create_server((_LOOPBACK, port))
    while True:
        connection, _ = server.accept()
        threading.Thread(target=_relay_connection, args=(name, connection), daemon=True).start()


def _relay_connection(name: str, connection: socket.socket) -> None:
    command = ["docker", "exec", "--interactive", name, "bash", "-c", _RELAY]
    with connection:
        descriptor = connection.fileno()
        subprocess.run(command, stdin=descriptor, stdout=descriptor, check=False)


def _is_open(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(2)
        return probe.connect_ex((_LOOPBACK, port)) == 0


def _remove(name: str) -> None:
    """Remove the container and the network, also if a stopped client leaves them a moment later."""
    deadline, absent = time.monotonic() + _STOP_SECONDS, 0
    while absent < _ABSENT_CHECKS and time.monotonic() < deadline:
        is_left = False
        for kind, options in (("container", ("--force",)), ("network", ())):
            _docker(kind, "rm", *options, name)
            is_left |= _docker(kind, "inspect", name) == 0
        absent = 0 if is_left else absent + 1
        time.sleep(_CHECK_SECONDS)


def _docker(*words: str) -> int:
    return subprocess.run(["docker", *words], capture_output=True, check=False).returncode


def _owner(machine: str) -> str:
    """Return the id of this process as `bakehouse.util.tempdir.run_id` forms it."""
    stat = Path("/proc/self/stat")
    start = stat.read_text().rpartition(")")[2].split()[19] if stat.exists() else "0"
    return f"{machine}-{os.getpid()}-{start}"


def main(lock_path: str, keep_path: str, port: str, machine: str, *options: str) -> int:
    name = container_name(int(port))
    labels = ["--label", f"bakehouse={_owner(machine)}", "--label", SERVICE]
    try:
        # Both exist already if the last keeper was killed
        _docker("container", "rm", "--force", name)
        _docker("network", "rm", name)
        _docker("network", "create", *labels, name)
        publish = ("--publish", f"{_LOOPBACK}:{port}:{PORT_INSIDE}")
        run = ["docker", "run", "--rm", "--name", name, *labels, "--network", name, *publish, *options]
        threading.Thread(target=relay, args=(name, int(port)), daemon=True).start()
        return keep(lock_path, keep_path, run)
    finally:
        _remove(name)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
