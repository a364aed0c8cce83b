"""Provisioning steps, and errors on machines where no engine can be installed."""

import contextlib
import dataclasses
import io
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bakehouse.cli.diagnostics import failure_text
from bakehouse.engine import daemon_info, dockerd, provision, usage_lock
from bakehouse.engine.daemon_info import UnavailableDaemon, UnavailableReason
from bakehouse.engine.daemon_paths import DaemonPaths
from bakehouse.engine.provision import HostInfo, Steps
from tests.support.daemons import ENGINE
from tests.support.fake_commands import put
from tests.support.programs import started

BARE = HostInfo(
    root=True,
    system="debian",
    release="12",
    architecture="x86_64",
    systemd=False,
    dockerd=(),
    client=False,
    has_apt=True,
)
NOTHING = UnavailableDaemon(UnavailableReason.NOT_RUNNING, "unix:///var/run/docker.sock", "", "0.13.1")
NO_CLIENT = UnavailableDaemon(UnavailableReason.NO_CLIENT, "", "")


def machine(**changed: object) -> HostInfo:
    return dataclasses.replace(BARE, **changed)  # type: ignore[arg-type]


def refusal_text(daemon: UnavailableDaemon, host: HostInfo) -> str:
    refusal = provision.refusal(daemon, host, DaemonPaths())
    assert refusal is not None
    return failure_text(refusal)


def test_debian_12_gets_its_engine_from_the_next_release() -> None:
    steps = provision.plan_steps(BARE, NO_CLIENT, engine=True)

    assert steps == Steps(from_next_release=("docker.io", "docker-cli", "docker-buildx"), start=True)
    assert provision.describe_steps(steps, DaemonPaths()) == (
        "apt-get install docker.io docker-cli docker-buildx from Debian trixie, because the engine of this"
        " release is too old (same mirror; pinned, so that no other package is upgraded)",
        "start dockerd with the containerd image store and its data in /var/lib/docker",
    )


@pytest.mark.parametrize("release", ["13", "14", ""])
def test_a_current_debian_uses_its_own_packages(release: str) -> None:
    steps = provision.plan_steps(machine(release=release), NO_CLIENT, engine=True)

    assert steps == Steps(packages=("docker.io", "docker-cli", "docker-buildx"), start=True)


def test_ubuntu_has_the_client_in_the_engines_package() -> None:
    steps = provision.plan_steps(machine(system="ubuntu", release="24.04"), NO_CLIENT, engine=True)

    assert steps == Steps(packages=("docker.io", "docker-buildx"), start=True)


def test_a_machine_that_has_everything_only_needs_a_start() -> None:
    complete = machine(dockerd=(26, 1), client=True)

    assert provision.plan_steps(complete, NOTHING, engine=True) == Steps(start=True)


def test_only_what_is_missing_is_installed() -> None:
    partly = machine(dockerd=(26, 1), client=True)
    engine = dataclasses.replace(NOTHING, buildx=None)

    assert provision.plan_steps(partly, engine, engine=True) == Steps(
        from_next_release=("docker-buildx",), start=True
    )


def test_an_engine_that_is_too_old_counts_as_missing() -> None:
    old = machine(dockerd=(20, 10), client=True)

    assert provision.plan_steps(old, NOTHING, engine=True).from_next_release == ("docker.io",)


def test_where_an_engine_is_named_only_the_client_is_installed() -> None:
    steps = provision.plan_steps(machine(release="13"), NO_CLIENT, engine=False)

    assert steps == Steps(packages=("docker-cli", "docker-buildx"))


def test_systemd_starts_what_is_installed_so_it_is_reported_before(tmp_path: Path) -> None:
    steps = provision.plan_steps(machine(release="13", systemd=True), NO_CLIENT, engine=True)

    assert provision.describe_steps(steps, DaemonPaths(configured=tmp_path / "daemon.json")) == (
        f"write {tmp_path / 'daemon.json'}: the containerd image store, a limit for the build cache",
        "apt-get install docker.io docker-cli docker-buildx",
        "start dockerd with the containerd image store and its data in /var/lib/docker",
    )


def test_a_configuration_of_the_owner_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "daemon.json").write_text("{}")
    steps = Steps(service=True, start=True)

    assert provision.describe_steps(steps, DaemonPaths(configured=tmp_path / "daemon.json")) == (
        "start dockerd with the containerd image store and its data in /var/lib/docker",
    )


