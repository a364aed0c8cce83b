"""Containers of a real engine: run, stopped, and never left behind."""

import contextlib
import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import docker
import pytest

from bakehouse.builder.built_image import BuiltImage
from bakehouse.cli.diagnostics import failure_text
from bakehouse.engine import metadata_service
from bakehouse.engine.docker import OWNER_LABEL, DockerEngine, connect
from bakehouse.engine.protocol import Container, ContainerExit, ContainerSpec
from bakehouse.errors import EngineError
from bakehouse.plan.model import Image
from bakehouse.util import tempdir

pytestmark = pytest.mark.engine


@pytest.fixture
def engine() -> Iterator[DockerEngine]:
    with contextlib.closing(connect()) as connected:
        yield connected
    assert left_by(tempdir.run_id()) == []


@pytest.fixture(scope="module")
def digest(mpi_cpu: tuple[Image, BuiltImage]) -> str:
    return mpi_cpu[1].stored


def left_by(owner: str) -> list[str]:
    """Everything in the engine that a run has made."""
    label: dict[str, str | list[str] | bool] = {"label": f"{OWNER_LABEL}={owner}"}
    with contextlib.closing(docker.from_env()) as client:
        return [
            # The SDK's own lists inspect each object, and fail if one was removed meanwhile.
            *(str(container["Id"]) for container in client.api.containers(all=True, filters=label)),
            *(str(network["Name"]) for network in client.api.networks(filters=label)),
            *(str(volume["Name"]) for volume in client.api.volumes(filters=label)["Volumes"] or ()),
        ]


def shell(digest: str, script: str, **fields: object) -> ContainerSpec:
    return ContainerSpec(digest, ("sh", "-c", script), **fields)  # type: ignore[arg-type]


def until_said(container: Container, word: str) -> None:
    """Wait until a container has printed something; one that ends before never will."""
    while word not in container.stdout():
        status = container.wait(0.1)
        assert status is None or word in container.stdout(), f"{status} without a {word}"


def test_a_container_finds_its_files_and_leaves_what_it_wrote(
    engine: DockerEngine, digest: str, tmp_path: Path
) -> None:
    script = (
        "cat /opt/ml/input/a/b.json; echo $NAME; hostname; echo no >&2; echo yes > /opt/ml/output/x; exit 3"
    )
    spec = shell(
        digest,
        script,
        hostname="algo-1",
        environment={"NAME": "value"},
        files={"/opt/ml/input/a/b.json": b"{}\n"},
        mounts=("/opt/ml/input", "/opt/ml/output"),
    )

    with engine.container(spec) as container:
        container.start(tmp_path / "log")
        status = container.wait(60)

        assert status == ContainerExit(3)
        assert container.stdout() == "{}\nvalue\nalgo-1\n"
        assert container.read("/opt/ml/output") == {"x": b"yes\n"}
        assert container.read("/opt/ml/output/x") == {"x": b"yes\n"}
        assert container.sizes("/opt/ml/output") == {"x": 4}
        assert container.read("/opt/ml/nowhere") == {}
    assert sorted((tmp_path / "log").read_text().splitlines()) == ["algo-1", "no", "value", "{}"]


def test_a_mounted_path_hides_what_the_image_holds_there(
    engine: DockerEngine, digest: str, tmp_path: Path
) -> None:
    with engine.container(shell(digest, "ls -A /etc/ssh", mounts=("/etc/ssh",))) as container:
        container.start(tmp_path / "log")
        container.wait(60)

        assert container.stdout() == ""


def test_hosts_of_one_network_find_each_other(engine: DockerEngine, digest: str, tmp_path: Path) -> None:
    with (
        engine.network("job") as network,
        engine.container(shell(digest, "sleep 60", hostname="algo-2", network=network)) as other,
        engine.container(
            shell(digest, "getent hosts algo-2", hostname="algo-1", network=network)
        ) as container,
    ):
        other.start(tmp_path / "other")
        container.start(tmp_path / "log")

        assert container.wait(60) == ContainerExit(0)


def test_a_running_container_is_waited_for_no_longer_than_asked(
    engine: DockerEngine, digest: str, tmp_path: Path
) -> None:
    with engine.container(shell(digest, "sleep 60")) as container:
        container.start(tmp_path / "log")
        started = time.monotonic()

        assert container.wait(0.5) is None
        assert time.monotonic() - started < 5


