"""Checks of the fields of a request: each value with the API's model, and conditions between fields."""

from collections.abc import Iterator, Mapping
from typing import Any

from bakehouse.jobs import rules
from bakehouse.jobs.api_fields import CHANNELS, ApiField, api_names, field_problems, find_shape
from bakehouse.jobs.rules import Findings
from bakehouse.jobs.training_request import TrainingRequest
from bakehouse.util.format import format_names

_RESOURCES, _LIMITS = "ResourceConfig", "StoppingCondition"
_TYPE, _COUNT, _GROUPS = (
    f"{_RESOURCES}.{name}" for name in ("InstanceType", "InstanceCount", "InstanceGroups")
)
_KEEP_ALIVE, _PREFERENCES = f"{_RESOURCES}.KeepAlivePeriodInSeconds", f"{_RESOURCES}.InstancePreferences"
_PLACEMENT = f"{_RESOURCES}.InstancePlacementConfig"
_MAX_RUN, _MAX_WAIT = f"{_LIMITS}.MaxRuntimeInSeconds", f"{_LIMITS}.MaxWaitTimeInSeconds"
_SPOT = "EnableManagedSpotTraining"
_IMAGE, _ALGORITHM = "AlgorithmSpecification.TrainingImage", "AlgorithmSpecification.AlgorithmName"
_REPOSITORY = "AlgorithmSpecification.TrainingImageConfig"
_CHECKPOINTS, _LOCAL_CHECKPOINTS = "CheckpointConfig.S3Uri", "CheckpointConfig.LocalPath"
_SUBNETS, _SECURITY_GROUPS = "VpcConfig.Subnets", "VpcConfig.SecurityGroupIds"
_OWN_RULES = {_TYPE, _COUNT, _KEEP_ALIVE, _IMAGE}
"""Fields of the SDK's classes whose limits have rules of their own."""
_DAY = 24 * 60 * 60
_MAX_RUN_SECONDS = 28 * _DAY
_DEFAULT_RUN = _DAY
_TRAINER_RUN = 60 * 60
"""Time limit of ModelTrainer without a `stopping_condition` (sagemaker-train 1.27.0)."""


def check_fields(request: TrainingRequest, findings: Findings) -> None:
    """Check the fields of a request that reaches the API."""
    if request.is_local:
        return
    is_trainer = request.sender == "ModelTrainer"
    own_rules = {_TYPE} if request.sender == "API" else _OWN_RULES
    for field in request.fields:
        if field.path in own_rules:
            continue
        for problem in field_problems(field, snake_case=is_trainer):
            # botocore reports wrong types in a request itself.
            if not (problem.is_type and request.sender == "API"):
                findings.add(rules.FIELD, problem.message, problem.hint)
    fields = {field.path: field for field in request.fields}
    _check_time(fields, is_trainer, findings)
    _check_resources(fields, findings)
    _check_vpc(fields, findings)
    _check_checkpoints(fields, findings)
    _check_documented(fields, request, findings)
    if request.sender == "API" and fields:
        _check_algorithm(fields, findings)


def channel_names(request: TrainingRequest) -> set[str]:
    """Return the names of the channels of a request."""
    names = {*request.channels}
    for field in request.fields:
        channels = field.value if field.path == CHANNELS and isinstance(field.value, list) else []
        names |= {str(channel.get("ChannelName", "")) for channel in channels if isinstance(channel, dict)}
        if field.path == f"{CHANNELS}.ChannelName":
            names.add(str(field.value))
    return names - {""}


def _name(fields: Mapping[str, ApiField], path: str, other: str) -> str:
    """Return the user's name for a field that may be missing, in the style of another."""
    if path in fields:
        return fields[path].name
    return _NAMES[path][_style(fields[other])]


