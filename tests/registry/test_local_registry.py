"""The local registry, with a docker client that starts no container."""

import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bakehouse.catalog.project import ProjectSettings
from bakehouse.engine import docker, provision
from bakehouse.engine.protocol import EngineHost
from bakehouse.errors import Diagnostic, EngineError, PublishError, Reason, UsageError
from bakehouse.publish import image_push
from bakehouse.registry import registry_image
from bakehouse.registry.destination import local_registry, manage_local
from bakehouse.registry.local_registry import EmbeddedRegistry, RegistryContainer
from bakehouse.util import tempdir
from tests.integration.ports import kept_port
from tests.support.daemons import ENGINE
from tests.support.data import text_of
from tests.support.errors import raised
from tests.support.fake_engine import FakeEngine, Run


def no_container() -> RegistryContainer:
    raise AssertionError("a registry that is not started makes no image")


def test_its_address_is_on_this_machine(tmp_path: Path) -> None:
    assert EmbeddedRegistry(tmp_path, 5051, no_container).host == "127.0.0.1:5051"


def test_no_login_is_used(tmp_path: Path) -> None:
    registry = EmbeddedRegistry(tmp_path, 5051, no_container)
    assert (registry.credentials(renew=True), registry.principal()) == (None, "")


def test_a_disk_with_free_space_is_accepted(tmp_path: Path) -> None:
    assert EmbeddedRegistry(tmp_path / "not/yet/there", 5051, no_container).known_problems() == ()


@pytest.mark.skipif(sys.platform != "linux", reason="needs a file system without room: /proc")
def test_a_full_disk_is_named() -> None:
    reason = Reason("the disk that holds `/proc` has 0 bytes left")
    assert EmbeddedRegistry(Path("/proc"), 5051, no_container).known_problems() == (reason,)


DOCKER = text_of(__file__, "docker")


def engine(*, shares_files: bool) -> FakeEngine:
    engine = FakeEngine(lambda spec: Run())
    engine.shared = EngineHost(shares_files=shares_files)
    return engine


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[list[str]]]:
    """Read the arguments of docker, whose `run` is a registry without its API."""
    path, commands = tmp_path / "commands/docker", tmp_path / "asked"
    path.parent.mkdir()
    path.write_text(DOCKER.format(python=sys.executable, asked=str(commands)))
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(provision, "ensure", lambda *_: ENGINE)
    monkeypatch.setattr(registry_image, "ensure", lambda *_: "an-image")
    monkeypatch.setattr(docker, "connect", lambda: engine(shares_files=True))
    return lambda: [json.loads(line)[0] for line in commands.read_text().splitlines()]


@pytest.fixture
def project(tmp_path: Path, asked: Callable[[], list[list[str]]]) -> Iterator[ProjectSettings]:
    with kept_port() as port:
        project = ProjectSettings(tmp_path / "project", (), registry_port=port, user_state=tmp_path / "state")
        yield project
        local_registry(project).stop()


def ends(registry: EmbeddedRegistry) -> bool:
    for _ in range(100):
        if not registry.is_running():
            return True
        time.sleep(0.05)
    return False


def test_a_kept_registry_runs_until_it_is_stopped(project: ProjectSettings) -> None:
    with local_registry(project, print) as registry:
        registry.keep()
    assert registry.is_running()
    with local_registry(project) as second:
        assert second.is_running()
    assert registry.is_running()
    assert registry.stop()
    assert not registry.is_running()


def test_no_process_of_it_gets_a_secret_of_the_shell(
    project: ProjectSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other programs of the user could read it in /proc for as long as the registry is kept."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary-4711")
    with local_registry(project, print):
        texts = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                texts.append(path.read_bytes().decode(errors="replace"))
    ours = [text for text in texts if str(project.user_state.parent / "commands") in text]

    assert len(ours) >= 2, "the keeper and `docker run`"
    assert [text for text in texts if "canary-4711" in text] == []


def test_without_keep_it_ends_with_its_last_user(project: ProjectSettings) -> None:
    with local_registry(project, print) as registry:
        assert registry.is_running()
    assert ends(registry)


def test_an_interrupted_user_leaves_nothing(project: ProjectSettings) -> None:
    with pytest.raises(KeyboardInterrupt), local_registry(project, print) as registry:
        raise KeyboardInterrupt
    assert ends(registry)


def test_the_file_of_a_registry_that_was_killed_does_not_keep_the_next_one(project: ProjectSettings) -> None:
    project.registry_state.mkdir(parents=True)
    (project.registry_state / "keep").touch()
    with local_registry(project, print) as registry:
        pass
    assert ends(registry)


