"""Jobs of a file on this machine."""

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from moto import mock_aws

from bakehouse.cluster.job import Group, TrainingJob, input_files
from bakehouse.errors import LaunchError, UsageError
from bakehouse.jobs.given_job import GivenJob, read_job
from bakehouse.jobs.job_settings import LocalSettings
from bakehouse.jobs.job_spec import JobSpec
from bakehouse.plan.workspace import Workspace, open_workspace
from bakehouse.sagemaker.local_job import prepare
from bakehouse.sagemaker.local_request import download_code, local_request
from tests.support.errors import raised, refusal

IMAGE = "ghcr.io/ada/churn@sha256:" + 64 * "1"
TEXTS = {
    "lr": "0.10",
    "name": "plain text",
    "sagemaker_program": '"train.py"',
    "sagemaker_submit_directory": '"s3://code/job/sourcedir.tar.gz"',
    "sagemaker_region": '"eu-west-1"',
    "sagemaker_mpi_enabled": "true",
    "sagemaker_mpi_num_of_processes_per_host": "3",
    "sagemaker_distribution_instance_groups": '["train"]',
}
GROUPS = [
    {"InstanceGroupName": "data", "InstanceType": "ml.c5.18xlarge", "InstanceCount": 1},
    {"InstanceGroupName": "train", "InstanceType": "ml.c5.2xlarge", "InstanceCount": 2},
]
ANSWER: dict[str, Any] = {
    "TrainingJobName": "churn-1",
    "TrainingJobArn": "arn",
    "AlgorithmSpecification": {"TrainingImage": IMAGE, "TrainingInputMode": "File"},
    "HyperParameters": TEXTS,
    "ResourceConfig": {"InstanceGroups": GROUPS, "VolumeSizeInGB": 30},
    "InputDataConfig": [
        {"ChannelName": "train", "DataSource": {}},
        {"ChannelName": "test", "DataSource": {}},
    ],
    "StoppingCondition": {"MaxRuntimeInSeconds": 7200},
    "Environment": {"A": "b"},
}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    directory = tmp_path_factory.mktemp("project")
    (directory / "pyproject.toml").write_text("[tool.bakehouse]\n")
    return open_workspace(directory)


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def given(workspace: Workspace, content: object, **line: Any) -> GivenJob:
    Path("failed.json").write_text(json.dumps(content))
    inputs = line.pop("inputs", {})
    options = JobSpec(inputs=inputs, channels=dict.fromkeys(inputs, ()), **line)
    return read_job(workspace, "", "failed.json", options)


HERE = {"train": "data", "test": "data"}


def test_a_job_of_sagemaker_runs_as_it_was_sent(workspace: Workspace, data: Path) -> None:
    """The hosts get the texts of the hyperparameters, whatever the SDK would send."""
    request = local_request(given(workspace, ANSWER, inputs=HERE), TrainingJob(seed=1))
    assert request.code_uri == "s3://code/job/sourcedir.tar.gz"
    request = replace(request, job=replace(request.job, code_archive=b"code", name="again"))
    job = prepare(request, IMAGE, workspace.catalog)

    assert (job.groups, job.launcher_groups, job.processes_per_host, job.ranks) == (
        (Group("data", "ml.c5.18xlarge", 1), Group("train", "ml.c5.2xlarge", 2)),
        ("train",),
        3,
        6,
    )
    files = input_files(job, job.hosts_by_group["train"][0])
    assert json.loads(files["/opt/ml/input/config/hyperparameters.json"]) == {
        **TEXTS,
        "sagemaker_job_name": '"again"',
        "sagemaker_submit_directory": '"/opt/ml/sourcedir.tar.gz"',
    }
    assert (job.channel_directories, job.deadline) == ({"train": str(data), "test": str(data)}, 7200.0)
    assert (job.environment["A"], job.code_archive) == ("b", b"code")


def test_options_replace_what_was_sent(workspace: Workspace) -> None:
    line: dict[str, Any] = {"instance_type": "ml.c5.xlarge", "distribution": {}}
    request = local_request(given(workspace, ANSWER, inputs=HERE, **line), TrainingJob())
    job = prepare(request, IMAGE, workspace.catalog)

    assert (job.groups, job.ranks, job.deadline) == ((Group(instance_type="ml.c5.xlarge"),), 1, 7200.0)
    assert not any("mpi" in name for name in job.hyperparameters)


def test_a_container_with_a_command_of_its_own(workspace: Workspace) -> None:
    algorithm = {
        "TrainingImage": IMAGE,
        "ContainerEntrypoint": ["python"],
        "ContainerArguments": ["a.py", "-v"],
    }
    content = {**ANSWER, "AlgorithmSpecification": algorithm, "HyperParameters": {"lr": "0.10", "n": '"x"'}}
    request = local_request(given(workspace, content, inputs=HERE), TrainingJob())
    job = prepare(request, IMAGE, workspace.catalog)

    assert (job.command, job.has_toolkit) == (("python", "a.py", "-v"), False)
    files = input_files(job, "algo-1")
    assert json.loads(files["/opt/ml/input/config/hyperparameters.json"]) == {"lr": "0.10", "n": '"x"'}


