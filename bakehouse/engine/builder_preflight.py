"""Checks of a builder before a build, within five seconds and with a separate message for each fault.

buildx reports any fault of a connection as `context deadline exceeded`, after 20 seconds. These checks
therefore open the connection themselves: TCP, TLS with the builder's certificates, the first HTTP/2 frame.
"""

import contextlib
import os
import re
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from bakehouse.engine import daemon_info
from bakehouse.engine.buildx_builders import (
    DOCKER,
    REMOTE,
    Builder,
    BuilderNode,
    Program,
    find_builder,
    read_workers,
)
from bakehouse.engine.daemon_info import UnavailableDaemon, run_program
from bakehouse.errors import Diagnostic, EngineError
from bakehouse.util.deadline import OverdueError, bounded, remaining
from bakehouse.util.oci import PLATFORM

SECONDS = 5.0
OLDEST_BUILDKIT = (0, 11)
"""The first version with SOURCE_DATE_EPOCH; Docker Engine 24 contains it."""
_ANSWER_SECONDS = 2.0
"""A running BuildKit sends its settings at once."""
_SOCKETS = ("tcp", "unix")
"""Endpoints that these checks connect to; buildx reaches others through a program, such as kubectl."""
_TLS_OPTIONS = ("cacert", "cert", "key")
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
"""The first bytes of an HTTP/2 client: the preface, and empty settings."""
_SETTINGS = 4
"""Type of the frame that an HTTP/2 server sends first."""
_TLS_ALERT = b"\x15\x03"
_EXPIRED, _NOT_YET_VALID, _OTHER_NAME, _OTHER_ADDRESS = 10, 9, 62, 64
"""OpenSSL's X509_V_ERR_CERT_HAS_EXPIRED, _CERT_NOT_YET_VALID, _HOSTNAME_MISMATCH, _IP_ADDRESS_MISMATCH."""
_REJECTED = {
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it requires one",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not trust its CA",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it is not signed by a CA that the builder trusts, or it is damaged",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "it expired",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "it was revoked",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it is unacceptable",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "its type is unsupported",
    "TLSV1_ALERT_ACCESS_DENIED": "access denied",
    "TLSV1_ALERT_DECRYPT_ERROR": "its signature is wrong",
}
"""Reasons of rejected client certificates by the server's alert."""


@dataclass(frozen=True, slots=True)
class BuilderCheck:
    """Result of one check of a builder."""

    name: str
    detail: str
    fault: Diagnostic | None = None
    hint: str = ""
    """How to find a fact out that the builder does not report; empty if it does."""


def preflight(
    name: str,
    *,
    environment: Mapping[str, str] = os.environ,
    run: Program = run_program,
    seconds: float = SECONDS,
) -> tuple[BuilderCheck, ...]:
    """Return the checks of a builder; a fault ends the checks of its node.

    Raises UsageError for an unknown name.
    """
    until = time.monotonic() + seconds
    builder = find_builder(name, environment, run)
    nodes = ", ".join(node.endpoint for node in builder.nodes)
    definition = BuilderCheck("builder", f"{name}, driver {builder.driver}: {nodes}")
    with ThreadPoolExecutor(len(builder.nodes) or 1) as pool:
        checks = list(pool.map(lambda node: tuple(_node_checks(builder, node, run, until)), builder.nodes))
    results = [definition, *(check for of_node in checks for check in of_node)]
    if not any(check.fault for check in results):
        results += _worker_checks(builder, run, until)
    return tuple(results)


def require_builder(
    name: str, environment: Mapping[str, str] = os.environ, run: Program = run_program
) -> None:
    """Raise EngineError with the faults of a builder."""
    checks = preflight(name, environment=environment, run=run)
    if faults := [check.fault for check in checks if check.fault]:
        raise EngineError.of(*faults)


def is_own_engine(name: str, environment: Mapping[str, str] = os.environ, run: Program = run_program) -> bool:
    """Return whether a builder is the engine that the docker client uses without a builder."""
    if find_builder(name, environment, run).driver != DOCKER:
        return False
    host = ("--format", "{{.Endpoints.docker.Host}}")
    own, other = run("docker", "context", "inspect", *host), run("docker", "context", "inspect", name, *host)
    return own.code == 0 and own.out == other.out


def _node_checks(builder: Builder, node: BuilderNode, run: Program, until: float) -> Iterator[BuilderCheck]:
    """Yield the checks of one node, up to its first fault."""
    try:
        if builder.driver == DOCKER:
            yield _engine_check(node, run, until)
        elif builder.driver == REMOTE and urlsplit(node.endpoint).scheme in _SOCKETS:
            yield from _endpoint_checks(node, until)
    except EngineError as error:
        yield BuilderCheck(f"node {node.name}", "", error.diagnostics[0])
    except OverdueError:
        message = f"builder node `{node.name}` does not answer in time"
        yield BuilderCheck(f"node {node.name}", "", Diagnostic(message, hint="restart BuildKit there"))


