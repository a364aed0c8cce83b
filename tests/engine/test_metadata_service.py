"""Metadata services are blocked where this process may change the routing of the engine's networks."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bakehouse.engine import metadata_service
from tests.support.fake_commands import put

NETWORK = "0123456789abcdef" * 4
RULE = "iif br-0123456789ab to {} ipproto tcp unreachable"
ADD, DELETE = (
    [
        f"{version} rule {change} {RULE.format(target)}"
        for version, target in metadata_service._TARGETS.items()
    ]
    for change in ("add", "del")
)


@pytest.fixture
def interfaces(tmp_path: Path) -> Path:
    (tmp_path / "net" / "br-0123456789ab").mkdir(parents=True)
    return tmp_path / "net"


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Read the arguments of `ip` and `nsenter`; as root."""
    log = tmp_path / "log"
    put(tmp_path, monkeypatch, ip=f'echo "$@" >> {log}', nsenter=f'echo "nsenter $@" >> {log}')
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return lambda: log.read_text().splitlines() if log.exists() else []


def test_a_network_is_blocked_while_it_exists(
    tmp_path: Path, interfaces: Path, commands: Callable[[], list[str]]
) -> None:
    with metadata_service.blocked(NETWORK, tmp_path / "docker.sock", interfaces) as problem:
        assert problem == ""
        assert commands() == ADD
    assert commands() == ADD + DELETE


def test_the_networks_of_a_rootless_engine_are_in_its_namespace(
    tmp_path: Path, commands: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dockerd-rootless").mkdir()
    (tmp_path / "dockerd-rootless/child_pid").write_text("4711")
    with metadata_service.blocked(NETWORK, tmp_path / "docker.sock", tmp_path) as problem:
        assert problem == ""
    assert commands()[0] == f"nsenter --user --net --target 4711 -- ip {ADD[0]}"
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with metadata_service.blocked(NETWORK, tmp_path / "docker.sock", tmp_path) as problem:
        assert problem == ""
    assert commands()[4] == f"nsenter --preserve-credentials --user --net --target 4711 -- ip {ADD[0]}"


def test_an_engine_elsewhere_is_not_blocked(tmp_path: Path, commands: Callable[[], list[str]]) -> None:
    with metadata_service.blocked(NETWORK, tmp_path / "docker.sock", tmp_path) as problem:
        assert problem == "the engine's networks are not on this host"
    assert commands() == []


def test_only_root_blocks_the_networks_of_an_engine_of_root(
    tmp_path: Path, interfaces: Path, commands: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with metadata_service.blocked(NETWORK, tmp_path / "docker.sock", interfaces) as problem:
        assert problem == "only root can change the routing of the engine's networks"
    assert commands() == []


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (
            "echo RTNETLINK answers: Operation not permitted >&2; exit 2",
            "RTNETLINK answers: Operation not permitted",
        ),
        ("exit 255", "`ip` exited with 255"),
    ],
)
def test_a_rule_that_the_kernel_refuses_is_not_in_force(
    tmp_path: Path, interfaces: Path, monkeypatch: pytest.MonkeyPatch, script: str, reason: str
) -> None:
    put(tmp_path, monkeypatch, ip=script)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with metadata_service.blocked(NETWORK, tmp_path / "docker.sock", interfaces) as problem:
        assert problem == reason


def test_rules_of_killed_runs_are_removed(
    tmp_path: Path, interfaces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    listed = [
        "0:\tfrom all lookup local",
        "32764:\tfrom all to 169.254.0.0/16 iif br-dead00000000 [detached] ipproto tcp unreachable",
        "32765:\tfrom all to 169.254.0.0/16 iif br-0123456789ab ipproto tcp unreachable",
        "32766:\tfrom all iif eth9 [detached] lookup main",
    ]
    answer = "\\n".join(listed)
    put(tmp_path, monkeypatch, ip=f"[ $3 = list ] && printf '{answer}\\n' && exit; echo \"$@\" >> {log}")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    metadata_service.remove_leftovers(tmp_path / "docker.sock", interfaces)
    assert log.read_text().splitlines() == [
        "-4 rule del iif br-dead00000000 to 169.254.0.0/16 ipproto tcp unreachable"
    ]
