"""Findings of `bake doctor` about engines, GPUs, registries, AWS, disks and mirrors."""

import dataclasses
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bakehouse.catalog.project import ProjectSettings
from bakehouse.cli import doctor
from bakehouse.cli.doctor import CheckState, DoctorCheck
from bakehouse.engine import daemon_info, provision
from bakehouse.engine.builder_preflight import BuilderCheck
from bakehouse.engine.daemon_info import ProgramResult, UnavailableDaemon, UnavailableReason
from bakehouse.engine.protocol import EngineHost
from bakehouse.engine.provision import HostInfo
from bakehouse.errors import Diagnostic, EngineError, PublishError
from bakehouse.fetch.pip_config import PipConfig
from bakehouse.fetch.sources import DownloadConfig
from tests.integration.ports import kept_port
from tests.support.apt_configuration import AptConfiguration
from tests.support.daemons import ENGINE
from tests.support.proxy import Proxy, Reply

NO_ENGINE = UnavailableDaemon(UnavailableReason.NOT_RUNNING, "unix:///var/run/docker.sock", "")
CARDS = "NVIDIA H200, 570.86.15\nNVIDIA H200, 570.86.15\n"
HTML = {"Content-Type": "text/html"}
NO_NCCL = "NCCL is not tested: smoke checks run on the CPU, through gloo"
GPU_HINT = "install NVIDIA's driver if this machine has GPUs; otherwise test with `bake smoke --on`"

HERE = EngineHost("172.17.0.1", "172.17.0.1", shares_files=True, same_kernel=True, free=10**12)


def test_an_engine_with_everything() -> None:
    findings = doctor.engine_findings(ENGINE)

    assert {finding.state for finding in findings} == {CheckState.OK}
    assert [(finding.name, finding.detail) for finding in findings] == [
        ("engine", "Docker 26.1.5 at unix:///var/run/docker.sock, data in /var/lib/docker"),
        ("engine's platform", "linux/amd64"),
        ("default bridge", "gateway 172.17.0.1, as the engine reports"),
        ("buildx", "0.13.1"),
        ("memory limits", "work"),
        ("limits of cores", "work"),
        ("layers", "files have the order of other engines"),
    ]


def test_a_rootless_engine() -> None:
    [finding, *_] = doctor.engine_findings(dataclasses.replace(ENGINE, rootless=True, selinux=True))

    assert finding.detail == (
        "Docker 26.1.5 at unix:///var/run/docker.sock, rootless, with SELinux, data in /var/lib/docker"
    )


def test_what_containers_of_an_engine_here_find() -> None:
    findings = doctor.host_findings(ENGINE, HERE)

    assert [(finding.name, finding.state, finding.detail, finding.cost) for finding in findings] == [
        ("engine's containers", CheckState.OK, "start, on the kernel of this host", ""),
        ("engine's network", CheckState.OK, "containers reach this host at 172.17.0.1", ""),
        ("metadata service", CheckState.OK, "blocked for containers", ""),
        ("engine's files", CheckState.OK, "it sees directories of this host", ""),
        ("engine's machine", CheckState.OK, "25 GB of memory, 2 cores", ""),
    ]


def test_what_containers_of_an_engine_elsewhere_find() -> None:
    access = "the engine's networks are not on this host"
    host = EngineHost(problem="`10.0.0.1` is not an address of this host", metadata_access=access)
    findings = doctor.host_findings(ENGINE, host)

    assert [(finding.name, finding.state, finding.detail, finding.cost) for finding in findings] == [
        ("engine's containers", CheckState.OK, "start, on another kernel than this host", ""),
        (
            "engine's network",
            CheckState.OK,
            "containers do not reach this host: `10.0.0.1` is not an address of this host",
            "files of build steps are copied to the engine before its steps run; `rehearse` does not work",
        ),
        (
            "metadata service",
            CheckState.OK,
            "containers reach that of the engine's machine: the engine's networks are not on this host",
            "jobs can get credentials of the machine, if it is one of a cloud",
        ),
        ("engine's files", CheckState.OK, "it does not see directories of this host", ""),
        ("engine's machine", CheckState.OK, "25 GB of memory, 2 cores", ""),
    ]


def test_an_engine_that_cannot_start_containers() -> None:
    answer = "adding interface veth1 to bridge docker0 failed: Device does not exist"
    problem = EngineError("the container engine could not start a container", facts=(("answer", answer),))

    assert doctor.host_findings(ENGINE, problem) == (
        DoctorCheck(
            "engine's containers",
            CheckState.MISSING,
            f"the container engine could not start a container; {answer}",
            "no image can be built, tested or run",
            "restart the engine, and check that `docker run` starts a container",
        ),
    )
    assert doctor._room(ENGINE, problem, Path()) == ()


