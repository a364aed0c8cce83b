"""The text of the snippets; that they run is shown in tests/integration/test_estimator.py."""

from dataclasses import replace

import pytest

from bakehouse.errors import Diagnostic, UsageError
from bakehouse.estimator import Job, snippet
from bakehouse.releases import ReleasedPart
from tests.test_releases import a_record

HOST = "123456789012.dkr.ecr.eu-west-1.amazonaws.com"
MPI = replace(
    a_record(),
    registry=HOST,
    image_uri=f"{HOST}/bakehouse/mpi-cpu@sha256:4f1c",
)
PYTORCH = replace(
    MPI,
    image="pytorch-cpu",
    image_uri=f"{HOST}/bakehouse/pytorch-cpu@sha256:4f1c",
    transport="gloo",
    parts=(ReleasedPart("pytorch", "2.9.1", "cpu"),),
    launchers=("mpirun", "torchrun"),
    training_module="sagemaker_pytorch_container.training:main",
)
TENSORFLOW = replace(
    MPI,
    image="tensorflow-cpu",
    image_uri=f"{HOST}/bakehouse/tensorflow-cpu@sha256:4f1c",
    parts=(ReleasedPart("tensorflow", "2.21.0", "cpu"),),
    training_module="sagemaker_tensorflow_container.training:main",
)


def test_an_image_with_torchrun() -> None:
    assert snippet(PYTORCH) == (
        """\
# pytorch-cpu, published 2026-11-20, smoke-tested (gloo); for version 2 of the SageMaker SDK
import sagemaker
from sagemaker.pytorch import PyTorch

estimator = PyTorch(
    image_uri="123456789012.dkr.ecr.eu-west-1.amazonaws.com/bakehouse/pytorch-cpu@sha256:4f1c",
    entry_point="train.py",
    role=sagemaker.get_execution_role(),
    instance_type="ml.c5.2xlarge",
    instance_count=2,
    distribution={"torch_distributed": {"enabled": True}},
    base_job_name="pytorch-cpu",
)
estimator.fit()
"""
    )


def test_the_name_of_a_job_has_no_dots() -> None:
    record = replace(PYTORCH, image="pytorch-2.10-cu128_efa")
    assert '    base_job_name="pytorch-2-10-cu128-efa",\n' in snippet(record)


def test_an_image_with_mpi_alone() -> None:
    assert snippet(MPI, Job(role="arn:aws:iam::1:role/x", processes_per_host=8)) == (
        """\
# mpi-cpu, published 2026-11-20, smoke-tested (mpi); for version 2 of the SageMaker SDK
# PyTorch is the class that passes `distribution` on; the image needs no PyTorch.
from sagemaker.pytorch import PyTorch

estimator = PyTorch(
    image_uri="123456789012.dkr.ecr.eu-west-1.amazonaws.com/bakehouse/mpi-cpu@sha256:4f1c",
    entry_point="train.py",
    role="arn:aws:iam::1:role/x",
    instance_type="ml.c5.2xlarge",
    instance_count=2,
    distribution={"mpi": {"enabled": True, "processes_per_host": 8}},
    base_job_name="mpi-cpu",
)
estimator.fit()
"""
    )


def test_an_image_with_tensorflow() -> None:
    code = snippet(TENSORFLOW)
    assert "from sagemaker.tensorflow import TensorFlow\n" in code
    assert '    distribution={"multi_worker_mirrored_strategy": {"enabled": True}},\n' in code
    assert '    framework_version="2.21.0",\n    model_dir=False,\n' in code


def test_an_image_with_its_own_training_code() -> None:
    code = snippet(replace(PYTORCH, entry_point="train.py"))
    assert "estimator = Estimator(\n" in code
    assert '    hyperparameters={"sagemaker_torch_distributed_enabled": "true"},\n' in code
    assert "entry_point" not in code
    assert "distribution" not in code


def test_processes_of_an_image_with_its_own_training_code() -> None:
    code = snippet(replace(MPI, entry_point="train.py"), Job(processes_per_host=4))
    told = '{"sagemaker_mpi_enabled": "true", "sagemaker_mpi_num_of_processes_per_host": "4"}'
    assert f"    hyperparameters={told},\n" in code


def test_a_gpu_image_gets_gpus() -> None:
    assert '    instance_type="ml.g5.12xlarge",\n' in snippet(replace(PYTORCH, gpu=True))


def test_what_a_person_asks_for_comes_first() -> None:
    code = snippet(
        PYTORCH,
        Job(entry_point="go.py", instance_type="ml.p4d.24xlarge", instance_count=4, launcher="mpirun"),
    )
    assert '    entry_point="go.py",\n' in code
    assert '    instance_type="ml.p4d.24xlarge",\n    instance_count=4,\n' in code
    assert '    distribution={"mpi": {"enabled": True}},\n' in code


def test_a_number_of_processes_asks_for_mpi() -> None:
    assert '{"mpi": {"enabled": True, "processes_per_host": 4}}' in snippet(
        PYTORCH, Job(processes_per_host=4)
    )


def test_without_a_launcher_nothing_is_distributed() -> None:
    assert "distribution" not in snippet(replace(MPI, launchers=(), parts=PYTORCH.parts))


def test_the_plain_toolkit_starts_no_torchrun() -> None:
    assert '{"mpi": {"enabled": True}}' in snippet(replace(PYTORCH, training_module=""))


def test_an_untested_release_says_so() -> None:
    assert snippet(replace(MPI, tested=False)).startswith(
        "# mpi-cpu, published 2026-11-20, NOT smoke-tested; for version 2 of the SageMaker SDK\n"
    )


def test_a_release_on_this_machine_is_told_to_be_out_of_reach() -> None:
    code = snippet(replace(MPI, registry="127.0.0.1:5050"))
    assert "# 127.0.0.1:5050 is a registry on this machine: SageMaker pulls from Amazon ECR.\n" in code


@pytest.mark.parametrize("record", [MPI, PYTORCH, TENSORFLOW, replace(MPI, entry_point="a.py")])
def test_a_snippet_is_python(record: object) -> None:
    compile(snippet(record), "snippet.py", "exec")  # type: ignore[arg-type]


def refused(job: Job, **changed: str) -> Diagnostic:
    with pytest.raises(UsageError) as caught:
        snippet(replace(PYTORCH, **changed), job)  # type: ignore[arg-type]
    return caught.value.diagnostics[0]


def test_a_launcher_that_the_image_lacks() -> None:
    assert refused(Job(launcher="tensorflow")) == Diagnostic(
        "`pytorch-cpu` can't start a job with `tensorflow`", hint="it has `torchrun`, `mpirun`"
    )


def test_a_number_of_processes_is_for_mpi() -> None:
    assert refused(Job(launcher="torchrun", processes_per_host=4)) == Diagnostic(
        "`torchrun` starts one process for each GPU, or one where there are none",
        hint="a number of processes is for `mpirun`",
    )


def test_an_address_too_long_for_sagemaker() -> None:
    assert refused(Job(), image_uri="x" * 256) == Diagnostic(
        "the image_uri of `pytorch-cpu` has 256 characters",
        hint="SageMaker takes 255: publish it with a shorter `repository_prefix`",
    )