_NAMES: Mapping[str, tuple[str, str, str]] = {
    _MAX_WAIT: (_MAX_WAIT, "max_wait", "stopping_condition.max_wait_time_in_seconds"),
    _SPOT: (_SPOT, "use_spot_instances", "compute.enable_managed_spot_training"),
    _CHECKPOINTS: (_CHECKPOINTS, "checkpoint_s3_uri", "checkpoint_config.s3_uri"),
    _SUBNETS: (_SUBNETS, "subnets", "networking.subnets"),
    _SECURITY_GROUPS: (_SECURITY_GROUPS, "security_group_ids", "networking.security_group_ids"),
}
"""Names of fields that a message asks for: of the API, of SDK v2 and of SDK v3."""


def _style(field: ApiField) -> int:
    if field.name == field.path:
        return 0
    return 2 if "." in field.name else 1


def _number(fields: Mapping[str, ApiField], path: str) -> int | None:
    value = fields[path].value if path in fields else None
    return value if type(value) is int else None


def _is_spot(fields: Mapping[str, ApiField]) -> bool:
    return _SPOT in fields and fields[_SPOT].value is True


def _check_time(fields: Mapping[str, ApiField], is_trainer: bool, findings: Findings) -> None:
    run, wait = _number(fields, _MAX_RUN), _number(fields, _MAX_WAIT)
    has_condition = any(path.startswith(_LIMITS) for path in fields)
    seconds = run if run is not None else _TRAINER_RUN if is_trainer and not has_condition else _DEFAULT_RUN
    if run is not None and run > _MAX_RUN_SECONDS:
        message = f"is {run}, but a job runs for at most 28 days"
        findings.at(rules.MAX_RUN, fields[_MAX_RUN].name, message, f"use at most {_MAX_RUN_SECONDS}")
    if _is_spot(fields) and _MAX_WAIT not in fields:
        name = _name(fields, _MAX_WAIT, _SPOT)
        hint = f"set `{name}` to at least {seconds}, the time limit of the job"
        findings.at(rules.SPOT_WAIT, fields[_SPOT].name, f"needs `{name}`", hint)
    elif wait is not None and wait < seconds:
        limit = (
            f"`{fields[_MAX_RUN].name}` is {seconds}" if run is not None else f"the job may run for {seconds}"
        )
        message = f"is {wait}, but {limit}: the wait includes the run"
        findings.at(rules.SPOT_WAIT, fields[_MAX_WAIT].name, message, f"use at least {seconds}")
    if _MAX_WAIT in fields and not _is_spot(fields):
        spot = _name(fields, _SPOT, _MAX_WAIT)
        message = "is for managed Spot training, which the job does not use"
        findings.at(rules.SPOT_UNUSED, fields[_MAX_WAIT].name, message, f"remove it, or set `{spot}`")


def _check_resources(fields: Mapping[str, ApiField], findings: Findings) -> None:
    if _number(fields, _KEEP_ALIVE) and _is_spot(fields):
        message = f"can't be used with `{fields[_SPOT].name}`"
        findings.at(rules.SPOT_WARM, fields[_KEEP_ALIVE].name, message, "remove one of them")
    if _GROUPS in fields and _COUNT in fields and _TYPE not in fields:
        message = "the job has instance groups and also an instance count"
        findings.add(rules.GROUPS_OR_TYPE, message, f"remove `{fields[_COUNT].name}`")
    if _PREFERENCES in fields:
        others = [fields[path].name for path in (_TYPE, _GROUPS, _PLACEMENT) if path in fields]
        others += [fields[_SPOT].name] if _is_spot(fields) else []
        if others:
            message = f"can't be used with {format_names(others, ' and ')}"
            findings.at(rules.PREFERENCES, fields[_PREFERENCES].name, message, "remove one of them")
        _check_preferences(fields, findings)
    for path in (f"{_RESOURCES}.SelectedInstanceType", f"{_RESOURCES}.SelectedInstanceCount"):
        if path in fields:
            findings.at(rules.READ_ONLY, fields[path].name, "is only in responses of the API", "remove it")