def test_the_disk_of_an_engine_is_the_one_that_its_containers_see() -> None:
    assert doctor._room(ENGINE, EngineHost(free=79 * 10**9), Path()) == (
        DoctorCheck("disk", CheckState.OK, "79 GB free for /var/lib/docker"),
    )
    assert doctor._room(ENGINE, EngineHost(), Path()) == (
        DoctorCheck(
            "disk",
            CheckState.UNKNOWN,
            "the free space on the engine's disk is unknown",
            "a build may fill the engine's disk",
            "run `df` on the engine's machine",
        ),
    )


def test_without_an_engine_nothing_is_said_about_its_containers() -> None:
    assert doctor.host_findings(NO_ENGINE, EngineHost()) == ()


@pytest.mark.parametrize(
    ("reported", "finding"),
    [
        (
            "linux/amd64, linux/arm64",
            DoctorCheck(
                "other platforms",
                CheckState.OK,
                "linux/arm64, emulated",
                "programs run many times slower, jobs with MPI do not start under qemu, and GPUs cannot be"
                " used",
            ),
        ),
        (
            "linux/amd64",
            DoctorCheck(
                "other platforms",
                CheckState.MISSING,
                "the engine does not run linux/arm64 programs",
                "images for linux/arm64 cannot be built or smoke-tested",
                "install qemu's user emulation on the engine's machine (on Debian `apt-get install"
                " qemu-user-static binfmt-support`), or use an engine on a linux/arm64 machine",
            ),
        ),
    ],
)
def test_other_platforms_are_emulated_or_not(reported: str, finding: DoctorCheck) -> None:
    def client(*command: str, seconds: float = 0) -> ProgramResult:
        return ProgramResult(0, f"\nNodes:\nName: default\nPlatforms: {reported}\n")

    assert doctor.emulation_finding(ENGINE, client) == (finding,)
    assert doctor.emulation_finding(NO_ENGINE, client) == ()


@pytest.mark.parametrize(("strict", "names"), [(False, "engine"), (True, "engine, GPUs")])
def test_an_error_names_what_the_project_needs_or_everything_if_strict(strict: bool, names: str) -> None:
    engine = DoctorCheck("engine", CheckState.MISSING, "none")
    gpus = DoctorCheck("GPUs", CheckState.MISSING, "none", needed=False)

    doctor.require_complete([gpus], strict=False)
    with pytest.raises(EngineError, match=f"^missing: {names}$"):
        doctor.require_complete([engine, gpus], strict=strict)


def test_findings_of_a_builder() -> None:
    fault = Diagnostic(
        "BuildKit of builder node `far0` failed", facts=(("answer", "unavailable"),), hint="wait"
    )

    assert [
        doctor.builder_finding("far", check)
        for check in (
            BuilderCheck("platform", "linux/amd64"),
            BuilderCheck("build cache", "without a known limit", hint="run `df` there"),
            BuilderCheck("BuildKit", "", fault),
            BuilderCheck("TLS", "", Diagnostic("it does not answer")),
        )
    ] == [
        DoctorCheck("platform", CheckState.OK, "linux/amd64"),
        DoctorCheck(
            "build cache",
            CheckState.UNKNOWN,
            "without a known limit",
            "builds on far may fail",
            "run `df` there",
        ),
        DoctorCheck(
            "BuildKit",
            CheckState.MISSING,
            "BuildKit of builder node `far0` failed: unavailable",
            "no image can be built on far",
            "wait",
        ),
        DoctorCheck(
            "TLS",
            CheckState.MISSING,
            "it does not answer",
            "no image can be built on far",
            "run `docker buildx inspect far`",
        ),
    ]


def test_each_lack_is_named_with_what_it_costs() -> None:
    poor = dataclasses.replace(
        ENGINE,
        platform="linux/arm64",
        bridge=None,
        buildx=None,
        memory_limit=False,
        cpu_limit=False,
        native_diff=False,
    )

    assert [(f.name, f.state, f.cost) for f in doctor.engine_findings(poor)[1:]] == [
        ("engine's platform", CheckState.OK, ""),
        (
            "default bridge",
            CheckState.MISSING,
            "all RUN steps of a build fail with `network bridge not found`",
        ),
        ("buildx", CheckState.MISSING, "no image can be built"),
        (
            "memory limits",
            CheckState.MISSING,
            "its cgroup has no memory controller, so jobs with this limit cannot run",
        ),
        (
            "limits of cores",
            CheckState.MISSING,
            "its cgroup has no cpu controller, so jobs with this limit cannot run",
        ),
        (
            "layers",
            CheckState.MISSING,
            "files in layers have another order than on other engines, so images have other digests",
        ),
    ]


