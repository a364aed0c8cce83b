"""Jobs of `--job`: files of Bakehouse, tables of the project, requests and answers of the API."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bakehouse.cluster.job import Encoded, Group
from bakehouse.errors import BakehouseError, UsageError
from bakehouse.jobs.api_fields import ApiField
from bakehouse.jobs.create_training_job import api_request
from bakehouse.jobs.distribution import LaunchSettings
from bakehouse.jobs.given_job import GivenJob, find_job, read_job, require_job
from bakehouse.jobs.job_check import check_settings
from bakehouse.jobs.job_images import find_image
from bakehouse.jobs.job_spec import JobSpec, check_job
from bakehouse.plan.workspace import Workspace, open_workspace
from tests.support.data import text_of
from tests.support.errors import error_text, raised, refusal

ROLE = "arn:aws:iam::123456789012:role/SageMakerRole"
PROJECT = f"""\
[tool.bakehouse]

[tool.bakehouse.jobs.nightly]
image = "pytorch-cpu"
source_dir = "src"
instance_type = "ml.c5.2xlarge"
distribution = "torch_distributed"
hyperparameters = {{lr = 0.1, name = "0.1"}}
role = "{ROLE}"

[tool.bakehouse.jobs.nightly.request.VpcConfig]
Subnets = ["subnet-1"]
SecurityGroupIds = ["sg-1"]

[tool.bakehouse.jobs.mistaken]
instance_type = "ml.c5.2xlarge"
instance_cont = 2

