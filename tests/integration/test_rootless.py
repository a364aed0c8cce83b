"""A rootless engine: it builds, and this host and the engine use one name of the local registry."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bakehouse.engine import daemon_info, docker
from bakehouse.engine.daemon_info import Daemon, Feature
from tests.integration import engine_journey, projects
from tests.integration.rootless_engine import missing_programs, rootless_engine

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(os.geteuid() != 0, reason="a mount namespace needs root"),
    pytest.mark.skipif(bool(missing_programs()), reason=f"not installed: {missing_programs()}"),
]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    projects.base()
    with rootless_engine() as endpoint:
        yield endpoint


def test_doctor_names_what_a_rootless_engine_lacks(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", endpoint)
    daemon = daemon_info.probe()

    assert isinstance(daemon, Daemon)
    assert daemon.rootless
    missing = {lack.feature for lack in daemon_info.missing_features(daemon)}
    # Limits depend on the version of the host's cgroups
    assert missing - {Feature.MEMORY_LIMIT, Feature.CPU_LIMIT} == {Feature.NATIVE_DIFF}


def test_metadata_services_of_a_rootless_engine_are_blocked(endpoint: str) -> None:
    with contextlib.closing(docker.connect(endpoint)) as connected:
        assert connected.metadata_access() == ""


def test_a_rootless_engine_builds(endpoint: str, tmp_path: Path) -> None:
    engine_journey.build_with_sent_files(endpoint, tmp_path)


def test_a_rootless_engine_pulls_from_the_local_registry(endpoint: str, tmp_path: Path) -> None:
    engine_journey.publish_and_pull(endpoint, tmp_path)
