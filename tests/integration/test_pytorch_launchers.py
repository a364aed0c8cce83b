"""PyTorch's launchers, each with the example that users copy; SageMaker's own libraries are stubs."""

import json
import os
import re
import shlex
import string
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bakehouse.builder.progress import Mode, Progress
from bakehouse.cluster.job import homogeneous
from bakehouse.cluster.job_report import JobReport, Status
from bakehouse.engine import usage_lock
from bakehouse.jobs import torchrun
from bakehouse.pipeline.build import build
from bakehouse.plan.workspace import Workspace, select
from benchmarks import heterogeneous
from tests.integration import launch_matrix
from tests.integration.fleet import Fleet
from tests.integration.jobs import due, each, log_text, run, run_all
from tests.integration.launches import PYTORCH_LAUNCHES, SMP, STUBS
from tests.support.data import text_of

# The first test of a run builds the fleet and these images.
pytestmark = [pytest.mark.engine, pytest.mark.timeout(2400)]

IMAGES = ("pytorch-deepspeed-cpu", "pytorch-dali-cpu", "pytorch-data-service-cpu")


@pytest.fixture(scope="module")
def stubs(fleet: Fleet) -> Iterator[str]:
    """The stubs' image, gone afterwards."""
    command = [
        *("docker", "buildx", "build", "--quiet", "--load", "--tag", STUBS),
        *("--label", f"bakehouse=tests-{os.getpid()}"),
        *("--build-arg", f"IMAGE={fleet.images['pytorch-cpu'].image.reference}"),
        str(Path(__file__).with_name("stubs")),
    ]
    with usage_lock.engine_in_use():
        subprocess.run(command, check=True, capture_output=True)
    yield STUBS
    subprocess.run(["docker", "image", "rm", "--force", STUBS], check=True, capture_output=True)


@pytest.fixture(scope="module")
def reports(
    workspace: Workspace, fleet: Fleet, stubs: str, pytestconfig: pytest.Config
) -> dict[str, JobReport]:
    cases = due(PYTORCH_LAUNCHES, pytestconfig)
    images = [name for name in IMAGES if any(case.image == name for case in cases.values())]
    with Progress(sys.__stderr__ or sys.stderr, Mode.LINES) as progress:
        build(select(workspace, images), progress.report, progress=progress)
    reports = run_all(workspace, cases)
    launch_matrix.note(__name__, cases, reports)
    return reports


def launch_command(report: JobReport) -> list[str]:
    """Return the words of the command that the toolkit of the first host started."""
    [line] = re.findall(r"^(?:mpirun|torchrun) .*$", log_text(report), re.MULTILINE)
    return shlex.split(line)


def exported(command: list[str]) -> set[str]:
    """Return the environment variables that mpirun passes to ranks."""
    named = {command[at + 1] for at, word in enumerate(command) if word == "-x"}
    return {name for name in named if not name.startswith("LD_PRELOAD=")}


@each(PYTORCH_LAUNCHES, *sorted(PYTORCH_LAUNCHES.keys() - {"pytorch-lost"}))
def test_an_example_completes(reports: dict[str, JobReport], name: str) -> None:
    report = reports[name]

    assert (report.status, report.reason) == (Status.COMPLETED, ""), log_text(report)
    assert [host.end for host in report.hosts] == ["exit 0"] * len(report.hosts)


@pytest.mark.release
@pytest.mark.parametrize(
    ("name", "where"),
    [("fsdp", "algo-1 holds"), ("deepspeed", "algo-1 holds"), ("torch-ddp-one-host", "")],
)
def test_torchrun_starts_the_ranks_of_a_host(reports: dict[str, JobReport], name: str, where: str) -> None:
    expected = ["torchrun", "--nnodes", "1", "--nproc_per_node", "2", "train.py"]

    assert launch_command(reports[name])[:6] == expected
    assert f"rank 0 of 2 on {where}" in log_text(reports[name])
    assert f"rank 1 of 2 on {where}" in log_text(reports[name])


@each(PYTORCH_LAUNCHES, "fsdp", "deepspeed")
def test_each_rank_holds_a_part_of_the_weights(reports: dict[str, JobReport], name: str) -> None:
    counts = re.findall(r"rank \d of 2 on algo-1 holds (\d+) of 641 weights", log_text(reports[name]))
    held = [int(count) for count in counts]

    assert len(held) == 2
    # DeepSpeed fills the last part up
    assert 641 <= sum(held) <= 643
    assert all(0 < count < 400 for count in held)