[tool.bakehouse.jobs.mistaken.request.ResourceConfig]
InstanceType = "ml.p4d.24xlarge"
"""
OWN = text_of(__file__, "own")
DESCRIPTION: dict[str, Any] = {
    "TrainingJobName": "churn-1",
    "TrainingJobArn": "arn:aws:sagemaker:eu-west-1:123456789012:training-job/churn-1",
    "TrainingJobStatus": "Failed",
    "FailureReason": "AlgorithmError",
    "RoleArn": ROLE,
    "AlgorithmSpecification": {
        "TrainingImage": "ghcr.io/ada/churn@sha256:" + 64 * "1",
        "TrainingInputMode": "File",
    },
    "HyperParameters": {
        "lr": "0.10",
        "name": "plain text",
        "sagemaker_program": '"train.py"',
        "sagemaker_submit_directory": '"s3://code/sourcedir.tar.gz"',
        "sagemaker_job_name": '"churn-1"',
        "sagemaker_region": '"eu-west-1"',
        "sagemaker_mpi_enabled": "true",
        "sagemaker_mpi_num_of_processes_per_host": "2",
        "sagemaker_mpi_custom_mpi_options": '""',
    },
    "InputDataConfig": [
        {
            "ChannelName": "train",
            "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://data/train"}},
            "CompressionType": "None",
            "RecordWrapperType": "None",
        }
    ],
    "OutputDataConfig": {"KmsKeyId": "", "S3OutputPath": "s3://models/"},
    "ResourceConfig": {"InstanceType": "ml.c5.2xlarge", "InstanceCount": 2, "VolumeSizeInGB": 50},
    "StoppingCondition": {"MaxRuntimeInSeconds": 7200},
    "Environment": {"NCCL_DEBUG": "INFO"},
    "CreationTime": "2026-11-20T09:41:12.345000+00:00",
    "SecondaryStatusTransitions": [],
    "ProfilingStatus": "Disabled",
}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    directory = tmp_path_factory.mktemp("project")
    (directory / "pyproject.toml").write_text(PROJECT)
    (directory / "src").mkdir()
    return open_workspace(directory)


@pytest.fixture(autouse=True)
def in_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def given(workspace: Workspace, content: object, line: JobSpec | None = None, image: str = "") -> GivenJob:
    """Return the job in a file; texts are YAML, other values become JSON."""
    name = "job.yaml" if isinstance(content, str) else "job.json"
    Path(name).write_text(content if isinstance(content, str) else json.dumps(content, indent=4))
    return read_job(workspace, image, name, line or JobSpec())


def refused(workspace: Workspace, content: object, line: JobSpec | None = None) -> str:
    error = raised(BakehouseError, given, workspace, content, line)
    assert isinstance(error, UsageError)
    return error_text(error)


def test_a_file_of_bakehouse(workspace: Workspace) -> None:
    job = given(workspace, OWN)

    assert job.image == "pytorch-cpu"
    assert job.spec == JobSpec(
        groups=(Group("data", "ml.c5.18xlarge", 2), Group("train", "ml.p4d.24xlarge", 1)),
        distribution={"mpi": {"enabled": True}, "instance_groups": ["train"]},
        hyperparameters={
            **{"lr": 0.001, "epochs": 10, "name": "no", "deep": [1, 2], "quoted": "10", "off": False},
            "nothing": None,
        },
        environment={"NCCL_DEBUG": "INFO", "EMPTY": ""},
        channels={"images": ("data",), "labels": ("train",)},
        inputs={"images": "s3://data/images", "labels": "here"},
        max_run=60,
        volume_gib=100,
        keep_alive=0,
    )


def test_the_same_keys_as_json(workspace: Workspace) -> None:
    content = {"image": "pytorch-cpu", "hyperparameters": {"text": "\U0001f600 a/b", "lr": 0.1}, "spot": True}
    Path("job.json").write_text(json.dumps(content).replace("/", "\\/"))
    job = read_job(workspace, "", "job.json", JobSpec())
    assert job.spec == JobSpec(hyperparameters={"text": "\U0001f600 a/b", "lr": 0.1}, spot=True)


def test_a_table_of_the_project(workspace: Workspace) -> None:
    job = read_job(workspace, "", "nightly", JobSpec())
    root = workspace.project.root

    assert (job.image, job.spec.role, job.spec.source_dir) == ("pytorch-cpu", ROLE, str(root / "src"))
    assert job.spec.distribution == {"torch_distributed": {"enabled": True}}
    assert job.spec.hyperparameters == {"lr": 0.1, "name": "0.1"}
    assert job.spec.request == (
        ApiField("VpcConfig.SecurityGroupIds", "VpcConfig.SecurityGroupIds", ["sg-1"]),
        ApiField("VpcConfig.Subnets", "VpcConfig.Subnets", ["subnet-1"]),
    )


def test_mistakes_in_a_table_have_their_places(workspace: Workspace) -> None:
    unknown, own = raised(UsageError, read_job, workspace, "", "mistaken", JobSpec()).diagnostics
    assert (unknown.message, unknown.location and unknown.location.line) == (
        "unknown key `instance_cont` in [tool.bakehouse.jobs.mistaken]",
        17,
    )
    assert (own.message, own.location and own.location.line) == (
        "`request.ResourceConfig.InstanceType` cannot be set",
        20,
    )
    [reason] = own.reasons
    assert (reason.text, reason.location and reason.location.line) == ("`instance_type` sets it too", 16)


@pytest.mark.parametrize(
    ("job", "message"),
    [
        ("nigthly", "error: unknown job `nigthly`\n\nhint: did you mean `nightly`?\n"),
        ("x", "error: unknown job `x`\n\nhint: use one of `mistaken`, `nightly`\n"),
        (
            "./nightly",
            "error: cannot read `nightly`: no such file or directory\n\n"
            "hint: set `--job` to a YAML or JSON file\n",
        ),
    ],
)
def test_a_job_that_does_not_exist(workspace: Workspace, job: str, message: str) -> None:
    assert refusal(UsageError, read_job, workspace, "", job, JobSpec()) == message


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        ({"instance_type": "ml.g5.xlarge"}, {"groups": (), "instance_type": "ml.g5.xlarge"}),
        ({"groups": (Group("a", "ml.c5.xlarge"),)}, {"groups": (Group("a", "ml.c5.xlarge"),)}),
        ({"distribution": {}}, {"distribution": {}}),
        ({"role": "r", "entry_point": "a.py"}, {"role": "r", "entry_point": "a.py"}),
        ({"environment": {"NCCL_DEBUG": ""}}, {"environment": {"NCCL_DEBUG": "", "EMPTY": ""}}),
    ],
)
def test_the_command_line_wins(workspace: Workspace, line: dict[str, Any], changed: dict[str, Any]) -> None:
    job = given(workspace, OWN, JobSpec(**line))
    assert job.spec == replace(given(workspace, OWN).spec, **changed)


def test_the_command_line_replaces_single_hyperparameters_and_channels(workspace: Workspace) -> None:
    inputs = {"images": "s3://other", "more": "s3://more"}
    line = JobSpec(hyperparameters={"lr": 5}, inputs=inputs, channels=dict.fromkeys(inputs, ()))
    job = given(workspace, OWN, line, image="mpi-cpu")

    assert job.image == "mpi-cpu"
    assert (job.spec.hyperparameters["lr"], job.spec.hyperparameters["epochs"]) == (5, 10)
    assert job.spec.inputs == {"images": "s3://other", "labels": "here", "more": "s3://more"}
    assert job.spec.channels == {"images": ("data",), "labels": ("train",), "more": ()}


def test_a_count_does_not_change_groups(workspace: Workspace) -> None:
    message = (
        "error: `--instance-count` does not say which group of `job.{}` it is for\n\n"
        "hint: use `--group`, or set `--instance-type` too\n"
    )
    assert refused(workspace, OWN, JobSpec(instance_count=3)) == message.format("yaml")
    groups = [{"InstanceGroupName": "a", "InstanceType": "ml.c5.xlarge", "InstanceCount": 1}]
    content = {**DESCRIPTION, "ResourceConfig": {"InstanceGroups": groups, "VolumeSizeInGB": 1}}
    assert refused(workspace, content, JobSpec(instance_count=3)) == message.format("json")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "instance_count: 2\nrole: a\ninstance_count: 3\n",
            "error: `instance_count` is given twice\n"
            "  --> job.yaml:3:1\n"
            "   |\n"
            " 3 | instance_count: 3\n"
            "   | ^^^^^^^^^^^^^^\n"
            "  because the first value is here   job.yaml:1:1\n\n"
            "hint: remove one of them\n",
        ),
        (
            "hyperparameters:\n  lr: 1\n  lr: 1\n",
            "error: `hyperparameters.lr` is given twice\n"
            "  --> job.yaml:3:3\n"
            "   |\n"
            " 3 |   lr: 1\n"
            "   |   ^^\n"
            "  because the first value is here   job.yaml:2:3\n\n"
            "hint: remove one of them\n",
        ),
        (
            "instance_count: 2\ngroups:\n  a: {instance_type: ml.c5.xlarge}\n",
            "error: `instance_count` and `groups` both give the instances of the job\n"
            "  --> job.yaml:1:1\n"
            "   |\n"
            " 1 | instance_count: 2\n"
            "   | ^^^^^^^^^^^^^^\n"
            "  because `groups` is here   job.yaml:2:1\n\n"
            "hint: give each group its type and count, and remove the other\n",
        ),
        (
            "channels: {a: s3://b}\nrequest:\n  InputDataConfig:\n  - ChannelName: a\n    DataSource: {}\n",
            "error: `request.InputDataConfig[0]` cannot be set\n"
            "  --> job.yaml:4:5\n"
            "   |\n"
            " 4 |   - ChannelName: a\n"
            "   |     ^\n"
            "  because `channels.a` sets it too   job.yaml:1:12\n\n"
            "hint: remove one of them\n",
        ),
        (
            "request: {TrainingJobName: a}\n",
            "error: `request.TrainingJobName` cannot be set\n"
            "  --> job.yaml:1:11\n"
            "   |\n"
            " 1 | request: {TrainingJobName: a}\n"
            "   |           ^^^^^^^^^^^^^^^\n"
            "  because Bakehouse sets it from `--job-name`\n\n"
            "hint: remove it, and set `--job-name`\n",
        ),
        (
            "request: {Tags: [{Key: a, Vale: b}]}\n",
            "error: `request.Tags[0]` has no `Value`, which the API needs\n"
            "  --> job.yaml:1:18\n"
            "   |\n"
            " 1 | request: {Tags: [{Key: a, Vale: b}]}\n"
            "   |                  ^\n"
            "\n"
            "error: `request.Tags[0].Vale` is not a field of CreateTrainingJob\n"
            "  --> job.yaml:1:27\n"
            "   |\n"
            " 1 | request: {Tags: [{Key: a, Vale: b}]}\n"
            "   |                           ^^^^\n\n"
            "hint: did you mean `Value`?\n",
        ),
    ],
)
def test_what_a_file_gives_twice_is_shown_at_both_places(
    workspace: Workspace, content: str, message: str
) -> None:
    assert refused(workspace, content) == message


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("instance_count: 0", "`instance_count` must be at least 1, not 0"),
        ("instance_count: two", "`instance_count` must be a whole number"),
        ("instance_count: true", "`instance_count` must be a whole number"),
        ("processes_per_host: 0", "`processes_per_host` must be at least 1, not 0"),
        ("keep_alive: -1", "`keep_alive` must be at least 0, not -1"),
        ("spot: 1", "`spot` must be true or false"),
        ('role: ""', "`role` is empty"),
        ("groups: {}", "`groups` is empty"),
        ("groups: {a: {}}", "`groups.a` has no `instance_type`"),
        ("groups: {a: ml.c5.xlarge}", "`groups.a` must be a mapping"),
        ("environment: {A: 1}", "`environment.A` must be a text"),
        ("distribution: [mpi]", "`distribution` must be a name or a mapping"),
        ("channels: {'a/b': s3://a}", "`channels.a/b` is not a valid channel name"),
        ("channels: {a: 1}", "`channels.a` must be a source, or a mapping with `source` and `groups`"),
        ("channels: {a: {groups: b}}", "`channels.a.groups` must be a list of group names"),
        ("channels: {a: {groups: [1]}}", "`channels.a.groups` must be a list of group names"),
        ("volume_size: big", "`volume_size` is `big`, which is not a size"),
        ("volume_size: 0", "`volume_size` must be at least 1, not 0"),
        ("local: {cpus: {a: 0}}", "`local.cpus.a` must be above 0"),
        ("local: {memroy: 1g}", "unknown key `local.memroy` in `job.yaml`"),
        ("- a", "`job.yaml` is not a mapping"),
        ("a: b: c", "this is not YAML"),
    ],
)
def test_mistakes_in_a_file(workspace: Workspace, content: str, message: str) -> None:
    assert refused(workspace, content).startswith(f"error: {message}\n  --> job.yaml:1:")


def test_a_job_of_an_answer(workspace: Workspace) -> None:
    job = given(workspace, DESCRIPTION)
    assert job.file
    assert job.image == DESCRIPTION["AlgorithmSpecification"]["TrainingImage"]
    assert job.file.sent_hyperparameters == {
        "lr": Encoded("0.10"),
        "name": Encoded("plain text"),
        "sagemaker_region": Encoded('"eu-west-1"'),
        "sagemaker_mpi_enabled": Encoded("true"),
        "sagemaker_mpi_num_of_processes_per_host": Encoded("2"),
        "sagemaker_mpi_custom_mpi_options": Encoded('""'),
    }
    assert all(isinstance(value, Encoded) for value in job.file.sent_hyperparameters.values())
    assert job.file.launcher == LaunchSettings("mpi")
    assert job.spec == JobSpec(
        entry_point="train.py",
        source_dir="s3://code/sourcedir.tar.gz",
        role=ROLE,
        instance_type="ml.c5.2xlarge",
        instance_count=2,
        distribution={"mpi": {"enabled": True, "processes_per_host": 2, "custom_mpi_options": ""}},
        hyperparameters={"lr": 0.1, "name": "plain text"},
        environment={"NCCL_DEBUG": "INFO"},
        channels={"train": ()},
        output="s3://models/",
        max_run=7200,
        volume_gib=50,
        spot=False,
        request=job.spec.request,
    )
    assert [field.path for field in job.spec.request] == [
        "AlgorithmSpecification.TrainingInputMode",
        "InputDataConfig",
    ]
    assert [finding.rule.name for finding in check_settings(workspace, job).findings] == ["image-unknown"]


def test_a_request_is_sent_again_with_all_its_fields(workspace: Workspace) -> None:
    """The launcher's hyperparameters come from the distribution, the others from the request."""
    job = given(workspace, DESCRIPTION, JobSpec(sdk="boto3", inputs={"train": "s3://new"}))
    image = find_image(workspace, "mpi-cpu")
    checked = check_job(image, job.spec, workspace.catalog)
    assert checked.errors == ()
    sent = api_request(
        checked.request,
        replace(image, uri="uri"),
        job.spec,
        name="again",
        hyperparameters={},
        output="s3://o",
    )
    kept = ("RoleArn", "ResourceConfig", "StoppingCondition", "Environment")
    assert {name: sent[name] for name in kept} == {name: DESCRIPTION[name] for name in kept}
    source = {"S3DataType": "S3Prefix", "S3Uri": "s3://new", "S3DataDistributionType": "FullyReplicated"}
    assert sent["InputDataConfig"] == [
        {**DESCRIPTION["InputDataConfig"][0], "DataSource": {"S3DataSource": source}}
    ]


