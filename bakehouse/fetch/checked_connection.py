"""Connections that are refused if the name of their server has a link-local address.

Only an established connection shows the address, because a name can have another one in the next look-up.
"""

import socket
from functools import cache
from typing import Any

from bakehouse.fetch.connection import is_link_local
from bakehouse.fetch.faults import Fault, SourceError


@cache
def pools() -> dict[str, Any]:
    """Return the classes of connection pools by scheme."""
    from urllib3.connection import HTTPConnection, HTTPSConnection
    from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

    class Connection(HTTPConnection):
        def _new_conn(self) -> socket.socket:
            return _checked(super()._new_conn())

    class TlsConnection(HTTPSConnection):
        def _new_conn(self) -> socket.socket:
            return _checked(super()._new_conn())

    class Pool(HTTPConnectionPool):
        ConnectionCls = Connection

    class TlsPool(HTTPSConnectionPool):
        ConnectionCls = TlsConnection

    return {"http": Pool, "https": TlsPool}


def _checked(connection: socket.socket) -> socket.socket:
    address = str(connection.getpeername()[0])
    if is_link_local(address):
        connection.close()
        reason = f"leads to `{address}`, a link-local address"
        raise SourceError(reason, Fault.ADDRESS)
    return connection
