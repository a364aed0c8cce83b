"""Preflight of builders: faults are found within seconds."""

import json
import socket
import time
from pathlib import Path

import pytest

from bakehouse.engine.builder_preflight import BuilderCheck, preflight, require_builder
from bakehouse.engine.daemon_info import ProgramResult
from bakehouse.errors import Diagnostic, EngineError, UsageError
from tests.support import tls
from tests.support.data import text_of
from tests.support.errors import raised

INSPECTION = text_of(__file__, "inspection")
"""Output of buildx 0.13.1, shortened; the version is an example."""
HERE = "127.0.0.1"


class Machine:
    """A machine with one builder, `far`, whose BuildKit answers `docker buildx inspect`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.inspection = ProgramResult(0, INSPECTION)

    def run(self, *command: str, seconds: float = 0.0) -> ProgramResult:
        return ProgramResult(0, "default\noffice\n") if command[1] == "context" else self.inspection

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

    def fault(self, port: int, host: str = HERE) -> tuple[str, str, str]:
        """Return message, answer and hint of the only fault of a builder at a port; it is found in time."""
        self.create(f"tcp://{host}:{port}", {})
        start = time.monotonic()
        faults = [check.fault for check in self.preflight() if check.fault]
        assert time.monotonic() - start < 5
        [fault] = faults
        return fault.message, dict(fault.facts).get("answer", ""), fault.hint


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_builder_without_faults(machine: Machine) -> None:
    with tls.serve() as port:
        machine.create(f"tcp://{HERE}:{port}", {})

        assert machine.preflight() == (
            BuilderCheck("builder", f"far, driver remote: tcp://{HERE}:{port}"),
            BuilderCheck("node far0", f"accepts connections at {HERE}:{port}"),
            BuilderCheck("BuildKit", "v0.13.2"),
            BuilderCheck("platform", "linux/amd64"),
            BuilderCheck(
                "build cache",
                "limited to 21GiB; BuildKit does not report its free disk space",
                hint="run `df` on the builder's machine",
            ),
        )


def test_an_unknown_name(machine: Machine) -> None:
    machine.create("tcp://127.0.0.1:1", {}, name="builder-1")

    assert raised(UsageError, machine.preflight, "builder1").diagnostics == (
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
    with tls.serve() as port:
        actual, _, actual_hint = machine.fault(port)

    assert (actual, actual_hint) == (message, hint)


def test_a_worker_that_hangs(machine: Machine) -> None:
    machine.inspection = ProgramResult(124, "", "docker: no answer within 5 seconds")
    with tls.serve() as port:
        assert machine.fault(port) == (
            "builder `far` does not answer",
            "docker: no answer within 5 seconds",
            "check its port and certificates with `docker buildx inspect far`",
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