def test_a_start_removes_the_uploads_of_killed_pushes(project: ProjectSettings) -> None:
    repository = project.registry_state / "data/docker/registry/v2/repositories/bakehouse/mpi-cpu"
    upload, layer = repository / "_uploads/81fc9804/data", repository / "_layers/sha256/link"
    for path in (upload, layer):
        path.parent.mkdir(parents=True)
        path.write_text("content")
    with local_registry(project, print):
        pass

    assert (upload.exists(), layer.exists()) == (False, True)


def test_a_kept_registry_ends_with_its_directory(project: ProjectSettings) -> None:
    with local_registry(project, print) as registry:
        registry.keep()
    shutil.rmtree(project.registry_state)
    assert ends(registry)


def test_a_registry_in_use_is_not_stopped(project: ProjectSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bakehouse.registry.local_registry._STOP_SECONDS", 0.3)
    with local_registry(project, print) as registry:
        registry.keep()
        with pytest.raises(PublishError) as caught:
            manage_local(project, "stop", print)
        assert registry.is_running()
    assert caught.value.diagnostics == (
        Diagnostic(
            f"the registry at {registry.host} is in use",
            hint="it stops when the running push or release ends",
        ),
    )
    assert ends(registry)


def test_all_projects_of_a_user_share_it(project: ProjectSettings, tmp_path: Path) -> None:
    other = replace(project, root=tmp_path / "other")
    manage_local(project, "start", print)
    assert manage_local(other, "status", print).running
    with local_registry(other, print) as second:
        assert second.is_running()
    assert local_registry(project).is_running()
    assert not manage_local(other, "stop", print).running


def test_another_port_is_another_registry(project: ProjectSettings) -> None:
    assert project.registry_state.name == f"registry-{project.registry_port}"
    assert replace(project, registry_port=1).registry_state.name == "registry-1"


def test_the_port_of_another_user(project: ProjectSettings, tmp_path: Path) -> None:
    other = replace(project, user_state=tmp_path / "other")
    manage_local(project, "start", print)
    for action in ("start", "status"):
        with pytest.raises(PublishError) as caught:
            manage_local(other, action, print)
    assert caught.value.diagnostics == (
        Diagnostic(
            f"port {project.registry_port} of the local registry is used by another local registry, "
            f"in `{project.registry_state}`",
            hint="set `registry_port` in [tool.bakehouse] or BAKEHOUSE_REGISTRY_PORT to a free port, "
            "or let its user run `bake registry stop`",
        ),
    )
    # It does not touch the other user's registry.
    manage_local(other, "stop", print)
    assert local_registry(project).is_running()


def test_the_registry_of_an_older_bakehouse_is_stopped_and_its_images_are_named(
    project: ProjectSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    former = project.root / "build/registry"
    (former / "data/docker").mkdir(parents=True)
    (former / "keep").touch()
    owner = former.resolve()
    monkeypatch.setattr(
        EmbeddedRegistry, "_owner", lambda _: str(owner) if (owner / "keep").exists() else None
    )
    lines: list[str] = []
    assert raised(PublishError, manage_local, project, "start", lines.append).diagnostics == (
        Diagnostic(
            f"port {project.registry_port} of the local registry is used by another local registry, "
            f"in `{owner}`, of Bakehouse 0.1.0",
            hint="run `bake registry stop`",
        ),
    )
    manage_local(project, "stop", lines.append)
    old, new = f"{owner}/data", f"{project.registry_state}/data"
    note = (
        f"warning: `{old}` has images of Bakehouse 0.1.0. To take them over, run "
        f"`mkdir -p {new} && cp -a {old}/. {new}/ && rm -r {old}`"
    )
    assert lines == [note, note, f"stopped the registry at 127.0.0.1:{project.registry_port}"]


def test_it_is_a_container_on_loopback_with_a_network_of_its_own(
    project: ProjectSettings, asked: Callable[[], list[list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGISTRY_HTTP_ADDR", "0.0.0.0:5000")
    with local_registry(project, print):
        pass
    name, state = f"bakehouse-registry-{project.registry_port}", project.registry_state
    removed, commands = asked()[:2], asked()[2:4]
    assert removed == [["container", "rm", "--force", name], ["network", "rm", name]]
    owner = commands[0][3]
    # The keeper has ended, so a sweep would remove what it left
    assert tempdir.is_abandoned(owner.removeprefix("bakehouse="), 0.0)
    labels = ["--label", owner, "--label", "bakehouse.service=registry"]
    assert commands == [
        ["network", "create", *labels, name],
        [
            *("run", "--rm", "--name", name, *labels, "--network", name),
            *("--publish", f"127.0.0.1:{project.registry_port}:5000"),
            *("--user", f"{os.getuid()}:{os.getgid()}"),
            *("--cap-drop", "ALL", "--read-only"),
            *("--env", f'REGISTRY_HTTP_HEADERS={{"Bakehouse-Registry": ["{state}"]}}'),
            *("--mount", f"type=bind,source={state}/data,target=/var/lib/registry"),
            "an-image",
        ],
    ]
    removal = [
        ["container", "rm", "--force", name],
        ["container", "inspect", name],
        ["network", "rm", name],
        ["network", "inspect", name],
    ]
    # A stopped client can leave both a moment later
    assert asked()[4:] == removal * 3


def test_an_engine_without_files_of_this_host_stores_images_in_a_volume(
    project: ProjectSettings, asked: Callable[[], list[list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docker, "connect", lambda: engine(shares_files=False))
    with local_registry(project, print):
        pass
    command = asked()[3]
    volume = f"bakehouse-registry-{project.registry_port}"
    assert command[command.index("--mount") + 1] == f"type=volume,source={volume},target=/var/lib/registry"
    # The volume belongs to root
    assert command[command.index("--user") + 1] == "0:0"
    status = manage_local(project, "status", print)
    assert (status.directory, status.bytes) == (None, None)
    assert status.text == (
        f"the registry at {status.host} is not running; its images are in a volume of the engine\n"
    )

    monkeypatch.setattr(docker, "connect", lambda: engine(shares_files=True))
    with local_registry(project, print):
        pass
    assert manage_local(project, "status", print).bytes == 0


def test_a_stopped_registry_has_no_container(
    project: ProjectSettings, asked: Callable[[], list[list[str]]]
) -> None:
    manage_local(project, "start", print)
    manage_local(project, "stop", print)
    assert asked()[-1] == ["network", "inspect", f"bakehouse-registry-{project.registry_port}"]
    before = len(asked())
    time.sleep(0.5)
    assert len(asked()) == before


def test_a_rootless_engine_runs_it_as_the_user_that_owns_its_files(
    project: ProjectSettings, asked: Callable[[], list[list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provision, "ensure", lambda *_: replace(ENGINE, rootless=True))
    with local_registry(project, print):
        pass
    command = asked()[3]
    assert command[command.index("--user") + 1] == "0:0"


@pytest.mark.parametrize(
    ("selinux", "shares_files", "is_unconfined"),
    [(True, True, True), (True, False, False), (False, True, False)],
)
def test_only_a_directory_of_a_user_is_read_without_selinux(
    selinux: bool,
    shares_files: bool,
    is_unconfined: bool,
    project: ProjectSettings,
    asked: Callable[[], list[list[str]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(provision, "ensure", lambda *_: replace(ENGINE, selinux=selinux))
    monkeypatch.setattr(docker, "connect", lambda: engine(shares_files=shares_files))
    with local_registry(project, print):
        pass
    assert ("label=disable" in asked()[3]) == is_unconfined


def test_an_engine_that_cannot_be_used_starts_none(
    project: ProjectSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise EngineError("no container engine answers")

    monkeypatch.setattr(provision, "ensure", refuse)
    with pytest.raises(EngineError, match="no container engine answers"), local_registry(project, print):
        pass
    assert not local_registry(project).is_running()


def test_the_task(project: ProjectSettings) -> None:
    host, data = f"127.0.0.1:{project.registry_port}", f"{project.registry_state}/data"

    lines: list[str] = []

    def text(action: str) -> str:
        return manage_local(project, action, lines.append).text

    assert text("status") == f"the registry at {host} is not running; 0 bytes in {data}\n"
    assert text("start") == f"the registry at {host} is running; 0 bytes in {data}\n"
    assert text("start") == f"the registry at {host} is running; 0 bytes in {data}\n"
    (project.registry_state / "data/blob").write_bytes(b"12345")
    assert text("status") == f"the registry at {host} is running; 5 bytes in {data}\n"
    assert text("stop") == f"the registry at {host} is not running; 5 bytes in {data}\n"
    assert lines[-1] == f"stopped the registry at {host}"
    lines.clear()
    assert text("stop") == f"the registry at {host} is not running; 5 bytes in {data}\n"
    assert lines == []


def test_a_push_keeps_the_registry(project: ProjectSettings) -> None:
    lines: list[str] = []
    with local_registry(project, print) as registry:
        image_push._keep_registries([registry], lines.append)
    assert registry.is_running()
    assert lines == [f"the registry at {registry.host} keeps running; `bake registry stop` stops it"]


def test_an_unknown_action(project: ProjectSettings) -> None:
    assert raised(UsageError, manage_local, project, "strat", print).diagnostics == (
        Diagnostic("`registry` has no action `strat`", hint="did you mean `start`?"),
    )
