"""Engines behind ssh, for the docker SDK: a Unix socket whose connections the docker client forwards.

The SDK's own support of ssh needs another library, which does not read all of the user's ssh settings.
"""

import contextlib
import socket
import subprocess
import threading
from collections.abc import Iterator

from bakehouse.util.tempdir import scratch_directory


@contextlib.contextmanager
def dialed_engine() -> Iterator[str]:
    """Yield the endpoint of a socket that leads to the engine of the `docker` command."""
    with scratch_directory() as directory, socket.socket(socket.AF_UNIX) as server:
        path = directory / "engine.sock"
        server.bind(str(path))
        server.listen()
        accepting = threading.Thread(target=_accept, args=(server,), daemon=True)
        accepting.start()
        try:
            yield f"unix://{path}"
        finally:
            with contextlib.suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)


def _accept(server: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection, _ = server.accept()
            threading.Thread(target=_forward, args=(connection,), daemon=True).start()


def _forward(connection: socket.socket) -> None:
    with connection:
        descriptor = connection.fileno()
        command = ["docker", "system", "dial-stdio"]
        subprocess.run(command, stdin=descriptor, stdout=descriptor, stderr=subprocess.DEVNULL, check=False)
