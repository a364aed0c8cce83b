"""Starts of a real second engine, which shares nothing with the machine's."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from bakehouse.engine import buildkit_errors, buildx, daemon_info, docker, dockerd, provision
from bakehouse.engine.buildkit_errors import Failure
from bakehouse.engine.buildkit_events import Log
from bakehouse.engine.daemon_info import Daemon, Feature, UnavailableDaemon, UnavailableReason
from bakehouse.engine.daemon_paths import DaemonPaths
from bakehouse.errors import EngineError
from tests.integration.projects import Project, base

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(
        os.geteuid() != 0
        or not shutil.which("ip")
        or not shutil.which("dockerd", path=dockerd.program_path()),
        reason="needs root, dockerd and ip to start a second engine",
    ),
]
ROOT = Path(__file__).parents[2]


def quiet(line: str) -> None:
    """A reporter that ignores its lines."""


@pytest.fixture(scope="module")
def network() -> Iterator[str]:
    """A network namespace, so that an engine's bridge and firewall rules do not affect other engines."""
    name = f"bakehouse-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
    yield name
    subprocess.run(["ip", "netns", "delete", name], check=True)


@pytest.fixture
def paths(network: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[DaemonPaths]:
    """Paths of a second engine that docker uses; it is stopped at the end."""
    # Not pytest's own directory: the path of a socket has at most 107 characters.
    directory = Path(tempfile.mkdtemp(prefix="bh-"))
    paths = DaemonPaths.below(directory, ("nsenter", f"--net=/run/netns/{network}", "dockerd"))
    monkeypatch.setenv("DOCKER_HOST", paths.endpoint)
    monkeypatch.delenv("DOCKER_CONTEXT", raising=False)
    yield paths
    dockerd.stop(paths)
    for mount in (directory / "exec" / "netns", directory / "data"):
        with contextlib.suppress(OSError):
            subprocess.run(["umount", "--recursive", "--quiet", mount], capture_output=True)
    shutil.rmtree(directory, ignore_errors=True)


def running(paths: DaemonPaths) -> int:
    process = dockerd.process_of(paths.pidfile, "dockerd")
    assert process is not None
    return process


def kill(paths: DaemonPaths) -> None:
    """Kill the second engine, as a crash would."""
    process = running(paths)
    os.kill(process, signal.SIGKILL)
    while Path(f"/proc/{process}/exe").exists():
        time.sleep(0.05)


def engine() -> Daemon:
    daemon = daemon_info.probe()
    assert isinstance(daemon, Daemon)
    return daemon


def test_an_engine_that_we_start_has_all_that_tasks_need(paths: DaemonPaths) -> None:
    dockerd.start(paths, quiet)

    daemon = engine()
    daemon_info.require(daemon, *Feature)
    assert daemon.endpoint == paths.endpoint
    assert daemon.data_root == str(paths.data_root)


def test_an_engine_that_we_start_listens_on_no_port(paths: DaemonPaths) -> None:
    paths.configured.write_text('{"hosts": ["tcp://127.0.0.1:2375"]}')
    dockerd.start(paths, quiet)

    # All sockets of its network namespace, which has no other programs.
    listening = [
        line
        for table in ("tcp", "tcp6", "udp", "udp6")
        for line in Path(f"/proc/{running(paths)}/net/{table}").read_text().splitlines()[1:]
    ]
    assert listening == []


def test_the_build_caches_limit_is_not_less_with_every_start(
    paths: DaemonPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = []
    for free in (60, 30):
        usage = SimpleNamespace(free=free * dockerd.GIGABYTE)
        monkeypatch.setattr(shutil, "disk_usage", lambda _, usage=usage: usage)
        dockerd.start(paths, quiet)
        settings = json.loads(paths.configuration.read_text())
        limits.append(settings["builder"]["gc"]["defaultKeepStorage"])
        dockerd.stop(paths)

    assert limits == ["30GB", "30GB"]


def test_a_start_beside_a_running_engine_changes_nothing(paths: DaemonPaths) -> None:
    dockerd.start(paths, quiet)
    first = running(paths)

    dockerd.start(paths, quiet)

    assert running(paths) == first


def test_what_a_killed_engine_left_stops_no_start(paths: DaemonPaths) -> None:
    dockerd.start(paths, quiet)
    kill(paths)
    assert paths.pidfile.exists()
    assert paths.socket.exists()

    dockerd.start(paths, quiet)

    assert engine().containerd_store


def test_pids_that_other_programs_have_now_stop_no_start(paths: DaemonPaths) -> None:
    dockerd.start(paths, quiet)
    kill(paths)
    pid = str(os.getpid())
    paths.pidfile.write_text(pid)
    (paths.exec_root / "containerd" / "containerd.pid").write_text(pid)

    dockerd.start(paths, quiet)

    assert engine().containerd_store


def test_stopping_ends_the_engine_and_its_containerd(paths: DaemonPaths) -> None:
    dockerd.start(paths, quiet)
    inner = dockerd.process_of(paths.exec_root / "containerd" / "containerd.pid", "containerd")
    assert inner is not None

    assert dockerd.stop(paths) is True

    assert dockerd.process_of(paths.pidfile, "dockerd") is None
    assert not Path(f"/proc/{inner}/exe").exists()
    assert isinstance(daemon_info.probe(), UnavailableDaemon)


def test_an_engine_that_another_started_is_not_stopped(paths: DaemonPaths) -> None:
    with another_engine(paths, {"features": {"containerd-snapshotter": False}}):
        assert dockerd.stop(paths) is False
        assert engine().version


def test_an_engine_without_the_containerd_store_is_recognised(paths: DaemonPaths) -> None:
    with another_engine(paths, {"features": {"containerd-snapshotter": False}}):
        daemon = engine()

        assert (daemon.store, daemon.containerd_store) == ("overlay2", False)
        assert daemon_info.missing_features(daemon) == ()


def test_an_engine_without_default_bridge_is_recognised(paths: DaemonPaths) -> None:
    paths.configured.write_text(json.dumps({"bridge": "none"}))
    dockerd.start(paths, quiet)

    daemon = engine()

    assert daemon.bridge is None
    assert [lack.feature for lack in daemon_info.missing_features(daemon)] == [Feature.BRIDGE]


def test_an_engine_that_cannot_start_says_why(paths: DaemonPaths) -> None:
    paths.configured.write_text('{"no-such-option": true}')

    with pytest.raises(EngineError) as caught:
        dockerd.start(paths, quiet)

    [failure] = caught.value.diagnostics
    assert failure.message == "dockerd exited during its start"
    assert "no-such-option" in failure.tail[-1]
    assert failure.hint == (
        f"read {paths.log}; in a container, use `--privileged` and a volume at {paths.data_root}"
    )


def test_a_configuration_that_is_not_json_is_not_started_with(paths: DaemonPaths) -> None:
    paths.configured.write_text("{")

    with pytest.raises(EngineError, match="is not valid JSON, so no engine can be started with it"):
        dockerd.start(paths, quiet)


def test_nothing_is_started_without_a_yes(paths: DaemonPaths) -> None:
    messages: list[str] = []

    with pytest.raises(EngineError, match="no container engine answers"):
        provision.ensure(lambda question: False, messages.append, paths)

    assert (
        messages[0] == f"no container engine answers at `{paths.endpoint}`; Bakehouse will run these steps:"
    )
    assert (
        messages[-1] == f"  - start dockerd with the containerd image store and its data in {paths.data_root}"
    )
    assert isinstance(daemon_info.probe(), UnavailableDaemon)


def test_an_engine_that_runs_is_used_as_it_is(paths: DaemonPaths) -> None:
    dockerd.start(paths, quiet)
    first = running(paths)

    daemon = provision.ensure(lambda question: pytest.fail("asked"), pytest.fail, paths)

    assert daemon.endpoint == paths.endpoint
    assert running(paths) == first


def test_two_runs_at_once_start_one_engine(paths: DaemonPaths) -> None:
    program = (
        "from pathlib import Path\n"
        "from bakehouse.engine.daemon_paths import DaemonPaths\n"
        "from bakehouse.engine.provision import ensure\n"
        f"place = {paths!r}\n".replace("PosixPath", "Path")
        + "print(ensure(lambda question: True, lambda line: None, place).endpoint)"
    )
    runs = [
        subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    printed = [run.communicate(timeout=120)[0] for run in runs]

    assert printed == [f"{paths.endpoint}\n"] * 2
    started = paths.log.read_text().count("Starting up")
    assert started == 1


def test_the_client_tells_a_dead_engine_from_one_that_may_not_be_used(paths: DaemonPaths) -> None:
    absent = daemon_info.probe()
    assert isinstance(absent, UnavailableDaemon)
    assert absent.reason is UnavailableReason.NOT_RUNNING
    assert absent.endpoint == paths.endpoint


@contextlib.contextmanager
def another_engine(paths: DaemonPaths, settings: dict[str, object]) -> Iterator[None]:
    """An engine in that place that is not ours."""
    settings_path = paths.socket.parent / "theirs.json"
    settings_path.write_text(json.dumps(settings))
    flags = {
        "--config-file": settings_path,
        "--host": paths.endpoint,
        "--data-root": paths.data_root,
        "--exec-root": paths.exec_root,
        "--pidfile": paths.pidfile,
    }
    arguments = [str(word) for pair in flags.items() for word in pair]
    with subprocess.Popen([*paths.command, *arguments], stderr=subprocess.DEVNULL) as process:
        while not dockerd.answers(paths.socket):
            assert process.poll() is None
            time.sleep(0.1)
        try:
            yield
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def saved_base() -> tuple[str, bytes]:
    """A base that the machine's own engine has, to be loaded into a second one."""
    reference = base()
    return reference, subprocess.run(["docker", "save", reference], capture_output=True, check=True).stdout


def test_an_engine_that_lost_a_layer_is_healed_by_a_restart(
    saved_base: tuple[str, bytes], paths: DaemonPaths, tmp_path: Path
) -> None:
    reference, archive = saved_base
    dockerd.start(paths, quiet)
    subprocess.run(["docker", "load", "--quiet"], input=archive, stdout=subprocess.DEVNULL, check=True)
    (tmp_path / "Dockerfile").write_text(f"FROM {reference}\nRUN --network=none echo 1 > /a\n")
    build = ["docker", "buildx", "build", "--progress=plain", "--output=type=cacheonly", str(tmp_path)]
    subprocess.run(build, capture_output=True, check=True)
    lose_a_layer(paths)
    with (tmp_path / "Dockerfile").open("a") as file:
        file.write("RUN --network=none echo 2 > /b\n")

    broken = subprocess.run(build, capture_output=True, text=True, check=False)

    failure = Failure((), (), {}, broken.stderr, frozenset())
    assert isinstance(buildkit_errors.explain(failure, {}, {}), buildkit_errors.LayerLost)
    with contextlib.closing(docker.connect()) as connected:
        image = connected.image(reference)
        assert provision.restart(quiet, paths)
        subprocess.run(build, capture_output=True, check=True)
        assert connected.image(reference) == image


def test_an_engine_that_lost_a_layer_is_healed_without_a_restart(
    saved_base: tuple[str, bytes], paths: DaemonPaths, tmp_path: Path
) -> None:
    reference, archive = saved_base
    dockerd.start(paths, quiet)
    subprocess.run(["docker", "load", "--quiet"], input=archive, stdout=subprocess.DEVNULL, check=True)
    dockerfile = f"FROM {reference} AS one\nRUN --network=none echo 1 > /a\nFROM one AS two\n"
    directory = tmp_path / "images/a"
    directory.mkdir(parents=True)
    (directory / "Dockerfile").write_text(dockerfile)
    bake_file = {"target": {"a": {"context": "images/a", "tags": ["lost:1"], "output": ["type=image"]}}}
    (directory / "docker-bake.json").write_text(json.dumps(bake_file))
    target = buildx.Target("a", "a", Path("images/a/docker-bake.json"))
    options = buildx.BakeOptions(tmp_path, tmp_path / "state", lambda event: None)
    buildx.export_archive(target, tmp_path / "first.tar", options)
    lose_a_layer(paths)
    (directory / "Dockerfile").write_text(f"{dockerfile}RUN --network=none echo 2 > /b\n")
    messages = list[str]()

    buildx.bake_with_retries(
        [target],
        lambda targets: buildx.bake(targets, options),
        lambda error, targets: pytest.fail(str(error)),
        lambda: False,
        messages.append,
    )

    assert messages == [
        "the engine lost a layer (a BuildKit bug): building `two` without the cache",
        "the engine lost a layer (a BuildKit bug): building `one` without the cache",
    ]


def lose_a_layer(paths: DaemonPaths) -> None:
    """Remove the newest step's files behind BuildKit's back."""
    ctr = ["ctr", "--address", str(paths.exec_root / "containerd/containerd.sock"), "--namespace", "moby"]
    listed = subprocess.run([*ctr, "snapshots", "ls"], capture_output=True, text=True, check=True).stdout
    [newest] = [
        key for key, parent, kind in map(image_fields, listed.splitlines()) if parent and kind == "Active"
    ]
    subprocess.run([*ctr, "snapshots", "rm", newest], check=True)


def image_fields(line: str) -> tuple[str, str, str]:
    """Key, parent and kind of a listed snapshot; many have no parent."""
    fields = line.split()
    return fields[0], fields[1] if len(fields) == 3 else "", fields[-1]


def test_only_an_engine_of_ours_is_restarted(paths: DaemonPaths) -> None:
    with another_engine(paths, {"features": {"containerd-snapshotter": True}}):
        assert not provision.restart(quiet, paths)
        assert engine().version


def test_an_engine_that_has_to_be_restarted_is_left_to_a_build_until_its_end(
    saved_base: tuple[str, bytes], paths: DaemonPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`docker ps` does not list the steps of BuildKit."""
    reference, archive = saved_base
    monkeypatch.setattr("bakehouse.engine.usage_lock.DaemonPaths", lambda: paths)
    dockerd.start(paths, quiet)
    subprocess.run(["docker", "load", "--quiet"], input=archive, stdout=subprocess.DEVNULL, check=True)
    project = Project(tmp_path, "restarted")
    project.add("slow", f"FROM {reference}\nRUN --network=none echo begun && sleep 5\n")
    first, messages, restarts = running(paths), list[str](), list[threading.Thread]()

    def watch() -> None:
        if any(isinstance(event, Log) for event in project.events) and not restarts:
            restarts.append(threading.Thread(target=provision.restart, args=(messages.append, paths)))
            restarts[0].start()

    assert project.bake("slow", watch=watch)
    restarts[0].join()

    assert messages[0] == "waiting to restart the engine: it is in use (a build or a push)"
    assert running(paths) != first


def test_an_engine_in_which_something_runs_is_not_restarted(
    saved_base: tuple[str, bytes], paths: DaemonPaths
) -> None:
    reference, archive = saved_base
    dockerd.start(paths, quiet)
    subprocess.run(["docker", "load", "--quiet"], input=archive, stdout=subprocess.DEVNULL, check=True)
    sleeping = ["docker", "run", "--rm", "--detach", "--network=none", reference, "sleep", "60"]
    name = subprocess.run(sleeping, capture_output=True, text=True, check=True).stdout.strip()

    assert not provision.restart(quiet, paths, seconds=1)

    subprocess.run(["docker", "kill", name], capture_output=True, check=True)


def test_a_bridge_keeps_its_address_when_ports_come() -> None:
    name = f"bh{os.getpid()}"
    ip = partial(subprocess.run, check=True)
    ip(["ip", "link", "add", name, "type", "bridge"])
    try:
        before = Path(f"/sys/class/net/{name}/address").read_text()
        dockerd.fix_address(name, quiet)
        ip(["ip", "link", "add", f"{name}p", "address", "02:00:00:00:00:01", "type", "veth"])
        ip(["ip", "link", "set", f"{name}p", "master", name])
        assert Path(f"/sys/class/net/{name}/address").read_text() == before
    finally:
        subprocess.run(["ip", "link", "delete", f"{name}p"], check=False)
        ip(["ip", "link", "delete", name])
