"""Ties the hosts of two instance groups together: data hosts end with the training, a lost host is noticed.

The training host keeps a connection to every data host. It says `done` when training is over; a connection
that ends in any other way means that the host at its other end is gone.
"""

import contextlib
import os
import socket
import threading
import time

PORT = 6100
_PATIENCE = 300


def serve(names: int = 1) -> bool:
    """On a data host: wait until all `names` training hosts are done; False where one of them was lost."""
    with socket.create_server(("", PORT)) as server:
        server.settimeout(_PATIENCE)
        connections = [server.accept()[0] for _ in range(names)]
    answers = []
    for connection in connections:
        with connection:
            _keep_alive(connection)
            try:
                answers.append(connection.recv(16))
            except OSError:
                answers.append(b"")
    return answers == [b"done"] * names


@contextlib.contextmanager
def held(data_hosts):
    """On a training host: hold a line to every data host; the job fails as soon as one of them is lost."""
    lines = {host: _connect(host) for host in data_hosts}
    over = threading.Event()
    for host, line in lines.items():
        threading.Thread(target=_watch, args=(host, line, over), daemon=True).start()
    try:
        yield
    except BaseException:
        over.set()
        raise
    over.set()
    for line in lines.values():
        line.sendall(b"done")
    for line in lines.values():
        line.close()


def _connect(host):
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            line = socket.create_connection((host, PORT), timeout=5)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)
        else:
            line.settimeout(None)
            _keep_alive(line)
            return line


def _watch(host, line, over):
    with contextlib.suppress(OSError):
        line.recv(1)
    if not over.is_set():
        print(f"data host {host} was lost", flush=True)
        # Whatever waits for its data would wait for ever.
        os._exit(1)


def _keep_alive(line):
    """A host that is gone without a word is noticed within a quarter of a minute."""
    line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5)
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 3)
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