def test_no_engine() -> None:
    assert doctor.engine_findings(NO_ENGINE, "start one") == (
        DoctorCheck(
            "engine",
            CheckState.MISSING,
            "no container engine answers at `unix:///var/run/docker.sock`",
            "nothing can be built, smoke-tested or pushed; list, resolve, explain, plan and render work",
            "start one",
        ),
    )


def test_a_disk_with_room_for_the_catalogue() -> None:
    assert doctor.disk_finding(Path("/data"), 79_400_000_000) == DoctorCheck(
        "disk", CheckState.OK, "79 GB free for /data"
    )


def test_a_disk_that_is_nearly_full() -> None:
    assert doctor.disk_finding(Path("/data"), 6_000_000_000) == DoctorCheck(
        "disk",
        CheckState.MISSING,
        "6 GB free for /data",
        "four images of the catalogue need about 20 GB; a build that does not fit is refused",
        "run `docker builder prune` and `docker image prune`",
    )


def test_a_machine_without_gpus() -> None:
    assert doctor.gpu_finding(ProgramResult(127, ""), ENGINE) == DoctorCheck(
        "GPUs", CheckState.MISSING, "none: nvidia-smi is not installed", NO_NCCL, GPU_HINT
    )


def test_gpus_that_containers_can_have() -> None:
    able = dataclasses.replace(ENGINE, runtimes=("nvidia", "runc"))

    assert doctor.gpu_finding(ProgramResult(0, CARDS), able) == DoctorCheck(
        "GPUs", CheckState.OK, "2 x NVIDIA H200, driver 570.86.15"
    )


def test_gpus_that_containers_can_not_have() -> None:
    assert doctor.gpu_finding(ProgramResult(0, CARDS), ENGINE) == DoctorCheck(
        "GPUs",
        CheckState.MISSING,
        "2 x NVIDIA H200, driver 570.86.15; the engine has neither the nvidia runtime nor CDI",
        NO_NCCL,
        "install nvidia-container-toolkit, run `nvidia-ctk runtime configure` and restart the engine",
    )


def test_gpus_that_containers_get_through_cdi(tmp_path: Path) -> None:
    (tmp_path / "nvidia.yaml").write_text("cdiVersion: 0.5.0\nkind: nvidia.com/gpu\n")
    able = dataclasses.replace(ENGINE, cdi_directories=(str(tmp_path),))

    assert doctor.gpu_finding(ProgramResult(0, CARDS), able) == DoctorCheck(
        "GPUs", CheckState.OK, "2 x NVIDIA H200, driver 570.86.15, through CDI"
    )


