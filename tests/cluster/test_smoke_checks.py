"""Which checks an image gets."""

import pytest

from bakehouse.catalog.recipe import JOB_CHECKS
from bakehouse.cluster.smoke_checks import Check, job_checks
from tests.support.fake_engine import DIGEST, image

PYTORCH = {
    "launchers": ("torchrun", "mpirun"),
    "training_module": "sagemaker_pytorch_container.training:main",
}


def named(checks: tuple[Check, ...]) -> dict[str, Check]:
    return {check.name: check for check in checks}


def test_an_image_with_mpi_alone_gets_no_torchrun() -> None:
    checks = named(job_checks(image(), DIGEST))

    assert {name: check.not_tested for name, check in checks.items()} == {
        "mpi_2x2": "",
        "train_success": "",
        "train_failure": "",
        "torchrun_1x2": "the image contains no torchrun",
        "mpirun_1x2": "",
    }


def test_a_pytorch_image_gets_all_launchers_on_one_and_two_hosts() -> None:
    checks = named(job_checks(image("pytorch-cpu", **PYTORCH), DIGEST))  # type: ignore[arg-type]

    assert list(checks) == [
        *("mpi_2x2", "torchrun_2x2", "train_success", "train_failure", "torchrun_1x2", "mpirun_1x2"),
    ]
    assert not any(check.not_tested for check in checks.values())


def test_torchrun_on_two_hosts_needs_the_pytorch_toolkit() -> None:
    checks = named(job_checks(image(launchers=("torchrun",)), DIGEST))

    assert checks["torchrun_2x2"].not_tested == "only the PyTorch training toolkit starts torchrun"
    assert checks["mpi_2x2"].not_tested == "the image contains no mpirun"


def test_nccl_is_not_tested_without_gpus() -> None:
    checks = named(job_checks(image("pytorch-cu130", **PYTORCH, gpu=True), DIGEST))  # type: ignore[arg-type]

    assert checks["nccl_all_reduce"].not_tested == "no GPU was given; use `--gpus`"


def test_gpus_are_tried_where_there_are_some() -> None:
    cuda = image("pytorch-cu130", **PYTORCH, gpu=True)  # type: ignore[arg-type]
    without, with_two = (named(job_checks(cuda, DIGEST, gpus=number))["gpu"] for number in (0, 2))

    assert without.not_tested == "no GPU was given; use `--gpus`"
    assert with_two.job is not None
    assert with_two.job.command == ("python3", "/opt/ml/input/data/code/gpu.py")
    assert with_two.job.gpus == 2
    assert "gpu" not in named(job_checks(image("pytorch-cpu", **PYTORCH), DIGEST, gpus=2))  # type: ignore[arg-type]


def test_nccl_gets_a_rank_for_each_gpu() -> None:
    checks = named(job_checks(image("pytorch-cu130", **PYTORCH, gpu=True), DIGEST, gpus=4))  # type: ignore[arg-type]

    job = checks["nccl_all_reduce"].job
    assert job is not None
    assert (job.gpus, job.processes_per_host) == (4, 4)
    assert job.command == (
        *("torchrun", "--standalone", "--tee=3", "--log-dir=/tmp/torchrun", "--nproc-per-node=4"),
        *("/opt/ml/input/data/code/torchrun_allreduce.py", "--transport=nccl"),
    )


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
    check = named(job_checks(image("pytorch", entry_point="train.py", **PYTORCH), DIGEST))[name]  # type: ignore[arg-type]

    job = check.job
    assert job is not None
    script = check.source.removeprefix("bakehouse/probes/")
    assert (job.entry_point, job.environment["SAGEMAKER_PROGRAM"]) == (script, script)
    assert set(job.baked_code) == {script, "job_record.py"}
    assert not job.source


def test_a_recipe_can_require_every_job() -> None:
    checks = job_checks(image("pytorch", gpu=True, **PYTORCH), DIGEST)  # type: ignore[arg-type]

    assert sorted(check.name for check in checks) == sorted(JOB_CHECKS)
