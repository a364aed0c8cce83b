"""Fields of a CreateTrainingJob request that arguments of the SDK's classes become."""

from collections.abc import Iterator, Mapping
from typing import Any

from bakehouse.jobs.api_fields import ApiField, flatten, member_name

_STAMP = 24
"""Characters that SDK v2 appends to `base_job_name`: a hyphen and the time. SDK v3 appends fewer."""
_MAX_NAME = 63
_ALGORITHM, _RESOURCES, _OUTPUT = "AlgorithmSpecification", "ResourceConfig", "OutputDataConfig"
_REPOSITORY = f"{_ALGORITHM}.TrainingImageConfig"
ESTIMATOR: Mapping[str, str] = {
    "base_job_name": "TrainingJobName",
    "role": "RoleArn",
    "input_mode": f"{_ALGORITHM}.TrainingInputMode",
    "metric_definitions": f"{_ALGORITHM}.MetricDefinitions",
    "enable_sagemaker_metrics": f"{_ALGORITHM}.EnableSageMakerMetricsTimeSeries",
    "container_entry_point": f"{_ALGORITHM}.ContainerEntrypoint",
    "container_arguments": f"{_ALGORITHM}.ContainerArguments",
    "training_repository_access_mode": f"{_REPOSITORY}.TrainingRepositoryAccessMode",
    "training_repository_credentials_provider_arn": (
        f"{_REPOSITORY}.TrainingRepositoryAuthConfig.TrainingRepositoryCredentialsProviderArn"
    ),
    "instance_count": f"{_RESOURCES}.InstanceCount",
    "volume_size": f"{_RESOURCES}.VolumeSizeInGB",
    "volume_kms_key": f"{_RESOURCES}.VolumeKmsKeyId",
    "keep_alive_period_in_seconds": f"{_RESOURCES}.KeepAlivePeriodInSeconds",
    "training_plan": f"{_RESOURCES}.TrainingPlanArn",
    "instance_placement_config": f"{_RESOURCES}.InstancePlacementConfig",
    "output_path": f"{_OUTPUT}.S3OutputPath",
    "output_kms_key": f"{_OUTPUT}.KmsKeyId",
    "subnets": "VpcConfig.Subnets",
    "security_group_ids": "VpcConfig.SecurityGroupIds",
    "max_run": "StoppingCondition.MaxRuntimeInSeconds",
    "max_wait": "StoppingCondition.MaxWaitTimeInSeconds",
    "max_retry_attempts": "RetryStrategy.MaximumRetryAttempts",
    "use_spot_instances": "EnableManagedSpotTraining",
    "checkpoint_s3_uri": "CheckpointConfig.S3Uri",
    "checkpoint_local_path": "CheckpointConfig.LocalPath",
    "tags": "Tags",
    "enable_network_isolation": "EnableNetworkIsolation",
    "encrypt_inter_container_traffic": "EnableInterContainerTrafficEncryption",
    "enable_remote_debug": "RemoteDebugConfig.EnableRemoteDebug",
    "enable_infra_check": "InfraCheckConfig.EnableInfraCheck",
    "enable_session_tag_chaining": "SessionChainingConfig.EnableSessionTagChaining",
    "model_channel_name": "InputDataConfig.ChannelName",
}
"""Fields of the arguments of PyTorch, TensorFlow and Estimator (sagemaker 2.257.7)."""
_S3 = "InputDataConfig.DataSource.S3DataSource"
_INPUT: Mapping[str, str] = {
    "s3_data": f"{_S3}.S3Uri",
    "s3_data_type": f"{_S3}.S3DataType",
    "distribution": f"{_S3}.S3DataDistributionType",
    "attribute_names": f"{_S3}.AttributeNames",
    "compression": "InputDataConfig.CompressionType",
    "content_type": "InputDataConfig.ContentType",
    "record_wrapping": "InputDataConfig.RecordWrapperType",
    "input_mode": "InputDataConfig.InputMode",
}
"""Fields of the arguments of TrainingInput (sagemaker 2.257.7)."""
_TRAINER: Mapping[str, str] = {
    "compute": _RESOURCES,
    "networking": "VpcConfig",
    "stopping_condition": "StoppingCondition",
    "output_data_config": _OUTPUT,
    "checkpoint_config": "CheckpointConfig",
    "training_image_config": _REPOSITORY,
}
"""Structures of the arguments of ModelTrainer (sagemaker-train 1.27.0), whose names are those of the API."""
_TRAINER_VALUES: Mapping[str, str] = {
    "base_job_name": "TrainingJobName",
    "role": "RoleArn",
    "training_input_mode": f"{_ALGORITHM}.TrainingInputMode",
    "tags": "Tags",
    "compute.enable_managed_spot_training": "EnableManagedSpotTraining",
    "networking.enable_network_isolation": "EnableNetworkIsolation",
    "networking.enable_inter_container_traffic_encryption": "EnableInterContainerTrafficEncryption",
}