def test_root_on_debian_can_be_given_an_engine() -> None:
    assert provision.refusal(NOTHING, BARE, DaemonPaths()) is None
    assert provision.refusal(NO_CLIENT, machine(system="ubuntu", release="22.04"), DaemonPaths()) is None


def test_a_plain_user_is_reported_what_to_install() -> None:
    assert refusal_text(NOTHING, machine(root=False)) == (
        "error: no container engine answers at `unix:///var/run/docker.sock`\n"
        "\n"
        "hint: run the same command as root: it installs docker.io, docker-cli and docker-buildx"
        " with apt and starts dockerd; or install and start them yourself\n"
    )


@pytest.mark.parametrize("system", ["fedora", "debian"])
def test_a_system_without_apt_is_reported_what_to_install(system: str) -> None:
    assert refusal_text(NO_CLIENT, machine(system=system, has_apt=False)) == (
        "error: no `docker` command on PATH, so Bakehouse cannot use a container engine\n"
        "\n"
        "hint: install Docker Engine 24 or newer and buildx 0.13 or newer, and start the engine\n"
    )


def test_another_architecture_is_reported_where_to_go() -> None:
    assert refusal_text(NOTHING, machine(architecture="aarch64")) == (
        "error: no container engine answers at `unix:///var/run/docker.sock`\n"
        "\n"
        "hint: run `bake` on a linux/amd64 machine; this one is aarch64\n"
    )


def test_an_engine_that_the_user_named_is_not_replaced_by_another() -> None:
    named = UnavailableDaemon(UnavailableReason.NOT_RUNNING, "tcp://builder-1:2375", "")

    assert refusal_text(named, BARE) == (
        "error: no container engine answers at `tcp://builder-1:2375`\n"
        "\n"
        "hint: start the engine of DOCKER_HOST or of the docker context, or unset it\n"
    )


def test_an_engine_that_may_not_be_used_is_not_replaced_by_another() -> None:
    denied = UnavailableDaemon(
        UnavailableReason.NOT_ALLOWED, "unix:///var/run/docker.sock", "permission denied"
    )

    assert refusal_text(denied, machine(root=False)) == (
        "error: not allowed to use the container engine at `unix:///var/run/docker.sock`\n"
        "\n"
        "hint: run the command as root, or join the group `docker` and log in again\n"
    )