def test_stopping_asks_first_and_kills_after_the_grace(
    engine: DockerEngine, digest: str, tmp_path: Path
) -> None:
    polite = "trap 'echo asked; exit 7' TERM; echo ready; while :; do sleep 0.1; done"
    deaf = "trap '' TERM; echo ready; while :; do sleep 0.1; done"
    ends = []
    for script in (polite, deaf):
        with engine.container(shell(digest, script)) as container:
            container.start(tmp_path / "log")
            until_said(container, "ready")
            container.stop(grace=1)
            ends.append(container.wait(30))

    assert ends == [ContainerExit(7), ContainerExit(137)]


def test_an_exception_leaves_nothing_behind(engine: DockerEngine, digest: str, tmp_path: Path) -> None:
    spec = shell(digest, "sleep 60", mounts=("/opt/ml/input",))

    def fail() -> None:
        with engine.network("job") as network, engine.container(replace(spec, network=network)) as container:
            container.start(tmp_path / "log")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    assert left_by(tempdir.run_id()) == []


def test_closing_ends_those_who_wait_and_starts_no_more(digest: str, tmp_path: Path) -> None:
    engine = connect()

    def wait() -> None:
        with engine.container(shell(digest, "sleep 60")) as container:
            container.start(tmp_path / "log")
            running.set()
            ends.append(container.wait(60))

    ends: list[ContainerExit | None] = []
    running = threading.Event()
    waiting = threading.Thread(target=wait)
    waiting.start()
    running.wait(60)
    engine.close()
    waiting.join(30)

    assert ends == [ContainerExit(137)]
    with pytest.raises(EngineError, match="stopped before"), engine.container(shell(digest, "true")):
        pass
    assert left_by(tempdir.run_id()) == []


def test_a_container_that_closing_removed_counts_as_killed(digest: str, tmp_path: Path) -> None:
    engine = connect()
    with engine.container(shell(digest, "sleep 60")) as container:
        container.start(tmp_path / "log")
        engine.close()

        assert container.wait(60) == ContainerExit(137)


