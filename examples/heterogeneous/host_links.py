"""Connect training hosts and data hosts: data hosts stop with the training, and lost hosts are noticed.

A training host keeps a connection to every data host and sends `done` when training is over. If a connection
closes in another way, the other host was lost.
"""

import contextlib
import os
import socket
import threading
import time

PORT = 6100
_TIMEOUT = 300


def serve(count: int = 1) -> bool:
    """Wait on a data host until all `count` training hosts are done. Return False if one was lost."""
    with socket.create_server(("", PORT)) as server:
        server.settimeout(_TIMEOUT)
        connections = [server.accept()[0] for _ in range(count)]
    messages = []
    for connection in connections:
        with connection:
            _keep_alive(connection)
            try:
                messages.append(connection.recv(16))
            except OSError:
                messages.append(b"")
    return messages == [b"done"] * count


@contextlib.contextmanager
def connect(data_hosts):
    """Connect a training host to every data host. The job fails when one of them is lost."""
    connections = {host: _connect(host) for host in data_hosts}
    is_over = threading.Event()
    for host, connection in connections.items():
        threading.Thread(target=_watch, args=(host, connection, is_over), daemon=True).start()
    try:
        yield
    finally:
        is_over.set()
    for connection in connections.values():
        connection.sendall(b"done")
    for connection in connections.values():
        connection.close()


def _connect(host):
    deadline = time.monotonic() + _TIMEOUT
    while True:
        try:
            connection = socket.create_connection((host, PORT), timeout=5)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)
        else:
            connection.settimeout(None)
            _keep_alive(connection)
            return connection


def _watch(host, connection, is_over):
    with contextlib.suppress(OSError):
        connection.recv(1)
    if not is_over.is_set():
        print(f"data host {host} was lost", flush=True)
        # Other threads would wait forever for its data.
        os._exit(1)


def _keep_alive(connection):
    """Detect a host that disappeared within 15 seconds."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 3)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