def _engine_check(node: BuilderNode, run: Program, until: float) -> BuilderCheck:
    """Check a docker engine: only the containerd store can export images to other machines."""
    client = partial(run, "docker", "--context", node.endpoint, seconds=remaining(until))
    daemon = daemon_info.probe(client)
    if isinstance(daemon, UnavailableDaemon):
        hint = f"check `docker --context {node.endpoint} info`"
        raise EngineError.of(daemon_info.unavailable(daemon, hint))
    own = run("docker", "context", "inspect", "--format", "{{.Endpoints.docker.Host}}")
    if not daemon.containerd_store and own.out.strip() != daemon.endpoint:
        raise EngineError(
            f"the engine of builder `{node.name}` cannot export images without a containerd store",
            hint='set {"features": {"containerd-snapshotter": true}} in its daemon.json and restart it',
        )
    return BuilderCheck(f"node {node.name}", f"Docker {daemon.version} at {daemon.endpoint}")


def _endpoint_checks(node: BuilderNode, until: float) -> Iterator[BuilderCheck]:
    address = _address(node)
    _connect(node, until).close()
    yield BuilderCheck(f"node {node.name}", f"accepts connections at {address}")
    context = _tls_context(node)
    _require_buildkit(node, context, until)
    yield BuilderCheck("TLS", "both certificates are accepted" if context else "not used")


def _address(node: BuilderNode) -> str:
    url = urlsplit(node.endpoint)
    return url.path if url.scheme == "unix" else url.netloc


def _connect(node: BuilderNode, until: float) -> socket.socket:
    url, address = urlsplit(node.endpoint), _address(node)
    try:
        if url.scheme == "unix":
            client = socket.socket(socket.AF_UNIX)
            client.settimeout(remaining(until))
            try:
                client.connect(url.path)
            except OSError:
                client.close()
                raise
            return client
        # Looking up a name has no time-out of its own.
        limit = remaining(until) * 0.9
        return bounded(lambda: socket.create_connection((url.hostname, url.port or 0), limit), until)
    except socket.gaierror as error:
        message = f"the host name of builder node `{node.name}` is unknown: `{url.hostname}`"
        raise _fault(message, "correct the endpoint, or check the DNS server and the VPN") from error
    except ConnectionRefusedError as error:
        message = f"builder node `{node.name}` does not run: nothing listens at `{address}`"
        raise _fault(message, "start BuildKit there, or correct the endpoint") from error
    except (TimeoutError, OverdueError) as error:
        message = f"builder node `{node.name}` is unreachable: `{address}` does not answer"
        raise _fault(message, f"open TCP port {url.port} in firewalls and security groups") from error
    except FileNotFoundError as error:
        message = f"builder node `{node.name}` does not run: socket `{address}` does not exist"
        raise _fault(message, "start BuildKit there, or correct the endpoint") from error
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        message = f"builder node `{node.name}` is unreachable at `{address}`: {reason}"
        raise _fault(message, "check the route to the builder") from error
    except ValueError as error:
        # A port above 65535, or a part of a host name with more than 63 characters
        message = f"the endpoint of builder node `{node.name}` is invalid: `{node.endpoint}`"
        hint = "create the builder again with `tcp://HOST:PORT` or `unix://PATH`"
        raise _fault(message, hint) from error


def _tls_context(node: BuilderNode, protocols: tuple[str, ...] = ("h2",)) -> ssl.SSLContext | None:
    """Return the TLS settings of a node; None if it uses none. Raises EngineError for unusable files."""
    given = [option for option in _TLS_OPTIONS if node.options.get(option)]
    if not given and not node.options.get("servername"):
        return None
    if missing := [option for option in _TLS_OPTIONS if option not in given]:
        options = ", ".join(f"`{option}`" for option in missing)
        message = f"builder node `{node.name}` uses TLS, but lacks the driver options {options}"
        raise _fault(message, "create the builder again with `--driver-opt cacert=…,cert=…,key=…`")
    for option in _TLS_OPTIONS:
        try:
            Path(node.options[option]).read_bytes()
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            message = f"`{option}` of builder node `{node.name}` is unreadable: {reason}"
            hint = f"correct `{node.options[option]}`, or create the builder again"
            raise _fault(message, hint) from error
    cacert, cert, key = (node.options[option] for option in _TLS_OPTIONS)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(list(protocols))
    try:
        context.load_verify_locations(cacert)
    except ssl.SSLError as error:
        message = f"`cacert` of builder node `{node.name}` contains no certificate: {cacert}"
        raise _fault(message, "use the PEM file of the CA that signed the builder's certificate") from error
    try:
        context.load_cert_chain(cert, key, password="")
    except ssl.SSLError as error:
        message = f"`key` of builder node `{node.name}` is not the key of `cert`: {key}"
        raise _fault(message, "use the unencrypted PEM key of the client certificate") from error
    return context


