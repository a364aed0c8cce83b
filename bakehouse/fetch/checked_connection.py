"""Connections that are refused if the name of their server has a link-local address.

Only an established connection shows the address, because a name can have another one in the next look-up.
"""

import socket

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from bakehouse.fetch.connection import is_link_local
from bakehouse.fetch.faults import Fault, SourceError


def _checked(connection: socket.socket) -> socket.socket:
    address = str(connection.getpeername()[0])
    if is_link_local(address):
        connection.close()
        reason = f"leads to `{address}`, a link-local address"
        raise SourceError(reason, Fault.ADDRESS)
    return connection


class _Connection(HTTPConnection):
    def _new_conn(self) -> socket.socket:
        return _checked(super()._new_conn())


class _TlsConnection(HTTPSConnection):
    def _new_conn(self) -> socket.socket:
        return _checked(super()._new_conn())


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


POOLS = {"http": _Pool, "https": _TlsPool}
