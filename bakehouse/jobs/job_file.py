"""Job files in the forms of the SDK and the API: arguments, requests and responses of DescribeTrainingJob."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from bakehouse.catalog.instance_types import Instance
from bakehouse.catalog.names import TITLES
from bakehouse.cluster.job import Encoded, Group
from bakehouse.errors import UsageError
from bakehouse.jobs import rules
from bakehouse.jobs.api_fields import ApiField, find_shape, flatten
from bakehouse.jobs.api_model import botocore_shape
from bakehouse.jobs.code_archive import IGNORED_BY_V3, sdk_findings
from bakehouse.jobs.distribution import LaunchSettings, launch_settings
from bakehouse.jobs.instance_groups import InstanceGroup, instance_group
from bakehouse.jobs.job_document import JobDocument
from bakehouse.jobs.job_settings import OWN_FIELDS
from bakehouse.jobs.job_spec import CheckedJob, JobSpec
from bakehouse.jobs.rules import Findings
from bakehouse.jobs.sdk_fields import estimator_fields, trainer_fields
from bakehouse.jobs.training_request import FRAMEWORKS, LaunchImage, Sender, TrainingRequest
from bakehouse.jobs.validate import launch_context, validate
from bakehouse.util.json_reader import json_or_text
from bakehouse.util.suggest import suggestion

_ESTIMATOR = """
base_job_name checkpoint_local_path checkpoint_s3_uri class code_location compiler_config container_arguments
container_entry_point container_log_level debugger_hook_config dependencies disable_output_compression
disable_profiler distribution enable_infra_check enable_network_isolation enable_remote_debug
enable_sagemaker_metrics enable_session_tag_chaining encrypt_inter_container_traffic entry_point
environment framework_version git_config hyperparameters image_uri input_mode inputs instance_count
instance_groups instance_placement_config instance_type keep_alive_period_in_seconds max_retry_attempts
max_run max_wait metric_definitions model_channel_name model_dir model_uri output_kms_key output_path
profiler_config py_version recipe_overrides role rules sagemaker_session security_group_ids source_dir
subnets tags tensorboard_output_config training_plan training_recipe training_repository_access_mode
training_repository_credentials_provider_arn use_spot_instances volume_kms_key volume_size
"""
"""Arguments of PyTorch, TensorFlow and Estimator (sagemaker 2.257.7), and `inputs` of their method `fit`.
`class` names the class itself.
"""
_HUGGING_FACE = frozenset(_ESTIMATOR.split()) - {"framework_version"} | {
    *("pytorch_version", "tensorflow_version", "transformers_version")
}
"""Arguments of HuggingFace."""
CLASSES: tuple[Sender, ...] = (*FRAMEWORKS, "Estimator")
"""Estimators of SDK v2."""
_TRAINER = """
algorithm_name base_job_name checkpoint_config compute distributed environment hyperparameters
input_data_config local_container_root model_package_config networking output_data_config role
sagemaker_session source_code stopping_condition tags training_image training_image_config
training_input_mode training_mode
"""
"""Arguments of ModelTrainer (sagemaker-train 1.27.0)."""
_REQUEST = ("AlgorithmSpecification", "ResourceConfig", "TrainingJobName", "InputDataConfig")
_ANSWER = ("TrainingJobArn", "TrainingJobStatus")
"""Fields that only responses of the API contain."""
_ENABLED = "sagemaker_{}_enabled"
_STARTED_BY_TOOLKIT = ("mpi", "torch_distributed", "parameter_server", "multi_worker_mirrored_strategy")
_SCOPE = "sagemaker_distribution_instance_groups"
_LAUNCHER_PARAMETERS = frozenset(
    {
        *(_ENABLED.format(name) for name in (*_STARTED_BY_TOOLKIT, "distributed_dataparallel")),
        "sagemaker_mpi_num_of_processes_per_host",
        "sagemaker_mpi_custom_mpi_options",
        "sagemaker_distributed_dataparallel_custom_mpi_options",
        "sagemaker_instance_type",
        "mp_parameters",
        _SCOPE,
    }
)
"""Hyperparameters that start a launcher."""
_OF_THE_RUN = ("sagemaker_program", "sagemaker_submit_directory", "sagemaker_job_name")
_SENT_WITH_CODE = (*_OF_THE_RUN, "sagemaker_container_log_level", "sagemaker_region")
"""Hyperparameters that are set again for each job."""
_INSTANCES = ("InstanceType", "InstanceCount", "InstanceGroups", "InstancePreferences")


def is_request(values: Mapping[str, Any]) -> bool:
    """Return whether a file is a CreateTrainingJob request, or a response of DescribeTrainingJob."""
    return any(name in values for name in (*_REQUEST, *_ANSWER))


def is_of_sdk(values: Mapping[str, Any], own: Collection[str]) -> bool:
    """Return whether a file has arguments of the SDK, and no keys that only Bakehouse has.

    `own` are all keys of Bakehouse.
    """
    theirs = {*_ESTIMATOR.split(), *_HUGGING_FACE, *_TRAINER.split()}
    return bool((theirs - {*own}) & values.keys()) and not ({*own} - theirs) & values.keys()


class JobFile:
    """A job in a file of the SDK or of the API, with the settings that replace its own."""

    def __init__(self, document: JobDocument, types: Mapping[str, Instance], line: JobSpec) -> None:
        """Read a file. Raises UsageError if a value has the wrong type.

        `line` are the settings of the command line, which win.
        """
        self._title, self._types = document.title, types
        self._content: dict[str, Any] = dict(document.values)
        has_answer = any(name in self._content for name in _ANSWER)
        self.answer: Mapping[str, Any] = dict(self._content) if has_answer else {}
        """The response of DescribeTrainingJob that the file has; empty if it has a request."""
        self._has_class = "class" in self._content
        self.findings = Findings()
        """Mistakes in the names and types of arguments."""
        if is_request(self._content):
            self.image, self._request = self._read_api()
        elif {"training_image", "compute", "source_code"} & self._content.keys():
            self.image, self._request = self._read_trainer()
        else:
            self.image, self._request = self._read_estimator()
        self.has_new_launcher = line.distribution is not None
        """The command line replaces the launcher."""
        self._override(line)

    @property
    def is_request(self) -> bool:
        """The file is of the API, not of the SDK."""
        return self._request.sender == "API"

    @property
    def command(self) -> tuple[str, ...]:
        """The command that replaces the one of the image; empty without one."""
        algorithm = self._mapping(self._content, "AlgorithmSpecification")
        words = (*self._list(algorithm, "ContainerEntrypoint"), *self._list(algorithm, "ContainerArguments"))
        return tuple(map(str, words)) if algorithm.get("ContainerEntrypoint") else ()

    @property
    def sent_hyperparameters(self) -> dict[str, object]:
        """The hyperparameters of a request as its hosts got them, except for those with its name and code."""
        texts = self._texts(self._content, "HyperParameters")
        return {
            name: Encoded(texts[name]) if name in texts and json_or_text(texts[name]) == value else value
            for name, value in self._request.hyperparameters.items()
            if name not in _OF_THE_RUN
        }

    @property
    def launcher(self) -> LaunchSettings:
        """The launcher that the hyperparameters of a request start."""
        distribution = self._request.distribution
        names = [name for name in _STARTED_BY_TOOLKIT if name in distribution]
        if not names and "smdistributed" in distribution:
            names = ["smdistributed.dataparallel"]
        groups = distribution.get("instance_groups")
        return LaunchSettings(
            next(iter(names), ""), groups=tuple(map(str, groups)) if isinstance(groups, list) else ()
        )

    def spec(self, image: LaunchImage | None) -> JobSpec:
        """Return the settings of a request, to send it again under another name.

        The launcher's hyperparameters become a distribution, unless the SDK would send other ones.
        """
        request = self._request
        parameters = {
            name: value for name, value in request.hyperparameters.items() if name not in _SENT_WITH_CODE
        }
        distribution = request.distribution
        if not self.has_new_launcher:
            try:
                sent = launch_settings(distribution, launch_context(request, image)).hyperparameters
                is_same = all(name in parameters and parameters[name] == sent[name] for name in sent)
            except UsageError:
                is_same = False
            if is_same:
                parameters = {name: value for name, value in parameters.items() if name not in sent}
            else:
                distribution = {}
        values = {field.path: field.value for field in request.fields}
        has_groups = any(group.name for group in request.groups)
        groups = tuple(Group(group.name, group.instance_type, group.count) for group in request.groups)
        return JobSpec(
            entry_point=request.entry_point,
            source_dir=request.source_dir,
            role=_text(values.get("RoleArn")),
            instance_type="" if has_groups or not groups else groups[0].instance_type,
            instance_count=None if has_groups or not groups else groups[0].count,
            groups=groups if has_groups else (),
            distribution=distribution,
            hyperparameters=parameters,
            environment=request.environment,
            keep_alive=request.keep_alive,
            channels=request.channels,
            output=_text(values.get("OutputDataConfig.S3OutputPath")),
            max_run=_whole(values.get("StoppingCondition.MaxRuntimeInSeconds")),
            volume_gib=_whole(values.get("ResourceConfig.VolumeSizeInGB")),
            spot=values.get("EnableManagedSpotTraining") is True,
            # Responses have empty texts for fields that were not set.
            request=tuple(
                field for field in request.fields if field.path not in OWN_FIELDS and field.value != ""
            ),
        )

    def _override(self, line: JobSpec) -> None:
        """Replace settings by those of the command line."""
        request = self._request
        groups, fields = request.groups, request.fields
        if line.groups:
            groups = tuple(
                instance_group(self._types, group.instance_type, group.count, group.name)
                for group in line.groups
            )
        elif line.instance_type or line.instance_count is not None:
            if any(group.name for group in groups) and not line.instance_type:
                self._refuse(
                    f"`--instance-count` does not say which group of {self._title} it is for",
                    "use `--group`, or set `--instance-type` too",
                )
            old = groups[0] if groups and not groups[0].name else None
            count = (old.count if old else 1) if line.instance_count is None else line.instance_count
            instance_type = line.instance_type or (old.instance_type if old else "")
            groups = (instance_group(self._types, instance_type, count),)
        if groups != request.groups:
            fields = tuple(field for field in fields if field.path.rpartition(".")[2] not in _INSTANCES)
            fields = (*fields, *_instance_fields(groups))
            request = replace(request, extra_instance_type="")
        hyperparameters, distribution = {**request.hyperparameters}, request.distribution
        if line.distribution is not None:
            distribution = line.distribution
            hyperparameters = {
                name: value for name, value in hyperparameters.items() if name not in _LAUNCHER_PARAMETERS
            }
        hyperparameters |= line.hyperparameters
        if request.sender == "API":
            texts = {name: json.dumps(value) for name, value in line.hyperparameters.items()}
            changes = {"HyperParameters": texts, "Environment": line.environment}
            fields = tuple(_extended(field, changes.get(field.path, {})) for field in fields)
        channels = dict.fromkeys(line.inputs, ()) | {**request.channels}
        if line.role:
            others = (field for field in fields if field.path != "RoleArn")
            fields = (*others, ApiField("RoleArn", "RoleArn", line.role))
        self._request = replace(
            request,
            groups=groups,
            fields=fields,
            distribution=distribution,
            hyperparameters=hyperparameters,
            environment={**request.environment, **line.environment},
            entry_point=line.entry_point or request.entry_point,
            source_dir=line.source_dir or request.source_dir,
            channels=channels,
        )

    def check_with(self, image: LaunchImage | None) -> CheckedJob:
        """Check the job with an image. Without one, the SDK selects it by version."""
        request = self._request
        if not self._has_class and request.sender == "PyTorch" and image is not None:
            has_code = bool(request.entry_point or request.distribution)
            framework: Sender = "TensorFlow" if TITLES.get(image.framework) == "TensorFlow" else "PyTorch"
            request = replace(request, sender=framework if has_code else "Estimator")
        checked = replace(image, entry_point="") if image and not request.entry_point else image
        uploaded = sdk_findings(request.source_dir, self._ignored()) if request.sender != "API" else ()
        findings = (*self.findings.errors, *validate(request, checked), *uploaded)
        return CheckedJob(request, findings, image)

    def _ignored(self) -> tuple[str, ...]:
        """Return the patterns of files that ModelTrainer does not upload."""
        code = self._content.get("source_code")
        if self._request.sender != "ModelTrainer" or not isinstance(code, dict):
            return ()
        patterns = self._list(code, "ignore_patterns") if "ignore_patterns" in code else IGNORED_BY_V3
        return tuple(map(str, patterns))

    def _read_estimator(self) -> tuple[str, TrainingRequest]:
        name = self._text(self._content, "class") if self._has_class else "PyTorch"
        sender = next((sender for sender in CLASSES if sender == name), None)
        if sender is None:
            hint = suggestion(name, CLASSES)
            self._refuse(f"`class` in {self._title} is `{name}`, which Bakehouse does not know", hint)
        self._check_names(_HUGGING_FACE if sender == "HuggingFace" else _ESTIMATOR.split())
        version = "framework_version"
        if sender == "HuggingFace":
            version = "tensorflow_version" if "tensorflow_version" in self._content else "pytorch_version"
        has_groups = "instance_groups" in self._content
        compiler = self._content.get("compiler_config")
        enabled = compiler.get("enabled", True) if isinstance(compiler, dict) else compiler is not None
        channels = {}
        for name, value in self._mapping(self._content, "inputs").items():
            names = self._list(value, "instance_groups") if isinstance(value, dict) else ()
            channels[name] = tuple(map(str, names))
        request = TrainingRequest(
            sender=sender,
            groups=self._groups(self._content, "instance_groups", "instance_group_name"),
            extra_instance_type=self._text(self._content, "instance_type") if has_groups else "",
            distribution=self._mapping(self._content, "distribution"),
            entry_point=self._text(self._content, "entry_point"),
            source_dir=self._text(self._content, "source_dir"),
            hyperparameters=self._mapping(self._content, "hyperparameters"),
            environment=self._texts(self._content, "environment"),
            framework_version=self._text(self._content, version),
            py_version=self._text(self._content, "py_version"),
            keep_alive=self._number(self._content, "keep_alive_period_in_seconds"),
            compiler=bool(enabled) if compiler is not None else None,
            channels=channels,
            fields=tuple(estimator_fields(self._content)),
            transformers_version=self._text(self._content, "transformers_version"),
            has_tensorflow_version=version == "tensorflow_version",
        )
        return self._text(self._content, "image_uri"), request

    def _read_trainer(self) -> tuple[str, TrainingRequest]:
        self._check_names(_TRAINER.split())
        compute, code = self._mapping(self._content, "compute"), self._mapping(self._content, "source_code")
        request = TrainingRequest(
            sender="ModelTrainer",
            groups=self._groups(compute, "instance_groups", "instance_group_name"),
            extra_instance_type=self._text(compute, "instance_type")
            if compute.get("instance_groups")
            else "",
            distribution=self._mapping(self._content, "distributed"),
            entry_point=self._text(code, "entry_script"),
            source_dir=self._text(code, "source_dir"),
            requirements=self._text(code, "requirements"),
            command=self._text(code, "command"),
            hyperparameters=self._mapping(self._content, "hyperparameters"),
            environment=self._texts(self._content, "environment"),
            keep_alive=self._number(compute, "keep_alive_period_in_seconds"),
            fields=tuple(trainer_fields(self._content)),
        )
        return self._text(self._content, "training_image"), request

    def _read_api(self) -> tuple[str, TrainingRequest]:
        if any(name in self._content for name in _ANSWER):
            self._content = _sent(self._content)
        self._check_request()
        algorithm = self._mapping(self._content, "AlgorithmSpecification")
        resources = self._mapping(self._content, "ResourceConfig")
        hyperparameters = {
            name: json_or_text(value) for name, value in self._texts(self._content, "HyperParameters").items()
        }
        channels = {}
        for channel in self._list(self._content, "InputDataConfig"):
            source = channel
            for key in ("DataSource", "S3DataSource"):
                source = source.get(key) if isinstance(source, dict) else None
            names = self._list(source, "InstanceGroupNames") if isinstance(source, dict) else ()
            if isinstance(channel, dict):
                channels[str(channel.get("ChannelName", ""))] = tuple(map(str, names))
        starts_toolkit = not algorithm.get("ContainerEntrypoint")
        request = TrainingRequest(
            sender="API",
            groups=self._groups(_preferred(resources), "InstanceGroups", "InstanceGroupName"),
            extra_instance_type=self._text(resources, "InstanceType")
            if resources.get("InstanceGroups")
            else "",
            distribution=_distribution(hyperparameters) if starts_toolkit else {},
            entry_point=str(hyperparameters.get("sagemaker_program", "")),
            source_dir=str(hyperparameters.get("sagemaker_submit_directory", "")),
            hyperparameters=hyperparameters,
            environment=self._texts(self._content, "Environment"),
            keep_alive=self._number(resources, "KeepAlivePeriodInSeconds"),
            channels=channels,
            fields=tuple(flatten(self._content)),
        )
        return self._text(algorithm, "TrainingImage"), request

    def _check_names(self, known: Collection[str]) -> None:
        for name in self._content:
            if name not in known:
                self.findings.at(rules.UNKNOWN_ARGUMENT, name, "is unknown", suggestion(name, known))

    def _check_request(self) -> None:
        """Check the names, the types and the required fields, as boto3 does before it sends a request."""
        from botocore.validate import ParamValidator  # type: ignore[import-untyped]

        report: str = ParamValidator().validate(self._content, botocore_shape()).generate_report()
        for line in report.splitlines():
            # The checks of fields report these with their limits.
            if line.startswith(("Invalid length", "Invalid value")):
                continue
            self.findings.add(rules.REQUEST, line[0].lower() + line[1:])

    def _groups(self, content: Mapping[str, Any], key: str, name_key: str) -> tuple[InstanceGroup, ...]:
        """Return the instance groups, or the type and count of the whole job."""
        is_api = name_key[0].isupper()
        type_key, count_key = (
            ("InstanceType", "InstanceCount") if is_api else ("instance_type", "instance_count")
        )

        def group(values: Mapping[str, Any], name: str) -> InstanceGroup:
            count = self._number(values, count_key)
            return instance_group(
                self._types, self._text(values, type_key), 1 if count is None else count, name
            )

        groups = content.get(key)
        if groups is None:
            return (group(content, ""),) if content.get(type_key) else ()
        if not isinstance(groups, list) or not all(isinstance(values, dict) for values in groups):
            self._refuse(f"`{key}` in {self._title} must be a list of mappings", f"with `{name_key}`")
        return tuple(group(values, self._text(values, name_key)) for values in groups)

    def _text(self, content: Mapping[str, Any], key: str) -> str:
        return str(self._value(content, key, "a string", lambda value: isinstance(value, str)) or "")

    def _number(self, content: Mapping[str, Any], key: str) -> int | None:
        value = self._value(content, key, "a whole number", lambda value: type(value) is int)
        return value if isinstance(value, int) else None

    def _mapping(self, content: Mapping[str, Any], key: str) -> Mapping[str, Any]:
        value = self._value(content, key, "a mapping", lambda value: isinstance(value, dict))
        return value if isinstance(value, dict) else {}

    def _list(self, content: Mapping[str, Any], key: str) -> Sequence[object]:
        value = self._value(content, key, "a list", lambda value: isinstance(value, list))
        return value if isinstance(value, list) else ()

    def _texts(self, content: Mapping[str, Any], key: str) -> dict[str, str]:
        values = self._mapping(content, key)
        return {name: self._text(values, name) for name in values}

    def _value(
        self, content: Mapping[str, Any], key: str, kind: str, is_valid: Callable[[object], bool]
    ) -> object:
        """Return a value, or None if it is missing or null."""
        value = content.get(key)
        if value is not None and not is_valid(value):
            self._refuse(f"`{key}` in {self._title} must be {kind}", "")
        return value

    def _refuse(self, message: str, hint: str, error: Exception | None = None) -> NoReturn:
        raise UsageError(message, hint=hint) from error


def _sent(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request that a response of DescribeTrainingJob describes."""
    fields = {name: value for name, value in answer.items() if name in find_shape("").members}
    request: dict[str, Any] = _without_empty(fields)
    resources = request.get("ResourceConfig")
    if isinstance(resources, dict):
        resources = dict(resources)
        for name in ("InstanceType", "InstanceCount"):
            if (value := resources.pop(f"Selected{name}", None)) is not None:
                resources[name] = value
                resources.pop("InstancePreferences", None)
        request["ResourceConfig"] = resources
    return request


