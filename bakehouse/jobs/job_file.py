"""Jobs from JSON files: the arguments of an estimator or ModelTrainer, or a CreateTrainingJob request."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from bakehouse.catalog.instance_types import Instance
from bakehouse.errors import UsageError
from bakehouse.jobs import rules
from bakehouse.jobs.api_fields import flatten
from bakehouse.jobs.code_archive import IGNORED_BY_V3, sdk_findings
from bakehouse.jobs.instance_groups import InstanceGroup, instance_group
from bakehouse.jobs.job_spec import CheckedJob
from bakehouse.jobs.rules import Findings
from bakehouse.jobs.sdk_fields import estimator_fields, trainer_fields
from bakehouse.jobs.training_request import LaunchImage, Sender, TrainingRequest
from bakehouse.jobs.validate import validate
from bakehouse.util.json_reader import parse_json
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
_CLASSES: tuple[Sender, ...] = ("PyTorch", "TensorFlow", "Estimator")
_TRAINER = """
algorithm_name base_job_name checkpoint_config compute distributed environment hyperparameters
input_data_config local_container_root model_package_config networking output_data_config role
sagemaker_session source_code stopping_condition tags training_image training_image_config
training_input_mode training_mode
"""
"""Arguments of ModelTrainer (sagemaker-train 1.27.0)."""
_REQUEST = ("AlgorithmSpecification", "ResourceConfig", "TrainingJobName", "InputDataConfig")
_ENABLED = "sagemaker_{}_enabled"


class JobFile:
    """A job in a JSON file."""

    def __init__(self, path: Path, types: Mapping[str, Instance]) -> None:
        """Read a file. Raises UsageError if it is not a JSON object or a value has the wrong type."""
        self._path, self._types = path, types
        try:
            content = parse_json(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            self._refuse(f"cannot read `{path}`", "set `--file` to a JSON file", error)
        except ValueError as error:
            self._refuse(f"`{path}` is not valid JSON: {error}", "keys and strings need double quotes", error)
        if not isinstance(content, dict):
            self._refuse(f"`{path}` is not a JSON object", 'such as `{"instance_type": "ml.p4d.24xlarge"}`')
        self._content: dict[str, Any] = content
        self._has_class = "class" in content
        self.findings = Findings()
        """Mistakes in the names and types of arguments."""
        if any(name in content for name in _REQUEST):
            self.image, self._request = self._read_api()
        elif {"training_image", "compute", "source_code"} & content.keys():
            self.image, self._request = self._read_trainer()
        else:
            self.image, self._request = self._read_estimator()

    def check_with(self, image: LaunchImage | None) -> CheckedJob:
        """Check the job with an image. Without one, the SDK selects it by version."""
        request = self._request
        if not self._has_class and request.sender == "PyTorch" and image is not None:
            has_code = bool(request.entry_point or request.distribution)
            framework: Sender = "TensorFlow" if image.framework == "tensorflow" else "PyTorch"
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
        self._check_names(_ESTIMATOR.split())
        name = self._text(self._content, "class") if self._has_class else "PyTorch"
        sender = next((sender for sender in _CLASSES if sender == name), None)
        if sender is None:
            hint = suggestion(name, _CLASSES)
            self._refuse(f"`class` in `{self._path}` is `{name}`, which is not a class of SDK v2", hint)
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
            framework_version=self._text(self._content, "framework_version"),
            py_version=self._text(self._content, "py_version"),
            keep_alive=self._number(self._content, "keep_alive_period_in_seconds"),
            compiler=bool(enabled) if compiler is not None else None,
            channels=channels,
            fields=tuple(estimator_fields(self._content)),
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
        self._check_request()
        algorithm = self._mapping(self._content, "AlgorithmSpecification")
        resources = self._mapping(self._content, "ResourceConfig")
        hyperparameters = {
            name: _decoded(value) for name, value in self._texts(self._content, "HyperParameters").items()
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

    def _check_names(self, known: Sequence[str]) -> None:
        for name in self._content:
            if name not in known:
                self.findings.at(rules.UNKNOWN_ARGUMENT, name, "is unknown", suggestion(name, known))

    def _check_request(self) -> None:
        """Check the names, the types and the required fields, as boto3 does before it sends a request."""
        from botocore.session import get_session  # type: ignore[import-untyped]
        from botocore.validate import ParamValidator  # type: ignore[import-untyped]

        model = get_session().get_service_model("sagemaker")
        shape = model.operation_model("CreateTrainingJob").input_shape
        report: str = ParamValidator().validate(self._content, shape).generate_report()
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
            self._refuse(f"`{key}` in `{self._path}` must be a list of mappings", f"with `{name_key}`")
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
            self._refuse(f"`{key}` in `{self._path}` must be {kind}", "")
        return value

    def _refuse(self, message: str, hint: str, error: Exception | None = None) -> NoReturn:
        raise UsageError(message, hint=hint) from error


def _preferred(resources: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a ResourceConfig with the type and count of its first instance preference."""
    preferences = resources.get("InstancePreferences")
    first = preferences[0] if isinstance(preferences, list) and preferences else None
    return {**first, **resources} if isinstance(first, dict) else resources


def _decoded(text: str) -> object:
    """Return a hyperparameter as the toolkit reads it: JSON, or else text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


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
    for strategy in ("torch_distributed", "parameter_server", "multi_worker_mirrored_strategy"):
        if parameters.get(_ENABLED.format(strategy)):
            distribution[strategy] = {"enabled": True}
    if "mp_parameters" in parameters:
        model = {"enabled": True, "parameters": parameters["mp_parameters"]}
        distribution["smdistributed"] = {"modelparallel": model}
    elif parameters.get(_ENABLED.format("distributed_dataparallel")):
        options = parameters.get("sagemaker_distributed_dataparallel_custom_mpi_options", "")
        data = {"enabled": True, "custom_mpi_options": options}
        distribution["smdistributed"] = {"dataparallel": data}
    if distribution and "sagemaker_distribution_instance_groups" in parameters:
        distribution["instance_groups"] = parameters["sagemaker_distribution_instance_groups"]
    return distribution