def _require_buildkit(node: BuilderNode, context: ssl.SSLContext | None, until: float) -> None:
    """Open the connection as buildx does. Raises EngineError unless BuildKit's API answers."""
    address = _address(node)
    try:
        answer = _greet(node, context, until)
    except ssl.SSLCertVerificationError as error:
        raise _server_certificate_fault(node, error) from error
    except ssl.SSLError as error:
        raise _tls_fault(node, error, until) from error
    except TimeoutError as error:
        message = f"builder node `{node.name}` accepts connections at `{address}`, but does not answer"
        raise _fault(message, "restart BuildKit there; it may be frozen or overloaded") from error
    except OSError:
        answer = b""
    if answer is None:
        raise _not_buildkit(node, until)
    if answer.startswith(_TLS_ALERT) or (not answer and not context):
        message = f"builder node `{node.name}` requires TLS at `{address}`"
        raise _fault(message, "create it again with `--driver-opt cacert=…,cert=…,key=…`")
    if not answer:
        message = f"builder node `{node.name}` closes connections to `{address}` at once"
        raise _fault(message, "start BuildKit there, or check the proxy in front of it")
    if len(answer) < 4 or answer[3] != _SETTINGS or answer.startswith(b"HTTP/"):
        raise _not_buildkit(node, until)


def _greet(
    node: BuilderNode, context: ssl.SSLContext | None, until: float, hello: bytes = _HELLO
) -> bytes | None:
    """Return the first bytes of a node's answer; None if it does not agree to HTTP/2."""
    with _session(node, context, until) as connection:
        if isinstance(connection, ssl.SSLSocket) and connection.selected_alpn_protocol() != "h2":
            return None
        try:
            connection.sendall(hello)
            # With TLS 1.3 the server rejects a client certificate after the handshake.
            return connection.recv(64)
        except (ssl.SSLEOFError, ConnectionError):
            if not context or not hello:
                raise
    # A server that closes the connection before it has read everything can lose its own alert.
    return _greet(node, context, until, b"")


@contextlib.contextmanager
def _session(node: BuilderNode, context: ssl.SSLContext | None, until: float) -> Iterator[socket.socket]:
    """Connect to a node, with TLS if it has settings for that."""
    with contextlib.ExitStack() as stack:
        connection = stack.enter_context(_connect(node, until))
        connection.settimeout(min(_ANSWER_SECONDS, remaining(until)))
        if context:
            server = node.options.get("servername") or urlsplit(node.endpoint).hostname
            connection = stack.enter_context(context.wrap_socket(connection, server_hostname=server))
        yield connection


def _server_certificate_fault(node: BuilderNode, error: ssl.SSLCertVerificationError) -> EngineError:
    server = node.options.get("servername") or urlsplit(node.endpoint).hostname
    match error.verify_code:
        case code if code == _EXPIRED:
            message = f"the certificate of builder node `{node.name}` expired"
            hint = "renew the builder's certificate; check the clock of this machine"
        case code if code == _NOT_YET_VALID:
            message = f"the certificate of builder node `{node.name}` is not valid yet"
            hint = "check the clocks of this machine and of the builder"
        case code if code in (_OTHER_NAME, _OTHER_ADDRESS):
            message = f"the certificate of builder node `{node.name}` is not for the name `{server}`"
            hint = "create the builder again with `--driver-opt servername=…`, a name in its certificate"
        case _:
            message = f"`cacert` of builder node `{node.name}` did not sign the builder's certificate"
            hint = "use the PEM file of the CA that signed the builder's certificate"
    return _fault(message, hint, error.verify_message)


def _tls_fault(node: BuilderNode, error: ssl.SSLError, until: float) -> EngineError:
    if reason := _REJECTED.get(error.reason or ""):
        message = f"builder node `{node.name}` rejected the client certificate: {reason}"
        return _fault(message, f"the certificate is `cert`: {node.options['cert']}")
    if error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"):
        message = f"builder node `{node.name}` does not use TLS at `{_address(node)}`"
        return _fault(message, "create it again without `--driver-opt` for certificates, or correct its port")
    if error.reason and "NO_APPLICATION_PROTOCOL" in error.reason:
        return _not_buildkit(node, until)
    message = f"the TLS handshake with builder node `{node.name}` failed"
    return _fault(message, "check the TLS settings of the builder", (error.reason or str(error)).lower())