def test_without_a_terminal_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/null").open() as no_input:
        monkeypatch.setattr("sys.stdin", no_input)

        assert provision.ask_at_terminal("Continue?") is None
        assert provision.ask_or_agree("Continue?") is True


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("typed", "agreed"), [("\n", True), ("y\n", True), ("Yes\n", True), ("n\n", False), ("", False)]
)
def test_at_a_terminal_it_asks_once(typed: str, agreed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stdin", Terminal(typed))
    monkeypatch.setattr("sys.stderr", terminal)

    assert provision.ask_at_terminal("Continue?") is agreed
    assert terminal.getvalue() == "Continue? [Y/n] "


class Running:
    """Machine with a running engine, replaced by a program of that name."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.paths = DaemonPaths(
            state=directory, socket=directory / "docker.sock", pidfile=directory / "docker.pid"
        )
        self.fixed: list[str] = []
        self.done: list[str] = []
        self.messages: list[str] = []
        self.report = self.messages.append
        daemon = dataclasses.replace(ENGINE, endpoint=self.paths.endpoint)
        monkeypatch.setattr("bakehouse.engine.daemon_info.probe", lambda: daemon)
        monkeypatch.setattr(
            "bakehouse.engine.dockerd.fix_address", lambda bridge, report: self.fixed.append(bridge)
        )
        monkeypatch.setattr("bakehouse.engine.provision.os.geteuid", lambda: 0)
        self._program = put(directory, monkeypatch, dockerd="read forever") / "dockerd"

    @contextlib.contextmanager
    def dockerd(self, configuration: Path) -> Iterator[None]:
        command = [str(self._program), "--config-file", str(configuration)]
        with started(command, stdin=subprocess.PIPE) as process:
            self.paths.pidfile.write_text(f"{process.pid}\n")
            # For a moment after its start it still bears our name.
            while dockerd.process_of(self.paths.pidfile, "dockerd") is None:
                assert process.poll() is None
            yield
            process.kill()


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Running:
    return Running(tmp_path, monkeypatch)


def test_the_bridge_of_our_running_engine_is_given_an_address(running: Running) -> None:
    with running.dockerd(running.paths.configuration):
        assert provision.ensure(lambda _: False, print, running.paths).interface == "br0"
    assert running.fixed == ["br0"]


def test_the_bridge_of_another_users_engine_is_left(running: Running, tmp_path: Path) -> None:
    with running.dockerd(tmp_path / "theirs.json"):
        provision.ensure(lambda _: False, print, running.paths)
    assert running.fixed == []


def test_another_engine_that_docker_reaches_is_not_ours(running: Running) -> None:
    with running.dockerd(running.paths.configuration):
        provision.ensure(lambda _: False, print, dataclasses.replace(running.paths, socket=Path("/other")))
    assert running.fixed == []


@pytest.fixture
def our_engine(running: Running, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """Running idle engine that records stops and starts."""
    monkeypatch.setattr("bakehouse.engine.dockerd.stop", lambda paths: running.done.append("stopped"))
    monkeypatch.setattr(
        "bakehouse.engine.dockerd.start", lambda paths, report: running.done.append("started")
    )
    monkeypatch.setattr("bakehouse.engine.provision._POLL_SECONDS", 0.01)
    monkeypatch.setattr(
        "bakehouse.engine.daemon_info.docker", lambda *_: daemon_info.ProgramResult(0, "", "")
    )
    with running.dockerd(running.paths.configuration):
        yield running


def test_an_idle_engine_is_restarted(our_engine: Running) -> None:
    assert provision.restart(our_engine.report, our_engine.paths)
    assert our_engine.done == ["stopped", "started"]


def test_who_builds_with_an_engine_is_waited_for_before_it_is_restarted(our_engine: Running) -> None:
    with contextlib.ExitStack() as building:
        building.enter_context(usage_lock.engine_in_use(paths=our_engine.paths))

        def say(line: str) -> None:
            our_engine.report(line)
            building.close()
            our_engine.done.append("built")

        assert provision.restart(say, our_engine.paths)
    assert our_engine.messages == ["waiting to restart the engine: it is in use (a build or a push)"]
    assert our_engine.done == ["built", "stopped", "started"]


def test_containers_are_waited_for_before_an_engine_is_restarted(
    our_engine: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = ["two\none\n", "two\ta-1\none\ta-2\n", "one\n", "one\ta-2\n", ""]
    monkeypatch.setattr(
        "bakehouse.engine.daemon_info.docker", lambda *_: daemon_info.ProgramResult(0, running.pop(0), "")
    )
    assert provision.restart(our_engine.report, our_engine.paths)
    assert our_engine.messages == ["waiting to restart the engine: it is in use (containers: one, two)"]
    assert our_engine.done == ["stopped", "started"]


def test_only_containers_of_jobs_are_waited_for(our_engine: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    running = ["mine\njob\n", "mine\t\njob\ta-1\n"]
    monkeypatch.setattr(
        "bakehouse.engine.daemon_info.docker", lambda *_: daemon_info.ProgramResult(0, running.pop(0), "")
    )
    assert not provision.restart(our_engine.report, our_engine.paths)
    assert our_engine.messages == ["the engine was not restarted: containers of no job are running (mine)"]
    assert our_engine.done == []


def test_who_waits_for_containers_lets_others_build(
    our_engine: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner of the containers may build before they end."""
    held: list[bool] = []

    def say(line: str) -> None:
        with usage_lock.exclusive_engine(our_engine.paths) as is_alone:
            held.append(not is_alone)

    monkeypatch.setattr(
        "bakehouse.engine.daemon_info.docker", lambda *_: daemon_info.ProgramResult(0, "one\ta-1\n", "")
    )
    provision.restart(say, our_engine.paths, 0.0)
    assert held == [False]


def test_an_engine_that_is_always_in_use_is_given_up(our_engine: Running) -> None:
    with usage_lock.engine_in_use(paths=our_engine.paths):
        assert not provision.restart(our_engine.report, our_engine.paths, 0.0)
    assert our_engine.messages == ["the engine was not restarted: still in use after 0 s (a build or a push)"]
    assert our_engine.done == []


def test_an_engine_that_another_has_restarted_meanwhile_is_not_restarted_again(
    our_engine: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes = iter([1, 2])
    monkeypatch.setattr("bakehouse.engine.dockerd.process_of", lambda *_: next(processes))
    assert provision.restart(our_engine.report, our_engine.paths)
    assert our_engine.done == []


def test_what_another_started_is_not_restarted(our_engine: Running) -> None:
    assert not provision.restart(
        our_engine.report, dataclasses.replace(our_engine.paths, socket=Path("/other"))
    )
    assert our_engine.done == []