def test_each_channel_needs_a_directory(workspace: Workspace) -> None:
    source = {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://data/test"}}
    channels = [ANSWER["InputDataConfig"][0], {"ChannelName": "test", "DataSource": source}]
    job = given(workspace, {**ANSWER, "InputDataConfig": channels}, inputs={"train": "missing"})
    assert refusal(UsageError, local_request, job, TrainingJob()) == (
        "error: directory `missing` of channel `train` does not exist\n\n"
        "hint: `--channel training=data` copies the directory `data`\n"
        "\n"
        "error: the channel `test` has no directory on this machine\n\n"
        "hint: set `--channel test=DIRECTORY` to a copy of its data\n"
    )


def test_settings_of_the_hosts(workspace: Workspace, data: Path) -> None:
    Path("job.yaml").write_text(
        "image: mpi-cpu\n"
        "groups: {a: {instance_type: ml.c5.xlarge}, b: {instance_type: ml.c5.xlarge, instance_count: 2}}\n"
        "channels: {train: {source: data, groups: [a]}}\n"
        "launcher: mpirun\n"
        "local: {cpus: {a: 0.5}, memory: 2g, volume_size: 512m, stop_grace: 0}\n"
    )
    given = read_job(workspace, "", "job.yaml", JobSpec())
    assert given.local == LocalSettings({"a": 0.5}, 2 * 2**30, 512 * 2**20, 0)
    request = local_request(given, TrainingJob(), gpus=1)
    job = request.job

    assert job.groups == (Group("a", "ml.c5.xlarge", 1, 0.5, 1), Group("b", "ml.c5.xlarge", 2, None, 1))
    assert request.distribution == {"mpi": {"enabled": True}}
    assert (job.channel_directories, job.channel_groups) == ({"train": str(data)}, {"train": ("a",)})
    assert (job.memory, job.volume_bytes, job.stop_grace) == (2**31, 2**29, 0.0)
    assert job.deadline == 3600.0


@pytest.mark.parametrize(
    ("spec", "local", "message", "hint"),
    [
        (
            {"instance_count": 65},
            {},
            "more than 64 hosts",
            "set a smaller `--instance-count`; all hosts share this machine",
        ),
        ({"instance_count": 0}, {}, "the job has no host", "set `--instance-count` to at least 1"),
        (
            {"processes_per_host": 0},
            {},
            "a host cannot have 0 ranks",
            "set `processes_per_host` to at least 1",
        ),
        (
            {"groups": (Group("a"),), "instance_count": 2},
            {},
            "`--group` cannot be combined with `--instance-count` or `--instance-type`",
            "give each group a type and a count: `--group data=ml.c5.18xlarge:2`",
        ),
        (
            {"groups": (Group("a"),)},
            {"cpus": {"b": 1.0}},
            "`local.cpus` names unknown group `b`",
            "the groups are a",
        ),
        (
            {"source_dir": "no/such", "entry_point": "train.py"},
            {},
            "the directory `no/such` of the code does not exist",
            "set `--source-dir` to the directory that contains the entry point",
        ),
        (
            {"source_dir": "data"},
            {},
            "`--source-dir` needs `--entry-point`",
            "such as `--entry-point train.py`",
        ),
        (
            {"source_dir": "data", "entry_point": "trian.py"},
            {},
            "`data` contains no `trian.py`",
            "`--entry-point` is a path relative to `--source-dir`",
        ),
        (
            {"channels": {"../a": ()}, "inputs": {"../a": "data"}},
            {},
            "`../a` is not a valid channel name",
            "use at most 64 letters, digits and `._-`",
        ),
        (
            {},
            {"sdk": "no/such"},
            "`local.sdk` is `no/such`, which contains no SageMaker SDK",
            "run `pip install --target sdk sagemaker-train`",
        ),
    ],
)
def test_what_this_machine_cannot_run(
    spec: dict[str, Any], local: dict[str, Any], message: str, hint: str
) -> None:
    with pytest.raises(UsageError) as caught:
        local_request(GivenJob("mpi-cpu", JobSpec(**spec), LocalSettings(**local)), TrainingJob())
    [diagnostic] = caught.value.diagnostics
    assert (diagnostic.message, diagnostic.hint) == (message, hint)


def test_code_that_a_command_starts_needs_no_entry_point() -> None:
    given = GivenJob("mpi-cpu", JobSpec(source_dir="data"))
    assert local_request(given, TrainingJob(command=("ls",))).source_dir == Path("data")


def test_the_sdk_is_in_a_directory_or_in_a_virtual_environment(tmp_path: Path) -> None:
    packages = tmp_path / "venv/lib/python3.11/site-packages"
    (packages / "sagemaker").mkdir(parents=True)
    for path in (tmp_path / "venv", packages):
        given = GivenJob("mpi-cpu", JobSpec(), LocalSettings(sdk=str(path)))
        assert local_request(given, TrainingJob()).sdk == packages


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    import boto3  # type: ignore[import-untyped]

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    with mock_aws():
        client = boto3.client("s3", "us-east-1")
        client.create_bucket(Bucket="code")
        yield client


def test_the_code_comes_from_s3(s3: Any) -> None:
    s3.put_object(Bucket="code", Key="job/sourcedir.tar.gz", Body=io.BytesIO(b"packed"))
    lines: list[str] = []

    assert download_code("s3://code/job/sourcedir.tar.gz", "", lines.append) == b"packed"
    assert lines == ["downloading the code from s3://code/job/sourcedir.tar.gz"]
    error = raised(LaunchError, download_code, "s3://code/other.tar.gz", "", lines.append)
    assert error.diagnostics[0].hint == "set `--source-dir` to a directory with this code"
