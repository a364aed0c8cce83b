"""Replay of a CreateTrainingJob request on local containers, with its channels and its model in S3."""

import io
import json
import tarfile
from pathlib import Path
from typing import Any

from bakehouse.cluster import job_runner
from bakehouse.cluster.job import Group, TrainingJob
from bakehouse.cluster.job_runner import JobResult
from bakehouse.engine.protocol import Engine
from tests.support.training_front import TrainingFront


def request_of(front: TrainingFront) -> dict[str, Any]:
    """Return the last request that was sent; moto does not keep all of its fields."""
    [*_, last] = [
        request
        for request in front.requests
        if request.headers.get("X-Amz-Target") == "SageMaker.CreateTrainingJob"
    ]
    return dict(json.loads(last.body))


def channels_of(front: TrainingFront, request: dict[str, Any]) -> dict[str, dict[str, bytes]]:
    """Return the files of the channels."""
    s3, channels = front.client("s3"), {}
    for channel in request.get("InputDataConfig", ()):
        bucket, _, prefix = (
            channel["DataSource"]["S3DataSource"]["S3Uri"].removeprefix("s3://").partition("/")
        )
        objects = s3.list_objects_v2(Bucket=bucket, Prefix=prefix)["Contents"]
        channels[channel["ChannelName"]] = {
            item["Key"].removeprefix(prefix): s3.get_object(Bucket=bucket, Key=item["Key"])["Body"].read()
            for item in objects
        }
    return channels


def job_of(front: TrainingFront, image: str) -> TrainingJob:
    """Return the job that the last request describes."""
    request = request_of(front)
    algorithm, resources = request["AlgorithmSpecification"], request["ResourceConfig"]
    return TrainingJob(
        image=image,
        name=request["TrainingJobName"],
        groups=(Group(instance_type=resources["InstanceType"], count=resources["InstanceCount"]),),
        command=(*algorithm.get("ContainerEntrypoint", ()), *algorithm.get("ContainerArguments", ())),
        channels=channels_of(front, request),
        hyperparameters=request["HyperParameters"],
        has_toolkit=False,
        environment=request.get("Environment", {}),
        deadline=request["StoppingCondition"]["MaxRuntimeInSeconds"],
    )


def replay(front: TrainingFront, engine: Engine, image: str, directory: Path) -> JobResult:
    """Run the last request in an image of the engine; upload its model and let the job end."""
    job = job_of(front, image)
    result = job_runner.run(engine, job, directory / "logs", collect={"/opt/ml/model": directory / "model"})
    files = {
        path.relative_to(host).as_posix(): path.read_bytes()
        for host in sorted((directory / "model").glob("*"))
        for path in host.rglob("*")
        if path.is_file()
    }
    uri = upload_model(front, files)
    failed = next((host for host in result.hosts if host.exit_code), None)
    more: dict[str, Any] = {
        "BillableTimeInSeconds": round(result.seconds) + 60,
        "ModelArtifacts": {"S3ModelArtifacts": uri},
    }
    if failed:
        more["FailureReason"] = failed.failure or f"exit {failed.exit_code}"
        front.play(job.name, "Failed", **more)
    else:
        front.play(job.name, "Completed", **more)
    return result


def upload_model(front: TrainingFront, files: dict[str, bytes]) -> str:
    """Upload the model of the last job where SageMaker does, and return its URI."""
    request = request_of(front)
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    output = request["OutputDataConfig"]["S3OutputPath"].rstrip("/")
    uri = f"{output}/{request['TrainingJobName']}/output/model.tar.gz"
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    front.client("s3").put_object(Bucket=bucket, Key=key, Body=archive.getvalue())
    return uri
