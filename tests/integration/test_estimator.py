"""The snippets, run by the real SageMaker SDK against moto: what it asks AWS for is what counts."""

import io
import json
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bakehouse.cluster.job import Group
from bakehouse.publish.releases import ReleasedComponent, ReleaseRecord
from bakehouse.sagemaker import snippets
from bakehouse.sagemaker.job_spec import JobSpec
from tests.integration.sagemaker_sdk import ROLE, V3, Aws, installed, moto_for_aws
from tests.support.ecr import ACCOUNT, REGION

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

LOCK = Path(__file__).with_name("sagemaker-sdk.lock")
DIGEST = "sha256:" + "4f" * 32
HOST = f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com"


def record(name: str, **changed: Any) -> ReleaseRecord:
    return replace(
        ReleaseRecord(
            image=name,
            key="7c1e44b0" * 8,
            digest=DIGEST,
            registry=HOST,
            repository=f"bakehouse/{name}",
            tags=(f"{name}-20261120-7c1e44b0",),
            image_uri=f"{HOST}/bakehouse/{name}@{DIGEST}",
            date="2026-11-20",
            tested=True,
            transport="gloo",
            checks=(),
            parts=(ReleasedComponent("open-mpi", "4.1.8", "py311"),),
            gpu=False,
            launchers=("mpirun",),
            training_module="",
            entry_point="",
            media_type="application/vnd.docker.distribution.manifest.v2+json",
            bytes=1,
        ),
        **changed,
    )


PYTORCH = {
    "parts": (ReleasedComponent("pytorch", "2.9.1", "cpu"),),
    "launchers": ("mpirun", "torchrun"),
    "training_module": "sagemaker_pytorch_container.training:main",
}
TENSORFLOW = {
    "parts": (ReleasedComponent("tensorflow", "2.21.0", "cpu"),),
    "training_module": "sagemaker_tensorflow_container.training:main",
}


def parts(**versions: str) -> dict[str, Any]:
    """Return the fields of a record of an image with components and the toolkit for PyTorch."""
    names = (ReleasedComponent(name.replace("_", "-"), version, "") for name, version in versions.items())
    return {**PYTORCH, "parts": tuple(names), "gpu": True}


GROUPS = (Group("data", "ml.c5.18xlarge", 2), Group("train", "ml.c5.2xlarge"))
DEFAULTS = JobSpec()
IN_A_GROUP = {"mpi": {"enabled": True, "processes_per_host": 2}, "instance_groups": ["train"]}


def snippet(record: ReleaseRecord, job: JobSpec = DEFAULTS) -> str:
    return snippets.snippet(record, job).code


ESTIMATORS = {
    "mpi": snippet(record("mpi"), JobSpec(instance_count=3, processes_per_host=4)),
    "torchrun": snippet(record("torchrun", **PYTORCH, gpu=True), JobSpec(role=ROLE)),
    "mirrored": snippet(record("mirrored", **TENSORFLOW)),
    "baked": snippet(record("baked", entry_point="train.py"), JobSpec(processes_per_host=4)),
    "groups": snippet(record("groups"), JobSpec(groups=GROUPS, distribution=IN_A_GROUP)),
    "more": snippet(
        record("more"), JobSpec(hyperparameters={"epochs": 3}, environment={"A": "b"}, keep_alive=600)
    ),
    "smp": snippet(record("smp", **parts(pytorch="1.10.2", smp="1.7.0"))),
    "smp2": snippet(record("smp2", **parts(pytorch="2.5.1", smp="2.8.0"))),
    "smddp": snippet(record("smddp", **parts(pytorch="2.5.1", smddp="2.6.0"))),
    "xla": snippet(record("xla", **parts(aws_training_compiler_pytorch="1.13.1", pytorch="1.13.1"))),
    "transformers": snippet(
        record(
            "transformers",
            **parts(
                aws_training_compiler_pytorch="1.10.2", pytorch="1.10.2", transformers="4.17.0", python="3.8"
            ),
        )
    ),
    "huggingface": snippet(
        record("huggingface", **parts(pytorch="2.13.0", transformers="5.23.0", python="3.11"))
    ),
    "compiled": snippet(
        record(
            "compiled",
            **parts(aws_training_compiler_tensorflow="2.11.0", tensorflow="2.11.0")
            | {"training_module": TENSORFLOW["training_module"]},
        )
    ),
    # Not one of ours: it shows why ours name a framework's class.
    "generic": snippet(record("generic"))
    .replace("sagemaker.pytorch", "sagemaker.estimator")
    .replace("PyTorch", "Estimator"),
}
TRAINERS = {
    "v3-torchrun": snippet(record("v3-torchrun", **PYTORCH), JobSpec(sdk="v3", processes_per_host=2)),
    "v3-smp2": snippet(record("v3-smp2", **parts(pytorch="2.5.1", smp="2.8.0")), JobSpec(sdk="v3")),
    "v3-mpi": snippet(record("v3-mpi"), JobSpec(sdk="v3", groups=GROUPS, hyperparameters={"epochs": 3})),
    "v3-baked": snippet(record("v3-baked", entry_point="train.py"), JobSpec(sdk="v3", role=ROLE)),
}
REQUESTS = {
    "request": snippet(
        record("request"),
        JobSpec(sdk="boto3", role=ROLE, processes_per_host=4, hyperparameters={"epochs": 3}),
    ),
    "request-groups": snippet(
        record("request-groups"), JobSpec(sdk="boto3", role=ROLE, groups=GROUPS, distribution=IN_A_GROUP)
    ),
    "request-torchrun": snippet(record("request-torchrun", **PYTORCH), JobSpec(sdk="boto3", role=ROLE)),
    "request-baked": snippet(
        record("request-baked", entry_point="train.py"), JobSpec(sdk="boto3", role=ROLE)
    ),
}
SNIPPETS = {**ESTIMATORS, **TRAINERS, **REQUESTS}


