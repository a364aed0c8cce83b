"""A stub of ECR at ECR's own address, with TLS: for this machine alone, as long as a block lasts."""

import contextlib
import os
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

from bakehouse.util.file_lock import exclusive

HOSTS, CERTIFICATES = Path("/etc/hosts"), Path("/etc/docker/certs.d")
_ADDRESS = "127.5.4.3"


@contextlib.contextmanager
def at_address(host: str, upstream: str, directory: Path) -> Iterator[Path]:
    """Let `host` be answered by the HTTP server at `upstream`; gives the certificate to trust.

    The engine and the tests find the name in /etc/hosts; the engine trusts the certificates in its certs.d.
    One block at a time has the address on a machine, and others wait for its end. It replaces what a
    killed process left.
    """
    certificate = _certificate(host, directory)
    line = f"{_ADDRESS} {host} # bakehouse-tests {os.getpid()}\n"
    trusted = CERTIFICATES / host
    with contextlib.ExitStack() as stack:
        stack.enter_context(exclusive(HOSTS))
        stack.callback(_without, host)
        _without(host)
        with HOSTS.open("a") as hosts:
            hosts.write(line)
        stack.callback(shutil.rmtree, trusted, ignore_errors=True)
        trusted.mkdir(parents=True, exist_ok=True)
        shutil.copy(certificate, trusted / "ca.crt")
        stack.enter_context(_answering(upstream, certificate))
        yield certificate


def _without(host: str) -> None:
    """Take the tests' lines for a host out of /etc/hosts. The file stays: containers have it as a mount."""
    lines = HOSTS.read_text().splitlines(keepends=True)
    HOSTS.write_text("".join(line for line in lines if f"{host} # bakehouse-tests" not in line))


def _certificate(host: str, directory: Path) -> Path:
    """A certificate of its own issuer, and its key in the same file."""
    certificate, key = directory / "certificate.pem", directory / "key.pem"
    subject = ["-subj", "/CN=bakehouse-tests", "-addext", f"subjectAltName=DNS:{host}"]
    openssl = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
    subprocess.run([*openssl, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    return certificate


@contextlib.contextmanager
def _answering(upstream: str, certificate: Path) -> Iterator[None]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_name("key.pem"))
    name, _, port = upstream.partition(":")
    with socket.create_server((_ADDRESS, 443)) as server:
        server.settimeout(0.2)
        ended = threading.Event()

        def accept() -> None:
            while not ended.is_set():
                with contextlib.suppress(OSError):
                    client, _ = server.accept()
                    client.settimeout(60)
                    threading.Thread(target=relay, args=(client,), daemon=True).start()

        def relay(client: socket.socket) -> None:
            with (
                contextlib.suppress(OSError),
                context.wrap_socket(client, server_side=True) as outer,
                socket.create_connection((name, int(port))) as inner,
            ):
                back = threading.Thread(target=pump, args=(inner, outer), daemon=True)
                back.start()
                pump(outer, inner)
                back.join()

        def pump(source: socket.socket, target: socket.socket) -> None:
            with contextlib.suppress(OSError):
                while content := source.recv(1 << 16):
                    target.sendall(content)
            with contextlib.suppress(OSError):
                target.shutdown(socket.SHUT_WR)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