def test_a_container_has_its_exit_code_although_closing_removes_it(
    digest: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = connect()
    with engine.container(shell(digest, "exit 3")) as container:
        container.start(tmp_path / "log")
        monkeypatch.setattr(container, "_finish_log", engine.close)

        assert container.wait(60) == ContainerExit(3)
        monkeypatch.undo()

    assert left_by(tempdir.run_id()) == []


def test_closing_removes_what_is_left(digest: str) -> None:
    """An interrupt may strike between the making of a thing and the knowledge of it."""
    engine = connect()
    unremoved = engine.network("job"), engine.container(shell(digest, "true", mounts=("/opt/ml/input",)))
    for container in unremoved:
        container.__enter__()
    assert len(left_by(tempdir.run_id())) == 3

    engine.close()

    assert left_by(tempdir.run_id()) == []


def test_a_mount_with_little_room_is_full_and_can_be_read_when_its_container_has_ended(
    engine: DockerEngine, digest: str, tmp_path: Path
) -> None:
    script = "head -c 2000000 /dev/zero > /opt/ml/model/a; echo small > /opt/ml/output/b"
    spec = shell(digest, script, mounts=("/opt/ml/model", "/opt/ml/output"), room={"/opt/ml/model": 2**20})

    with engine.container(spec) as container:
        container.start(tmp_path / "log")
        container.wait(60)

        assert "No space left on device" in (tmp_path / "log").read_text()
        assert container.sizes("/opt/ml/model") == {"a": 2**20}
        assert container.is_full("/opt/ml/model")
        assert not container.is_full("/opt/ml/output")


def test_what_a_killed_run_left_is_swept_and_a_living_one_s_is_not(
    engine: DockerEngine, digest: str, tmp_path: Path
) -> None:
    program = f"""
from pathlib import Path
from bakehouse.engine.docker import connect
from bakehouse.util import tempdir
from bakehouse.engine.protocol import ContainerSpec
engine = connect()
spec = ContainerSpec({digest!r}, ("sleep", "300"), mounts=("/opt/ml/input",))
with engine.network("killed"), engine.container(spec) as container:
    container.start(Path({str(tmp_path / "killed")!r}))
    print(tempdir.run_id(), flush=True)
    container.wait(300)
"""
    with (
        engine.container(shell(digest, "sleep 60")) as mine,
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as run,
    ):
        mine.start(tmp_path / "log")
        assert run.stdout is not None
        owner = run.stdout.readline().strip()
        # Another run that starts now may sweep the leftovers of a dead run first.
        assert len(left_by(owner)) == 3
        run.send_signal(signal.SIGKILL)
        run.wait()

        engine.sweep()

        assert left_by(owner) == []
        assert mine.wait(0.2) is None


def test_two_sweeps_at_once_do_not_disturb_each_other(engine: DockerEngine, digest: str) -> None:
    machine, _, start = tempdir.run_id().split("-")
    dead = f"{machine}-{os.getpid()}-{int(start) + 1}"
    with contextlib.closing(docker.from_env()) as client:
        # Another test may sweep at any moment, also what the SDK's own `create` would ask for once more.
        containers = [client.api.create_container(digest, labels={OWNER_LABEL: dead})["Id"] for _ in range(4)]
    failures: list[BaseException] = []

    def sweep() -> None:
        try:
            with contextlib.closing(connect()) as another:
                another.sweep()
        except BaseException as error:
            failures.append(error)

    sweeps = [threading.Thread(target=sweep) for _ in range(3)]
    for thread in sweeps:
        thread.start()
    for thread in sweeps:
        thread.join()

    assert failures == []
    with contextlib.closing(docker.from_env()) as client:
        present = {str(container["Id"]) for container in client.api.containers(all=True)}
    assert present.isdisjoint(containers)


def test_an_image_is_found_by_name_and_digest_or_not_at_all(engine: DockerEngine, digest: str) -> None:
    image = engine.image(digest)

    assert image is not None
    assert image.digest == digest
    assert image.bytes > 1_000_000
    assert engine.image("bakehouse/nowhere:1") is None


def test_a_missing_image_is_reported(engine: DockerEngine) -> None:
    with (
        pytest.raises(EngineError) as caught,
        engine.container(ContainerSpec("bakehouse/nowhere:1", ("true",))),
    ):
        pass

    assert failure_text(caught.value.diagnostics[0]) == (
        "error: the container engine could not create a container of `bakehouse/nowhere:1`\n"
        "  answer  No such image: bakehouse/nowhere:1\n"
        "\nhint: build it with `bake build`\n"
    )


def test_only_the_name_of_an_image_is_removed(engine: DockerEngine, digest: str) -> None:
    names = ("bakehouse-removal/image:old", "bakehouse-removal/image:old-too")
    with contextlib.closing(docker.from_env()) as client:
        for name in names:
            repository, _, tag = name.partition(":")
            client.api.tag(digest, repository, tag)

    assert [engine.remove_image(name) for name in (names[0], names[0])] == [True, True]
    assert engine.image(names[1]) is not None
    assert engine.remove_image(names[1])
    assert engine.image(digest) is not None


_CONNECT = """
import socket
with socket.socket() as client:
    client.settimeout(2)
    print(client.connect_ex(("169.254.169.254", 80)))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root changes the routing of the engine's networks")
def test_a_job_does_not_reach_the_metadata_service(engine: DockerEngine, digest: str, tmp_path: Path) -> None:
    answers = []
    for blocked in (metadata_service.blocked, lambda *_: contextlib.nullcontext("")):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(metadata_service, "blocked", blocked)
            with engine.network("metadata") as network:
                spec = ContainerSpec(digest, ("python3", "-c", _CONNECT), network=network)
                with engine.container(spec) as container:
                    container.start(tmp_path / "log")
                    assert container.wait(60) == ContainerExit(0, out_of_memory=False)
                    answers.append(int(container.stdout()))

    assert answers[0] == errno.ENETUNREACH
    if answers[1] == errno.ENETUNREACH:
        pytest.skip("this machine has no route to the metadata service, so nothing was blocked")
    rules = subprocess.run(["ip", "rule", "list"], capture_output=True, text=True, check=True).stdout
    assert "169.254.0.0/16" not in "".join(line for line in rules.splitlines() if "detached" in line)
