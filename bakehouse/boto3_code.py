"""Prints a `create_training_job` request of boto3, with all that the SDK's classes would put into it."""

from collections.abc import Mapping
from pathlib import PurePosixPath

from bakehouse.literals import Code, literal
from bakehouse.registry import region_of
from bakehouse.training_request import LaunchImage, TrainingRequest

_DAY = 24 * 60 * 60
_INFO = 20
"""Python's level of the toolkit's log, as the SDK sends it."""


def request_code(
    request: TrainingRequest, image: LaunchImage, role: str, name: str, registry: str
) -> list[str]:
    """Code that sends the training script to S3, where there is one, and asks for the job."""
    region = literal(region_of(registry) or Code("boto3.Session().region_name"))
    sends = bool(request.entry_point)
    told: dict[str, object] = dict(request.hyperparameters)
    start = [
        f"region = {region}",
        'account = boto3.client("sts", region).get_caller_identity()["Account"]',
        "# The bucket that SageMaker's SDK makes and uses: any other in the region does as well.",
        'bucket = f"sagemaker-{region}-{account}"',
        f'name = {literal(name)} + time.strftime("-%Y%m%d-%H%M%S")',
    ]
    if sends:
        script = request.entry_point if request.source_dir else PurePosixPath(request.entry_point).name
        start += _upload(request, script)
        told |= {
            "sagemaker_program": script,
            "sagemaker_submit_directory": Code('f"s3://{bucket}/{key}"'),
            "sagemaker_container_log_level": _INFO,
            "sagemaker_job_name": Code("name"),
            "sagemaker_region": Code("region"),
        }
    asked: dict[str, object] = {
        "TrainingJobName": Code("name"),
        "RoleArn": role,
        "AlgorithmSpecification": {"TrainingImage": image.uri, "TrainingInputMode": "File"},
        "HyperParameters": Code("{key: json.dumps(value) for key, value in hyperparameters.items()}"),
        "ResourceConfig": _resources(request),
        "OutputDataConfig": {"S3OutputPath": Code('f"s3://{bucket}/"')},
        "StoppingCondition": {"MaxRuntimeInSeconds": _DAY},
    }
    if request.environment:
        asked["Environment"] = dict(request.environment)
    imports = ["import io", "import json", "import tarfile", "import time"]
    return [
        *(imports if sends else ["import json", "import time"]),
        "",
        "import boto3",
        "",
        *start,
        *_block("hyperparameters", told),
        *_block("request", asked),
        'boto3.client("sagemaker", region).create_training_job(**request)',
    ]


def _upload(request: TrainingRequest, script: str) -> list[str]:
    packed, inside = (request.source_dir, ".") if request.source_dir else (request.entry_point, script)
    return [
        'key = f"{name}/source/sourcedir.tar.gz"',
        "packed = io.BytesIO()",
        'with tarfile.open(fileobj=packed, mode="w:gz") as archive:',
        f"    archive.add({literal(packed)}, arcname={literal(inside)})",
        'boto3.client("s3", region).put_object(Bucket=bucket, Key=key, Body=packed.getvalue())',
    ]


def _resources(request: TrainingRequest) -> dict[str, object]:
    resources: dict[str, object] = {"VolumeSizeInGB": 30}
    if request.keep_alive is not None:
        resources["KeepAlivePeriodInSeconds"] = request.keep_alive
    groups = [{"InstanceType": group.instance_type, "InstanceCount": group.count} for group in request.groups]
    if not request.groups[0].name:
        return {**groups[0], **resources}
    named = [
        {"InstanceGroupName": group.name, **told} for group, told in zip(request.groups, groups, strict=True)
    ]
    return {"InstanceGroups": named, **resources}


def _block(name: str, values: Mapping[str, object]) -> list[str]:
    return [f"{name} = {{", *(f"    {literal(key)}: {literal(value)}," for key, value in values.items()), "}"]
