import os
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bakehouse.catalog.project import Project
from bakehouse.engine import provision
from bakehouse.errors import Diagnostic, PublishError, Reason, UsageError
from bakehouse.publish import image_push
from bakehouse.registry.destination import local_registry, manage_local, open_local
from bakehouse.registry.local_registry import EmbeddedRegistry
from tests.integration.ports import kept_port


def test_its_address_is_on_this_machine(tmp_path: Path) -> None:
    assert EmbeddedRegistry(tmp_path, 5051).host == "127.0.0.1:5051"


def test_no_login_is_used(tmp_path: Path) -> None:
    registry = EmbeddedRegistry(tmp_path)
    assert (registry.credentials(renew=True), registry.principal()) == (None, "")


def test_a_disk_with_free_space_is_accepted(tmp_path: Path) -> None:
    assert EmbeddedRegistry(tmp_path).known_problems() == ()


@pytest.mark.skipif(sys.platform != "linux", reason="needs a file system without room: /proc")
def test_a_full_disk_is_named() -> None:
    reason = Reason("the disk that holds `/proc` has 0 bytes left")
    assert EmbeddedRegistry(Path("/proc")).known_problems() == (reason,)


def test_without_any_program_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PublishError) as caught:
        EmbeddedRegistry(tmp_path, 1).__enter__()
    assert caught.value.diagnostics == (
        Diagnostic(
            "the local registry cannot run",
            reasons=(Reason("neither `docker-registry` nor `docker` is on PATH"),),
            hint="install Debian's package docker-registry, or set `registry` in [tool.bakehouse]",
        ),
    )


REGISTRY = """\
#!{python}
import http.server, json, sys
settings = json.load(open(sys.argv[2]))["http"]
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        for name, [value] in settings["headers"].items():
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *_):
        pass
host, port = settings["addr"].split(":")
http.server.HTTPServer((host, int(port)), Handler).serve_forever()
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry without its API, in place of Debian's."""
    path = tmp_path / "commands/docker-registry"
    path.parent.mkdir()
    path.write_text(REGISTRY.format(python=sys.executable))
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(provision, "ensure_tools", lambda *_: None)


@pytest.fixture
def project(tmp_path: Path, program: None) -> Iterator[Project]:
    with kept_port() as port:
        project = Project(tmp_path / "project", (), registry_port=port, keep_registry=True)
        yield project
        local_registry(project).stop()


def ends(registry: EmbeddedRegistry) -> bool:
    for _ in range(100):
        if not registry.is_running():
            return True
        time.sleep(0.05)
    return False


def test_a_kept_registry_runs_until_it_is_stopped(project: Project) -> None:
    with open_local(project, print) as registry:
        registry.keep()
    assert registry.is_running()
    with local_registry(project) as second:
        assert second.is_running()
    assert registry.is_running()
    assert registry.stop()
    assert not registry.is_running()


def test_without_keep_it_ends_with_its_last_user(project: Project) -> None:
    with open_local(project, print) as registry:
        assert registry.is_running()
    assert ends(registry)


def test_an_interrupted_user_leaves_nothing(project: Project) -> None:
    with pytest.raises(KeyboardInterrupt), open_local(project, print) as registry:
        raise KeyboardInterrupt
    assert ends(registry)


def test_the_file_of_a_registry_that_was_killed_does_not_keep_the_next_one(project: Project) -> None:
    (project.state / "registry").mkdir(parents=True)
    (project.state / "registry/keep").touch()
    with open_local(project, print) as registry:
        pass
    assert ends(registry)


def test_a_start_removes_the_uploads_of_killed_pushes(project: Project) -> None:
    repository = project.state / "registry/data/docker/registry/v2/repositories/bakehouse/mpi-cpu"
    upload, layer = repository / "_uploads/81fc9804/data", repository / "_layers/sha256/link"
    for path in (upload, layer):
        path.parent.mkdir(parents=True)
        path.write_text("content")
    with open_local(project, print):
        pass

    assert (upload.exists(), layer.exists()) == (False, True)


def test_a_kept_registry_ends_with_its_directory(project: Project) -> None:
    with open_local(project, print) as registry:
        registry.keep()
    shutil.rmtree(project.state)
    assert ends(registry)


def test_a_registry_in_use_is_not_stopped(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bakehouse.registry.local_registry._STOP_SECONDS", 0.3)
    with open_local(project, print) as registry:
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


def test_the_port_of_another_project(project: Project, tmp_path: Path) -> None:
    other = replace(project, root=tmp_path / "other")
    manage_local(project, "start", print)
    for action in ("start", "status"):
        with pytest.raises(PublishError) as caught:
            manage_local(other, action, print)
    assert caught.value.diagnostics == (
        Diagnostic(
            f"port {project.registry_port} of the local registry is used by the registry of another project, "
            f"in `{project.state}/registry`",
            hint="set `registry_port` in [tool.bakehouse] to a free port, "
            "or run `bake registry stop` in that project",
        ),
    )
    # It does not touch the other project's registry.
    manage_local(other, "stop", print)
    assert local_registry(project).is_running()


def test_the_task(project: Project) -> None:
    host, data = f"127.0.0.1:{project.registry_port}", f"{project.state}/registry/data"

    def text(action: str) -> str:
        return manage_local(project, action, print).text

    assert text("status") == f"the registry at {host} is not running; 0 bytes in {data}\n"
    assert text("start") == f"the registry at {host} is running; 0 bytes in {data}\n"
    assert text("start") == f"the registry at {host} is running; 0 bytes in {data}\n"
    (project.state / "registry/data/blob").write_bytes(b"12345")
    assert text("status") == f"the registry at {host} is running; 5 bytes in {data}\n"
    assert text("stop") == f"the registry at {host} is not running; 5 bytes in {data}\n"
    assert text("stop") == f"the registry at {host} is not running; 5 bytes in {data}\n"


def test_a_push_keeps_the_registry(project: Project) -> None:
    lines: list[str] = []
    with open_local(project, print) as registry:
        image_push._keep_registries([registry], lines.append)
    assert registry.is_running()
    assert lines == [f"the registry at {registry.host} keeps running; `bake registry stop` stops it"]


def test_an_unknown_action(project: Project) -> None:
    with pytest.raises(UsageError) as caught:
        manage_local(project, "strat", print)
    assert caught.value.diagnostics == (
        Diagnostic("`registry` has no action `strat`", hint="did you mean `start`?"),
    )
