"""The `create_training_job` request of SageMaker's API, with all that the SDK's classes would put into it.

Its texts are those of a job that is sent, or expressions of code that sends one.
"""

from collections.abc import Mapping
from pathlib import PurePosixPath

from bakehouse.sagemaker.training_request import LaunchImage, TrainingRequest

DAY = 24 * 60 * 60
VOLUME_GIB = 30
_INFO = 20
"""Python's level of the toolkit's log, as the SDK sends it."""


def script_of(request: TrainingRequest) -> str:
    """The script as the toolkit is told of it: a path in the archive of the code."""
    return request.entry_point if request.source_dir else PurePosixPath(request.entry_point).name


def toolkit_parameters(
    request: TrainingRequest, *, archive: str, name: str, region: str
) -> dict[str, object]:
    """The hyperparameters that tell the toolkit where the code lies and what of it to start."""
    return {
        "sagemaker_program": script_of(request),
        "sagemaker_submit_directory": archive,
        "sagemaker_container_log_level": _INFO,
        "sagemaker_job_name": name,
        "sagemaker_region": region,
    }


def api_request(
    request: TrainingRequest,
    image: LaunchImage,
    role: str,
    *,
    name: str,
    hyperparameters: Mapping[str, str] | str,
    output: str,
    max_run: int = DAY,
    inputs: Mapping[str, str] | None = None,
    volume_gib: int = VOLUME_GIB,
) -> dict[str, object]:
    """The arguments of `create_training_job`."""
    asked: dict[str, object] = {
        "TrainingJobName": name,
        "RoleArn": role,
        "AlgorithmSpecification": {"TrainingImage": image.uri, "TrainingInputMode": "File"},
        "HyperParameters": hyperparameters,
        "ResourceConfig": _resources(request, volume_gib),
        "OutputDataConfig": {"S3OutputPath": output},
        "StoppingCondition": {"MaxRuntimeInSeconds": max_run},
    }
    if inputs:
        asked["InputDataConfig"] = [_channel(channel, uri) for channel, uri in inputs.items()]
    if request.environment:
        asked["Environment"] = dict(request.environment)
    return asked


def _channel(name: str, uri: str) -> dict[str, object]:
    source = {"S3DataType": "S3Prefix", "S3Uri": uri, "S3DataDistributionType": "FullyReplicated"}
    return {"ChannelName": name, "DataSource": {"S3DataSource": source}}


def _resources(request: TrainingRequest, volume_gib: int) -> dict[str, object]:
    resources: dict[str, object] = {"VolumeSizeInGB": volume_gib}
    if request.keep_alive is not None:
        resources["KeepAlivePeriodInSeconds"] = request.keep_alive
    groups = [{"InstanceType": group.instance_type, "InstanceCount": group.count} for group in request.groups]
    if not request.groups[0].name:
        return {**groups[0], **resources}
    named = [
        {"InstanceGroupName": group.name, **told} for group, told in zip(request.groups, groups, strict=True)
    ]
    return {"InstanceGroups": named, **resources}
