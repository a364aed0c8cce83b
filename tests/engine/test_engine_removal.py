"""An installed engine is recorded, and `clean --engine` removes only what the record names, if confirmed."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bakehouse.engine import dockerd, engine_removal, provision
from bakehouse.engine.apt_install import Apt
from bakehouse.engine.daemon_paths import DaemonPaths
from bakehouse.engine.engine_removal import Installation
from bakehouse.engine.provision import Steps
from bakehouse.errors import Diagnostic, EngineError, UsageError
from tests.support.errors import raised
from tests.support.fake_commands import put

APT = """\
echo "apt-get $@" >> {root}/commands.log
for word in "$@"; do case $word in
  indextargets) echo "Debian|Debian|bookworm|main|{root}/etc/sources.list:1"; exit;;
  --simulate) cat {root}/dependents 2> /dev/null; exit 0;;
  update) exit 0;;
  install) shift 5; printf '%s\\n' docker.io docker-cli containerd runc >> {root}/status;;
  purge) printf 'python3\\n' > {root}/status;;
esac; done
"""


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DaemonPaths:
    """A machine with a fake apt, and no engine."""
    (tmp_path / "etc").mkdir()
    for name in ("preferences.d", "sources.list.d"):
        (tmp_path / "etc" / name).mkdir()
    (tmp_path / "etc/sources.list").write_text("deb http://mirror.example/debian bookworm main\n")
    (tmp_path / "status").write_text("python3\nrunc-of-the-user\n")
    put(
        tmp_path,
        monkeypatch,
        apt_get=APT.format(root=tmp_path),
        dpkg_query=f"sed 's/^/ii  /' {tmp_path}/status",
    )
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(
        provision, "Apt", lambda log: Apt(log, tmp_path / "etc", ("-o", f"Dir::Etc={tmp_path}/etc"))
    )
    paths = DaemonPaths.below(tmp_path)
    monkeypatch.setattr(dockerd, "start", lambda paths, report: paths.data_root.mkdir())
    return paths


def install(paths: DaemonPaths) -> list[str]:
    messages: list[str] = []
    steps = Steps(from_next_release=("docker.io", "docker-cli"), start=True)
    provision._execute(steps, paths, messages.append)
    return messages


def remove(paths: DaemonPaths, answer: bool | None) -> list[str]:
    lines: list[str] = []
    apt = Apt(paths.state / "apt.log", paths.state.parent / "etc")
    engine_removal.remove(lambda _: answer, lines.append, paths, apt)
    return lines


def test_an_installation_is_recorded_and_removed(paths: DaemonPaths, tmp_path: Path) -> None:
    messages = install(paths)
    source, pin = tmp_path / "etc/sources.list.d/bakehouse-trixie.list", tmp_path / "etc/preferences.d"
    record = engine_removal.read(paths)

    assert record == Installation(
        ("containerd", "docker-cli", "docker.io", "runc"),
        (str(pin / "bakehouse-trixie"), str(source)),
        (str(paths.data_root),),
    )
    assert messages[-1] == (
        f"on this machine stay 4 packages, {pin}/bakehouse-trixie, {source}, {paths.data_root}; "
        "`bake clean --engine` removes them"
    )
    assert source.read_text() == "deb http://mirror.example/debian trixie main\n"

    assert remove(paths, True) == [
        "Bakehouse will remove what it has installed:",
        "  - packages: containerd docker-cli docker.io runc",
        f"  - {pin}/bakehouse-trixie",
        f"  - {source}",
        f"  - {paths.data_root}, with all images, containers and volumes in it",
    ]
    assert "apt-get -o DPkg::Lock::Timeout=300 purge --yes containerd docker-cli docker.io runc" in (
        (tmp_path / "commands.log").read_text().splitlines()
    )
    assert not any(path.exists() for path in (source, pin / "bakehouse-trixie", paths.data_root))
    with pytest.raises(UsageError, match=r"^Bakehouse has installed no engine on this machine$"):
        remove(paths, True)


@pytest.mark.parametrize("answer", [False, None])
def test_nothing_is_removed_without_a_confirmation(paths: DaemonPaths, answer: bool | None) -> None:
    install(paths)
    with pytest.raises(EngineError, match=r"^nothing was removed$"):
        remove(paths, answer)
    assert paths.data_root.is_dir()
    assert engine_removal.read(paths).packages


def test_what_was_there_before_stays(
    paths: DaemonPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths.data_root.mkdir()
    (paths.data_root / "image").touch()
    with (tmp_path / "status").open("a") as status:
        status.write("docker.io\n")
    monkeypatch.setattr(dockerd, "start", lambda *_: None)
    install(paths)
    record = engine_removal.read(paths)

    assert "docker.io" not in record.packages
    assert record.directories == ()
    remove(paths, True)
    assert (paths.data_root / "image").exists()


def test_packages_that_others_need_stay(paths: DaemonPaths, tmp_path: Path) -> None:
    install(paths)
    (tmp_path / "dependents").write_text("Purg docker.io [26]\nPurg docker-compose [2]\n")
    with pytest.raises(EngineError, match=r"^other packages need the engine: docker-compose$"):
        remove(paths, True)
    assert paths.data_root.is_dir()


def test_an_interrupted_installation_is_recorded(paths: DaemonPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Apt, "install", interrupt)
    with pytest.raises(KeyboardInterrupt):
        install(paths)
    record = engine_removal.read(paths)
    assert record.packages == ("docker-cli", "docker.io")
    assert len(record.files) == 2


@pytest.mark.parametrize("text", ["{", "[]", '{"version": 2}', '{"version": 1, "packages": 5}'])
def test_a_damaged_record_removes_nothing(paths: DaemonPaths, text: str) -> None:
    paths.state.mkdir()
    engine_removal.record_of(paths).write_text(text)
    with pytest.raises(EngineError, match="is not a record of an installation: "):
        remove(paths, True)


@pytest.mark.parametrize(
    ("environment", "installs", "is_allowed"),
    [
        ({}, True, False),
        ({}, False, True),
        ({"CI": "true"}, True, True),
        ({"CI": "false"}, True, False),
        ({"CODEBUILD_CI": "true"}, True, True),
        ({"BAKEHOUSE_INSTALL_ENGINE": "1"}, True, True),
        ({"BAKEHOUSE_INSTALL_ENGINE": "0", "CI": "true"}, True, False),
        ({"BAKEHOUSE_INSTALL_ENGINE": "0"}, False, True),
    ],
)
def test_an_installation_without_a_terminal_needs_a_setting(
    paths: DaemonPaths,
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    installs: bool,
    is_allowed: bool,
) -> None:
    for name in ("CI", "CODEBUILD_CI", "BAKEHOUSE_INSTALL_ENGINE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    steps = Steps(packages=("docker.io",) if installs else (), start=True)
    confirm: Callable[[], None] = lambda: provision._confirm(  # noqa: E731
        Diagnostic("no engine", hint="other"), steps, paths, lambda _: None, lambda _: None
    )
    if is_allowed:
        confirm()
        return
    assert raised(EngineError, confirm).diagnostics[0].hint == (
        "set BAKEHOUSE_INSTALL_ENGINE=1 to run these steps without a terminal, "
        "or run the command in a terminal"
    )
