"""Channels of a CreateTrainingJob request as the classes of the SDKs write them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bakehouse.jobs.api_fields import member_name

_S3, _FILES = "S3DataSource", "FileSystemDataSource"
_SHAPES = ("Channel", "DataSource", _S3, _FILES, "ShuffleConfig")
"""Structures that `sagemaker.core.training.configs` exports (sagemaker-train 1.27.0)."""
_INPUT = {
    "S3Uri": "s3_data",
    "S3DataType": "s3_data_type",
    "S3DataDistributionType": "distribution",
    "AttributeNames": "attribute_names",
    "InstanceGroupNames": "instance_groups",
    "CompressionType": "compression",
    "ContentType": "content_type",
    "RecordWrapperType": "record_wrapping",
    "InputMode": "input_mode",
}
"""Arguments of TrainingInput (sagemaker 2.257.7)."""
_FILE_INPUT = {
    "FileSystemId": "file_system_id",
    "FileSystemType": "file_system_type",
    "DirectoryPath": "directory_path",
    "FileSystemAccessMode": "file_system_access_mode",
    "ContentType": "content_type",
}
"""Arguments of FileSystemInput (sagemaker 2.257.7)."""


@dataclass(frozen=True, slots=True)
class SdkObject:
    """A class of an SDK with its arguments, which may be further objects."""

    name: str
    arguments: Mapping[str, object]

    @property
    def names(self) -> Iterator[str]:
        """Yield the names of all classes."""
        yield self.name
        for value in self.arguments.values():
            if isinstance(value, SdkObject):
                yield from value.names


def channel_inputs(channels: object) -> dict[str, SdkObject] | None:
    """Return the inputs of `fit` of SDK v2; None if it cannot express one of the channels."""
    inputs = {}
    for channel in channels if isinstance(channels, list) else [None]:
        content = dict(channel) if isinstance(channel, Mapping) else {}
        name, source = content.pop("ChannelName", None), content.pop("DataSource", None)
        [(kind, values)] = source.items() if isinstance(source, Mapping) and len(source) == 1 else [("", {})]
        known = {_S3: _INPUT, _FILES: _FILE_INPUT}.get(kind, {})
        values = {**values, **content}
        if not isinstance(name, str) or not known or values.keys() - known:
            return None
        arguments = {known[key]: value for key, value in values.items()}
        inputs[name] = SdkObject("TrainingInput" if kind == _S3 else "FileSystemInput", arguments)
    return inputs


def channel_objects(channels: object) -> list[SdkObject] | None:
    """Return the channels for `train` of SDK v3; None if it does not export one of their structures."""
    objects = [
        SdkObject("Channel", _arguments(channel))
        for channel in (channels if isinstance(channels, list) else [])
        if isinstance(channel, Mapping) and "DataSource" in channel
    ]
    names = {name for channel in objects for name in channel.names}
    is_complete = isinstance(channels, list) and len(objects) == len(channels)
    return objects if is_complete and names <= {*_SHAPES} else None


def _arguments(structure: Mapping[str, Any]) -> dict[str, object]:
    """Return the arguments for a structure of the API. Nested structures become objects of classes."""
    return {
        member_name(key, snake_case=True): SdkObject(key, _arguments(value))
        if isinstance(value, Mapping)
        else value
        for key, value in structure.items()
    }
