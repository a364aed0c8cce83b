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

    with open_engine.open_engine(print, Feature.PLATFORM, platforms=["linux/arm64"]):
        assert required == ["linux/arm64"]
