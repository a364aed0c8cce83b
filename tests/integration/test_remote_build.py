"""A build on a remote builder without routes and credentials: the same image as that of the local engine."""

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest

from bakehouse.engine import builder_preflight, builder_watch
from bakehouse.engine.builder_watch import BuilderLost
from tests.integration.remote_builder import RemoteBuilder, remote_builder
from tests.integration.remote_project import CONTENT, FILE, IMAGE, RemoteProject

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a second engine"),
    pytest.mark.timeout(600),
]

STEPS = """\
RUN sleep 1 && echo {} > /first
RUN sleep 5 && echo second
"""
"""Further steps of the stage `part`."""


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemoteBuilder]:
    with remote_builder(tmp_path_factory.mktemp("builder")) as builder, pytest.MonkeyPatch.context() as patch:
        for name, value in builder.environment.items():
            patch.setenv(name, value)
        yield builder


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, builder: RemoteBuilder) -> Iterator[RemoteProject]:
    with contextlib.closing(RemoteProject(tmp_path_factory.mktemp("project"), ["remote"])) as project:
        yield project


def test_a_remote_build_gives_the_image_of_the_local_engine(
    builder: RemoteBuilder, project: RemoteProject
) -> None:
    assert [check.fault for check in builder_preflight.preflight(builder.name) if check.fault] == []

    [remote] = project.build(builder.name)

    command = ["docker", "run", "--rm", "--network=none", remote.image.reference, "cat", f"/opt/{FILE.file}"]
    assert subprocess.run(command, capture_output=True, check=True).stdout == CONTENT
    project.remove()
    [local] = project.build()
    assert (remote.digest, remote.stored) == (local.digest, local.stored)


@contextlib.contextmanager
def in_second_step(project: RemoteProject, fault: Callable[[], None]) -> Iterator[None]:
    """Cause a fault when a build reaches the second of `STEPS`."""

    def wait() -> None:
        while "part 3/3" not in project.log() and time.monotonic() < start + 100:
            time.sleep(0.2)
        fault()

    start = time.monotonic()
    thread = threading.Thread(target=wait)
    thread.start()
    yield
    thread.join()


def test_a_build_continues_after_its_connection_was_cut(
    builder: RemoteBuilder, project: RemoteProject
) -> None:
    project.write({"remote": STEPS.format(uuid4()) + IMAGE})

    with in_second_step(project, builder.bridge.cut):
        project.build(builder.name)

    log = project.log()
    assert f"builder `{builder.name}` stopped answering; continuing on `{builder.name}`" in log
    assert log.count("part 2/3: RUN") == 1


def test_a_frozen_builder_is_named_and_the_same_command_continues(
    builder: RemoteBuilder, project: RemoteProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builder_watch, "ANSWER_SECONDS", 2.0)
    monkeypatch.setattr("bakehouse.util.process._GRACE_SECONDS", 1.0)
    project.write({"remote": STEPS.format(uuid4()) + IMAGE})

    with in_second_step(project, builder.bridge.freeze), pytest.raises(BuilderLost) as lost:
        project.build(builder.name, interval=1.0)
    builder.bridge.thaw()

    [diagnostic] = lost.value.diagnostics
    assert diagnostic.message == f"builder `{builder.name}` stopped answering"
    before = len(project.log())
    project.build(builder.name)
    # Only the bridge was frozen, so the builder may have finished the other step, too.
    assert "part 2/3: RUN" not in project.log()[before:]
