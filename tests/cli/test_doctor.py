"""Findings of `bake doctor` about engines, GPUs, registries, AWS, disks and mirrors."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from bakehouse.cli import doctor
from bakehouse.cli.doctor import Finding, State
from bakehouse.engine.daemon_info import Daemon, ProgramResult, UnavailableDaemon, UnavailableReason
from bakehouse.errors import Diagnostic, PublishError
from tests.support.bridges import bridge

ENGINE = Daemon(
    endpoint="unix:///var/run/docker.sock",
    name="builder-1",
    version="26.1.5",
    platform="linux/amd64",
    store="overlayfs",
    containerd_store=True,
    rootless=False,
    remote=False,
    bridge="172.17.0.1",
    interface="br0",
    buildx="0.13.1",
    data_root="/var/lib/docker",
    runtimes=("runc",),
    registry="https://registry.example/v1/",
)
NO_ENGINE = UnavailableDaemon(UnavailableReason.NOT_RUNNING, "unix:///var/run/docker.sock", "")
CARDS = "NVIDIA H200, 570.86.15\nNVIDIA H200, 570.86.15\n"
NO_NCCL = "NCCL is not tested: smoke checks run on the CPU, through gloo"


def test_an_engine_with_everything() -> None:
    findings = doctor.engine_findings(ENGINE)

    assert {finding.state for finding in findings} == {State.OK}
    assert [(finding.name, finding.detail) for finding in findings] == [
        ("engine", "Docker 26.1.5 at unix:///var/run/docker.sock, data in /var/lib/docker"),
        ("engine's machine", "this one"),
        ("engine's platform", "linux/amd64"),
        ("engine's rights", "root"),
        ("engine's store", "containerd image store (overlayfs)"),
        ("engine's network", "default bridge, gateway 172.17.0.1"),
        ("buildx", "0.13.1"),
    ]


def test_each_lack_is_named_with_what_it_costs() -> None:
    poor = dataclasses.replace(
        ENGINE,
        remote=True,
        platform="linux/arm64",
        rootless=True,
        containerd_store=False,
        store="overlay2",
        bridge=None,
        buildx=None,
    )

    assert [(f.name, f.state, f.cost) for f in doctor.engine_findings(poor)[1:]] == [
        (
            "engine's machine",
            State.MISSING,
            "build steps cannot download files from this machine, containers cannot mount its"
            " directories, and the engine cannot push to a registry on its loopback interface",
        ),
        ("engine's platform", State.MISSING, "no image can be built or smoke-tested"),
        (
            "engine's rights",
            State.MISSING,
            "it has its own network namespace, so build steps cannot download files from this machine,"
            " and the engine cannot push to a registry on its loopback interface",
        ),
        (
            "engine's store",
            State.MISSING,
            "only a push creates an image's manifest then, so Bakehouse cannot verify that the pushed"
            " image is the smoke-tested one",
        ),
        (
            "engine's network",
            State.MISSING,
            "all RUN steps of a build fail with `network bridge not found`",
        ),
        ("buildx", State.MISSING, "no image can be built"),
    ]


def test_no_engine() -> None:
    assert doctor.engine_findings(NO_ENGINE, "start one") == (
        Finding(
            "engine",
            State.MISSING,
            "no container engine answers at `unix:///var/run/docker.sock`",
            "nothing can be built, smoke-tested or pushed; list, resolve, explain, plan and render work",
            "start one",
        ),
    )


def test_a_bridge_without_an_address_of_its_own(tmp_path: Path) -> None:
    interfaces = bridge(tmp_path, "1")

    assert doctor.bridge_finding(ENGINE, interfaces) == (
        Finding(
            "engine's bridge",
            State.MISSING,
            "the address of br0 changes when a container starts or stops",
            "downloads of other build steps and containers then stall for a minute or more",
            "run `ip link set dev br0 address 02:00:00:00:00:01` as root",
        ),
    )


def test_a_bridge_that_keeps_its_address(tmp_path: Path) -> None:
    assert doctor.bridge_finding(ENGINE, bridge(tmp_path, "3")) == (
        Finding("engine's bridge", State.OK, "br0 keeps its address"),
    )


@pytest.mark.parametrize(
    "changed", [{"remote": True}, {"rootless": True}, {"interface": ""}, {"interface": "br1"}]
)
def test_a_bridge_that_can_not_be_seen(changed: dict[str, Any], tmp_path: Path) -> None:
    engine = dataclasses.replace(ENGINE, **changed)

    assert doctor.bridge_finding(engine, bridge(tmp_path, "1")) == ()


def test_the_build_caches_limit() -> None:
    assert doctor.cache_finding("40GB") == Finding("build cache", State.OK, "limited to 40GB")
    assert doctor.cache_finding("").state is State.MISSING
    assert doctor.cache_finding(None).state is State.UNKNOWN


def test_a_disk_with_room_for_the_catalogue() -> None:
    assert doctor.disk_finding(Path("/data"), 79_400_000_000) == Finding(
        "disk", State.OK, "79 GB free for /data"
    )


def test_a_disk_that_is_nearly_full() -> None:
    assert doctor.disk_finding(Path("/data"), 6_000_000_000) == Finding(
        "disk",
        State.MISSING,
        "6 GB free for /data",
        "four images of the catalogue need about 20 GB; a build that does not fit is refused",
        "run `docker builder prune` and `docker image prune`",
    )


def test_missing_tools() -> None:
    assert doctor.tool_findings(("docker-registry",)) == (
        Finding(
            "mmdebstrap",
            State.MISSING,
            "not installed",
            "Debian bases cannot be created, so only images on vendor bases can be built",
            "apt-get install mmdebstrap",
        ),
        Finding("docker-registry", State.OK, "installed"),
    )


def test_a_machine_without_gpus() -> None:
    assert doctor.gpu_finding(ProgramResult(127, ""), ENGINE) == Finding(
        "GPUs", State.MISSING, "none: nvidia-smi is not installed", NO_NCCL
    )


def test_gpus_that_containers_can_have() -> None:
    able = dataclasses.replace(ENGINE, runtimes=("nvidia", "runc"))

    assert doctor.gpu_finding(ProgramResult(0, CARDS), able) == Finding(
        "GPUs", State.OK, "2 x NVIDIA H200, driver 570.86.15"
    )


def test_gpus_that_containers_can_not_have() -> None:
    assert doctor.gpu_finding(ProgramResult(0, CARDS), ENGINE) == Finding(
        "GPUs",
        State.MISSING,
        "2 x NVIDIA H200, driver 570.86.15; the engine has no nvidia runtime",
        NO_NCCL,
        "install nvidia-container-toolkit, run `nvidia-ctk runtime configure` and restart the engine",
    )


def test_a_driver_that_does_not_work() -> None:
    message = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"

    assert doctor.gpu_finding(ProgramResult(9, message), ENGINE) == Finding(
        "GPUs", State.MISSING, message.strip(), NO_NCCL
    )


def test_a_registry_that_answers() -> None:
    reply = ProgramResult(401, 'WWW-Authenticate: Bearer realm="https://auth.example/token"\n')

    assert doctor.registry_finding("registry.example", reply) == Finding(
        "image registry", State.OK, "registry.example answers"
    )


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (ProgramResult(0, "", "timed out"), "timed out"),
        (ProgramResult(404, "Content-Type: text/html\n"), "HTTP 404, which is not a registry's answer"),
        (ProgramResult(200, "Content-Type: text/html\n"), "HTTP 200, which is not a registry's answer"),
    ],
)
def test_a_registry_that_is_not_there(reply: ProgramResult, why: str) -> None:
    assert doctor.registry_finding("registry.example", reply) == Finding(
        "image registry",
        State.MISSING,
        f"registry.example is not reachable: {why}",
        "images with a base from there cannot be built; images on a bootstrapped Debian base can",
    )


def test_the_registry_is_the_one_that_the_engine_means() -> None:
    assert doctor.default_registries(ENGINE) == ("registry.example",)
    assert doctor.default_registries(NO_ENGINE) == ()


def test_an_aws_identity() -> None:
    who = "arn:aws:iam::123456789012:user/ada"

    assert doctor.aws_finding(lambda: who) == Finding("AWS identity", State.OK, who)


def test_no_aws_identity() -> None:
    def no_identity() -> str:
        raise PublishError(Diagnostic("no AWS credentials", hint="run `aws configure`"))

    assert doctor.aws_finding(no_identity) == Finding(
        "AWS identity",
        State.MISSING,
        "no AWS credentials",
        "nothing can be pushed to Amazon ECR; the local registry works",
        "run `aws configure`",
    )


def test_a_ca_bundle(tmp_path: Path) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.write_text("-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n" * 3)
    variables = {"SSL_CERT_FILE": str(bundle)}

    assert doctor.ca_finding(None, variables) == Finding("CA bundle", State.OK, f"{bundle}, 3 certificates")
    assert doctor.ca_finding(bundle, {}) == Finding("CA bundle", State.OK, f"{bundle}, 3 certificates")


def test_a_ca_bundle_that_is_not_there(tmp_path: Path) -> None:
    assert doctor.ca_finding(tmp_path / "ca.pem", {}) == Finding(
        "CA bundle",
        State.MISSING,
        f"{tmp_path}/ca.pem: No such file or directory",
        "downloads through a proxy with its own certificates fail, here and in RUN steps",
        "set `ca` in [tool.bakehouse] to your company's bundle, or install ca-certificates",
    )


def test_pips_mirrors_without_their_passwords() -> None:
    printed = (
        ":env:.find-links='/srv/wheels'\n"
        "global.index-url='https://ada:secret@mirror.example/simple'\n"
        "global.timeout='60'\n"
    )

    assert doctor.pip_finding(ProgramResult(0, printed)) == Finding(
        "pip", State.OK, "index https://mirror.example/simple; wheels in /srv/wheels"
    )


def test_pip_without_configuration() -> None:
    assert doctor.pip_finding(ProgramResult(0, "")) == Finding(
        "pip", State.OK, "its default index, no mirror configured"
    )


def test_apts_mirrors_without_their_passwords() -> None:
    named = ("http://ada:secret@mirror.example/debian", "http://second.example/debian")

    assert doctor.apt_finding(named) == Finding(
        "apt", State.OK, "mirrors http://mirror.example/debian http://second.example/debian"
    )
    assert doctor.apt_finding(()).state is State.MISSING


def test_the_text_is_aligned_and_counts() -> None:
    findings = (
        Finding("engine", State.OK, "Docker 26.1.5"),
        Finding(
            "AWS identity", State.MISSING, "no AWS credentials", "nothing can be pushed to ECR", "sign in"
        ),
        Finding("build cache", State.UNKNOWN, "its limit can't be read"),
    )

    assert doctor.text(findings) == (
        "ok       engine        Docker 26.1.5\n"
        "missing  AWS identity  no AWS credentials\n"
        "                       cost: nothing can be pushed to ECR\n"
        "                       hint: sign in\n"
        "unknown  build cache   its limit can't be read\n"
        "\n"
        "1 ok, 1 missing, 1 unknown\n"
    )


def test_long_lines_stay_in_their_column() -> None:
    lines = doctor.text([Finding("apt", State.OK, "mirrors " + "http://mirror.example/debian " * 5)], 60)

    assert lines.splitlines()[:2] == [
        "ok       apt  mirrors http://mirror.example/debian",
        "              http://mirror.example/debian",
    ]
