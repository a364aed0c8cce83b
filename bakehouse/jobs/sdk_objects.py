"""Jobs as Python objects: classes of the SageMaker SDK, and requests as dictionaries.

The SDK is not imported: the objects are read by the names of their attributes.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from bakehouse.catalog.instance_types import instances
from bakehouse.errors import Location, UsageError
from bakehouse.jobs.given_job import GivenJob
from bakehouse.jobs.job_document import JobDocument
from bakehouse.jobs.job_file import CLASSES, JobFile, is_request
from bakehouse.jobs.job_spec import JobSpec
from bakehouse.jobs.sdk_fields import ESTIMATOR, training_input
from bakehouse.plan.workspace import Workspace
from bakehouse.util.format import format_names

_HIDDEN = (
    *("hyperparameters", "enable_network_isolation", "enable_remote_debug", "enable_session_tag_chaining"),
)
"""Arguments of estimators that are kept in an attribute with an underscore."""
_ESTIMATOR = (
    *(name for name in ESTIMATOR if name not in _HIDDEN),
    *("image_uri", "instance_type", "instance_groups", "entry_point", "source_dir", "distribution"),
    *("environment", "framework_version", "pytorch_version", "tensorflow_version"),
    *("py_version", "compiler_config"),
)
"""Attributes of estimators (sagemaker 2.257.7) that have the names of arguments."""
_TRAINER = """
base_job_name checkpoint_config compute environment hyperparameters input_data_config networking
output_data_config role source_code stopping_condition tags training_image training_image_config
training_input_mode
"""
"""Attributes of ModelTrainer (sagemaker-train 1.27.0) that are checked, except for `distributed`."""
_UNSET = "Unassigned"
"""Class of SDK v3 whose objects represent missing values."""
_LATER = "PipelineVariable"
"""Base class of both versions for values that a pipeline gets when it runs."""


def read_object(workspace: Workspace, job: object, inputs: object = None) -> GivenJob:
    """Return the job of an estimator, a ModelTrainer or a CreateTrainingJob request.

    `inputs` are those of the method `fit` of an estimator. Raises UsageError for any other object.
    """
    classes = [kind.__name__ for kind in type(job).__mro__]
    if isinstance(job, Mapping):
        title, values = "the request", dict(job)
        if not is_request(values):
            raise UsageError(
                "the dictionary is not a CreateTrainingJob request",
                hint="its keys are those of the API, such as `AlgorithmSpecification` and `ResourceConfig`",
            )
    elif "ModelTrainer" in classes:
        title, values = "the ModelTrainer", _trainer(job)
    elif "EstimatorBase" in classes:
        title, values = f"the {classes[0]} estimator", _estimator(job, classes[0], inputs)
    else:
        raise UsageError(
            f"`{classes[0]}` is not a job",
            hint="give an estimator of SDK v2, a ModelTrainer of SDK v3 or a CreateTrainingJob request",
        )
    if inputs is not None and "EstimatorBase" not in classes:
        raise UsageError(f"`inputs` is only for estimators, and {title} has its own", hint="remove it")
    place = Location(Path(title), 0, 0)
    document = JobDocument(values, title, Path(), lambda keys: place)
    file = JobFile(document, instances(workspace.catalog), JobSpec())
    return GivenJob(file.image, JobSpec(), file=file)


def _estimator(job: object, name: str, inputs: object) -> dict[str, Any]:
    if name not in CLASSES:
        raise UsageError(
            f"`{name}` is not a class of estimators that Bakehouse knows",
            hint=f"use {format_names(CLASSES)}, or check the request that it sends",
        )
    values = {"class": name}
    values |= _attributes(job, {name: name for name in _ESTIMATOR})
    values |= _attributes(job, {name: f"_{name}" for name in _HIDDEN})
    if name == "HuggingFace" and "framework_version" in values:
        values["transformers_version"] = values.pop("framework_version")
    if inputs is not None:
        channels = inputs if isinstance(inputs, Mapping) else {"training": inputs}
        values["inputs"] = _plain(channels, "inputs")
    return values


def _trainer(job: object) -> dict[str, Any]:
    values = _attributes(job, {name: name for name in _TRAINER.split()})
    if (distributed := getattr(job, "distributed", None)) is not None:
        values["distributed"] = {type(distributed).__name__: _plain(distributed, "distributed")}
    return values


def _attributes(job: object, names: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments that are set, from the attribute of each."""
    values = {argument: _plain(getattr(job, name, None), argument) for argument, name in names.items()}
    return {argument: value for argument, value in values.items() if value is not None}


def _plain(value: object, path: str) -> Any:
    """Convert a value of the SDK to JSON types. Raises UsageError for a value that is not known yet."""
    if value is None or isinstance(value, (str, int, float)):
        return value.value if isinstance(value, Enum) else value
    classes = [kind.__name__ for kind in type(value).__mro__]
    if _UNSET in classes:
        return None
    if _LATER in classes:
        raise UsageError(
            f"`{path}` is not known before the pipeline runs", hint="check the job with a value in its place"
        )
    if isinstance(value, Enum):
        return value.value
    if "TrainingInput" in classes:
        return training_input(getattr(value, "config", {}))
    if isinstance(value, Mapping):
        return {name: _plain(item, f"{path}.{name}") for name, item in value.items()}
    if isinstance(value, Iterable) and not hasattr(value, "model_fields"):
        return [_plain(item, f"{path}[{index}]") for index, item in enumerate(value)]
    if not hasattr(value, "__dict__"):
        raise UsageError(f"`{path}` is of the class `{classes[0]}`, which has no form in JSON")
    members = {name: _plain(item, f"{path}.{name}") for name, item in vars(value).items()}
    return {name: item for name, item in members.items() if item is not None}