@pytest.fixture(scope="module")
def sdk() -> Path:
    return installed(LOCK)


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aws]:
    with moto_for_aws(tmp_path_factory.mktemp("moto")) as aws:
        yield aws


@pytest.fixture(scope="module")
def jobs(sdk: Path, aws: Aws, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Jobs that each snippet requested from SageMaker, run unchanged next to a training script."""
    directory = tmp_path_factory.mktemp("pasted")
    (directory / "train.py").write_text("print('training')\n")
    for name, code in SNIPPETS.items():
        # The difference is expected: moto does not run the job, so the test does not wait for it.
        (directory / f"{name}.py").write_text(code.replace("trainer.train()", "trainer.train(wait=False)"))
    code = "import runpy, sys\nfor path in sys.argv[1:]: runpy.run_path(path)"
    for python, names in ((sdk, [*ESTIMATORS, *REQUESTS]), (installed(V3), [*TRAINERS])):
        aws.run(python, ["-c", code, *(f"{name}.py" for name in names)], directory)
    return aws.jobs()


def hyperparameters(job: dict[str, Any]) -> dict[str, Any]:
    """As the toolkit in the image reads them."""
    return {name: json.loads(value) for name, value in job.get("HyperParameters", {}).items()}


@pytest.mark.parametrize("name", SNIPPETS)
def test_the_job_uses_the_released_image(jobs: dict[str, Any], name: str) -> None:
    job = jobs[name]
    assert job["AlgorithmSpecification"]["TrainingImage"] == f"{HOST}/bakehouse/{name}@{DIGEST}"
    assert job["RoleArn"] == ROLE


def test_an_mpi_job(jobs: dict[str, Any]) -> None:
    resources = jobs["mpi"]["ResourceConfig"]
    assert (resources["InstanceType"], resources["InstanceCount"]) == ("ml.c5.2xlarge", 3)
    parameters = hyperparameters(jobs["mpi"])
    assert parameters["sagemaker_mpi_enabled"] is True
    assert parameters["sagemaker_mpi_num_of_processes_per_host"] == 4
    assert parameters["sagemaker_program"] == "train.py"
    assert parameters["sagemaker_submit_directory"].startswith("s3://")


def test_a_job_under_torchrun(jobs: dict[str, Any]) -> None:
    resources = jobs["torchrun"]["ResourceConfig"]
    assert (resources["InstanceType"], resources["InstanceCount"]) == ("ml.g5.12xlarge", 2)
    parameters = hyperparameters(jobs["torchrun"])
    assert parameters["sagemaker_torch_distributed_enabled"] is True
    assert "sagemaker_mpi_enabled" not in parameters


def test_mirrored_workers_of_tensorflow(jobs: dict[str, Any]) -> None:
    parameters = hyperparameters(jobs["mirrored"])
    assert parameters["sagemaker_multi_worker_mirrored_strategy_enabled"] is True
    assert "model_dir" not in parameters


DDP_TOLD = {
    "sagemaker_distributed_dataparallel_enabled": True,
    "sagemaker_distributed_dataparallel_custom_mpi_options": "",
    "sagemaker_instance_type": "ml.p4d.24xlarge",
}
COMPILER_TOLD = {
    "sagemaker_training_compiler_enabled": True,
    "sagemaker_training_compiler_debug_mode": False,
}
LIBRARIES: dict[str, dict[str, Any]] = {
    "smp": {
        "mp_parameters": {"pipeline_parallel_degree": 2, "ddp": True},
        "sagemaker_mpi_enabled": True,
        "sagemaker_mpi_num_of_processes_per_host": 8,
        "sagemaker_instance_type": "ml.p4d.24xlarge",
    },
    "smp2": {"mp_parameters": {"hybrid_shard_degree": 16}, "sagemaker_torch_distributed_enabled": True},
    "smddp": DDP_TOLD,
    "xla": {**COMPILER_TOLD, "sagemaker_pytorch_xla_multi_worker_enabled": True},
    "transformers": COMPILER_TOLD,
    "huggingface": {"sagemaker_torch_distributed_enabled": True},
    "compiled": COMPILER_TOLD,
}


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_job_uses_the_library_that_its_image_is_for(jobs: dict[str, Any], name: str) -> None:
    parameters = hyperparameters(jobs[name])
    assert {key: parameters[key] for key in LIBRARIES[name]} == LIBRARIES[name]


def test_a_trainer_sends_the_parameters_of_smp_2(jobs: dict[str, Any]) -> None:
    assert hyperparameters(jobs["v3-smp2"])["mp_parameters"] == {"hybrid_shard_degree": 16}


MPI_TOLD = {
    "sagemaker_mpi_enabled": True,
    "sagemaker_mpi_num_of_processes_per_host": 4,
    "sagemaker_mpi_custom_mpi_options": "",
}


def test_an_image_with_its_own_training_code_gets_none(jobs: dict[str, Any]) -> None:
    assert hyperparameters(jobs["baked"]) == MPI_TOLD


GROUPS_ASKED = [
    {"InstanceGroupName": "data", "InstanceType": "ml.c5.18xlarge", "InstanceCount": 2},
    {"InstanceGroupName": "train", "InstanceType": "ml.c5.2xlarge", "InstanceCount": 1},
]


@pytest.mark.parametrize("name", ["groups", "request-groups"])
def test_a_job_with_groups(jobs: dict[str, Any], name: str) -> None:
    assert jobs[name]["ResourceConfig"]["InstanceGroups"] == GROUPS_ASKED
    parameters = hyperparameters(jobs[name])
    assert parameters["sagemaker_distribution_instance_groups"] == ["train"]
    assert parameters["sagemaker_mpi_num_of_processes_per_host"] == 2


def test_what_else_a_job_is_given(jobs: dict[str, Any]) -> None:
    job = jobs["more"]
    assert hyperparameters(job)["epochs"] == 3
    assert job["ResourceConfig"]["KeepAlivePeriodInSeconds"] == 600


def test_a_trainer_under_torchrun(jobs: dict[str, Any]) -> None:
    """Version 3 sends no hyperparameters for a launcher: its drivers are in a channel."""
    job = jobs["v3-torchrun"]
    assert job.get("HyperParameters", {}) == {}
    assert [channel["ChannelName"] for channel in job["InputDataConfig"]] == ["code", "sm_drivers"]
    assert job["AlgorithmSpecification"]["ContainerEntrypoint"] == ["/bin/bash"]
    assert job["ResourceConfig"]["InstanceCount"] == 2


def test_a_trainer_in_groups(jobs: dict[str, Any]) -> None:
    job = jobs["v3-mpi"]
    assert job["HyperParameters"] == {"epochs": "3"}
    assert job["ResourceConfig"]["InstanceGroups"] == GROUPS_ASKED


def test_a_trainer_lets_an_image_start_its_own_code(jobs: dict[str, Any]) -> None:
    job = jobs["v3-baked"]
    assert "ContainerEntrypoint" not in job["AlgorithmSpecification"]
    assert hyperparameters(job) == {"sagemaker_mpi_enabled": True, "sagemaker_mpi_custom_mpi_options": ""}


BESIDE = {"sagemaker_job_name", "sagemaker_submit_directory"}


def test_a_request_tells_a_job_what_the_sdk_does(jobs: dict[str, Any]) -> None:
    request, sdk = hyperparameters(jobs["request"]), hyperparameters(jobs["mpi"])
    assert request.keys() == sdk.keys() | {"epochs"}
    assert {key: value for key, value in request.items() if key not in BESIDE} == {
        **MPI_TOLD,
        "epochs": 3,
        "sagemaker_program": "train.py",
        "sagemaker_container_log_level": 20,
        "sagemaker_region": REGION,
    }
    assert {key: sdk[key] for key in sdk.keys() - BESIDE} == {
        key: request[key] for key in sdk.keys() - BESIDE
    }


def test_a_request_under_torchrun(jobs: dict[str, Any]) -> None:
    parameters = hyperparameters(jobs["request-torchrun"])
    assert parameters["sagemaker_torch_distributed_enabled"] is True
    assert parameters["sagemaker_instance_type"] == "ml.c5.2xlarge"


def test_a_request_for_an_image_with_its_own_training_code(jobs: dict[str, Any]) -> None:
    assert hyperparameters(jobs["request-baked"]) == {
        "sagemaker_mpi_enabled": True,
        "sagemaker_mpi_custom_mpi_options": "",
    }


def test_a_request_sends_the_script(jobs: dict[str, Any], aws: Aws) -> None:
    """As an archive with the script at its top, where the toolkit unpacks it."""
    address = hyperparameters(jobs["request"])["sagemaker_submit_directory"]
    bucket, _, key = address.removeprefix("s3://").partition("/")
    content = aws.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        assert archive.getnames() == ["train.py"]


def test_the_generic_estimator_still_drops_the_distribution(jobs: dict[str, Any]) -> None:
    """Should this fail one day, the snippets can name `Estimator` for every image."""
    assert "distribution=" in SNIPPETS["generic"]
    assert "sagemaker_mpi_enabled" not in hyperparameters(jobs["generic"])