def _check_preferences(fields: Mapping[str, ApiField], findings: Findings) -> None:
    name, preferences = fields[_PREFERENCES].name, [value for _, value in _lists(fields, _PREFERENCES)]
    with_count = sum("InstanceCount" in preference for preference in preferences)
    count = fields[_COUNT].name if _COUNT in fields else ""
    hint = "set the instance count in each of them, or once for the job"
    if 0 < with_count < len(preferences):
        findings.at(rules.PREFERENCES, name, "has instance counts in some of the preferences only", hint)
    elif with_count and count:
        findings.at(rules.PREFERENCES, name, f"has instance counts, and `{count}` is set too", hint)
    elif preferences and not with_count and not count:
        findings.at(rules.PREFERENCES, name, "has no instance count", hint)
    plan = fields.get(f"{_RESOURCES}.TrainingPlanArn")
    if plan and any("TrainingPlanArns" in preference for preference in preferences):
        message = f"has training plans, and `{plan.name}` is set too"
        findings.at(rules.PREFERENCES, name, message, "remove one of them")


def _check_vpc(fields: Mapping[str, ApiField], findings: Findings) -> None:
    for path, other in ((_SUBNETS, _SECURITY_GROUPS), (_SECURITY_GROUPS, _SUBNETS)):
        if path in fields and other not in fields and _style(fields[path]):
            name = _name(fields, other, path)
            findings.at(rules.VPC, fields[path].name, f"needs `{name}`", f"set `{name}` too")
    mode = fields.get(f"{_REPOSITORY}.TrainingRepositoryAccessMode")
    if mode and mode.value == "Vpc" and _SUBNETS not in fields:
        findings.at(
            rules.VPC, mode.name, "is `Vpc`, but the job has no VPC", "set subnets and security groups"
        )
    for path, field in fields.items():
        if path.startswith(f"{_REPOSITORY}.TrainingRepositoryAuthConfig") and not (
            mode and mode.value == "Vpc"
        ):
            findings.at(rules.REPOSITORY, field.name, "needs the access mode `Vpc`", "set it, or remove this")


def _check_checkpoints(fields: Mapping[str, ApiField], findings: Findings) -> None:
    local = fields.get(_LOCAL_CHECKPOINTS)
    if local and _CHECKPOINTS not in fields and _style(local):
        name = _name(fields, _CHECKPOINTS, _LOCAL_CHECKPOINTS)
        findings.at(
            rules.CHECKPOINTS, local.name, f"needs `{name}`", f"set `{name}`, such as `s3://bucket/a`"
        )
    if _is_spot(fields) and _CHECKPOINTS not in fields:
        name = _name(fields, _CHECKPOINTS, _SPOT)
        message = "starts an interrupted job again without its checkpoints"
        findings.at(rules.SPOT_CHECKPOINTS, fields[_SPOT].name, message, f"set `{name}`")


