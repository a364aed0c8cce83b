"""Ports for servers that are started later."""

import contextlib
import socket
from collections.abc import Iterator


@contextlib.contextmanager
def kept_port() -> Iterator[int]:
    """Reserve a port of 127.0.0.1 that the kernel gives to no other socket; a server may listen on it.

    The reserving socket is bound but does not listen. It does not block servers that set SO_REUSEADDR, as Go
    and Python do.
    """
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        yield int(reserved.getsockname()[1])
