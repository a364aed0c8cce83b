"""Ports for servers that are started later."""

import contextlib
import socket
from collections.abc import Iterator


@contextlib.contextmanager
def kept_port() -> Iterator[int]:
    """A port of 127.0.0.1 that the kernel gives to nobody else, while whoever is told of it may listen on it.

    A socket that is bound and does not listen is in the way of no server that sets SO_REUSEADDR, as those in
    Go and Python do.
    """
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        yield int(reserved.getsockname()[1])
