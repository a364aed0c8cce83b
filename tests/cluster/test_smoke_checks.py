"""Which checks an image gets."""

import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bakehouse.builder.verify import PROBES
from bakehouse.catalog.job_checks import JOB_CHECKS
from bakehouse.catalog.user_smoke import UserSmoke
from bakehouse.cluster.smoke_checks import SmokeCheck, Startup, job_checks
from bakehouse.errors import Location
from bakehouse.plan.model import Image, InstalledComponent
from tests.support import plans
from tests.support.fake_engine import DIGEST, image, part

PYTORCH = {
    "launchers": ("torchrun", "mpirun"),
    "training_module": "sagemaker_pytorch_container.training:main",
}


def named(checks: tuple[SmokeCheck, ...]) -> dict[str, SmokeCheck]:
    return {check.name: check for check in checks}


def test_checks_that_can_never_apply_to_the_image_are_not_listed() -> None:
    checks = named(job_checks(image(), DIGEST))

    assert {"mpi_2x2", "train_success"} <= checks.keys()
    assert checks.keys().isdisjoint(("torchrun_2x2", "jax_2x1", "gpu"))
    assert not any(check.not_tested for check in checks.values())


def test_a_required_check_is_listed_even_if_it_can_never_apply() -> None:
    subject = replace(image(launchers=()), required=("mpirun_1x2", "torchrun_1x2"))
    checks = named(job_checks(subject, DIGEST))

    assert checks["mpirun_1x2"].not_tested == "the image contains no mpirun"
    assert checks["torchrun_1x2"].not_tested == "the image contains no torchrun"
    assert "mpi_2x2" not in checks


def test_a_pytorch_image_gets_all_launchers_on_one_and_two_hosts() -> None:
    checks = named(job_checks(image("pytorch-cpu", **PYTORCH), DIGEST))  # type: ignore[arg-type]

    assert {"mpi_2x2", "torchrun_2x2", "torchrun_1x2", "mpirun_1x2"} <= checks.keys()
    assert not any(check.not_tested for check in checks.values())


def test_torchrun_on_two_hosts_needs_the_pytorch_toolkit() -> None:
    subject = image(launchers=("torchrun",))
    required = replace(subject, required=("torchrun_2x2",))

    assert "torchrun_2x2" not in named(job_checks(subject, DIGEST))
    reason = "only the PyTorch training toolkit starts torchrun"
    assert named(job_checks(required, DIGEST))["torchrun_2x2"].not_tested == reason


def test_nccl_is_not_tested_without_gpus() -> None:
    checks = named(job_checks(image("pytorch-cu130", **PYTORCH, gpu=True), DIGEST))  # type: ignore[arg-type]

    assert checks["nccl_all_reduce"].not_tested == "no GPU was given; use `--gpus`"


def test_gpus_are_tried_where_there_are_some() -> None:
    cuda = image("pytorch-cu130", **PYTORCH, gpu=True)  # type: ignore[arg-type]
    without, with_two = (named(job_checks(cuda, DIGEST, gpus=number))["gpu"] for number in (0, 2))

    assert without.not_tested == "no GPU was given; use `--gpus`"
    assert with_two.job is not None
    assert with_two.job.command == ("python3", "/opt/ml/input/data/code/gpu.py", "--gpus=2")
    assert with_two.job.gpus == 2
    assert "gpu" not in named(job_checks(image("pytorch-cpu", **PYTORCH), DIGEST, gpus=2))  # type: ignore[arg-type]


@pytest.mark.parametrize("component", ["pytorch", "tensorflow", "nccl-tests", "jax"])
def test_each_framework_is_tried_on_all_gpus(component: str) -> None:
    subject = image("gpus", (part(component),), gpu=True, launchers=("mpirun",))
    check = named(job_checks(subject, DIGEST, gpus=8))["gpu"]

    assert check.job is not None
    assert check.job.command == ("python3", "/opt/ml/input/data/code/gpu.py", "--gpus=8")
    assert check.source == f"recipes/components/{component}/gpu.py"
    assert check.job.used_gpus == tuple("01234567")


