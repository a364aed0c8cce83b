"""The snippets, run by the real SageMaker SDK against moto: what it asks AWS for is what counts."""

import contextlib
import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest
from botocore.config import Config  # type: ignore[import-untyped]

from bakehouse.estimator import Job, snippet
from bakehouse.releases import ReleasedPart, ReleaseRecord
from tests.integration.paired_ecr import ACCOUNT, REGION

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

LOCK = Path(__file__).with_name("sagemaker-sdk.lock")
ROLE = f"arn:aws:iam::{ACCOUNT}:role/SageMakerRole"
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
    """A Python with the SageMaker SDK, installed once for each content of the lock."""
    name = hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]
    folder = Path(__file__).parents[2] / "build" / f"sagemaker-sdk-{name}"
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        uv = [sys.executable, "-m", "uv"]
        subprocess.run(
            [*uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)], check=True
        )
        install = [*uv, "pip", "install", "--quiet", "--python", str(python), "--require-hashes"]
        subprocess.run([*install, "--requirement", str(LOCK)], check=True)
        (folder / "complete").touch()
    return python


class Aws:
    """moto as a proxy in front of all of AWS: the SDK names AWS's own addresses here and there."""

    def __init__(self, port: int, certificates: str) -> None:
        self.proxy = f"http://127.0.0.1:{port}"
        self.certificates = certificates

    def client(self, service: str) -> Any:
        settings = Config(proxies={"https": self.proxy})
        keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x"}
        return boto3.client(service, REGION, verify=self.certificates, config=settings, **keys)

    def environment_of_a_notebook(self) -> dict[str, str]:
        session = self.client("sts").assume_role(RoleArn=ROLE, RoleSessionName="notebook")["Credentials"]
        return {
            "HTTPS_PROXY": self.proxy,
            "AWS_CA_BUNDLE": self.certificates,
            "REQUESTS_CA_BUNDLE": self.certificates,
            "AWS_ACCESS_KEY_ID": session["AccessKeyId"],
            "AWS_SECRET_ACCESS_KEY": session["SecretAccessKey"],
            "AWS_SESSION_TOKEN": session["SessionToken"],
            "AWS_DEFAULT_REGION": REGION,
        }


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aws]:
    if not shutil.which("openssl"):
        pytest.skip("moto's proxy needs the openssl command")
    from moto.moto_proxy.certificate_creator import CertificateCreator

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    start = [sys.executable, "-m", "moto.proxy", "-H", "127.0.0.1", "-p", str(port)]
    log = tmp_path_factory.mktemp("moto") / "log"
    with log.open("wb") as output:
        proxy = subprocess.Popen(start, stdout=output, stderr=output)
    try:
        for _ in range(300):
            with contextlib.suppress(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port)).close()
                break
            assert proxy.poll() is None, log.read_text()
            time.sleep(0.1)
        found = Aws(port, CertificateCreator.cacert)
        found.client("iam").create_role(RoleName="SageMakerRole", AssumeRolePolicyDocument="{}")
        yield found
    finally:
        proxy.terminate()
        proxy.wait()


@pytest.fixture(scope="module")
def jobs(sdk: Path, aws: Aws, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What SageMaker was asked for by each snippet, run as it stands beside a training script."""
    folder = tmp_path_factory.mktemp("pasted")
    (folder / "train.py").write_text("print('training')\n")
    for name, code in SNIPPETS.items():
        (folder / f"{name}.py").write_text(code)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    environment |= aws.environment_of_a_notebook() | {"HOME": str(folder)}
    code = "import runpy, sys\nfor path in sys.argv[1:]: runpy.run_path(path)"
    command = [str(sdk), "-c", code, *(f"{name}.py" for name in SNIPPETS)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    client = aws.client("sagemaker")
    listed = client.list_training_jobs()["TrainingJobSummaries"]
    found = [client.describe_training_job(TrainingJobName=job["TrainingJobName"]) for job in listed]
    return {job["TrainingJobName"].partition("-20")[0]: job for job in found}


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