@pytest.mark.release
def test_dali_decodes_jpegs_without_a_gpu(reports: dict[str, JobReport]) -> None:
    assert "decoded 32 JPEGs an epoch on the CPU, 32 classified correctly" in log_text(reports["dali"])


@pytest.mark.release
def test_a_group_that_prepares_data_ends_with_the_training(reports: dict[str, JobReport]) -> None:
    report = reports["pytorch-groups"]
    data = [host.host for host in report.hosts if host.group == "data"]

    assert len(data) == 2
    for host in data:
        assert f"{host}: training is over" in log_text(report, host)


@pytest.mark.release
def test_ranks_share_the_examples(reports: dict[str, JobReport]) -> None:
    result = heterogeneous.result_of(reports["pytorch-groups"])

    assert result.data_hosts == 2
    # 2 ranks, 6 steps with 4 examples each
    assert (result.examples, result.most_uses) == (48, 1)


@pytest.mark.release
def test_an_example_reports_the_speed_of_its_loaders(reports: dict[str, JobReport]) -> None:
    result = heterogeneous.result_of(reports["pytorch-groups"])

    # Two data hosts with all CPUs, and those that two ranks leave
    cpus = len(os.sched_getaffinity(0))
    assert result.loader_vcpus == 2 * cpus + max(cpus - 2, 0)
    assert result.samples_per_second == pytest.approx(2 * 4 / result.milliseconds * 1000)
    assert result.samples_per_second_and_vcpu == pytest.approx(
        result.samples_per_second / result.loader_vcpus
    )


@pytest.mark.release
def test_a_training_host_prepares_all_data_of_a_job_without_groups(
    workspace: Workspace, reports: dict[str, JobReport]
) -> None:
    case = replace(PYTORCH_LAUNCHES["pytorch-groups"], groups=homogeneous())

    result = heterogeneous.result_of(run(workspace, "pytorch-alone", case))

    assert (result.data_hosts, result.examples, result.most_uses) == (0, 48, 1)


@pytest.mark.release
def test_the_first_training_host_saves_the_model(reports: dict[str, JobReport]) -> None:
    report = reports["pytorch-groups"]
    models = {
        host.group: list((report.folder / "model" / host.host).rglob("model.pt")) for host in report.hosts
    }

    assert {group: len(files) for group, files in models.items()} == {"data": 0, "dnn": 1}


@pytest.mark.release
def test_a_data_host_that_dies_is_noticed_by_the_training(reports: dict[str, JobReport]) -> None:
    report = reports["pytorch-lost"]
    ends = {host.group: host for host in report.hosts}

    assert report.reason == f"InternalServerError: {ends['data'].host} was lost"
    assert (ends["data"].end, ends["dnn"].end) == ("killed by this run", "exit 1")
    assert f"data host {ends['data'].host} was lost" in log_text(report, ends["dnn"].host)
    assert report.losses[0].others[0].seconds < 30


SMDDP_EXPORTS = {
    "NCCL_SOCKET_IFNAME=eth0",
    "LD_LIBRARY_PATH",
    "PATH",
    "FI_PROVIDER=efa",
    "RDMAV_FORK_SAFE=1",
    "NCCL_PROTO=simple",
    "FI_EFA_USE_DEVICE_RDMA=1",
}


@pytest.mark.release
def test_smddp_on_one_host_is_started_by_mpirun_and_smddprun(reports: dict[str, JobReport]) -> None:
    command = launch_command(reports["smddp"])

    assert command[:5] == ["mpirun", "--host", "algo-1", "-np", "2"]
    assert "--oversubscribe" in command
    own = {"SMDATAPARALLEL_USE_SINGLENODE=1", "NCCL_DEBUG=WARN", "TRIED=1"}
    assert exported(command) == SMDDP_EXPORTS | own
    assert command[-5:] == ["smddprun", "/opt/venv/bin/python", "-m", "mpi4py", "train.py"]
    assert "rank 1 of 2 on algo-1, smddp" in log_text(reports["smddp"])


