"""Builds of images whose platform the engine does not run."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from bakehouse.catalog.project import HOME
from bakehouse.engine import emulation, provision
from bakehouse.engine.daemon_info import Daemon
from bakehouse.errors import EngineError
from bakehouse.pipeline.build import runnable_plan
from bakehouse.plan.workspace import open_workspace, raise_failures, select
from tests.support.daemons import ENGINE
from tests.support.errors import refusal

HINT = (
    "install qemu's user emulation on the engine's machine (on Debian `apt-get install qemu-user-static "
    "binfmt-support`), or use an engine on a linux/arm64 machine"
)


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine without emulation."""

    def require_platforms(daemon: Daemon, platforms: Iterable[str]) -> None:
        for platform in {*platforms} - {daemon.platform}:
            raise EngineError(
                f"the container engine does not run {platform} programs", hint=emulation.HINT.format(platform)
            )

    monkeypatch.setattr(provision, "ensure", lambda *_: ENGINE)
    monkeypatch.setattr(emulation, "require_platforms", require_platforms)


def test_a_glob_leaves_out_an_image_that_the_engine_does_not_run() -> None:
    workspace, lines = open_workspace(HOME), list[str]()
    selection = select(workspace, ["mpi-cpu*"])

    runnable = runnable_plan(selection, selection.plan, lines.append)

    assert [image.name for image in runnable.images] == ["mpi-cpu", "mpi-cpu-py313"]
    assert lines == [
        f"left out mpi-cpu-arm64: the container engine does not run linux/arm64 programs; {HINT}"
    ]
    raise_failures(workspace)


def test_a_named_image_that_the_engine_does_not_run_fails_after_the_others() -> None:
    workspace, lines = open_workspace(HOME), list[str]()
    selection = select(workspace, ["mpi-cpu", "mpi-cpu-arm64"])

    runnable = runnable_plan(selection, selection.plan, lines.append)

    assert [image.name for image in runnable.images] == ["mpi-cpu"]
    assert lines == []
    assert refusal(EngineError, raise_failures, workspace) == (
        f"error: the container engine does not run linux/arm64 programs\n\nhint: {HINT}\n"
    )


@pytest.mark.parametrize("pattern", ["mpi-cpu-arm64", "*-arm64"])
def test_an_engine_that_runs_none_of_the_images_is_an_error(pattern: str) -> None:
    selection = select(open_workspace(HOME), [pattern])

    with pytest.raises(EngineError, match="does not run linux/arm64 programs"):
        runnable_plan(selection, selection.plan, print)


def test_an_engine_on_an_arm_machine_leaves_out_images_of_the_other_platform(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(provision, "ensure", lambda *_: replace(ENGINE, platform="linux/arm64"))
    selection = select(open_workspace(HOME), ["mpi-cpu*"])

    assert [image.name for image in runnable_plan(selection, selection.plan, print).images] == [
        "mpi-cpu-arm64"
    ]
