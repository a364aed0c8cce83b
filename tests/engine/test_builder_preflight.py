"""Preflight of builders: each fault of a connection has its own message, within seconds."""

import datetime
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bakehouse.engine.builder_preflight import BuilderCheck, preflight, require_builder
from bakehouse.engine.daemon_info import ProgramResult
from bakehouse.errors import Diagnostic, EngineError, UsageError
from tests.support import tls
from tests.support.data import text_of
from tests.support.tls import Authority, Pair

INSPECTION = text_of(__file__, "inspection")
"""Output of buildx 0.13.1, shortened; the version is an example."""
DAY = datetime.timedelta(days=1)
HERE = "127.0.0.1"


class Machine:
    """A machine with one builder, `far`, whose BuildKit answers `docker buildx inspect`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ca = Authority(directory)
        self.server = self.ca.issue("server")
        self.client = self.ca.issue("client")
        self.inspection = ProgramResult(0, INSPECTION)

    def run(self, *command: str, seconds: float = 0.0) -> ProgramResult:
        return ProgramResult(0, "default\noffice\n") if command[1] == "context" else self.inspection

    def options(self, pair: Pair | None = None, **changes: str) -> dict[str, str]:
        pair = pair or self.client
        return {"cacert": str(self.ca.cert), "cert": str(pair.cert), "key": str(pair.key)} | changes

    def create(
        self, endpoint: str, options: dict[str, str], name: str = "far", driver: str = "remote"
    ) -> None:
        path = self.directory / "instances" / name
        path.parent.mkdir(exist_ok=True)
        node = {"Name": f"{name}0", "Endpoint": endpoint, "Platforms": None, "DriverOpts": options}
        path.write_text(json.dumps({"Name": name, "Driver": driver, "Nodes": [node], "Dynamic": False}))

    def preflight(self, name: str = "far", seconds: float = 5.0) -> tuple[BuilderCheck, ...]:
        environment = {"BUILDX_CONFIG": str(self.directory)}
        return preflight(name, environment=environment, run=self.run, seconds=seconds)

    def fault(
        self, port: int, options: dict[str, str] | None = None, host: str = HERE
    ) -> tuple[str, str, str]:
        """Return message, answer and hint of the only fault of a builder at a port; it is found in time."""
        self.create(f"tcp://{host}:{port}", self.options() if options is None else options)
        start = time.monotonic()
        faults = [check.fault for check in self.preflight() if check.fault]
        assert time.monotonic() - start < 5
        [fault] = faults
        return fault.message, dict(fault.facts).get("answer", ""), fault.hint


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_builder_without_faults(machine: Machine) -> None:
    with tls.serve(context=tls.server_context(machine.server, machine.ca.cert)) as port:
        machine.create(f"tcp://{HERE}:{port}", machine.options())

        assert machine.preflight() == (
            BuilderCheck("builder", f"far, driver remote: tcp://{HERE}:{port}"),
            BuilderCheck("node far0", f"accepts connections at {HERE}:{port}"),
            BuilderCheck("TLS", "both certificates are accepted"),
            BuilderCheck("BuildKit", "v0.13.2"),
            BuilderCheck("platform", "linux/amd64"),
            BuilderCheck(
                "build cache",
                "limited to 21GiB; BuildKit does not report its free disk space",
                hint="run `df` on the builder's machine",
            ),
        )


def test_a_builder_without_tls_at_a_socket(machine: Machine) -> None:
    path = machine.directory / "buildkit.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        machine.create(f"unix://{path}", {})

        def answer_twice() -> None:
            server.accept()[0].close()
            with server.accept()[0] as client:
                tls.greet(client)

        threading.Thread(target=answer_twice, daemon=True).start()

        assert [check.detail for check in machine.preflight()[1:3]] == [
            f"accepts connections at {path}",
            "not used",
        ]


def test_an_unknown_name(machine: Machine) -> None:
    machine.create("tcp://127.0.0.1:1", {}, name="builder-1")

    with pytest.raises(UsageError) as unknown:
        machine.preflight("builder1")

    assert unknown.value.diagnostics == (
        Diagnostic("unknown builder `builder1`", hint="did you mean `builder-1`?"),
    )
    with pytest.raises(UsageError, match=r"unknown builder `\.\./builder-1`"):
        machine.preflight("../builder-1")


def test_a_damaged_definition(machine: Machine) -> None:
    machine.create("tcp://127.0.0.1:1", {})
    (machine.directory / "instances/far").write_text("{}")

    with pytest.raises(EngineError, match="the definition of builder `far` is damaged"):
        machine.preflight()


def test_a_port_that_nothing_listens_at(machine: Machine) -> None:
    with socket.create_server((HERE, 0)) as server:
        port = server.getsockname()[1]

    assert machine.fault(port) == (
        f"builder node `far0` does not run: nothing listens at `{HERE}:{port}`",
        "",
        "start BuildKit there, or correct the endpoint",
    )


def test_a_socket_that_does_not_exist(machine: Machine) -> None:
    machine.create("unix:///nowhere/buildkit.sock", {})

    assert [check.fault.message for check in machine.preflight() if check.fault] == [
        "builder node `far0` does not run: socket `/nowhere/buildkit.sock` does not exist"
    ]


@pytest.mark.parametrize("endpoint", ["docker-container://buildkitd", "kube-pod://buildkitd"])
def test_an_endpoint_that_only_buildx_can_connect_to(machine: Machine, endpoint: str) -> None:
    machine.create(endpoint, {})

    assert [(check.name, check.fault) for check in machine.preflight()] == [
        ("builder", None),
        ("BuildKit", None),
        ("platform", None),
        ("build cache", None),
    ]


@pytest.mark.parametrize("endpoint", ["tcp://builder.example:123456", f"tcp://{'b' * 64}.example:1234"])
def test_an_endpoint_that_is_invalid(machine: Machine, endpoint: str) -> None:
    machine.create(endpoint, {})

    assert [check.fault for check in machine.preflight() if check.fault] == [
        Diagnostic(
            f"the endpoint of builder node `far0` is invalid: `{endpoint}`",
            hint="create the builder again with `tcp://HOST:PORT` or `unix://PATH`",
        )
    ]


def test_an_unknown_host(machine: Machine) -> None:
    assert machine.fault(1234, host="builder.invalid") == (
        "the host name of builder node `far0` is unknown: `builder.invalid`",
        "",
        "correct the endpoint, or check the DNS server and the VPN",
    )


def test_a_firewall_that_drops_packets(machine: Machine) -> None:
    # The queue of a server that does not accept is soon full: further connections get no answer.
    with socket.socket() as server:
        server.bind((HERE, 0))
        server.listen(0)
        port = server.getsockname()[1]
        waiting = [socket.socket() for _ in range(4)]
        for client in waiting:
            client.setblocking(False)
            client.connect_ex((HERE, port))
        message, _, hint = machine.fault(port)
        for client in waiting:
            client.close()

    assert message == f"builder node `far0` is unreachable: `{HERE}:{port}` does not answer"
    assert hint == f"open TCP port {port} in firewalls and security groups"


def test_a_frozen_builder(machine: Machine) -> None:
    with tls.serve(lambda connection: time.sleep(4)) as port:
        assert machine.fault(port, {}) == (
            f"builder node `far0` accepts connections at `{HERE}:{port}`, but does not answer",
            "",
            "restart BuildKit there; it may be frozen or overloaded",
        )


def test_a_proxy_without_a_builder(machine: Machine) -> None:
    context = tls.server_context(machine.server, machine.ca.cert)
    with tls.serve(lambda connection: None, context) as port:
        assert machine.fault(port) == (
            f"builder node `far0` closes connections to `{HERE}:{port}` at once",
            "",
            "start BuildKit there, or check the proxy in front of it",
        )


def test_a_server_that_requires_tls(machine: Machine) -> None:
    with tls.serve(context=tls.server_context(machine.server, machine.ca.cert)) as port:
        assert machine.fault(port, {}) == (
            f"builder node `far0` requires TLS at `{HERE}:{port}`",
            "",
            "create it again with `--driver-opt cacert=…,cert=…,key=…`",
        )


def test_a_server_without_tls(machine: Machine) -> None:
    with tls.serve() as port:
        assert machine.fault(port) == (
            f"builder node `far0` does not use TLS at `{HERE}:{port}`",
            "",
            "create it again without `--driver-opt` for certificates, or correct its port",
        )


def _expired(machine: Machine) -> Pair:
    return machine.ca.issue("old", start=-3 * DAY, end=-DAY)


def _early(machine: Machine) -> Pair:
    return machine.ca.issue("early", start=DAY, end=2 * DAY)


def _elsewhere(machine: Machine) -> Pair:
    return machine.ca.issue("elsewhere", host="builder.example")


def _foreign(machine: Machine) -> Pair:
    return Authority(machine.directory, "other").issue("foreign")


@pytest.mark.parametrize(
    ("pair", "message", "answer", "hint"),
    [
        (
            _expired,
            "the certificate of builder node `far0` expired",
            "certificate has expired",
            "renew the builder's certificate; check the clock of this machine",
        ),
        (
            _early,
            "the certificate of builder node `far0` is not valid yet",
            "certificate is not yet valid",
            "check the clocks of this machine and of the builder",
        ),
        (
            _elsewhere,
            f"the certificate of builder node `far0` is not for the name `{HERE}`",
            f"IP address mismatch, certificate is not valid for '{HERE}'.",
            "create the builder again with `--driver-opt servername=…`, a name in its certificate",
        ),
        (
            _foreign,
            "`cacert` of builder node `far0` did not sign the builder's certificate",
            "unable to get local issuer certificate",
            "use the PEM file of the CA that signed the builder's certificate",
        ),
    ],
)
def test_a_certificate_of_the_builder(
    machine: Machine, pair: Callable[[Machine], Pair], message: str, answer: str, hint: str
) -> None:
    with tls.serve(context=tls.server_context(pair(machine), machine.ca.cert)) as port:
        assert machine.fault(port) == (message, answer, hint)


def test_the_server_name_of_the_builder(machine: Machine) -> None:
    with tls.serve(context=tls.server_context(_elsewhere(machine), machine.ca.cert)) as port:
        machine.create(f"tcp://{HERE}:{port}", machine.options(servername="builder.example"))
        assert not any(check.fault for check in machine.preflight())

        message, answer, _ = machine.fault(port, machine.options(servername="other.example"))

    assert message == "the certificate of builder node `far0` is not for the name `other.example`"
    assert "other.example" in answer


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_2])
@pytest.mark.parametrize(
    ("pair", "reason"), [(_foreign, "it does not trust its CA"), (_expired, "it expired")]
)
def test_a_client_certificate_that_the_builder_rejects(
    machine: Machine, pair: Callable[[Machine], Pair], reason: str, version: ssl.TLSVersion
) -> None:
    client = pair(machine)
    context = tls.server_context(machine.server, machine.ca.cert, version=version)
    with tls.serve(context=context) as port:
        assert machine.fault(port, machine.options(client)) == (
            f"builder node `far0` rejected the client certificate: {reason}",
            "",
            f"the certificate is `cert`: {client.cert}",
        )


def test_options_without_a_client_certificate(machine: Machine) -> None:
    with tls.serve() as port:
        assert machine.fault(port, {"cacert": str(machine.ca.cert)}) == (
            "builder node `far0` uses TLS, but lacks the driver options `cert`, `key`",
            "",
            "create the builder again with `--driver-opt cacert=…,cert=…,key=…`",
        )


def test_files_of_certificates(machine: Machine) -> None:
    other = _foreign(machine)
    absent = str(machine.directory / "absent.pem")
    with tls.serve() as port:
        assert machine.fault(port, machine.options(cert=absent)) == (
            "`cert` of builder node `far0` is unreadable: no such file or directory",
            "",
            f"correct `{absent}`, or create the builder again",
        )
        assert machine.fault(port, machine.options(key=str(other.key)))[0] == (
            f"`key` of builder node `far0` is not the key of `cert`: {other.key}"
        )
        assert machine.fault(port, machine.options(cacert=str(other.key)))[0] == (
            f"`cacert` of builder node `far0` contains no certificate: {other.key}"
        )


def _dockerd(connection: socket.socket) -> None:
    request = connection.recv(4096)
    is_ping = request.startswith(b"GET /_ping")
    body = b"HTTP/1.1 200 OK\r\nApi-Version: 1.45\r\nServer: Docker/26.1.5 (linux)\r\n\r\nOK"
    connection.sendall(body if is_ping else b"HTTP/1.1 400 Bad Request\r\n\r\n")


@pytest.mark.parametrize("has_tls", [True, False])
def test_the_port_of_dockerd(machine: Machine, has_tls: bool) -> None:
    context = tls.server_context(machine.server, machine.ca.cert, ()) if has_tls else None
    with tls.serve(_dockerd, context) as port:
        assert machine.fault(port, machine.options() if has_tls else {}) == (
            f"builder node `far0`: `{HERE}:{port}` is dockerd's own port, not BuildKit's",
            "",
            f"use a docker context as builder: `docker context create NAME --docker host=tcp://{HERE}:{port},…`",
        )


def test_another_server(machine: Machine) -> None:
    def answer(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with tls.serve(answer) as port:
        assert machine.fault(port, {}) == (
            f"builder node `far0`: `{HERE}:{port}` is not BuildKit's port, because it has no HTTP/2",
            "",
            "correct the port; buildkitd listens on the port of its option `--addr`",
        )


@pytest.mark.parametrize(
    ("found", "replaced", "message", "hint"),
    [
        (
            "v0.13.2",
            "v0.9.3",
            "BuildKit v0.9.3 of builder node `far0` is too old",
            "install BuildKit 0.11 or newer",
        ),
        (
            "linux/amd64*, linux/amd64/v2, linux/386",
            "linux/arm64",
            "builder node `far0` cannot build for linux/amd64",
            "use a builder on a linux/amd64 machine; it builds for linux/arm64",
        ),
        (
            "Status:           running",
            "Error:            listing workers: unavailable",
            "BuildKit of builder node `far0` failed",
            "run `docker buildx inspect far`",
        ),
    ],
)
def test_a_worker_that_is_unsuitable(
    machine: Machine, found: str, replaced: str, message: str, hint: str
) -> None:
    machine.inspection = ProgramResult(0, INSPECTION.replace(found, replaced))
    with tls.serve(context=tls.server_context(machine.server, machine.ca.cert)) as port:
        actual, _, actual_hint = machine.fault(port)

    assert (actual, actual_hint) == (message, hint)


def test_a_worker_that_hangs(machine: Machine) -> None:
    machine.inspection = ProgramResult(124, "", "docker: no answer within 5 seconds")
    with tls.serve(context=tls.server_context(machine.server, machine.ca.cert)) as port:
        assert machine.fault(port) == (
            "builder `far` does not answer",
            "docker: no answer within 5 seconds",
            "run `docker buildx inspect far`",
        )


def test_facts_that_a_builder_does_not_report(machine: Machine) -> None:
    machine.create("unix:///var/run/docker.sock", {}, driver="docker-container")
    inspection = INSPECTION.replace("v0.13.2", "v0.0.0+unknown")

    machine.inspection = ProgramResult(0, inspection)
    assert machine.preflight()[1] == BuilderCheck(
        "BuildKit", "node far0 does not report its version", hint="check that it is 0.11 or newer"
    )

    machine.inspection = ProgramResult(0, inspection.replace("running", "inactive"))
    assert machine.preflight()[1:] == (
        BuilderCheck(
            "BuildKit",
            "node far0 is inactive; the first build starts it",
            hint="run `docker buildx inspect --bootstrap far` to start it now",
        ),
    )


def test_a_build_requires_a_builder_without_faults(machine: Machine) -> None:
    machine.create("unix:///nowhere/buildkit.sock", {})

    with pytest.raises(EngineError, match=r"socket .* does not exist"):
        require_builder("far", {"BUILDX_CONFIG": str(machine.directory)}, machine.run)
