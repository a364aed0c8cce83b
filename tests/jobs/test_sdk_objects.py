"""Jobs as Python objects. `tests/integration/test_api_examples.py` has the classes of the real SDKs."""

from enum import Enum
from typing import Any

import pytest

from bakehouse.errors import UsageError
from bakehouse.jobs import job_check
from bakehouse.jobs.sdk_objects import read_object
from bakehouse.plan.workspace import Workspace, open_workspace
from tests.support.errors import refusal

ROLE = "arn:aws:iam::123456789012:role/SageMakerRole"
URI = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/team/churn@sha256:" + "0" * 64
REQUEST = {
    "TrainingJobName": "churn",
    "RoleArn": ROLE,
    "AlgorithmSpecification": {"TrainingImage": URI, "TrainingInputMode": "File"},
    "OutputDataConfig": {"S3OutputPath": "s3://bucket/models"},
    "ResourceConfig": {"InstanceType": "ml.c5.xlarge", "InstanceCount": 1, "VolumeSizeInGB": 30},
    "StoppingCondition": {"MaxRuntimeInSeconds": 60},
}
UNKNOWN = f"the content of `{URI}` is unknown, so only the settings are checked"


class Values:
    """An object with attributes, as the SDK has them for settings."""

    def __init__(self, **attributes: object) -> None:
        vars(self).update(attributes)


class EstimatorBase(Values): ...


class Estimator(EstimatorBase):
    def enable_network_isolation(self) -> bool:
        return False


class PyTorch(EstimatorBase): ...


class HuggingFace(EstimatorBase): ...


class XGBoost(EstimatorBase): ...


class ModelTrainer(Values): ...


class MPI(Values): ...


class InstanceGroup(Values): ...


class TrainingInput(Values): ...


class Unassigned: ...


class PipelineVariable: ...


class ParameterInteger(PipelineVariable): ...


class Mode(Enum):
    FILE = "File"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    directory = tmp_path_factory.mktemp("project")
    (directory / "pyproject.toml").write_text("[tool.bakehouse]\n")
    return open_workspace(directory)


def messages(workspace: Workspace, job: object, inputs: object = None) -> list[str]:
    result = job_check.check_settings(workspace, read_object(workspace, job, inputs))
    return [finding.message for finding in result.findings]


def refused(workspace: Workspace, job: object, inputs: object = None) -> str:
    return refusal(UsageError, read_object, workspace, job, inputs).strip()


def estimator(**attributes: object) -> Estimator:
    usual: dict[str, Any] = {
        "role": ROLE,
        "image_uri": URI,
        "instance_type": "ml.c5.xlarge",
        "instance_count": 1,
        "_hyperparameters": {"epochs": 1},
        "sagemaker_session": object(),
    }
    return Estimator(**{**usual, **attributes})


def trainer(**attributes: object) -> ModelTrainer:
    compute = Values(instance_type="ml.c5.xlarge", instance_count=2, keep_alive_period_in_seconds=None)
    usual: dict[str, Any] = {
        "training_image": URI,
        "role": ROLE,
        "compute": compute,
        "training_input_mode": Mode.FILE,
        "source_code": Values(source_dir="src", entry_script="train.py", ignore_patterns=[".git"]),
        "output_data_config": Values(s3_output_path="s3://bucket/models", kms_key_id=Unassigned()),
        "sagemaker_session": object(),
    }
    return ModelTrainer(**{**usual, **attributes})


CODE = {"entry_point": "train.py", "source_dir": "s3://code/sourcedir.tar.gz"}
HUGGING_FACE = HuggingFace(**{**vars(estimator()), **CODE, "py_version": "py311", "compiler_config": None})


