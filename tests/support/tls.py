"""Certificates of a test's own authority, and a server that greets as BuildKit does."""

import contextlib
import datetime
import ipaddress
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = datetime.timedelta(days=1)
SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
"""The first frame of an HTTP/2 server, empty."""


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as PEM files."""

    cert: Path
    key: Path


class Authority:
    """A certificate authority below a directory."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.cert = directory / f"{name}.pem"
        certificate = self._certificate(self._name, self._key.public_key(), -_DAY, _DAY)
        signed = certificate.add_extension(x509.BasicConstraints(True, None), critical=True)
        self._write(self.cert, signed)

    def issue(
        self,
        name: str,
        *,
        start: datetime.timedelta = -_DAY,
        end: datetime.timedelta = _DAY,
        host: str = "127.0.0.1",
    ) -> Pair:
        """Issue a certificate for a host; `start` and `end` count from now."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        is_address = host.replace(".", "").isdigit()
        names = [x509.IPAddress(ipaddress.ip_address(host)) if is_address else x509.DNSName(host)]
        certificate = self._certificate(subject, key.public_key(), start, end)
        pair = Pair(self._directory / f"{name}.pem", self._directory / f"{name}.key")
        self._write(pair.cert, certificate.add_extension(x509.SubjectAlternativeName(names), critical=False))
        pair.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return pair

    def _certificate(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePublicKey,
        start: datetime.timedelta,
        end: datetime.timedelta,
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return x509.CertificateBuilder(
            issuer_name=self._name,
            subject_name=subject,
            public_key=key,
            serial_number=x509.random_serial_number(),
            not_valid_before=now + start,
            not_valid_after=now + end,
        )

    def _write(self, path: Path, certificate: x509.CertificateBuilder) -> None:
        signed = certificate.sign(self._key, hashes.SHA256())
        path.write_bytes(signed.public_bytes(serialization.Encoding.PEM))


def server_context(
    pair: Pair, ca: Path, protocols: tuple[str, ...] = ("h2",), version: ssl.TLSVersion | None = None
) -> ssl.SSLContext:
    """Return the TLS settings of a server that requires client certificates of an authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)
    context.load_verify_locations(ca)
    context.verify_mode = ssl.CERT_REQUIRED
    if protocols:
        context.set_alpn_protocols(list(protocols))
    if version:
        context.maximum_version = version
    return context


def greet(connection: socket.socket) -> None:
    """Answer as an HTTP/2 server."""
    connection.recv(64)
    connection.sendall(SETTINGS)
    connection.recv(64)


@contextlib.contextmanager
def serve(
    answer: Callable[[socket.socket], None] = greet, context: ssl.SSLContext | None = None
) -> Iterator[int]:
    """Answer each connection to a free port in a thread, and yield the port."""

    def take(client: socket.socket) -> None:
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            stack.callback(client.close)
            connection = context.wrap_socket(client, server_side=True) if context else client
            stack.callback(connection.close)
            answer(connection)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = server.accept()
                client.settimeout(10)
                threading.Thread(target=take, args=(client,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1]
        # accept() returns only then
        server.shutdown(socket.SHUT_RDWR)