def test_a_framework_that_no_check_knows_is_not_tested_on_gpus() -> None:
    check = named(job_checks(image("own", gpu=True, launchers=()), DIGEST, gpus=8))["gpu"]

    assert check.job is None
    assert check.not_tested == "no component of the image has a `gpu.py`, which would use the GPUs"


def test_mpirun_starts_a_rank_for_each_gpu() -> None:
    horovod = (InstalledComponent("horovod-nccl", "0.28.1", "x"),)
    subject = image("gpus", horovod, gpu=True, launchers=("mpirun",))
    without, with_four = (named(job_checks(subject, DIGEST, gpus))["mpirun_nccl"] for gpus in (0, 4))

    assert without.not_tested == "no GPU was given; use `--gpus`"
    assert with_four.job is not None
    assert with_four.job.ranks == 4
    assert with_four.job.command[-4:] == (
        *("-np", "4", "python3"),
        "/opt/ml/input/data/code/mpi_nccl_allreduce.py",
    )


def test_nccl_gets_a_rank_for_each_gpu() -> None:
    checks = named(job_checks(image("pytorch-cu130", **PYTORCH, gpu=True), DIGEST, gpus=4))  # type: ignore[arg-type]

    job = checks["nccl_all_reduce"].job
    assert job is not None
    assert (job.gpus, job.processes_per_host) == (4, 4)
    assert job.command == (
        *("torchrun", "--standalone", "--tee=3", "--log-dir=/tmp/torchrun", "--nproc-per-node=4"),
        *("/opt/ml/input/data/code/torchrun_allreduce.py", "--transport=nccl"),
    )


def test_two_hosts_share_the_gpus_of_this_machine() -> None:
    job = named(job_checks(image("pytorch-cu130", **PYTORCH, gpu=True), DIGEST, gpus=5))["nccl_2_hosts"].job  # type: ignore[arg-type]

    assert job is not None
    assert [job.gpus_of(host) for host in job.host_names] == [("0", "1"), ("2", "3")]
    assert job.command[:2] == ("sh", "-c")
    assert job.command[-3:] == (
        *("--nproc-per-node=2", "/opt/ml/input/data/code/torchrun_allreduce.py", "--transport=nccl"),
    )


@pytest.mark.parametrize(
    ("gpus", "hosts", "reason"),
    [
        (0, 1, "no GPU was given; use `--gpus`"),
        (1, 1, "it needs a GPU for each of two hosts; use `--gpus 2`"),
        (8, 2, "`nccl_all_reduce` connects all hosts of the job"),
    ],
)
def test_two_hosts_need_a_gpu_each_and_this_machine(gpus: int, hosts: int, reason: str) -> None:
    cuda = image("pytorch-cu130", **PYTORCH, gpu=True)  # type: ignore[arg-type]
    check = named(job_checks(cuda, DIGEST, gpus=gpus, hosts=hosts))["nccl_2_hosts"]

    assert (check.job, check.not_tested) == (None, reason)


EFA_IMAGE = replace(
    image("pytorch-efa", (InstalledComponent("efa", "1.50.0", "openmpi4"),), **PYTORCH, gpu=True),  # type: ignore[arg-type]
    efa_bandwidth=80,
)


def test_bandwidth_is_measured_on_all_gpus_of_several_hosts() -> None:
    check = named(job_checks(EFA_IMAGE, DIGEST, gpus=16, hosts=2))["efa_bandwidth"]

    assert check.kind.needs_efa
    assert check.job is not None
    assert (check.job.size, check.job.processes_per_host) == (2, 8)
    assert check.job.command[-2:] == ("/opt/ml/input/data/code/nccl_bandwidth.py", "--minimum=80")


@pytest.mark.parametrize(
    ("gpus", "hosts", "reason"),
    [(8, 1, "it needs two hosts with EFA; use `--on`"), (0, 2, "no GPU was given; use `--gpus`")],
)
def test_bandwidth_needs_gpus_on_two_hosts(gpus: int, hosts: int, reason: str) -> None:
    check = named(job_checks(EFA_IMAGE, DIGEST, gpus=gpus, hosts=hosts))["efa_bandwidth"]

    assert check.not_tested == reason