@pytest.mark.parametrize("job", [REQUEST, estimator(), HUGGING_FACE, trainer()])
def test_the_settings_of_a_job_of_each_kind_are_valid(workspace: Workspace, job: object) -> None:
    assert messages(workspace, job) == [UNKNOWN]


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (
            {**REQUEST, "StoppingCondition": {"MaxRuntimeInSeconds": 0}},
            "`StoppingCondition.MaxRuntimeInSeconds` is 0",
        ),
        (estimator(instance_type="ml.c5.xlargee"), "unknown instance type `ml.c5.xlargee`"),
        (estimator(max_run=0), "`max_run` is 0"),
        (estimator(_enable_remote_debug="yes"), "`enable_remote_debug` must be true or false"),
        (
            estimator(_hyperparameters={"a" * 300: 1}),
            f"too many characters in the name of hyperparameter `{'a' * 20}…`: 300",
        ),
        (
            trainer(compute=Values(instance_type="ml.c5.xlargee", instance_count=1)),
            "unknown instance type `ml.c5.xlargee`",
        ),
        (
            trainer(distributed=MPI(process_count_per_node="two")),
            "`distributed.MPI.process_count_per_node` must be a whole number of at least 1",
        ),
    ],
)
def test_its_settings_are_checked(workspace: Workspace, job: object, message: str) -> None:
    assert message in messages(workspace, job)


def test_versions_of_a_hugging_face_estimator_are_checked(workspace: Workspace) -> None:
    versions = {"framework_version": "4.17", "pytorch_version": "1.10.2"}
    job = HuggingFace(**{**vars(HUGGING_FACE), "image_uri": None, **versions})
    assert messages(workspace, job) == [
        "one of `transformers_version` and `pytorch_version` is shortened: 4.17 and 1.10.2"
    ]


def test_channels_of_groups_are_checked(workspace: Workspace) -> None:
    group = InstanceGroup(instance_group_name="train", instance_type="ml.c5.xlarge", instance_count=1)
    job = estimator(instance_groups=[group], instance_type=None, instance_count=None)
    source = {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://bucket/data"}}
    grouped = {"S3DataSource": {**source["S3DataSource"], "InstanceGroupNames": ["data"]}}
    one = TrainingInput(config={"DataSource": source, "InputMode": "Fast"})
    other = TrainingInput(config={"DataSource": grouped})

    assert messages(workspace, job, "s3://bucket/data") == [UNKNOWN]
    assert messages(workspace, job, {"one": one, "other": other}) == [
        "channel `other` names `data`, which is not a group of this job",
        "channel `other` has instance groups, but `one` has none",
        "`inputs.one.input_mode` is `Fast`, which the API does not have",
        UNKNOWN,
    ]


@pytest.mark.parametrize(
    ("job", "text"),
    [
        (
            3,
            "error: `int` is not a job\n\n"
            "hint: give an estimator of SDK v2, a ModelTrainer of SDK v3 or a CreateTrainingJob request",
        ),
        (
            {"image": "churn"},
            "error: the dictionary is not a CreateTrainingJob request\n\n"
            "hint: its keys are those of the API, such as `AlgorithmSpecification` and `ResourceConfig`",
        ),
        (
            XGBoost(),
            "error: `XGBoost` is not a class of estimators that Bakehouse knows\n\n"
            "hint: use `PyTorch`, `TensorFlow`, `HuggingFace`, `Estimator`, or check the request that it "
            "sends",
        ),
        (
            estimator(instance_count=ParameterInteger()),
            "error: `instance_count` is not known before the pipeline runs\n\n"
            "hint: check the job with a value in its place",
        ),
        (
            trainer(environment={"EPOCHS": ParameterInteger()}),
            "error: `environment.EPOCHS` is not known before the pipeline runs\n\n"
            "hint: check the job with a value in its place",
        ),
        (
            estimator(_hyperparameters={"rates": [0.1, object()]}),
            "error: `hyperparameters.rates[1]` is of the class `object`, which has no form in JSON",
        ),
        (
            estimator(instance_count="2"),
            "error: `instance_count` in the Estimator estimator must be a whole number",
        ),
        (
            trainer(compute=Values(instance_type=2)),
            "error: `instance_type` in the ModelTrainer must be a string",
        ),
    ],
)
def test_what_is_not_a_job_is_an_error(workspace: Workspace, job: object, text: str) -> None:
    assert refused(workspace, job) == text


def test_only_estimators_have_other_inputs(workspace: Workspace) -> None:
    assert refused(workspace, REQUEST, {"training": "s3://bucket/data"}) == (
        "error: `inputs` is only for estimators, and the request has its own\n\nhint: remove it"
    )
