"""A job that SageMaker ran, run again from the answer of `aws sagemaker describe-training-job`."""

import json
from pathlib import Path
from typing import Any

import pytest

from bakehouse.cli import main
from bakehouse.pipeline.build import ensure_built
from bakehouse.plan.workspace import Workspace, select
from tests.support.data import text_of

pytestmark = pytest.mark.engine

REPOSITORY = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/team/mpi-cpu"
SCRIPT = text_of(__file__, "script")
ANSWER: dict[str, Any] = {
    "TrainingJobName": "churn-1",
    "TrainingJobArn": "arn:aws:sagemaker:eu-west-1:123456789012:training-job/churn-1",
    "TrainingJobStatus": "Failed",
    "FailureReason": "AlgorithmError: ExecuteUserScriptError: ExitCode 1",
    "HyperParameters": {
        "lr": "0.10",
        "sagemaker_program": '"train.py"',
        "sagemaker_submit_directory": '"s3://our-code/churn-1/sourcedir.tar.gz"',
        "sagemaker_job_name": '"churn-1"',
        "sagemaker_region": '"eu-west-1"',
        "sagemaker_mpi_enabled": "true",
        "sagemaker_mpi_num_of_processes_per_host": "2",
        "sagemaker_mpi_custom_mpi_options": '"-x OUR_VARIABLE"',
        "sagemaker_distribution_instance_groups": '["train"]',
    },
    "RoleArn": "arn:aws:iam::123456789012:role/SageMakerRole",
    "InputDataConfig": [
        {
            "ChannelName": "train",
            "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://our-data/train"}},
        }
    ],
    "OutputDataConfig": {"KmsKeyId": "", "S3OutputPath": "s3://our-models/"},
    "ResourceConfig": {
        "InstanceGroups": [
            {"InstanceGroupName": "train", "InstanceType": "ml.c5.2xlarge", "InstanceCount": 1},
        ],
        "VolumeSizeInGB": 30,
    },
    "StoppingCondition": {"MaxRuntimeInSeconds": 900},
    "Environment": {"OUR_VARIABLE": "as on SageMaker"},
    "CreationTime": "2026-11-20T09:41:12.345000+00:00",
}


@pytest.fixture
def here(workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of the project, with the answer, the code and the data below `tmp_path`."""
    [built] = ensure_built(select(workspace, ["mpi-cpu"]), print)
    image = {"TrainingImage": f"{REPOSITORY}@{built.stored}", "TrainingInputMode": "File"}
    (tmp_path / "failed.json").write_text(json.dumps({**ANSWER, "AlgorithmSpecification": image}))
    (tmp_path / "src").mkdir()
    (tmp_path / "src/train.py").write_text(SCRIPT)
    (tmp_path / "data").mkdir()
    (tmp_path / "data/x.txt").write_text("hello")
    monkeypatch.chdir(workspace.project.root)
    return tmp_path


def run(here: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, dict[str, Any]]:
    """Return the exit code and the report of a run."""
    words = ["run", "--job", str(here / "failed.json"), "--source-dir", str(here / "src"), "--json", *options]
    code = main.run(words)
    return code, json.loads(capsys.readouterr().out)


def test_a_failed_job_runs_again_here(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, report = run(here, capsys, "--channel", f"train={here / 'data'}")

    assert (code, report["status"]) == (0, "Completed"), report
    models = list(Path(report["folder"], "model").glob("*/facts.json"))
    assert [json.loads(path.read_text()) for path in models] == [
        {
            "arguments": ["--lr", "0.1"],
            "lr": "0.10",
            "variable": "as on SageMaker",
            "data": "hello",
            "hosts": ["algo-1"],
            "ranks": 2,
            "group": "train",
        }
    ]


def test_its_failure_is_found_and_options_win(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "data/x.txt").write_text("broken")
    options = ("--instance-type", "ml.c5.xlarge", "--instance-count", "1", "--distribution", "{}")
    code, report = run(here, capsys, "--channel", f"train={here / 'data'}", *options)

    assert (code, report["status"], len(report["hosts"])) == (6, "Failed", 1)