def estimator_fields(arguments: Mapping[str, object]) -> Iterator[ApiField]:
    """Yield the fields that arguments of an estimator of SDK v2 become."""
    for name, path in ESTIMATOR.items():
        yield from _field(path, name, arguments.get(name))
    inputs = arguments.get("inputs")
    if not isinstance(inputs, dict):
        return
    yield ApiField("InputDataConfig", "inputs", [{} for _ in inputs])
    for channel, source in inputs.items():
        yield ApiField("InputDataConfig.ChannelName", "inputs", channel)
        values = source if isinstance(source, dict) else {"s3_data": source}
        for name, path in _INPUT.items():
            full_name = f"inputs.{channel}.{name}" if isinstance(source, dict) else f"inputs.{channel}"
            yield from _field(path, full_name, values.get(name))


def training_input(channel: Mapping[str, Any]) -> dict[str, object]:
    """Return the arguments of the TrainingInput that becomes a channel of a request."""
    sources = {f"InputDataConfig.{name}": value for name, value in channel.items()}
    s3 = channel.get("DataSource", {}).get("S3DataSource", {})
    sources |= {f"{_S3}.{name}": value for name, value in s3.items()}
    arguments = {name: sources[path] for name, path in _INPUT.items() if path in sources}
    return arguments | ({"instance_groups": groups} if (groups := s3.get("InstanceGroupNames")) else {})


def trainer_fields(arguments: Mapping[str, object]) -> Iterator[ApiField]:
    """Yield the fields that arguments of ModelTrainer of SDK v3 become."""
    for name, path in _TRAINER.items():
        content = arguments.get(name)
        if isinstance(content, dict):
            yield from flatten(content, path, name, snake_case=True)
    for name, path in _TRAINER_VALUES.items():
        value: object = arguments
        for key in name.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        yield from _field(path, name, value)
    channels = arguments.get("input_data_config")
    if isinstance(channels, list):
        yield ApiField("InputDataConfig", "input_data_config", [{} for _ in channels])
        for index, channel in enumerate(channels):
            name = f"input_data_config[{index}].channel_name"
            if isinstance(channel, dict):
                yield from _field("InputDataConfig.ChannelName", name, channel.get("channel_name"))


def estimator_argument(path: str) -> str:
    """Return the argument of SDK v2 that becomes a field; empty if it has none."""
    return next((name for name, field in ESTIMATOR.items() if field == path), "")


def trainer_argument(path: str) -> str:
    """Return the argument of SDK v3 that becomes a field, such as `networking.subnets`; else empty."""
    for name, field in _TRAINER_VALUES.items():
        if field == path:
            return name
    for name, structure in _TRAINER.items():
        member = path.removeprefix(f"{structure}.")
        if member != path and "." not in member:
            return f"{name}.{member_name(member, snake_case=True)}"
    return ""


def _field(path: str, name: str, value: object) -> Iterator[ApiField]:
    """Yield the field of a value as the SDK sends it, unless the SDK replaces or looks up the value."""
    if value is None:
        return
    if path == "TrainingJobName" and isinstance(value, str):
        if value:
            yield ApiField(path, name, value[: _MAX_NAME - _STAMP])
        return
    if path == "RoleArn" and isinstance(value, str) and not value.startswith("arn:"):
        # The SDK looks up the ARN of a role that is given by name.
        return
    if path == "Tags" and isinstance(value, dict):
        value = [{"Key": key, "Value": text} for key, text in value.items()]
    yield ApiField(path, name, value)
