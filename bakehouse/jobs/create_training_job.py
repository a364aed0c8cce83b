"""The `create_training_job` request of SageMaker's API, with everything that the SDK's classes add.

Its strings are values of a job to send, or Python expressions for generated code.
"""

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from bakehouse.jobs.job_spec import JobSpec
from bakehouse.jobs.training_request import LaunchImage, TrainingRequest

_INFO = 20
"""Log level of the toolkit that the SDK sends."""
_MAX_SPOT_WAIT = 3600
"""Seconds that a job waits for Spot capacity, beyond its time limit."""


def script_path(request: TrainingRequest) -> str:
    """Return the path of the script in the archive of the code."""
    return request.entry_point if request.source_dir else PurePosixPath(request.entry_point).name


def toolkit_parameters(
    request: TrainingRequest, *, archive: str, name: str, region: str
) -> dict[str, object]:
    """Return the hyperparameters with the toolkit's code archive and script."""
    return {
        "sagemaker_program": script_path(request),
        "sagemaker_submit_directory": archive,
        "sagemaker_container_log_level": _INFO,
        "sagemaker_job_name": name,
        "sagemaker_region": region,
    }


def api_request(
    request: TrainingRequest,
    image: LaunchImage,
    job: JobSpec,
    *,
    name: str,
    hyperparameters: Mapping[str, str] | str,
    output: str,
) -> dict[str, object]:
    """Return the arguments of `create_training_job`: the request, with the limits and channels of the job."""
    limits = {"MaxRuntimeInSeconds": job.max_run}
    if job.spot:
        limits["MaxWaitTimeInSeconds"] = job.max_run + _MAX_SPOT_WAIT
    arguments: dict[str, object] = {
        "TrainingJobName": name,
        "RoleArn": job.role,
        "AlgorithmSpecification": {"TrainingImage": image.uri, "TrainingInputMode": "File"},
        "HyperParameters": hyperparameters,
        "ResourceConfig": _resources(request, job.volume_gib),
        "OutputDataConfig": {"S3OutputPath": output},
        "StoppingCondition": limits,
    }
    if job.spot:
        arguments["EnableManagedSpotTraining"] = True
    if job.inputs:
        arguments["InputDataConfig"] = [
            _channel(channel, uri, request.channels.get(channel, ())) for channel, uri in job.inputs.items()
        ]
    if request.environment:
        arguments["Environment"] = dict(request.environment)
    return arguments


def _channel(name: str, uri: str, groups: Sequence[str]) -> dict[str, object]:
    source: dict[str, object] = {
        "S3DataType": "S3Prefix",
        "S3Uri": uri,
        "S3DataDistributionType": "FullyReplicated",
    }
    if groups:
        source["InstanceGroupNames"] = list(groups)
    return {"ChannelName": name, "DataSource": {"S3DataSource": source}}


def _resources(request: TrainingRequest, volume_gib: int) -> dict[str, object]:
    resources: dict[str, object] = {"VolumeSizeInGB": volume_gib}
    if request.keep_alive is not None:
        resources["KeepAlivePeriodInSeconds"] = request.keep_alive
    groups = [{"InstanceType": group.instance_type, "InstanceCount": group.count} for group in request.groups]
    if not request.groups[0].name:
        return {**groups[0], **resources}
    named_groups = [
        {"InstanceGroupName": group.name, **fields}
        for group, fields in zip(request.groups, groups, strict=True)
    ]
    return {"InstanceGroups": named_groups, **resources}