def test_a_job_is_json(workspace: Workspace) -> None:
    job = read_job(workspace, "", '{"image": "mpi-cpu", "max_run": 60, "spot": true}', JobSpec())
    assert (job.image, job.spec) == ("mpi-cpu", JobSpec(max_run=60, spot=True))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '{"max_runs": 60}',
            "error: unknown key `max_runs` in `--job`\n  --> --job:1:2\n   |\n"
            ' 1 | {"max_runs": 60}\n   |  ^^^^^^^^^^\n\nhint: did you mean `max_run`?\n',
        ),
        (
            '{"max_run": 60',
            "error: `--job` is not valid JSON: Expecting ',' delimiter: line 1 column 15 (char 14)\n\n"
            "hint: keys and strings need double quotes\n",
        ),
    ],
)
def test_mistakes_in_a_job_that_is_json(workspace: Workspace, text: str, message: str) -> None:
    assert refusal(UsageError, read_job, workspace, "", text, JobSpec()) == message


def test_options_win_over_an_answer(workspace: Workspace) -> None:
    line = JobSpec(
        instance_count=4,
        distribution={"torch_distributed": {"enabled": True}},
        hyperparameters={"lr": 1},
        environment={"A": "b"},
        role="arn:aws:iam::123456789012:role/Other",
        inputs={"train": "here"},
    )
    job = given(workspace, DESCRIPTION, line, image="pytorch-cpu")
    assert job.file
    assert (job.spec.instance_type, job.spec.instance_count) == ("ml.c5.2xlarge", 4)
    assert job.file.has_new_launcher
    assert job.spec.distribution == {"torch_distributed": {"enabled": True}}
    assert job.spec.hyperparameters == {"lr": 1, "name": "plain text"}
    assert job.file.sent_hyperparameters["lr"] == 1
    assert job.spec.environment == {"NCCL_DEBUG": "INFO", "A": "b"}
    assert (job.spec.role, job.spec.inputs) == (line.role, {"train": "here"})
    assert check_settings(workspace, job).errors == ()
    assert [
        finding.message for finding in check_settings(workspace, replace(job, image="mpi-cpu")).errors
    ] == ["`torch_distributed` needs `torchrun`, but `mpi-cpu` has none"]


