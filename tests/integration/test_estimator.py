"""The snippets, run by the real SageMaker SDK against moto: what it asks AWS for is what counts."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bakehouse.estimator import Job, snippet
from bakehouse.releases import ReleasedPart, ReleaseRecord
from tests.integration.paired_ecr import ACCOUNT, REGION
from tests.integration.sagemaker_sdk import ROLE, Aws, installed, moto_for_aws

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
            parts=(ReleasedPart("open-mpi", "4.1.8", "py311"),),
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
    "parts": (ReleasedPart("pytorch", "2.9.1", "cpu"),),
    "launchers": ("mpirun", "torchrun"),
    "training_module": "sagemaker_pytorch_container.training:main",
}
TENSORFLOW = {
    "parts": (ReleasedPart("tensorflow", "2.21.0", "cpu"),),
    "training_module": "sagemaker_tensorflow_container.training:main",
}
SNIPPETS = {
    "mpi": snippet(record("mpi"), Job(instance_count=3, processes_per_host=4)),
    "torchrun": snippet(record("torchrun", **PYTORCH, gpu=True), Job(role=ROLE)),
    "mirrored": snippet(record("mirrored", **TENSORFLOW)),
    "baked": snippet(record("baked", entry_point="train.py"), Job(processes_per_host=4)),
    # Not one of ours: it shows why ours name a framework's class.
    "generic": snippet(record("generic"))
    .replace("sagemaker.pytorch", "sagemaker.estimator")
    .replace("PyTorch", "Estimator"),
}


@pytest.fixture(scope="module")
def sdk() -> Path:
    return installed(LOCK)


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aws]:
    with moto_for_aws(tmp_path_factory.mktemp("moto")) as found:
        yield found


@pytest.fixture(scope="module")
def jobs(sdk: Path, aws: Aws, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What SageMaker was asked for by each snippet, run as it stands beside a training script."""
    folder = tmp_path_factory.mktemp("pasted")
    (folder / "train.py").write_text("print('training')\n")
    for name, code in SNIPPETS.items():
        (folder / f"{name}.py").write_text(code)
    code = "import runpy, sys\nfor path in sys.argv[1:]: runpy.run_path(path)"
    aws.run(sdk, ["-c", code, *(f"{name}.py" for name in SNIPPETS)], folder)
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
    told = hyperparameters(jobs["mpi"])
    assert told["sagemaker_mpi_enabled"] is True
    assert told["sagemaker_mpi_num_of_processes_per_host"] == 4
    assert told["sagemaker_program"] == "train.py"
    assert told["sagemaker_submit_directory"].startswith("s3://")


def test_a_job_under_torchrun(jobs: dict[str, Any]) -> None:
    resources = jobs["torchrun"]["ResourceConfig"]
    assert (resources["InstanceType"], resources["InstanceCount"]) == ("ml.g5.12xlarge", 2)
    told = hyperparameters(jobs["torchrun"])
    assert told["sagemaker_torch_distributed_enabled"] is True
    assert "sagemaker_mpi_enabled" not in told


def test_mirrored_workers_of_tensorflow(jobs: dict[str, Any]) -> None:
    told = hyperparameters(jobs["mirrored"])
    assert told["sagemaker_multi_worker_mirrored_strategy_enabled"] is True
    assert "model_dir" not in told


def test_an_image_with_its_own_training_code_gets_none(jobs: dict[str, Any]) -> None:
    assert hyperparameters(jobs["baked"]) == {
        "sagemaker_mpi_enabled": True,
        "sagemaker_mpi_num_of_processes_per_host": 4,
    }


def test_the_generic_estimator_still_drops_the_distribution(jobs: dict[str, Any]) -> None:
    """Should this fail one day, the snippets can name `Estimator` for every image."""
    assert "distribution=" in SNIPPETS["generic"]
    assert "sagemaker_mpi_enabled" not in hyperparameters(jobs["generic"])
