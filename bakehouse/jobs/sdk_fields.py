"""Fields of a CreateTrainingJob request that arguments of the SDK's classes become."""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

from bakehouse.jobs.api_fields import ApiField, flatten, member_name
from bakehouse.util.files import read_text

_STAMP = 24
"""Characters that SDK v2 appends to `base_job_name`: a hyphen and the time. SDK v3 appends fewer."""
_MAX_NAME = 63
_TABLES = tomllib.loads(read_text(Path(__file__).with_suffix(".toml")))
ESTIMATOR: Mapping[str, str] = _TABLES["estimator"]
_INPUT: Mapping[str, str] = _TABLES["input"]
_TRAINER: Mapping[str, str] = _TABLES["trainer"]
_TRAINER_VALUES: Mapping[str, str] = _TABLES["trainer_values"]


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
