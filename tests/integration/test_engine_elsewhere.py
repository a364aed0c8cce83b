"""Builds, tests and jobs on an engine that shares neither network nor files with this host."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bakehouse.cli import doctor
from bakehouse.cli.doctor import CheckState
from bakehouse.engine import daemon_info, docker, dockerd
from bakehouse.engine.daemon_info import Daemon
from bakehouse.engine.docker import dialed_engine
from bakehouse.engine.protocol import EngineHost
from bakehouse.errors import EngineError
from tests.integration import engine_journey
from tests.integration.engine_elsewhere import FORWARDER, EngineElsewhere, engine_elsewhere

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(
        os.geteuid() != 0
        or not shutil.which("ip")
        or not shutil.which("dockerd", path=dockerd.program_path()),
        reason="needs root, dockerd and ip to start a second engine",
    ),
]


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[EngineElsewhere]:
    with engine_elsewhere() as engine:
        yield engine


def host_of(engine: EngineElsewhere) -> EngineHost:
    with contextlib.closing(docker.connect(engine.endpoint)) as connected:
        return connected.host()


def test_an_engine_elsewhere_shares_the_kernel_alone(elsewhere: EngineElsewhere) -> None:
    host = host_of(elsewhere)

    assert (host.address, host.listen) == ("", "")
    assert host.problem == "`10.213.0.1` is not an address of this host"
    assert (host.shares_files, host.same_kernel) == (False, True)
    assert host.free is not None
    assert abs(host.free - shutil.disk_usage("/var/tmp").free) < 10**9


def test_metadata_services_of_an_engine_elsewhere_are_not_blocked(elsewhere: EngineElsewhere) -> None:
    with contextlib.closing(docker.connect(elsewhere.endpoint)) as connected:
        assert connected.metadata_access() == "the engine's networks are not on this host"


def test_the_engine_of_this_host_shares_all() -> None:
    with contextlib.closing(docker.connect()) as connected:
        host = connected.host()

    assert host.problem == ""
    assert host.address == host.listen
    assert (host.shares_files, host.same_kernel) == (True, True)


def test_a_forwarder_reaches_the_loopback_address_of_this_host() -> None:
    with engine_elsewhere(with_forwarder=True) as engine:
        host = host_of(engine)

    assert (host.address, host.listen, host.problem) == (FORWARDER, "127.0.0.1", "")


def test_an_engine_without_a_containerd_store_gets_the_files_of_steps(tmp_path: Path) -> None:
    # Remote builders get them as those with a containerd store do: see test_remote_build.
    with engine_elsewhere(store="overlay2") as engine:
        engine_journey.build_with_sent_files(engine.endpoint, tmp_path)


def test_this_host_and_an_engine_elsewhere_use_one_name_of_the_registry(
    elsewhere: EngineElsewhere, tmp_path: Path
) -> None:
    engine_journey.publish_and_pull(elsewhere.endpoint, tmp_path)


def test_the_docker_client_forwards_connections_of_the_sdk(
    elsewhere: EngineElsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", elsewhere.endpoint)
    with dialed_engine() as endpoint, contextlib.closing(docker.connect(endpoint)) as engine:
        # A container uses all kinds of connections: requests, streams, archives.
        assert engine.host().problem == "`10.213.0.1` is not an address of this host"
    assert not Path(endpoint.removeprefix("unix://")).exists()


def test_an_engine_whose_bridge_was_removed_is_found_before_a_build(monkeypatch: pytest.MonkeyPatch) -> None:
    with engine_elsewhere() as engine:
        link = ["link", "delete", engine.network.bridge]
        subprocess.run(["ip", "-n", engine.network.name, *link], check=True)
        monkeypatch.setenv("DOCKER_HOST", engine.endpoint)
        daemon = daemon_info.probe()
        assert isinstance(daemon, Daemon)

        with pytest.raises(EngineError) as caught:
            host_of(engine)
        [finding] = doctor.host_findings(daemon, caught.value)

    assert finding.state is CheckState.MISSING
    bridge = engine.network.bridge
    assert finding.detail.startswith(f"the bridge `{bridge}` of the container engine does not exist; ")
    assert finding.hint.startswith("restart the engine: ")