def _not_buildkit(node: BuilderNode, until: float) -> EngineError:
    """Return the error for a server that is not BuildKit; the port of dockerd is a common mistake."""
    address = _address(node)
    if _is_dockerd(node, until):
        message = f"builder node `{node.name}`: `{address}` is dockerd's own port, not BuildKit's"
        hint = (
            f"use a docker context as builder: `docker context create NAME --docker host=tcp://{address},…`"
        )
        return _fault(message, hint)
    message = f"builder node `{node.name}`: `{address}` is not BuildKit's port, because it has no HTTP/2"
    return _fault(message, "correct the port; buildkitd listens on the port of its option `--addr`")


def _is_dockerd(node: BuilderNode, until: float) -> bool:
    """Return whether an HTTP server is a docker engine."""
    try:
        with _session(node, _tls_context(node, ("http/1.1",)), until) as connection:
            connection.sendall(b"GET /_ping HTTP/1.1\r\nHost: docker\r\nConnection: close\r\n\r\n")
            return b"\napi-version:" in connection.recv(4096).lower()
    except (OSError, OverdueError, EngineError):
        return False


def _worker_checks(builder: Builder, run: Program, until: float) -> Iterator[BuilderCheck]:
    """Yield the facts that BuildKit reports: version, platforms, limit of the cache."""
    try:
        output = run("docker", "buildx", "inspect", builder.name, seconds=remaining(until))
    except OverdueError:
        output = daemon_info.ProgramResult(124, "")
    if output.code:
        message = f"builder `{builder.name}` does not answer"
        detail = output.err.strip().removeprefix("ERROR: ")
        fault = _fault(message, f"run `docker buildx inspect {builder.name}`", detail).diagnostics[0]
        yield BuilderCheck("BuildKit", "", fault)
        return
    for node, worker in zip(builder.nodes, read_workers(output.out), strict=False):
        if worker.error:
            message = f"BuildKit of builder node `{node.name}` failed"
            hint = f"run `docker buildx inspect {builder.name}`"
            yield BuilderCheck("BuildKit", "", _fault(message, hint, worker.error).diagnostics[0])
        elif worker.status != "running":
            detail = f"node {node.name} is {worker.status or 'not started'}; the first build starts it"
            start = f"run `docker buildx inspect --bootstrap {builder.name}` to start it now"
            yield BuilderCheck("BuildKit", detail, hint=start)
        else:
            yield _version_check(node, worker.version)
            yield _platform_check(node, worker.platforms)
            limit = f"limited to {worker.cache_limit}" if worker.cache_limit else "without a known limit"
            detail = f"{limit}; BuildKit does not report its free disk space"
            yield BuilderCheck("build cache", detail, hint="run `df` on the builder's machine")


def _version_check(node: BuilderNode, version: str) -> BuilderCheck:
    match = re.match(r"v?(\d+)\.(\d+)", version)
    number = (int(match[1]), int(match[2])) if match else (0, 0)
    if number == (0, 0):
        # A package of a distribution may be built without the version.
        detail, oldest = f"node {node.name} does not report its version", ".".join(map(str, OLDEST_BUILDKIT))
        return BuilderCheck("BuildKit", detail, hint=f"check that it is {oldest} or newer")
    if number < OLDEST_BUILDKIT:
        oldest = ".".join(map(str, OLDEST_BUILDKIT))
        message = f"BuildKit {version} of builder node `{node.name}` is too old"
        return BuilderCheck(
            "BuildKit", "", _fault(message, f"install BuildKit {oldest} or newer").diagnostics[0]
        )
    return BuilderCheck("BuildKit", version)


def _platform_check(node: BuilderNode, platforms: tuple[str, ...]) -> BuilderCheck:
    if PLATFORM in platforms:
        return BuilderCheck("platform", PLATFORM)
    message = f"builder node `{node.name}` cannot build for {PLATFORM}"
    hint = f"use a builder on a {PLATFORM} machine; it builds for {', '.join(platforms) or 'no platform'}"
    return BuilderCheck("platform", "", _fault(message, hint).diagnostics[0])


def _fault(message: str, hint: str, answer: str = "") -> EngineError:
    facts = (("answer", " ".join(answer.split())),) if answer else ()
    return EngineError(message, facts=facts, hint=hint)