def test_an_image_without_efa_has_no_bandwidth_to_measure() -> None:
    without = plans.changed(EFA_IMAGE, parts=())

    assert "efa_bandwidth" not in named(job_checks(without, DIGEST, gpus=16, hosts=2))


@pytest.fixture
def nccl_bandwidth(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(PROBES))
    return importlib.import_module("nccl_bandwidth")


def test_bus_bandwidth_is_that_of_nccl_tests(nccl_bandwidth: Any) -> None:
    assert nccl_bandwidth.bus_bandwidth("all_reduce", 1_000_000_000, 1.0, 4) == 1.5
    assert nccl_bandwidth.bus_bandwidth("broadcast", 1_000_000_000, 0.5, 4) == 2.0


def test_efa_is_seen_by_its_devices(nccl_bandwidth: Any, tmp_path: Path) -> None:
    assert not nccl_bandwidth.has_efa(tmp_path)
    (tmp_path / "infiniband/efa_0").mkdir(parents=True)
    assert nccl_bandwidth.has_efa(tmp_path)


def test_two_hosts_ask_the_toolkit_for_mpi() -> None:
    job = named(job_checks(image(), DIGEST))["mpi_2x2"].job

    assert job is not None
    assert (job.size, job.processes_per_host, job.command) == (2, 2, ())
    assert job.hyperparameters == {
        "sagemaker_mpi_enabled": True,
        "sagemaker_mpi_num_of_processes_per_host": 2,
    }
    assert set(job.source) == {"mpi_allreduce.py", "job_record.py"}


@pytest.mark.parametrize("name", ["train_success", "train_failure", "mpi_2x2", "torchrun_2x2"])
def test_checks_run_their_own_scripts_in_images_with_code(name: str) -> None:
    pytorch = image("pytorch", entry_point="train.py", **PYTORCH)  # type: ignore[arg-type]
    check = named(job_checks(pytorch, DIGEST, startup=Startup(has_code=True)))[name]

    job = check.job
    assert job is not None
    script = check.source.removeprefix("bakehouse/probes/")
    assert (job.entry_point, job.environment["SAGEMAKER_PROGRAM"]) == (script, script)
    assert set(job.baked_code) == {script, "job_record.py"}
    assert not job.source


def test_a_recipe_can_require_every_job() -> None:
    subject = plans.changed(image(launchers=()), entry_point="train.py", required=tuple(JOB_CHECKS))

    assert [check.name for check in job_checks(subject, DIGEST)] == [*JOB_CHECKS]


def test_an_image_without_the_toolkit_starts_its_launchers_directly() -> None:
    pytorch = image("pytorch", **PYTORCH)  # type: ignore[arg-type]
    checks = named(job_checks(pytorch, DIGEST, startup=Startup(has_train=False, has_toolkit=False)))

    assert (
        checks["mpi_2x2"].not_tested == checks["train_success"].not_tested == "the image contains no `train`"
    )
    assert [checks[name].not_tested for name in ("torchrun_2x2", "torchrun_1x2", "mpirun_1x2")] == [""] * 3
    job = checks["torchrun_2x2"].job
    assert job is not None
    assert (job.size, job.command[:2], job.command[-1]) == (2, ("sh", "-c"), "--transport=gloo")


def test_an_image_with_a_train_of_its_own_does_not_run_the_toolkit_s_checks() -> None:
    checks = named(job_checks(image(), DIGEST, startup=Startup(has_toolkit=False)))

    reason = "the image's `train` is not that of the SageMaker Training Toolkit"
    assert checks["train_success"].not_tested == checks["mpi_2x2"].not_tested == reason


SMOKE = UserSmoke(
    entry_point="train.py",
    hosts=1,
    processes=1,
    launcher="",
    hyperparameters=(("epochs", "2"), ("name", "x")),
    channels=(),
    expect="",
    timeout=600,
    location=Location(Path("small.yaml"), 1, 1),
)