def test_a_request_with_other_hyperparameters_than_the_sdk_keeps_them(workspace: Workspace) -> None:
    content = {**DESCRIPTION, "HyperParameters": {"sagemaker_mpi_enabled": "true", "lr": "1"}}
    job = given(workspace, content)
    assert job.file
    assert (job.spec.distribution, job.spec.hyperparameters) == ({}, {"sagemaker_mpi_enabled": True, "lr": 1})
    assert job.file.launcher == LaunchSettings("mpi")


def test_the_selected_instances_of_an_answer(workspace: Workspace) -> None:
    resources = {
        "InstancePreferences": [{"InstanceType": "ml.p3.16xlarge", "InstanceCount": 1}],
        "SelectedInstanceType": "ml.c5.xlarge",
        "SelectedInstanceCount": 3,
        "VolumeSizeInGB": 30,
    }
    job = given(workspace, {**DESCRIPTION, "ResourceConfig": resources})
    assert (job.spec.instance_type, job.spec.instance_count) == ("ml.c5.xlarge", 3)
    assert check_settings(workspace, job).errors == ()


def test_the_conditions_of_the_api_hold_for_further_fields(workspace: Workspace) -> None:
    content = """\
image: pytorch-cpu
instance_type: ml.c5.2xlarge
spot: true
max_run: 7200
request:
  StoppingCondition: {MaxWaitTimeInSeconds: 60}
  VpcConfig: {Subnets: [subnet-1], SecurityGroupIds: [not a group]}
  Tags: [{Key: a, Value: 1}]
"""
    result = check_settings(workspace, given(workspace, content))
    assert [finding.message for finding in result.errors] == [
        "`VpcConfig.SecurityGroupIds[0]` is `not a group`, which is not a valid SecurityGroupId",
        "`Tags[0].Value` must be a string",
        "`StoppingCondition.MaxWaitTimeInSeconds` is 60, but `max_run` is 7200: the wait includes the run",
    ]


