"""Facts about engines, from recorded answers of real engines (tests/engines)."""

import json
from pathlib import Path
from typing import Any

import pytest

from bakehouse.cli.diagnostics import failure_text
from bakehouse.engine import daemon_info
from bakehouse.engine.daemon_info import (
    Daemon,
    DockerClient,
    Feature,
    ProgramResult,
    UnavailableDaemon,
    UnavailableReason,
)
from bakehouse.errors import EngineError
from tests.support.errors import raised

ENGINES = Path(__file__).parent / "engines"


def recorded(name: str, **changed: Any) -> DockerClient:
    """Return a docker client with recorded answers; `changed` replaces facts of `docker info`."""
    replies = json.loads((ENGINES / f"{name}.json").read_text())
    if changed:
        replies["info"]["out"] |= changed

    def client(*arguments: str) -> ProgramResult:
        reply = replies[arguments[0]]
        out = reply["out"]
        return ProgramResult(reply["code"], out if isinstance(out, str) else json.dumps(out), reply["err"])

    return client


def engine(name: str, **changed: Any) -> Daemon:
    daemon = daemon_info.probe(recorded(name, **changed))
    assert isinstance(daemon, Daemon)
    return daemon


def refusal(daemon: Daemon, *features: Feature) -> str:
    error = raised(EngineError, daemon_info.require, daemon, *features)
    return "\n".join(failure_text(diagnostic) for diagnostic in error.diagnostics)


def test_an_engine_with_everything_lacks_nothing() -> None:
    daemon = engine("containerd")

    assert daemon_info.missing_features(daemon) == ()
    daemon_info.require(daemon, *Feature)
    assert daemon == Daemon(
        endpoint="unix:///var/run/docker.sock",
        name="builder-1",
        version="26.1.5+dfsg1",
        platform="linux/amd64",
        store="overlayfs",
        containerd_store=True,
        rootless=False,
        selinux=False,
        bridge="172.17.0.1",
        interface="docker0",
        buildx="0.13.1+ds1",
        data_root="/var/lib/docker",
        cores=2,
        memory=25_276_502_016,
        memory_limit=True,
        cpu_limit=True,
        native_diff=True,
        cdi_directories=(),
        runtimes=("io.containerd.runc.v2", "runc"),
        registry="https://registry.example/v1/",
    )


def test_an_engine_without_default_bridge() -> None:
    assert refusal(engine("no-bridge"), Feature.BRIDGE) == (
        "error: the container engine has no default bridge network\n"
        "  because all RUN steps of a build fail with `network bridge not found`\n"
        "  engine  26.1.5+dfsg1 at unix:///srv/second/docker.sock\n"
        "\n"
        'hint: start the engine without `--bridge=none` (or `"bridge": "none"` in its daemon.json)\n'
    )


@pytest.mark.parametrize(
    ("feature", "field", "what", "controller"),
    [
        (Feature.MEMORY_LIMIT, "MemoryLimit", "memory", "memory"),
        (Feature.CPU_LIMIT, "CpuCfsQuota", "cores", "cpu"),
    ],
)
def test_an_engine_whose_cgroup_lacks_a_controller(
    feature: Feature, field: str, what: str, controller: str
) -> None:
    assert refusal(engine("containerd", **{field: False}), feature) == (
        f"error: the container engine cannot limit the {what} of containers\n"
        f"  because its cgroup has no {controller} controller, so jobs with this limit cannot run\n"
        "  engine  26.1.5+dfsg1 at unix:///var/run/docker.sock\n"
        "\n"
        "hint: add `Delegate=cpu memory pids` to the systemd unit `user@.service`, or use an engine with root"
        "\n"
    )


def test_a_rootless_engine_is_recognized() -> None:
    options = ["name=seccomp,profile=builtin", "name=rootless", "name=cgroupns"]
    found = engine("containerd", SecurityOptions=options)

    assert (found.rootless, found.selinux) == (True, False)


def test_an_engine_with_selinux_is_recognized() -> None:
    found = engine("containerd", SecurityOptions=["name=seccomp,profile=builtin", "name=selinux"])

    assert (found.rootless, found.selinux) == (False, True)


def test_the_platform_of_an_engine_is_that_of_its_machine() -> None:
    assert engine("containerd", Architecture="aarch64").platform == "linux/arm64"


def test_a_client_without_buildx() -> None:
    assert refusal(engine("containerd", ClientInfo={"Plugins": None}), Feature.BUILDX) == (
        "error: the docker client has no buildx\n"
        "  because no image can be built\n"
        "  engine  26.1.5+dfsg1 at unix:///var/run/docker.sock\n"
        "\n"
        "hint: install docker-buildx 0.13 or newer\n"
    )


def test_an_old_buildx() -> None:
    plugins = {"Plugins": [{"Name": "buildx", "Version": "v0.12.1"}]}

    assert refusal(engine("containerd", ClientInfo=plugins), Feature.BUILDX) == (
        "error: buildx v0.12.1 is too old\n"
        "  because builds need `--progress=rawjson` of buildx 0.13\n"
        "  engine  26.1.5+dfsg1 at unix:///var/run/docker.sock\n"
        "\n"
        "hint: install docker-buildx 0.13 or newer\n"
    )


