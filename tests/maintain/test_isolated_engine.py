"""Settings of a second engine, and leftovers of a killed run."""

import json
from pathlib import Path

import pytest

from bakehouse.engine import dockerd
from bakehouse.engine.daemon_paths import DaemonPaths
from bakehouse.errors import EngineError
from bakehouse.maintain import isolated_engine
from bakehouse.util import tempdir


def test_another_store_is_asked_for_by_the_name_of_its_driver() -> None:
    settings = dockerd.configuration({"storage-driver": "vfs"}, 40, "overlay2")

    assert settings["storage-driver"] == "overlay2"
    assert settings["features"] == {"containerd-snapshotter": False}


def test_an_engine_of_a_run_that_is_gone_is_removed_and_no_other(tmp_path: Path) -> None:
    mine = tempdir.run_id()
    machine = mine.split("-")[0]
    living, dead = tmp_path / f"{mine}.abc", tmp_path / f"{machine}-999999999-1.abc"
    for directory in (living, dead):
        (directory / "data").mkdir(parents=True)

    isolated_engine.sweep(tmp_path)

    assert [*tmp_path.iterdir()] == [living]


def test_only_root_can_start_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bakehouse.maintain.isolated_engine.os.geteuid", lambda: 1000)

    with (
        pytest.raises(EngineError, match="only root can start"),
        isolated_engine.isolated_engine("overlay2", print, under=tmp_path),
    ):
        pass

    assert [*tmp_path.iterdir()] == []


def test_it_shares_nothing_with_another_and_asks_for_no_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner's network settings are copied, but not the storage settings."""
    owner = tmp_path / "owner.json"
    storage = {"data-root": "/data", "bip": "172.17.0.1/16"}
    owner.write_text(json.dumps({"dns": ["192.0.2.1"], "hosts": ["tcp://0.0.0.0:2375"], **storage}))
    started: list[DaemonPaths] = []
    monkeypatch.setattr("bakehouse.maintain.isolated_engine.os.geteuid", lambda: 0)
    monkeypatch.setattr("bakehouse.maintain.isolated_engine._make_bridge", lambda name: None)
    monkeypatch.setattr("bakehouse.engine.dockerd.start", lambda daemon, report: started.append(daemon))

    with isolated_engine.isolated_engine("overlay2", print, under=tmp_path / "engines", owner=owner) as paths:
        settings = json.loads(paths.configured.read_text())
        is_private = not paths.socket.parent.stat().st_mode & 0o077

    assert is_private
    assert "hosts" not in settings
    assert started == [paths]
    assert settings["dns"] == ["192.0.2.1"]
    assert "data-root" not in settings
    assert "bip" not in settings
    name = settings["bridge"]
    assert len(name) < 16
    assert settings["cgroup-parent"] == f"/{name}"
    assert settings["containerd-namespace"] == name
    assert not settings["iptables"]
    assert [*(tmp_path / "engines").iterdir()] == []