def test_gpus_that_no_specification_of_cdi_names(tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text("kind: example.com/card\n")
    unable = dataclasses.replace(ENGINE, cdi_directories=(str(tmp_path),))

    assert doctor.gpu_finding(ProgramResult(0, CARDS), unable) == DoctorCheck(
        "GPUs",
        CheckState.MISSING,
        f"2 x NVIDIA H200, driver 570.86.15; no CDI specification in {tmp_path} names `nvidia.com/gpu`",
        NO_NCCL,
        "run `nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`",
    )


def test_a_driver_that_does_not_work() -> None:
    message = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"

    assert doctor.gpu_finding(ProgramResult(9, message), ENGINE) == DoctorCheck(
        "GPUs", CheckState.MISSING, message.strip(), NO_NCCL, GPU_HINT
    )


def refuse(message: str = "no", hint: str = "") -> Callable[..., str]:
    def ask(*_: object) -> str:
        raise PublishError(message, hint=hint)

    return ask


def test_an_aws_identity() -> None:
    who = "the AWS user `ada`"

    assert doctor.aws_finding(lambda: who) == DoctorCheck("AWS identity", CheckState.OK, who)


def test_no_aws_identity() -> None:
    assert doctor.aws_finding(
        refuse("no AWS credentials were found", "run `aws configure sso`")
    ) == DoctorCheck(
        "AWS identity",
        CheckState.MISSING,
        "no AWS credentials were found",
        "nothing can be pushed to Amazon ECR; the local registry works",
        "run `aws configure sso`",
    )


@pytest.mark.usefixtures("no_aws")
def test_without_credentials_there_is_no_identity(tmp_path: Path) -> None:
    project = ProjectSettings(tmp_path, (), region="eu-west-1")

    finding = doctor.aws_finding(lambda: doctor._identity(project, None))

    assert (finding.state, finding.detail) == (
        CheckState.MISSING,
        "no AWS credentials were found; "
        "there are none in the environment, in ~/.aws or from the instance role",
    )


@pytest.mark.usefixtures("no_aws")
def test_a_profile_that_does_not_exist_is_no_identity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nosuch")
    project = ProjectSettings(tmp_path, (), region="eu-west-1")

    finding = doctor.aws_finding(lambda: doctor._identity(project, None))

    assert (finding.state, finding.detail) == (CheckState.MISSING, "AWS profile `nosuch` does not exist")


def test_the_registry_of_the_settings(tmp_path: Path) -> None:
    with kept_port() as port:
        project = ProjectSettings(tmp_path, (), registry_port=port)
        assert doctor._check_registries(project) == f"127.0.0.1:{port}, not started"


def test_a_registry_that_refuses() -> None:
    assert doctor.target_finding(refuse("`r.example` does not answer"), "r.example") == DoctorCheck(
        "registry",
        CheckState.MISSING,
        "`r.example` does not answer",
        "nothing can be pushed to `r.example`",
        "run `bake push --registry NAME` for another registry",
    )


def test_a_registry_that_is_another_server(tmp_path: Path) -> None:
    with Proxy(1).running() as server:
        server.answers.append(lambda request: Reply(200, {}, b"<html>"))
        project = ProjectSettings(tmp_path, (), registry=server.host)
        finding = doctor.target_finding(lambda: doctor._check_registries(project), server.host)

    assert finding.state is CheckState.MISSING
    assert finding.detail.endswith(" is not a registry")


def test_an_answer_that_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "ANSWER_SECONDS", 0.05)
    waiting = threading.Event()

    def ask() -> str:
        waiting.wait(5)
        return "late"

    finding = doctor.aws_finding(ask)
    waiting.set()

    assert (finding.state, finding.detail) == (CheckState.MISSING, "no answer within 0.05 s")


def config(*mirrors: str, **pip: Any) -> DownloadConfig:
    return DownloadConfig(mirrors, PipConfig(**pip), None, {"HOME": "/nonexistent"})


def mirror(address: str) -> tuple[CheckState, str]:
    finding = doctor.mirror_finding(address, config().check_mirror)
    return finding.state, finding.detail


