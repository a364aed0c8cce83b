"""The connection to this machine's engine."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from bakehouse.engine import daemon_info, docker, emulation, open_engine, provision
from bakehouse.engine.daemon_info import Feature
from bakehouse.errors import EngineError
from tests.support.daemons import ENGINE


class Connection:
    """Records what happens to a connection."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def sweep(self) -> None:
        self.calls.append("sweep")

    def close(self) -> None:
        self.calls.append("close")


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> Connection:
    connected = Connection()
    monkeypatch.setattr(provision, "ensure", lambda *_: ENGINE)
    monkeypatch.setattr(docker, "connect", lambda: connected)
    return connected


def test_remains_of_ended_runs_are_removed_and_the_connection_is_closed(connection: Connection) -> None:
    with open_engine.open_engine(print, Feature.BUILDX):
        assert connection.calls == ["sweep"]

    assert connection.calls == ["sweep", "close"]


def test_an_engine_without_a_feature_is_not_connected(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provision, "ensure", lambda *_: replace(ENGINE, buildx=None))

    with pytest.raises(EngineError), open_engine.open_engine(print, Feature.BUILDX):
        pass
    assert connection.calls == []


def test_the_platforms_of_the_images_must_run(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    required: list[str] = []

    def require_platforms(_: object, platforms: Iterable[str]) -> None:
        required.extend(platforms)

    def require(_: object, *features: Feature) -> None:
        assert features == ()

    monkeypatch.setattr(emulation, "require_platforms", require_platforms)
    monkeypatch.setattr(daemon_info, "require", require)

    with open_engine.open_engine(print, platforms=["linux/arm64"]):
        assert required == ["linux/arm64"]


@pytest.mark.parametrize(
    ("platform", "lines"),
    [
        ("linux/amd64", []),
        (
            "linux/arm64",
            [
                "the engine runs linux/amd64 and emulates linux/arm64: programs run many times slower, jobs"
                " with MPI do not start under qemu, and GPUs cannot be used"
            ],
        ),
    ],
)
def test_the_cost_of_emulation_is_said_before_a_build(
    platform: str, lines: list[str], connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emulation, "require_platforms", lambda *_: None)
    said = list[str]()

    with open_engine.open_engine(said.append, *open_engine.BUILD_FEATURES, platforms=[platform]):
        assert said == lines


def test_a_platform_that_is_not_emulated_is_refused_before_a_build(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provision, "ensure", lambda *_: replace(ENGINE, platform="linux/arm64"))
    monkeypatch.setattr(emulation, "runnable_platforms", lambda daemon, run: (daemon.platform,))

    opened = open_engine.open_engine(print, *open_engine.BUILD_FEATURES)
    with pytest.raises(EngineError, match="does not run linux/amd64 programs"), opened:
        pass
    assert connection.calls == []
