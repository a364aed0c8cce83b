"""Platforms that an engine runs."""

import dataclasses

import pytest

from bakehouse.cli.diagnostics import failure_text
from bakehouse.engine.daemon_info import ProgramResult
from bakehouse.engine.emulation import require_platforms, runnable_platforms
from bakehouse.errors import EngineError
from tests.support.daemons import ENGINE

REPORT = """\
Name:          default
Driver:        docker

Nodes:
Name:             default
Status:           running
Platforms:        {}
"""


class Client:
    """The docker client of an engine with these platforms."""

    def __init__(self, platforms: str) -> None:
        self._platforms = platforms
        self.commands: list[tuple[str, ...]] = []

    def __call__(self, *command: str, seconds: float = 0) -> ProgramResult:
        self.commands.append(command)
        if command[1] == "context":
            return ProgramResult(0, "far\n")
        return ProgramResult(0, REPORT.format(self._platforms))


def test_emulated_platforms_follow_that_of_the_engine() -> None:
    client = Client("linux/amd64, linux/amd64/v2, linux/arm64, linux/riscv64")

    assert runnable_platforms(ENGINE, client) == ("linux/amd64", "linux/arm64")
    assert client.commands[-1] == ("docker", "buildx", "inspect", "far")


def test_an_arm_engine_may_emulate_the_other_platform() -> None:
    engine = dataclasses.replace(ENGINE, platform="linux/arm64")
    assert runnable_platforms(engine, Client("linux/arm64, linux/amd64")) == ("linux/arm64", "linux/amd64")


def test_a_platform_that_the_engine_does_not_run_is_refused() -> None:
    with pytest.raises(EngineError) as caught:
        require_platforms(ENGINE, ["linux/amd64", "linux/arm64"], Client("linux/amd64, linux/amd64/v2"))

    assert failure_text(caught.value.diagnostics[0]) == (
        "error: the container engine does not run linux/arm64 programs\n"
        "  because it runs linux/amd64, and its kernel has no emulator for linux/arm64\n"
        "  engine  26.1.5 at unix:///var/run/docker.sock\n"
        "\n"
        "hint: install qemu's user emulation on the engine's machine (on Debian `apt-get install"
        " qemu-user-static binfmt-support`), or use an engine on a linux/arm64 machine\n"
    )


def test_an_emulated_platform_is_accepted() -> None:
    require_platforms(ENGINE, ["linux/arm64"], Client("linux/amd64, linux/arm64"))


@pytest.mark.parametrize("platform", ["linux/amd64", "linux/arm64"])
def test_the_engines_own_platform_needs_no_question(platform: str) -> None:
    client = Client("")

    require_platforms(dataclasses.replace(ENGINE, platform=platform), [platform], client)

    assert client.commands == []


def test_the_default_platform_is_emulated_too() -> None:
    engine = dataclasses.replace(ENGINE, platform="linux/arm64")
    require_platforms(engine, ["linux/amd64"], Client("linux/arm64, linux/amd64"))

    with pytest.raises(EngineError, match="does not run linux/amd64 programs"):
        require_platforms(engine, ["linux/amd64"], Client("linux/arm64"))
