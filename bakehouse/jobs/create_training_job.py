"""The `create_training_job` request of SageMaker's API, with everything that the SDK's classes add.

Its strings are values of a job to send, or Python expressions for generated code.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from bakehouse.jobs import rules
from bakehouse.jobs.api_conditions import check_fields
from bakehouse.jobs.api_fields import CHANNELS, LINE_ENDS, ApiField, flatten
from bakehouse.jobs.job_spec import JobSpec
from bakehouse.jobs.rules import Findings
from bakehouse.jobs.training_request import LaunchImage, TrainingRequest

_ROLE, _OUTPUT = "arn:aws:iam::123456789012:role/Role", "s3://bucket/"
_ARCHIVE = "s3://bucket/sourcedir.tar.gz"
_INFO = 20
"""Log level of the toolkit that the SDK sends."""


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
    arguments: dict[str, object] = {
        "TrainingJobName": name,
        "RoleArn": job.role,
        "AlgorithmSpecification": {"TrainingImage": image.uri, "TrainingInputMode": "File"},
        "HyperParameters": hyperparameters,
        "ResourceConfig": {} if has_preferences(job) else _resources(request),
        "OutputDataConfig": {"S3OutputPath": output},
    }
    for field in job.api_fields:
        _set(arguments, field.path.split("."), field.value)
    if channels := input_channels(request, job):
        arguments[CHANNELS] = channels
    if request.environment:
        arguments["Environment"] = dict(request.environment)
    return arguments


def sent_by_trainer(request: TrainingRequest, is_baked: bool) -> dict[str, object]:
    """Return the hyperparameters for ModelTrainer, which sends texts as they are.

    The toolkit of an image that contains its code expects JSON. Texts of several lines are JSON as well,
    because the API does not take them.
    """
    return {
        name: json.dumps(value) if is_baked or (isinstance(value, str) and _has_lines(value)) else value
        for name, value in request.hyperparameters.items()
    }


def _has_lines(text: str) -> bool:
    return any(character in LINE_ENDS for character in text)


def sent_findings(request: TrainingRequest, image: LaunchImage, job: JobSpec) -> Findings:
    """Check the request that code for the SDK or boto3 sends, with examples of what is not known yet."""
    # An image with its own code needs no drivers, but version 3 has only this class
    is_trainer = request.sender == "ModelTrainer" or job.sdk == "v3"
    parameters: Mapping[str, object] = request.hyperparameters
    if is_trainer:
        parameters = sent_by_trainer(request, is_baked=bool(image.entry_point))
    elif not image.entry_point:
        parameters = {
            **parameters,
            **toolkit_parameters(request, archive=_ARCHIVE, name="job", region="us-east-1"),
        }
    texts = {
        name: value if is_trainer and isinstance(value, str) else json.dumps(value)
        for name, value in parameters.items()
    }
    content = api_request(
        request,
        replace(image, uri=image.uri or "image"),
        replace(job, role=job.role or _ROLE),
        name="job",
        hyperparameters=texts,
        output=job.output or _OUTPUT,
    )
    fields = tuple(flatten(content))
    findings = Findings()
    check_fields(replace(request, sender="API", fields=fields), findings)
    if is_trainer and any(tag.get("Value") == "" for field in fields for tag in _tags(field)):
        findings.add(rules.TAGS_V3, "SDK v3 drops the empty value of a tag, and boto3 refuses the request")
    return findings


def _tags(field: ApiField) -> list[dict[str, object]]:
    values = field.value if field.path == "Tags" and isinstance(field.value, list) else []
    return [tag for tag in values if isinstance(tag, dict)]


def has_preferences(job: JobSpec) -> bool:
    """Return whether a job has a list of instance types, which replaces its type and count."""
    return any(field.path == "ResourceConfig.InstancePreferences" for field in job.request)


def input_channels(request: TrainingRequest, job: JobSpec) -> list[object]:
    """Return the channels of a job. Channels of a request that is sent again keep their other settings."""
    given = next((field.value for field in job.api_fields if field.path == CHANNELS), None)
    channels = [
        _channel(channel, uri, request.channels.get(channel, ())) for channel, uri in job.inputs.items()
    ]
    return _joined(given, channels)


def _set(arguments: dict[str, object], path: Sequence[str], value: object) -> None:
    for name in path[:-1]:
        inner = arguments.setdefault(name, {})
        assert isinstance(inner, dict)
        arguments = inner
    arguments[path[-1]] = value


def _joined(given: object, channels: Sequence[dict[str, object]]) -> list[object]:
    """Return the given channels with the sources of `channels` where names match, then new `channels`."""
    sources = {str(channel["ChannelName"]): channel["DataSource"] for channel in channels}
    old = [channel for channel in given if isinstance(channel, dict)] if isinstance(given, list) else []
    names = [str(channel.get("ChannelName")) for channel in old]
    replaced = [
        {**channel, "DataSource": sources[name]} if name in sources else channel
        for name, channel in zip(names, old, strict=True)
    ]
    return [*replaced, *(channel for channel in channels if channel["ChannelName"] not in names)]


def _channel(name: str, uri: str, groups: Sequence[str]) -> dict[str, object]:
    source: dict[str, object] = {
        "S3DataType": "S3Prefix",
        "S3Uri": uri,
        "S3DataDistributionType": "FullyReplicated",
    }
    if groups:
        source["InstanceGroupNames"] = list(groups)
    return {"ChannelName": name, "DataSource": {"S3DataSource": source}}


def _resources(request: TrainingRequest) -> dict[str, object]:
    groups = [{"InstanceType": group.instance_type, "InstanceCount": group.count} for group in request.groups]
    if not request.groups[0].name:
        return dict(groups[0])
    named_groups = [
        {"InstanceGroupName": group.name, **fields}
        for group, fields in zip(request.groups, groups, strict=True)
    ]
    return {"InstanceGroups": named_groups}