def user_code(
    startup: Startup | None = None, gpus: int = 0, of: Image | None = None, **values: object
) -> SmokeCheck:
    """The check of the user's code."""
    smoke = replace(SMOKE, **values)  # type: ignore[arg-type]
    tested = replace(of or image("churn", entry_point="train.py"), smoke=smoke)
    return named(job_checks(tested, DIGEST, gpus, startup))["user_code"]


def test_code_without_a_test_of_its_own_is_not_tested() -> None:
    checks = named(job_checks(image("churn", entry_point="train.py"), DIGEST))

    assert checks["user_code"].not_tested == "the recipe has no `smoke`"


def test_the_user_s_script_starts_as_sagemaker_starts_it(tmp_path: Path) -> None:
    job = user_code(channels=(("training", tmp_path),)).job

    assert job is not None
    assert (job.entry_point, job.environment) == ("train.py", {"SAGEMAKER_PROGRAM": "train.py"})
    assert (job.size, job.ranks, job.command, job.deadline) == (1, 1, (), 600.0)
    assert job.hyperparameters == {"epochs": 2, "name": "x"}
    assert job.channel_directories == {"training": str(tmp_path)}
    assert not job.source
    assert not job.baked_code


@pytest.mark.parametrize(
    ("facts", "values", "enabled"),
    [
        ({}, {"processes": 2}, "sagemaker_mpi_enabled"),
        (PYTORCH, {"hosts": 2}, "sagemaker_torch_distributed_enabled"),
        (PYTORCH, {"hosts": 2, "launcher": "mpirun"}, "sagemaker_mpi_enabled"),
        (PYTORCH, {"hosts": 2, "launcher": "script"}, ""),
        ({"launchers": ()}, {"hosts": 2}, ""),
    ],
)
def test_ranks_get_the_launcher_of_the_image_or_the_recipe(
    facts: dict[str, object], values: dict[str, object], enabled: str
) -> None:
    job = user_code(of=image("churn", **facts), **values).job  # type: ignore[arg-type]

    assert job is not None
    assert [name for name in job.hyperparameters if name.endswith("_enabled")] == (
        [enabled] if enabled else []
    )


NO_TRAIN = Startup(has_train=False, has_toolkit=False)


def test_code_without_the_toolkit_is_a_command() -> None:
    alone = user_code(NO_TRAIN).job
    ranks = user_code(NO_TRAIN, processes=2).job
    hosts = user_code(NO_TRAIN, hosts=2)
    torch = user_code(NO_TRAIN, of=image("churn", **PYTORCH), hosts=2, launcher="torchrun").job  # type: ignore[arg-type]

    script = ("python3", "/opt/ml/code/train.py", "--epochs", "2", "--name", "x")
    assert alone is not None
    assert (alone.command, alone.has_toolkit) == (script, False)
    assert ranks is not None
    assert (ranks.command[0], ranks.command[-len(script) :]) == ("mpirun", script)
    assert hosts.not_tested == "the image contains no `train`, which starts `mpirun` on several hosts"
    assert torch is not None
    assert (torch.command[0], torch.command[-len(script) + 1 :]) == ("sh", script[1:])


def test_a_train_of_the_image_s_own_gets_hyperparameters_as_text() -> None:
    job = user_code(Startup(has_toolkit=False)).job

    assert job is not None
    assert (job.command, job.has_toolkit) == ((), False)


def test_a_gpu_image_s_test_needs_gpus(tmp_path: Path) -> None:
    cuda = image("churn", gpu=True, **PYTORCH)  # type: ignore[arg-type]
    two = user_code(of=cuda, gpus=4, hosts=2).job

    assert user_code(of=cuda).not_tested == "no GPU was given; use `--gpus`"
    assert user_code(of=cuda, gpus=1, hosts=2).not_tested == "it needs 2 GPUs; use `--gpus`"
    assert two is not None
    assert [two.gpus_of(host) for host in two.host_names] == [("0", "1"), ("2", "3")]