def _without_empty(value: Any) -> Any:
    """Return a response without its empty lists and mappings, which stand for missing settings."""
    if isinstance(value, list):
        return [_without_empty(item) for item in value]
    if not isinstance(value, dict):
        return value
    items = {name: _without_empty(item) for name, item in value.items()}
    return {name: item for name, item in items.items() if item not in ([], {})}


def _instance_fields(groups: Sequence[InstanceGroup]) -> tuple[ApiField, ...]:
    """Return the fields of hosts that the command line sets."""
    if groups[0].name:
        return (ApiField("ResourceConfig.InstanceGroups", "--group", [{} for _ in groups]),)
    return (
        ApiField("ResourceConfig.InstanceType", "--instance-type", groups[0].instance_type),
        ApiField("ResourceConfig.InstanceCount", "--instance-count", groups[0].count),
    )


def _extended(field: ApiField, values: Mapping[str, str]) -> ApiField:
    return replace(field, value={**field.value, **values}) if isinstance(field.value, dict) else field


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _whole(value: object) -> int | None:
    return value if type(value) is int else None


def _preferred(resources: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a ResourceConfig with the type and count of its first instance preference."""
    preferences = resources.get("InstancePreferences")
    first = preferences[0] if isinstance(preferences, list) and preferences else None
    return {**first, **resources} if isinstance(first, dict) else resources


def _distribution(parameters: Mapping[str, object]) -> dict[str, object]:
    """Return the distribution whose hyperparameters these are."""
    distribution: dict[str, object] = {}
    if parameters.get(_ENABLED.format("mpi")):
        mpi: dict[str, object] = {"enabled": True}
        for key, name in (
            ("processes_per_host", "sagemaker_mpi_num_of_processes_per_host"),
            ("custom_mpi_options", "sagemaker_mpi_custom_mpi_options"),
        ):
            if name in parameters:
                mpi[key] = parameters[name]
        distribution["mpi"] = mpi
    for strategy in _STARTED_BY_TOOLKIT[1:]:
        if parameters.get(_ENABLED.format(strategy)):
            distribution[strategy] = {"enabled": True}
    if "mp_parameters" in parameters:
        model = {"enabled": True, "parameters": parameters["mp_parameters"]}
        distribution["smdistributed"] = {"modelparallel": model}
    elif parameters.get(_ENABLED.format("distributed_dataparallel")):
        options = parameters.get("sagemaker_distributed_dataparallel_custom_mpi_options", "")
        data = {"enabled": True, "custom_mpi_options": options}
        distribution["smdistributed"] = {"dataparallel": data}
    if distribution and _SCOPE in parameters:
        distribution["instance_groups"] = parameters[_SCOPE]
    return distribution