@pytest.mark.parametrize("version", ["0.13.1+ds1", "v0.30.0", "1.0.0", "v0.13.0-rc2"])
def test_buildx_versions_that_do(version: str) -> None:
    plugins = {"Plugins": [{"Name": "compose", "Version": "v2"}, {"Name": "buildx", "Version": version}]}

    assert daemon_info.missing_features(engine("containerd", ClientInfo=plugins)) == ()


def test_only_what_a_task_needs_is_required() -> None:
    daemon_info.require(engine("no-bridge"), Feature.BUILDX)


def test_every_lack_is_reported_at_once() -> None:
    daemon = engine("no-bridge", MemoryLimit=False)

    error = raised(EngineError, daemon_info.require, daemon, *Feature)

    assert [diagnostic.message for diagnostic in error.diagnostics] == [
        "the container engine has no default bridge network",
        "the container engine cannot limit the memory of containers",
    ]


@pytest.mark.parametrize("name", ["silent-26", "silent-28"])
def test_clients_old_and_new_tell_that_nothing_listens(name: str) -> None:
    endpoint = "unix:///run/docker-none.sock"

    assert daemon_info.probe(recorded(name)) == UnavailableDaemon(
        UnavailableReason.NOT_RUNNING,
        endpoint,
        f"Cannot connect to the Docker daemon at {endpoint}. Is the docker daemon running?",
        "0.13.1+ds1",
    )


def silence(client: DockerClient) -> str:
    return failure_text(raised(EngineError, daemon_info.inspect, client).diagnostics[0])


def test_no_engine() -> None:
    assert silence(recorded("tcp-silent")) == (
        "error: no container engine answers at `tcp://127.0.0.1:1`\n"
        "\n"
        "hint: start the engine of DOCKER_HOST or of the docker context, or unset it\n"
    )


def test_an_engine_that_orders_files_of_layers_in_another_way() -> None:
    # As a rootless engine with the overlay2 store says
    daemon = engine("overlay2", DriverStatus=[["Native Overlay Diff", "false"]])
    [lack] = daemon_info.missing_features(daemon)
    assert (lack.feature, lack.effect) == (
        Feature.NATIVE_DIFF,
        "files in layers have another order than on other engines, so images have other digests",
    )


def test_podman_is_refused_before_a_build() -> None:
    assert silence(recorded("podman")) == (
        "error: the container engine at `unix:///run/podman/podman.sock` is Podman 4.3.1, "
        "which has no BuildKit\n"
        "  because Bakehouse builds images through Docker's API of BuildKit\n"
        "\n"
        "hint: use Docker Engine 24 or newer and buildx 0.13 or newer; a rootless one works, too\n"
    )


def test_a_docker_command_of_podman_is_refused_before_a_build() -> None:
    def podman(*arguments: str) -> ProgramResult:
        if arguments[0] == "info":
            info = {"host": {"arch": "amd64"}, "version": {"APIVersion": "5.2.2", "Version": "5.2.2"}}
            return ProgramResult(0, json.dumps(info), "Emulate Docker CLI using podman.")
        return ProgramResult(125, "", "Error: unrecognized command `podman context`")

    assert silence(podman) == (
        "error: the container engine is Podman 5.2.2, which has no BuildKit\n"
        "  because Bakehouse builds images through Docker's API of BuildKit\n"
        "\n"
        "hint: use Docker Engine 24 or newer and buildx 0.13 or newer; a rootless one works, too\n"
    )


def test_an_engine_that_this_user_may_not_use() -> None:
    assert silence(recorded("denied")) == (
        "error: not allowed to use the container engine at `unix:///var/run/docker.sock`\n"
        "\n"
        "hint: run the command as root, or join the group `docker` and log in again\n"
    )


def test_a_docker_context_that_does_not_exist() -> None:
    assert silence(recorded("no-context")) == (
        "error: the container engine returned an unusable answer\n"
        '    | Failed to initialize: unable to resolve docker endpoint: context "nope": context not'
        " found: open"
        " /home/ada/.docker/contexts/meta/ca3704aa0b06f5954c79ee837faa152d84d6b2d42838f0637a15eda8337dbdce"
        "/meta.json: no such file or directory\n"
        "\n"
        "hint: check that `docker info` works; check DOCKER_HOST and `docker context ls`\n"
    )


def test_no_docker_command() -> None:
    assert silence(lambda *_: ProgramResult(127, "", "docker: command not found")) == (
        "error: no `docker` command on PATH, so Bakehouse cannot use a container engine\n"
        "\n"
        "hint: install Docker Engine 24 or newer and buildx 0.13 or newer, and start the engine\n"
    )


def test_an_engine_that_hangs() -> None:
    assert silence(lambda *_: ProgramResult(124, "", "no answer within 30 seconds")) == (
        "error: the container engine returned an unusable answer\n"
        "    | no answer within 30 seconds\n"
        "\n"
        "hint: check that `docker info` works; check DOCKER_HOST and `docker context ls`\n"
    )