def test_what_needs_an_image_or_reads_no_arguments(workspace: Workspace) -> None:
    with pytest.raises(UsageError) as caught:
        require_job(given(workspace, "instance_count: 1\n"), "run")
    assert error_text(caught.value) == (
        "error: `run` needs an image\n\nhint: name one, or set `image` in the job file\n"
    )
    with pytest.raises(UsageError) as caught:
        require_job(given(workspace, {"image_uri": "a", "entry_point": "train.py"}), "launch")
    assert error_text(caught.value) == (
        "error: `launch` does not read arguments of the SDK\n\n"
        "hint: use Bakehouse's keys, or a CreateTrainingJob request; `validate` also reads arguments\n"
    )


def test_the_only_job_of_an_image_is_its_job(workspace: Workspace) -> None:
    assert find_job(workspace, "pytorch-cpu") == "nightly"
    assert find_job(workspace, "mpi-cpu") == ""
    second = replace(workspace.project, jobs={**workspace.project.jobs, "weekly": {"image": "pytorch-cpu"}})
    assert find_job(replace(workspace, project=second), "pytorch-cpu") == ""


def test_a_project_selects_version_2_unless_a_job_selects_another(workspace: Workspace) -> None:
    other = replace(workspace, project=replace(workspace.project, sagemaker_sdk=2))
    assert read_job(other, "pytorch-cpu", "", JobSpec()).spec.sdk == "v2"
    assert read_job(other, "pytorch-cpu", "nightly", JobSpec()).spec.sdk == "v2"
    assert read_job(other, "pytorch-cpu", "nightly", JobSpec(sdk="v3")).spec.sdk == "v3"
    assert read_job(workspace, "pytorch-cpu", "", JobSpec()).spec.sdk == ""


def test_settings_of_a_table_name_it(workspace: Workspace) -> None:
    given = read_job(workspace, "", "nightly", JobSpec())
    assert given.spec.origin == "[tool.bakehouse.jobs.nightly]"


def test_empty_lists_of_an_answer_are_not_settings(workspace: Workspace, tmp_path: Path) -> None:
    empty: dict[str, Any] = {
        "InputDataConfig": [],
        "DebugRuleConfigurations": [],
        "VpcConfig": {"SecurityGroupIds": [], "Subnets": []},
        "Environment": {},
        "SecondaryStatusTransitions": [],
    }
    path = tmp_path / "failed.json"
    path.write_text(json.dumps({**DESCRIPTION, **empty}))
    given = read_job(workspace, "", str(path), JobSpec())

    assert given.file
    assert given.file.answer["FailureReason"] == "AlgorithmError"
    paths = {field.path.partition(".")[0] for field in given.spec.request}
    assert not paths & empty.keys()
    assert not [
        error.message for error in check_settings(workspace, given).errors if "has 0" in error.message
    ]