def test_smddp_on_two_hosts_gets_slots_and_a_server(reports: dict[str, JobReport]) -> None:
    report = reports["smddp-two-hosts"]
    command = launch_command(report)

    assert command[:5] == ["mpirun", "--host", "algo-1:2,algo-2:2", "-np", "4"]
    assert command[command.index("plm_rsh_num_concurrent") + 1] == "2"
    assert exported(command) == SMDDP_EXPORTS | {
        "SMDATAPARALLEL_USE_HOMOGENEOUS=1",
        "SMDATAPARALLEL_SERVER_ADDR=algo-1",
        "SMDATAPARALLEL_SERVER_PORT=7592",
        "SAGEMAKER_INSTANCE_TYPE=ml.p4d.24xlarge",
        "NCCL_DEBUG=INFO",
    }
    for rank, host in enumerate(("algo-1", "algo-1", "algo-2", "algo-2")):
        log = (report.folder / "logs" / f"{host}-rank-{rank}.log").read_text()
        assert f"rank {rank}, several hosts at algo-1:7592 ml.p4d.24xlarge" in log
        assert f"rank {rank} of 4 on {host}, smddp" in log


@pytest.mark.release
def test_pytorchddp_starts_without_the_library(reports: dict[str, JobReport]) -> None:
    command = launch_command(reports["pytorchddp"])

    assert command[:5] == ["mpirun", "--host", "algo-1", "-np", "2"]
    assert command[-4:] == ["/opt/venv/bin/python", "-m", "mpi4py", "train.py"]
    assert "smddprun" not in command
    assert "rank 1 of 2 on algo-1, gloo" in log_text(reports["pytorchddp"])


@pytest.mark.release
def test_smp_1_gets_its_parameters_in_ranks_of_mpi(reports: dict[str, JobReport]) -> None:
    report = reports["smp-1"]
    command = launch_command(report)

    assert command[:5] == ["mpirun", "--host", "algo-1:2", "-np", "2"]
    start = command.index("smddpmprun")
    assert command[start : start + 4] == ["smddpmprun", "-i", "ml.p4d.24xlarge", "--allow-bypass"]
    assert command[start + 4 : start + 8] == ["/opt/venv/bin/python", "-m", "mpi4py", "train.py"]
    assert {"NCCL_PROTO=simple", "NCCL_ALGO=ring"} <= exported(command)
    line = f"stub for smdistributed.modelparallel: {json.dumps(SMP, sort_keys=True)}"
    assert log_text(report).count(line) == 2
    assert "rank 1 of 2 on algo-1" in log_text(report)


@pytest.mark.release
def test_smp_2_gets_its_parameters_in_ranks_of_torchrun(reports: dict[str, JobReport]) -> None:
    command = launch_command(reports["smp-2"])

    assert command[:6] == ["torchrun", "--nnodes", "1", "--nproc_per_node", "2", "train.py"]
    assert "rank 1 of 2 on algo-1, 2 shards" in log_text(reports["smp-2"])


ASK_TORCHRUN = text_of(__file__, "ask_torchrun")


def test_torchrun_ends_at_the_arguments_that_a_check_reports(fleet: Fleet) -> None:
    """Every beginning of an option of any release, every letter, and some names that are none."""
    options = sorted(torchrun._facts().options)
    names = {option[2:end] for option in options for end in range(3, len(option) + 1)}
    names |= {*string.ascii_lowercase, "lr", "batch-size", "epochs", "help", "m=1", "no=1"}
    cases = [(name, one_dash) for name in sorted(names) for one_dash in (True, False)]
    words = {case: [f"{'-' if case[1] and len(case[0]) == 1 else '--'}{case[0]}", "1"] for case in cases}
    image = fleet.images["pytorch-cpu"].image.reference
    result = subprocess.run(
        ["docker", "run", "--rm", "--interactive", "--network=none", image, "python3", "-c", ASK_TORCHRUN],
        input=json.dumps([*words.values()]),
        capture_output=True,
        text=True,
        check=True,
    )
    versions = {"pytorch": "2.13.0", "python": "3.11"}
    reported = [
        words[name, one_dash]
        for name, one_dash in cases
        if [*torchrun.abbreviation_findings({name: 1}, versions, letters_have_one_dash=one_dash)]
    ]

    assert json.loads(result.stdout) == reported
    assert len(cases) > len(reported) > 100