def _lists(fields: Mapping[str, ApiField], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the elements of a list of structures, each with its name and with the names of the API."""
    field = fields.get(path)
    for index, element in enumerate(field.value if field and isinstance(field.value, list) else []):
        if isinstance(element, dict) and field:
            yield f"{field.name}[{index}]", api_names(find_shape(path).member, element)


def _check_documented(fields: Mapping[str, ApiField], request: TrainingRequest, findings: Findings) -> None:
    """Check conditions of the documentation. A test has each of its sentences, with its rule."""
    for path, key in _UNIQUE:
        seen: dict[object, str] = {}
        for name, element in _lists(fields, path):
            value = element.get(key)
            first = seen.setdefault(value, name) if isinstance(value, str) else name
            if first != name:
                findings.at(rules.UNIQUE, name, f"and `{first}` are both for `{value}`", "remove one of them")
    mode = fields.get("AlgorithmSpecification.TrainingInputMode")
    for name, channel in _lists(fields, CHANNELS):
        source = channel.get("DataSource")
        s3 = source.get("S3DataSource") if isinstance(source, dict) else None
        own_mode = channel.get("InputMode") or (mode.value if mode else "File")
        if own_mode != "Pipe":
            hint = "set the input mode of the channel to `Pipe`"
            if isinstance(s3, dict) and s3.get("S3DataType") == "AugmentedManifestFile":
                message = f"is an augmented manifest in the input mode `{own_mode}`"
                findings.at(rules.AUGMENTED, name, message, hint)
            if channel.get("CompressionType") not in (None, "None"):
                message = f"is compressed in the input mode `{own_mode}`"
                findings.at(rules.COMPRESSED, name, message, f"{hint}, or leave the compression out")
        access = s3.get("ModelAccessConfig") if isinstance(s3, dict) else None
        if isinstance(access, dict) and access.get("AcceptEula") is False:
            findings.at(rules.EULA, name, "does not accept the license", "read it, and set `AcceptEula`")
    eula = fields.get("ServerlessJobConfig.AcceptEula")
    if eula and eula.value is False:
        findings.at(rules.EULA, eula.name, "is false", "read the license, and set it to true")
    interval = fields.get("ProfilerConfig.ProfilingIntervalInMilliseconds")
    if interval and type(interval.value) is int and interval.value not in _INTERVALS:
        hint = f"use {', '.join(map(str, _INTERVALS))}"
        findings.at(rules.VALUES, interval.name, f"is {interval.value}", hint)
    length = fields.get("ServerlessJobConfig.SequenceLength")
    number = length.value.removesuffix("K") if length and isinstance(length.value, str) else ""
    if length and number.isdecimal() and not 1 <= int(number) <= _MAX_LENGTH:
        findings.at(rules.VALUES, length.name, f"is {length.value}", f"use 1K to {_MAX_LENGTH}K")
    key_field = fields.get(f"{_RESOURCES}.VolumeKmsKeyId")
    for group in request.groups if key_field else ():
        family = group.instance_type.removeprefix("ml.").partition(".")[0]
        if key_field and ("d" in family or family.startswith(_LOCAL_STORAGE)):
            message = f"can't be used with `{group.instance_type}`, which has local storage"
            hint = "remove it: the instance encrypts its local storage"
            findings.at(rules.VOLUME_KEY, key_field.name, message, hint)
    pending = fields.get(f"{_LIMITS}.MaxPendingTimeInSeconds")
    lacks_accelerator = [group.gpus == 0 and not group.neuron_architecture for group in request.groups]
    if pending and lacks_accelerator and all(lacks_accelerator) and _PREFERENCES not in fields:
        message = "has no effect, because the instances have no GPUs or Neuron devices"
        findings.at(rules.PENDING, pending.name, message, "remove it")


_UNIQUE = (
    ("Tags", "Key"),
    ("DebugRuleConfigurations", "RuleConfigurationName"),
    ("ProfilerRuleConfigurations", "RuleConfigurationName"),
    ("DebugHookConfig.CollectionConfigurations", "CollectionName"),
    (_PREFERENCES, "InstanceType"),
)
"""Lists whose elements have a name of their own."""
_MAX_LENGTH = 1024
_INTERVALS = (100, 200, 500, 1000, 5000, 60000)
_LOCAL_STORAGE = ("g5", "g6", "p5", "trn1")
"""Families with local storage, besides those with a `d` (sagemaker 2.257.7: utils.py)."""


def _check_algorithm(fields: Mapping[str, ApiField], findings: Findings) -> None:
    given = [path for path in (_IMAGE, _ALGORITHM) if path in fields]
    if len(given) != 1:
        message = "the job has both an image and an algorithm" if given else "the job has no image"
        hint = "remove one of them" if given else f"set `{_IMAGE}`"
        findings.add(rules.ALGORITHM, message, hint)