def test_mirrors_that_are_directories(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/a").touch()
    (tmp_path / "empty").mkdir()

    assert mirror(f"{tmp_path}/full") == (CheckState.OK, f"{tmp_path}/full, 1 entry")
    assert mirror(f"{tmp_path}/empty") == (CheckState.MISSING, f"{tmp_path}/empty: the directory is empty")
    assert mirror(f"{tmp_path}/no") == (CheckState.MISSING, f"{tmp_path}/no: no such file or directory")


@pytest.mark.parametrize(
    ("status", "state", "answer"),
    [
        (404, CheckState.OK, ", answers"),
        (200, CheckState.OK, ", answers"),
        (403, CheckState.MISSING, ": refused access (403)"),
        (500, CheckState.MISSING, ": answered with 500"),
        (0, CheckState.MISSING, ": closed the connection"),
    ],
)
def test_mirrors_that_are_servers(status: int, state: CheckState, answer: str) -> None:
    with Proxy(1).running() as server:
        server.answers.append(lambda request: Reply(status))
        assert mirror(f"http://{server.host}/files?key=secret") == (
            state,
            f"http://{server.host}/files{answer}",
        )


def index(server: Proxy, *extra: str) -> list[tuple[CheckState, str]]:
    settings = config(index_url=f"http://{server.host}/simple", extra_index_urls=extra)
    return [(finding.state, finding.detail) for finding in doctor.index_findings(settings)]


@pytest.mark.parametrize(
    ("reply", "state", "answer"),
    [
        (
            Reply(200, {"Content-Type": "text/html"}, b"<a href='pip-1.whl'>"),
            CheckState.OK,
            ", 1 file of `pip`",
        ),
        (
            Reply(200, {"Content-Type": "text/html"}, b"login"),
            CheckState.MISSING,
            ": its page of `pip` lists no file",
        ),
        (Reply(404), CheckState.MISSING, ": does not have the file"),
        (Reply(401), CheckState.MISSING, ": refused access (401)"),
        (Reply(503), CheckState.MISSING, ": answered with 503"),
    ],
)
def test_the_package_index(reply: Reply, state: CheckState, answer: str) -> None:
    with Proxy(1).running() as server:
        server.answers.append(lambda request: reply)
        assert index(server) == [(state, f"http://{server.host}/simple{answer}")]


def test_further_indexes_may_lack_pip(tmp_path: Path) -> None:
    with Proxy(1).running() as server:
        server.answers.append(lambda request: Reply(404))
        extra = f"http://ada:secret@{server.host}/more"
        assert index(server, extra, f"file://{tmp_path}/no")[1:] == [
            (CheckState.OK, f"http://{server.host}/more, answers"),
            (CheckState.MISSING, f"file://{tmp_path}/no: no such file or directory"),
        ]


def test_wheels_of_pips_configuration(tmp_path: Path) -> None:
    (tmp_path / "a.whl").touch()
    settings = config(no_index=True, find_links=(str(tmp_path), str(tmp_path / "no")))

    assert [(finding.state, finding.detail) for finding in doctor.index_findings(settings)] == [
        (CheckState.OK, f"{tmp_path}, 1 entry"),
        (CheckState.MISSING, f"{tmp_path}/no: no such file or directory"),
    ]


def test_pip_without_any_source() -> None:
    [finding] = doctor.index_findings(config(no_index=True))

    assert (finding.state, finding.detail) == (
        CheckState.MISSING,
        "pip's configuration names no index and no directory of wheels",
    )


def test_apts_mirrors_without_their_passwords() -> None:
    suites = [("http://ada:secret@mirror.example/debian", "bookworm"), ("http://second.example/debian", "x")]

    assert doctor.apt_finding(lambda: suites, lambda url, suite: None) == DoctorCheck(
        "Debian mirrors", CheckState.OK, "mirrors http://mirror.example/debian http://second.example/debian"
    )


def test_apts_mirrors_that_do_not_work(tmp_path: Path) -> None:
    cost = "Debian packages cannot be locked or downloaded"
    hint = "check `debian_mirrors`, proxies and apt's configuration"

    assert doctor.apt_finding(list, lambda url, suite: None) == DoctorCheck(
        "Debian mirrors", CheckState.MISSING, "no mirror of Debian answers", cost, hint
    )
    with Proxy(1).running() as server:
        server.answers.append(lambda request: Reply(404))
        suites = [(f"http://ada:secret@{server.host}/debian", "bookworm")]
        assert doctor.apt_finding(lambda: suites, config().check_suite) == DoctorCheck(
            "Debian mirrors",
            CheckState.MISSING,
            f"http://{server.host}/debian bookworm: does not have the file",
            cost,
            hint,
        )
        assert [request.path for request in server.requests] == ["/debian/dists/bookworm/Release"]
    suites = [(f"file:{tmp_path}", "bookworm")]
    assert doctor.apt_finding(lambda: suites, config().check_suite).state is CheckState.MISSING


@pytest.mark.usefixtures("no_aws")
def test_nothing_is_ok_on_a_machine_that_has_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        provision, "read_host_info", lambda: HostInfo(True, "debian", "12", "amd64", False, (), False, False)
    )
    monkeypatch.setattr(daemon_info, "run_program", lambda *_: ProgramResult(127, ""))
    AptConfiguration(tmp_path, monkeypatch)
    monkeypatch.setattr(doctor, "_engine_hint", lambda engine: "")
    monkeypatch.setattr(doctor, "FLEET_GIGABYTES", 10**9)
    with Proxy(1).running() as server:
        server.answers.append(lambda request: Reply(500))
        project = ProjectSettings(
            tmp_path,
            (),
            registry=server.host,
            region="eu-wset-1",
            mirrors=(str(tmp_path / "no"),),
            ca_file=tmp_path / "no.pem",
            cache_directory=tmp_path / "cache",
        )
        environment = {"HOME": str(tmp_path), "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull}
        findings = doctor.examine(project, environment, NO_ENGINE)

    assert [finding.name for finding in findings if finding.state is CheckState.OK] == []
    assert {finding.name for finding in findings} == {
        *("engine", "disk", "GPUs"),
        *("registry", "AWS identity", "CA bundle", "mirror", "package index", "Debian mirrors"),
    }


def test_the_text_is_aligned_and_counts() -> None:
    findings = (
        DoctorCheck("engine", CheckState.OK, "Docker 26.1.5"),
        DoctorCheck(
            "AWS identity",
            CheckState.MISSING,
            "no AWS credentials",
            "nothing can be pushed to ECR",
            "sign in",
        ),
        DoctorCheck("build cache", CheckState.UNKNOWN, "its limit can't be read"),
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
    lines = doctor.text(
        [DoctorCheck("apt", CheckState.OK, "mirrors " + "http://mirror.example/debian " * 5)], 60
    )

    assert lines.splitlines()[:2] == [
        "ok       apt  mirrors http://mirror.example/debian",
        "              http://mirror.example/debian",
    ]
