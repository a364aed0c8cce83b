"""Jobs that are sent to SageMaker and followed, with moto behind a proxy for what moto cannot do."""

import io
import json
import os
import re
import signal
import subprocess
import tarfile
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest

from bakehouse.catalog.instance_types import Instance
from bakehouse.catalog.project import HOME
from bakehouse.catalog.user_smoke import UserSmoke
from bakehouse.cluster.job import Group
from bakehouse.cluster.job_report import Status
from bakehouse.errors import Diagnostic, LaunchError, TrustError, UsageError
from bakehouse.jobs.job_spec import JobSpec
from bakehouse.jobs.rules import RuleViolation
from bakehouse.jobs.snippets import snippet
from bakehouse.ledger.releases import ReleaseRecord
from bakehouse.plan.workspace import Workspace
from bakehouse.sagemaker import launch_report
from bakehouse.sagemaker.client import TrainingService
from bakehouse.sagemaker.follow import Pace
from bakehouse.sagemaker.launch import JobCallbacks, default_region, first_ranks, follow_job, launch
from bakehouse.sagemaker.launch_report import LaunchReport
from bakehouse.trust import policy
from tests.support.errors import raised
from tests.support.programs import BAKE, bake, started
from tests.support.proxy import Reply
from tests.support.sagemaker_releases import DIGEST, ROLE, URI, put, released
from tests.support.training_front import ACCOUNT, REGION, Played, TrainingFront

pytestmark = pytest.mark.timeout(120)

ON_TWO = JobSpec(role=ROLE, instance_type="ml.c5.2xlarge", instance_count=2)
SCRIPT = "print('training')\n"


@pytest.fixture
def aws(no_aws: None, fronts: TrainingFront, monkeypatch: pytest.MonkeyPatch) -> TrainingFront:
    """Set this process's environment to the fake SageMaker."""
    for name, value in fronts.environment.items():
        monkeypatch.setenv(name, value)
    fronts.sent.clear()
    fronts.requests.clear()
    fronts.stopped.clear()
    return fronts


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project directory with a released image and a script."""
    (tmp_path / "pyproject.toml").write_text("[tool.bakehouse]\n")
    (tmp_path / "train.py").write_text(SCRIPT)
    put(tmp_path, released())
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Session:
    """One call of `launch`. After each wait, the next of `steps` runs."""

    def __init__(self, workspace: Workspace, project: Path, aws: TrainingFront) -> None:
        self.workspace = replace(workspace, project=replace(workspace.project, root=project))
        self.aws = aws
        self.messages: list[str] = []
        self.written: list[str] = []
        self.warned: list[RuleViolation] = []
        self.waited: list[float] = []
        self.steps: list[Callable[[], object]] = []
        self.report: Callable[[str], None] = self.messages.append
        self.telling = JobCallbacks(
            lambda message: self.report(message), self.written.append, self.warned.append
        )
        self.pace = Pace(interval=1.0, timeout=10.0, wait=self.wait)

    def wait(self, seconds: float) -> None:
        self.waited.append(seconds)
        assert len(self.waited) < 50, (self.messages, self.written)
        if self.steps:
            self.steps.pop(0)()

    def launch(self, name: str, **changed: Any) -> LaunchReport:
        image, job = changed.pop("image", "pytorch-cpu"), changed.pop("job", ON_TWO)
        names = ("region", "detach", "stop_on_interrupt")
        options = {option: changed.pop(option) for option in names if option in changed}
        job = replace(job, name=name, **changed)
        return launch(self.workspace, image, job, self.telling, self.pace, **options)

    def refused(self, **changed: Any) -> tuple[Diagnostic, ...]:
        with pytest.raises((UsageError, LaunchError)) as caught:
            self.launch(**{"name": "refused", **changed})
        return caught.value.diagnostics


@pytest.fixture
def session(catalogue: Workspace, project: Path, aws: TrainingFront) -> Session:
    return Session(catalogue, project, aws)


def hyperparameters(job: dict[str, Any]) -> dict[str, Any]:
    """Return the hyperparameters as the toolkit reads them."""
    return {name: json.loads(value) for name, value in job["HyperParameters"].items()}


def code_address(job: dict[str, Any]) -> str:
    """Return the URI of a job's code."""
    return str(hyperparameters(job)["sagemaker_submit_directory"])


def archived(aws: TrainingFront, uri: str) -> dict[str, bytes]:
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    content = aws.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        files = {member.name: archive.extractfile(member) for member in archive}
        return {name: file.read() for name, file in files.items() if file}


# What is sent


def test_an_image_that_the_policy_does_not_accept_is_not_sent(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[str] = []

    def refuse(_: object, record: ReleaseRecord, __: object) -> None:
        checked.append(record.image_uri)
        raise TrustError("`pytorch-cpu` does not meet [tool.bakehouse.policy]")

    monkeypatch.setattr(policy, "require", refuse)
    with pytest.raises(TrustError):
        session.launch("refused")
    assert checked == [URI]
    assert not session.aws.sent.is_set()


def test_a_job_is_sent_with_all_that_the_sdk_would_tell_it(session: Session) -> None:
    session.launch(
        "sent",
        job=replace(ON_TWO, hyperparameters={"epochs": 3}, environment={"A": "b"}, keep_alive=600),
        inputs={"training": "s3://data/flowers"},
        max_run=3600,
        volume_gib=100,
        detach=True,
    )

    job = session.aws.job("sent")
    assert job["AlgorithmSpecification"]["TrainingImage"] == URI
    assert job["AlgorithmSpecification"]["TrainingInputMode"] == "File"
    assert job["RoleArn"] == ROLE
    bucket = f"sagemaker-{REGION}-{ACCOUNT}"
    assert re.fullmatch(rf"s3://{bucket}/sent/source/[0-9a-f]{{12}}/sourcedir.tar.gz", code_address(job))
    assert job["ResourceConfig"] == {
        "InstanceType": "ml.c5.2xlarge",
        "InstanceCount": 2,
        "VolumeSizeInGB": 100,
        "KeepAlivePeriodInSeconds": 600,
    }
    assert job["StoppingCondition"] == {"MaxRuntimeInSeconds": 3600}
    assert job["OutputDataConfig"]["S3OutputPath"] == f"s3://sagemaker-{REGION}-{ACCOUNT}/"
    [channel] = job["InputDataConfig"]
    assert channel["ChannelName"] == "training"
    assert channel["DataSource"]["S3DataSource"]["S3Uri"] == "s3://data/flowers"
    assert hyperparameters(job) == {
        "epochs": 3,
        "sagemaker_torch_distributed_enabled": True,
        "sagemaker_instance_type": "ml.c5.2xlarge",
        "sagemaker_program": "train.py",
        "sagemaker_submit_directory": code_address(job),
        "sagemaker_container_log_level": 20,
        "sagemaker_job_name": "sent",
        "sagemaker_region": REGION,
    }
    [request] = [
        json.loads(request.body)
        for request in session.aws.requests
        if request.headers.get("X-Amz-Target") == "SageMaker.CreateTrainingJob"
    ]
    # moto forgets it.
    assert request["Environment"] == {"A": "b"}


def test_a_script_alone_is_uploaded_as_the_sdk_does_it(session: Session) -> None:
    Path("other.py").write_text("")
    session.launch("alone", detach=True)

    address = code_address(session.aws.job("alone"))
    assert archived(session.aws, address) == {"train.py": SCRIPT.encode()}


def test_a_directory_is_uploaded_to_the_given_bucket(session: Session) -> None:
    Path("src/deep").mkdir(parents=True)
    Path("src/main.py").write_text(SCRIPT)
    Path("src/deep/more.py").write_text("")
    session.aws.client("s3").create_bucket(
        Bucket="models", CreateBucketConfiguration={"LocationConstraint": REGION}
    )
    job = replace(ON_TWO, source_dir="src", entry_point="main.py")
    session.launch("directory", job=job, output="s3://models/deep", detach=True)

    description = session.aws.job("directory")
    address = code_address(description)
    assert address.startswith("s3://models/directory/source/")
    assert sorted(archived(session.aws, address)) == ["deep/more.py", "main.py"]
    assert description["OutputDataConfig"]["S3OutputPath"] == "s3://models/deep"


def test_files_that_stay_out_are_not_uploaded(session: Session) -> None:
    for name in ("main.py", ".git/config", "model.ckpt"):
        Path("src", name).parent.mkdir(parents=True, exist_ok=True)
        Path("src", name).write_text("")
    Path(".dockerignore").write_text("src/*.ckpt\n")
    session.aws.client("s3").create_bucket(
        Bucket="clean", CreateBucketConfiguration={"LocationConstraint": REGION}
    )
    job = replace(ON_TWO, source_dir="src", entry_point="main.py")
    session.launch("clean", job=job, output="s3://clean/", detach=True)

    assert [*archived(session.aws, code_address(session.aws.job("clean")))] == ["main.py"]
    assert session.messages[:2] == [
        "not sent: .dockerignore:1 src/*.ckpt: 1 file",
        "not sent: version control (.git): 1 directory",
    ]


def test_nothing_is_sent_with_secrets_or_without_the_script(session: Session) -> None:
    Path("src").mkdir()
    Path("src/main.py").write_text("")
    Path("src/.netrc").write_text("machine a login b password c\n")
    job = replace(ON_TWO, source_dir="src", entry_point="main.py")

    with pytest.raises(UsageError) as caught:
        session.launch("secret", job=job, detach=True)
    assert caught.value.diagnostics[0].message == "`.netrc` contains credentials"
    Path(".dockerignore").write_text("src\n")
    with pytest.raises(UsageError) as caught:
        session.launch("secret", job=job, detach=True)
    assert caught.value.diagnostics[0].message == "`main.py` is not sent with the job: .dockerignore:1 src"
    assert session.aws.requests == []


def test_code_that_is_in_s3_already_is_named_alone(session: Session) -> None:
    code = "s3://code/churn/sourcedir.tar.gz"
    job = replace(ON_TWO, source_dir=code, entry_point="main.py")
    session.launch("there", job=job, output="s3://models/", detach=True)

    parameters = hyperparameters(session.aws.job("there"))
    assert (parameters["sagemaker_submit_directory"], parameters["sagemaker_program"]) == (code, "main.py")
    assert [request.method for request in session.aws.requests] == ["POST"]


def test_the_sdks_bucket_is_made_for_the_model_alone(session: Session) -> None:
    """Nothing is uploaded, and the job has to store its model."""
    s3, bucket = session.aws.client("s3"), f"sagemaker-{REGION}-{ACCOUNT}"
    if bucket in [listed["Name"] for listed in s3.list_buckets()["Buckets"]]:
        for item in s3.list_objects_v2(Bucket=bucket).get("Contents", ()):
            s3.delete_object(Bucket=bucket, Key=item["Key"])
        s3.delete_bucket(Bucket=bucket)
    job = replace(ON_TWO, source_dir="s3://code/sourcedir.tar.gz", entry_point="main.py")
    session.launch("model-alone", job=job, detach=True)
    session.launch("model-again", job=job, detach=True)

    s3.head_bucket(Bucket=bucket)
    path = session.aws.job("model-again")["OutputDataConfig"]["S3OutputPath"]
    assert path == f"s3://{bucket}/"
    heads = [request for request in session.aws.requests if request.method == "HEAD"]
    assert {request.headers["x-amz-expected-bucket-owner"] for request in heads} == {ACCOUNT}


def test_the_sdks_bucket_may_be_made_by_two_launches_at_once(session: Session) -> None:
    service = TrainingService(REGION)
    service._create_bucket("sagemaker-made-at-once")
    service._create_bucket("sagemaker-made-at-once")
    assert session.aws.client("s3").head_bucket(Bucket="sagemaker-made-at-once")


def test_a_bucket_of_another_account_gets_no_model(session: Session) -> None:
    job = replace(ON_TWO, source_dir="s3://code/sourcedir.tar.gz", entry_point="main.py")
    fault = session.aws.fail("HEAD", f"sagemaker-{REGION}-{ACCOUNT}", 403)
    try:
        [diagnostic] = session.refused(job=job)
    finally:
        session.aws.faults.remove(fault)

    assert diagnostic.message == f"not allowed to look for the bucket `sagemaker-{REGION}-{ACCOUNT}`"
    assert session.aws.calls("CreateTrainingJob") == 0


@pytest.mark.parametrize(
    ("host", "region"),
    [
        (f"{ACCOUNT}.dkr.ecr.ap-south-1.amazonaws.com", "ap-south-1"),
        (f"{ACCOUNT}.dkr.ecr.us-east-1.amazonaws.com", "us-east-1"),
        ("registry.example", "us-east-1"),
        ("registry.example", "us-west-2"),
    ],
)
def test_a_printed_request_makes_the_bucket_where_it_is_missing(
    project: Path, aws: TrainingFront, monkeypatch: pytest.MonkeyPatch, host: str, region: str
) -> None:
    """Run the snippet as printed, next to a script."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", region)
    record = released(registry=host, image_uri=f"{host}/team/pytorch-cpu@{DIGEST}")
    code = snippet(record, replace(ON_TWO, sdk="boto3")).code
    bucket, s3 = f"sagemaker-{region}-{ACCOUNT}", aws.client("s3")
    for _ in range(2):
        monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
        exec(code.replace('strftime("', f'strftime("-{uuid.uuid4().hex[:8]}'), {})
    location = s3.get_bucket_location(Bucket=bucket)["LocationConstraint"]
    assert location == (region if region != "us-east-1" else None)
    objects = s3.list_objects_v2(Bucket=bucket)["Contents"]
    assert len(objects) >= 2
    assert all(item["Key"].endswith("/source/sourcedir.tar.gz") for item in objects)
    for item in objects:
        s3.delete_object(Bucket=bucket, Key=item["Key"])
    s3.delete_bucket(Bucket=bucket)


def test_an_image_with_its_own_code_gets_none(session: Session) -> None:
    put(session.workspace.project.root, released(entry_point="train.py"))
    session.launch("baked", detach=True)

    assert hyperparameters(session.aws.job("baked")).keys() == {
        "sagemaker_torch_distributed_enabled",
        "sagemaker_instance_type",
    }


def test_the_channels_of_the_smoke_test_need_data(session: Session) -> None:
    put(session.workspace.project.root, released(entry_point="train.py"))
    recipe = session.workspace.recipes["pytorch-cpu"]
    smoke = UserSmoke(
        entry_point="train.py",
        hosts=1,
        processes=1,
        launcher="",
        hyperparameters=(("epochs", "2"),),
        channels=(("training", Path("data")),),
        expect="",
        timeout=60,
        location=recipe.location,
    )
    recipes = {**session.workspace.recipes, "pytorch-cpu": replace(recipe, smoke=smoke)}
    session.workspace = replace(session.workspace, recipes=recipes)
    job = replace(ON_TWO, inputs={}, channels={}, hyperparameters={}, instance_count=None)

    [error] = session.refused(job=job)
    assert error.message == (
        "the smoke test of the recipe has the channel `training`, and the job has no data for it"
    )
    assert error.hint == "set `--channel training=s3://bucket/data`"

    given = replace(job, inputs={"training": "s3://ours/a"}, channels={"training": ()})
    session.launch("smoke", job=given, detach=True)
    sent = session.aws.job("smoke")
    assert hyperparameters(sent) == {"epochs": 2}
    assert sent["ResourceConfig"]["InstanceCount"] == 1


def test_a_job_in_groups(session: Session) -> None:
    job = JobSpec(
        role=ROLE,
        groups=(Group("data", "ml.c5.18xlarge", 2), Group("train", "ml.c5.2xlarge")),
        distribution={"mpi": {"enabled": True}, "instance_groups": ["train"]},
    )
    session.launch("groups", job=job, detach=True)

    assert session.aws.job("groups")["ResourceConfig"]["InstanceGroups"] == [
        {"InstanceGroupName": "data", "InstanceType": "ml.c5.18xlarge", "InstanceCount": 2},
        {"InstanceGroupName": "train", "InstanceType": "ml.c5.2xlarge", "InstanceCount": 1},
    ]


def test_a_job_without_a_name_has_one_of_its_image_and_the_time(session: Session) -> None:
    result = session.launch("", detach=True)

    assert result.job in session.aws.jobs()
    assert result.job.startswith("pytorch-cpu-20")


def test_the_region_is_that_of_the_release(session: Session) -> None:
    with pytest.raises(UsageError, match="no release of `pytorch-cpu` fits"):
        session.launch("elsewhere", region="us-east-1")
    assert session.launch("here", region=REGION, detach=True).region == REGION


# What is not sent


def test_a_job_with_something_wrong_is_not_sent(session: Session) -> None:
    """Every finding is reported as `estimator` reports it, without a call to AWS."""
    job = replace(ON_TWO, entry_point="missing.py", keep_alive=30000)
    diagnostics = session.refused(job=job)

    assert [diagnostic.message for diagnostic in diagnostics] == [
        "`missing.py` does not exist",
        "invalid keep-alive period of 30000 seconds",
    ]
    assert dict(diagnostics[0].facts)["rule"] == "code-not-found"
    assert session.aws.requests == []


def test_warnings_are_reported_before_a_job_is_sent(session: Session) -> None:
    session.launch("warned", job=replace(ON_TWO, instance_type="ml.g5.2xlarge"), detach=True)

    assert [finding.rule.name for finding in session.warned] == ["gpu-unused"]


@pytest.mark.parametrize(
    ("changed", "messages"),
    [
        ({"job": JobSpec()}, ["no IAM role given", "no instance type given"]),
        ({"job": replace(ON_TWO, role="SageMakerRole")}, ["`SageMakerRole` is not the ARN of a role"]),
        ({"job": replace(ON_TWO, instance_type="local")}, ["SageMaker does not run local jobs"]),
        ({"name": "no_name"}, ["`no_name` is not a valid job name"]),
        ({"name": "a-" * 31 + "ab"}, [f"`{'a-' * 31}ab` is not a valid job name"]),
        ({"max_run": 0}, ["invalid time limit of 0 seconds"]),
        ({"volume_gib": 0}, ["the hosts have no disk"]),
        (
            {"inputs": {"a/b": "/data"}},
            ["`a/b` is not a valid channel name", "channel `a/b` is `/data`, which is not an S3 URI"],
        ),
        ({"inputs": {f"c{n}": "s3://a/b" for n in range(21)}}, ["the job has 21 channels"]),
        ({"output": "models"}, ["`output` is `models`, which is not an S3 URI"]),
    ],
)
def test_errors_that_the_api_would_reject(
    session: Session, changed: dict[str, Any], messages: list[str]
) -> None:
    assert sorted(diagnostic.message for diagnostic in session.refused(**changed)) == sorted(messages)
    assert session.aws.requests == []


def test_an_image_that_sagemaker_can_not_pull(session: Session) -> None:
    local = "127.0.0.1:5050"
    uri = f"{local}/team/pytorch-cpu@{DIGEST}"
    put(session.workspace.project.root, released(registry=local, image_uri=uri))

    [diagnostic] = session.refused()
    assert diagnostic == Diagnostic(
        "`pytorch-cpu` was never published to `ecr`", hint="it is in `127.0.0.1:5050`"
    )


@pytest.mark.parametrize(
    ("code", "text", "message"),
    [
        (
            "ResourceLimitExceeded",
            "The account-level service limit 'ml.c5.2xlarge for training job usage' is 0 Instances",
            "the account's quota for these instances is too low",
        ),
        (
            "ExpiredTokenException",
            "The security token included in the request is expired",
            "the AWS session has expired",
        ),
        ("UnrecognizedClientException", "secret-canary-4711", "AWS rejected the credentials"),
        (
            "AccessDeniedException",
            "User: x is not authorized to perform: sagemaker:CreateTrainingJob on resource: y",
            "not allowed to send the job to SageMaker",
        ),
        ("ValidationException", "No such role", "could not send the job to SageMaker"),
        (
            "ValidationException",
            f"x-amz-security-token: IQoJ{'secret-canary-4711' * 20}==",
            "could not send the job to SageMaker",
        ),
    ],
)
def test_why_sagemaker_does_not_take_a_job(session: Session, code: str, text: str, message: str) -> None:
    session.aws.refuse("CreateTrainingJob", code, text)

    [diagnostic] = session.refused()
    assert diagnostic.message == message
    assert "canary" not in repr(diagnostic)


def test_an_existing_job_name(session: Session) -> None:
    session.launch("taken", detach=True)
    with pytest.raises(LaunchError) as caught:
        session.launch("taken", job=replace(ON_TWO, instance_count=1, hyperparameters={"a": 1}), detach=True)

    [diagnostic] = caught.value.diagnostics
    assert diagnostic.message == "the training job `taken` already exists"
    assert diagnostic.hint == "set another `--job-name`"


def test_a_rejected_launch_does_not_change_the_existing_job_s_code(session: Session) -> None:
    session.launch("kept", detach=True)
    Path("train.py").write_text("another = 1\n")
    with pytest.raises(LaunchError, match="the training job `kept` already exists"):
        session.launch("kept", detach=True)

    assert archived(session.aws, code_address(session.aws.job("kept"))) == {"train.py": SCRIPT.encode()}


CODE_IN_S3 = replace(ON_TWO, source_dir="s3://code/churn.tar.gz", entry_point="main.py")
DATA = {"train": "s3://data/a"}


@pytest.mark.parametrize(
    "changed",
    [
        {"volume_gib": 50},
        {"job": replace(CODE_IN_S3, instance_count=1)},
        {"job": replace(CODE_IN_S3, environment={"SEED": "2"})},
        {"max_run": 60},
        {"inputs": {"train": "s3://data/b"}},
        {"inputs": {**DATA, "test": "s3://data/a"}},
        {"inputs": {}},
        {"output": "s3://other/"},
    ],
)
def test_a_job_that_differs_is_another(session: Session, changed: dict[str, Any]) -> None:
    options = {"job": CODE_IN_S3, "inputs": DATA, "output": "s3://models/"}
    name = session.launch("", **options, detach=True).job
    with pytest.raises(LaunchError, match=r"the training job `.*` already exists"):
        session.launch(name, **{**options, **changed}, detach=True)


def test_a_job_whose_response_was_lost_is_recognised(session: Session) -> None:
    """boto3 asks again, and SageMaker has the name already."""
    session.aws.lose_create = True
    try:
        result = session.launch("lost", inputs={"train": "s3://data/a"}, detach=True)
    finally:
        session.aws.lose_create = False

    assert session.aws.calls("CreateTrainingJob") == 2
    assert (result.job, result.status) == ("lost", None)


def test_a_rejected_upload_sends_nothing(session: Session) -> None:
    [diagnostic] = session.refused(output="s3://missing-bucket/")

    assert diagnostic.message.startswith("could not upload the code to `s3://missing-bucket/refused/source/")
    assert ("sent", "nothing") in diagnostic.facts
    assert session.aws.calls("CreateTrainingJob") == 0


# Following


def test_a_job_is_followed_to_its_end(session: Session) -> None:
    """Its changes of status, and what its hosts print, each once and in the order of the prints."""
    aws, job = session.aws, "followed"

    def train() -> None:
        aws.play(job, "Training", "Training image download completed. Training in progress.")
        aws.print(job, "algo-1", "[default0]:one", at=1)
        aws.print(job, "algo-2", "[default0]:two", at=2)
        aws.print(job, "algo-1", "three", at=3)

    def upload() -> None:
        aws.print(job, "algo-2", "four", at=4)
        aws.play(job, "Completed", "Training job completed", BillableTimeInSeconds=62)

    session.steps = [
        lambda: aws.play(job, "Starting", "Preparing the instances for training"),
        train,
        upload,
        lambda: aws.print(job, "algo-1", "late", at=5),
    ]
    result = session.launch(job)

    assert session.messages == [
        f"{job}: uploaded the code to {code_address(aws.job(job))}",
        f"{job}: sent to SageMaker in {REGION}",
        f"{job}: Starting: Preparing the instances for training",
        f"{job}: Training: Training image download completed. Training in progress.",
        f"{job}: Completed: Training job completed",
    ]
    assert session.written == [
        "algo-1:0 │ one",
        "algo-2:1 │ two",
        "algo-1   │ three",
        "algo-2   │ four",
        "algo-1   │ late",
    ]
    assert (result.status, result.exit_code) == (Status.COMPLETED, 0)
    assert f"{job}: Completed after " in launch_report.text(result)
    assert ", 62 s billed\n" in launch_report.text(result)


def test_a_changed_status_message_is_reported_again(session: Session) -> None:
    aws, job = session.aws, "changing"

    def change() -> None:
        aws.played[job].changes[0]["StatusMessage"] = "still preparing"

    session.steps = [
        lambda: aws.play(job, "Starting", "preparing"),
        change,
        lambda: aws.play(job, "Completed"),
    ]
    session.launch(job)

    assert session.messages[2:] == [
        f"{job}: Starting: preparing",
        f"{job}: Starting: still preparing",
        f"{job}: Completed",
    ]


def test_a_failed_job_is_reported_with_cause_and_hint(session: Session) -> None:
    aws, job = session.aws, "failed"
    reason = "AlgorithmError: ExecuteUserScriptError:\nExitCode 1, exit code: 1"
    lines = (
        "Traceback (most recent call last):",
        '  File "/opt/ml/code/train.py", line 1, in <module>',
        "ModuleNotFoundError: No module named 'lightgbm'",
    )

    def fail() -> None:
        aws.print(job, "algo-2", *lines)
        aws.play(job, "Failed", "Training job failed", FailureReason=reason)

    session.steps = [fail]
    result = session.launch(job)

    assert (result.status, result.exit_code, result.host) == (Status.FAILED, 6, "algo-2")
    assert launch_report.text(replace(result, seconds=312.0)) == (
        "failed: Failed after 5:12\n"
        "  AlgorithmError: ExecuteUserScriptError:\n"
        "  ExitCode 1, exit code: 1\n"
        "  cause on algo-2: ModuleNotFoundError: No module named 'lightgbm'\n"
        "    | Traceback (most recent call last):\n"
        '    |   File "/opt/ml/code/train.py", line 1, in <module>\n'
        "    | ModuleNotFoundError: No module named 'lightgbm'\n"
        "\n"
        "hint: add the package of `lightgbm` to the image's recipe, or to a `requirements.txt` next to "
        "the script, which the toolkit installs\n"
    )


def test_a_late_cause_is_reported(session: Session) -> None:
    """Nothing may be there for some seconds, not even a log."""
    aws, job = session.aws, "late-cause"
    nothing = [lambda: None] * 4
    session.steps = [
        lambda: aws.play(job, "Failed", FailureReason="AlgorithmError: , exit code: 1"),
        *nothing,
        lambda: aws.print(job, "algo-2", "Traceback (most recent call last):", "ValueError: no such column"),
    ]
    result = session.launch(job)

    assert (result.host, result.cause) == ("algo-2", "ValueError: no such column")


def test_lines_after_one_quiet_read_are_printed(session: Session) -> None:
    aws, job = session.aws, "late-lines"
    session.steps = [
        lambda: aws.play(job, "Completed"),
        lambda: None,
        lambda: aws.print(job, "algo-1", "saved"),
    ]
    session.launch(job)

    assert session.written == ["algo-1   │ saved"]
    assert len(session.waited) == 5


def test_a_failure_that_no_host_explains_is_read_from_its_reason(session: Session) -> None:
    reason = "AlgorithmError: OSError: [Errno 28] No space left on device: '/opt/ml/model/a', exit code: 1"
    session.steps = [lambda: session.aws.play("full", "Failed", FailureReason=reason)]
    result = session.launch("full")

    assert (result.host, result.cause) == ("", "no space is left for /opt/ml/model/a")


def test_what_another_hosts_end_caused_is_not_the_cause(session: Session) -> None:
    aws = session.aws

    def fail() -> None:
        aws.print("two", "algo-1", "Traceback (most recent call last):", "E: Connection reset by peer")
        aws.print("two", "algo-2", "Traceback (most recent call last):", "ValueError: no such column")
        aws.play("two", "Failed", FailureReason="AlgorithmError: , exit code: 1")

    session.steps = [fail]
    result = session.launch("two")
    assert (result.host, result.cause) == ("algo-2", "ValueError: no such column")


def test_throttling_is_survived(session: Session) -> None:
    """Beyond boto3's own patience; each question waits longer than the one before."""
    aws, job = session.aws, "throttled"
    session.steps = [
        lambda: aws.refuse("DescribeTrainingJob", "ThrottlingException", "Rate exceeded", times=4),
        lambda: None,
        lambda: None,
        lambda: aws.play(job, "Completed"),
    ]
    result = session.launch(job)

    assert result.status is Status.COMPLETED
    assert session.messages[2:] == [
        f"{job}: AWS is busy; the job continues, trying again",
        f"{job}: AWS answers again",
        f"{job}: Completed",
    ]
    assert session.waited[:4] == [1.0, 1.0, 2.0, 1.0]


def test_throttled_logs_are_read_later_each_line_once(session: Session) -> None:
    aws, job = session.aws, "slow-logs"

    def train() -> None:
        aws.print(job, "algo-1", "one", at=1)
        aws.print(job, "algo-2", "two", at=2)
        # The first host's log is read, the second's is not.
        aws.refuse_log_of = "algo-2"

    def let() -> None:
        aws.refuse_log_of = ""
        aws.play(job, "Completed")

    session.steps = [train, let]
    session.launch(job)

    assert session.written == ["algo-1   │ one", "algo-2   │ two"]
    assert session.messages[2] == f"{job}: AWS is busy; its logs will be read later"


def test_unreadable_logs_are_reported(session: Session) -> None:
    aws, job = session.aws, "unread-logs"

    def train() -> None:
        aws.print(job, "algo-1", "one")
        aws.refuse_log_of = "algo-1"

    session.steps = [train, lambda: aws.play(job, "Completed")]
    try:
        result = session.launch(job)
    finally:
        aws.refuse_log_of = ""

    assert (result.status, session.written) == (Status.COMPLETED, [])
    assert session.messages[-1] == f"{job}: some logs could not be read; follow it again to read them"


def test_an_outage_is_survived_for_a_while(session: Session) -> None:
    aws, job = session.aws, "outage"
    session.steps = [
        lambda: aws.refuse("DescribeTrainingJob", "", times=5),
        lambda: aws.play(job, "Completed"),
    ]
    result = session.launch(job)

    assert result.status is Status.COMPLETED
    assert session.messages[2] == f"{job}: AWS does not answer; the job continues, trying again"


COMEBACK = """\
{job}: is running in eu-west-1; Bakehouse no longer follows it
  because {why}
  to stop it    aws sagemaker stop-training-job --region eu-west-1 --training-job-name {job}
  to follow it  bake launch --follow {job} --region eu-west-1
"""


def test_a_long_outage_ends_with_the_command_to_continue(session: Session) -> None:
    aws, job = session.aws, "gone"
    session.steps = [lambda: aws.refuse("DescribeTrainingJob", "", times=1000)]
    try:
        result = session.launch(job)
    finally:
        aws.forgive()

    assert (result.status, result.exit_code) == (None, LaunchError.exit_code)
    why = f"could not describe the job `{job}`: AWS does not answer\n  address  http://{aws.host}/"
    assert launch_report.text(result) == COMEBACK.format(job=job, why=why)


def test_without_credentials_nothing_is_sent(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")

    [diagnostic] = session.refused()
    assert (diagnostic.message, diagnostic.facts) == ("no AWS credentials were found", (("sent", "nothing"),))


def test_a_region_where_the_profile_is_unknown(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "missing")
    assert raised(LaunchError, default_region, session.workspace).diagnostics == (
        Diagnostic(
            "AWS profile `missing` does not exist",
            hint="set AWS_PROFILE to one of `aws configure list-profiles`",
        ),
    )


def test_an_invalid_endpoint_url(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "secret-canary-4711")

    assert session.refused() == (
        Diagnostic(
            "could not determine the AWS identity",
            facts=(("because", "boto3 rejects its settings"), ("sent", "nothing")),
            hint="set AWS_ENDPOINT_URL, or `endpoint_url` in ~/.aws/config, as in `https://host`",
        ),
    )


def test_a_response_that_is_not_from_aws(session: Session) -> None:
    page = Reply(200, {"Content-Type": "text/html"}, b"<html>please log in")
    fault = session.aws.do("POST", "/", lambda _, __: page)
    try:
        diagnostics = session.refused()
    finally:
        session.aws.faults.remove(fault)

    assert diagnostics == (
        Diagnostic(
            "could not determine the AWS identity",
            facts=(("because", "the answer did not come from AWS"), ("sent", "nothing")),
            hint="check whether a proxy answers in place of AWS",
        ),
    )


@pytest.mark.parametrize("operation", ["DescribeTrainingJob", "DescribeLogStreams"])
def test_credentials_that_expire_tell_how_to_come_back(session: Session, operation: str) -> None:
    job = f"expired-{operation}"
    session.steps = [lambda: session.aws.refuse(operation, "ExpiredTokenException", "secret-canary-4711")]
    result = session.launch(job)

    assert (result.status, result.exit_code) == (None, LaunchError.exit_code)
    assert launch_report.text(result) == (
        COMEBACK.format(job=job, why="the AWS session has expired")
        + "\nhint: log in again (`aws sso login`, or your CI's login step)\n"
    )
    assert "canary" not in "".join(session.messages)


def test_without_the_right_to_read_logs_the_status_is_followed(session: Session) -> None:
    aws, job = session.aws, "no-logs"
    text = "User: x is not authorized to perform: logs:DescribeLogStreams on resource: y"
    aws.refuse("DescribeLogStreams", "AccessDeniedException", text)
    session.steps = [lambda: aws.print(job, "algo-1", "one"), lambda: aws.play(job, "Completed")]
    result = session.launch(job)

    assert result.status is Status.COMPLETED
    message = (
        "not allowed to list the job's logs (the AWS session is valid but lacks logs:DescribeLogStreams)"
    )
    assert session.messages[2] == f"{job}: {message}; only its status is reported"
    assert session.written == []


def test_an_expired_log_position_loses_and_repeats_nothing(session: Session) -> None:
    """CloudWatch's tokens are good for a day."""
    aws, job = session.aws, "tokens"

    def forget() -> None:
        aws.print(job, "algo-1", "three", at=2)
        aws.refuse("GetLogEvents", "InvalidParameterException", "The specified nextToken is invalid.")

    session.steps = [
        lambda: aws.print(job, "algo-1", "one", at=1),
        lambda: aws.print(job, "algo-1", "two", at=2),
        forget,
        lambda: aws.play(job, "Completed"),
    ]
    session.launch(job)

    assert session.written == ["algo-1   │ one", "algo-1   │ two", "algo-1   │ three"]


LONG = 12_000
"""Lines: more than CloudWatch gives at once."""


def test_the_first_lines_of_a_long_log_do_not_wait_for_its_last(session: Session) -> None:
    aws, job = session.aws, "long"
    counts: list[int] = []
    aws.played[job] = Played("Completed", more={"TrainingEndTime": 1.0})
    aws.client("sagemaker").create_training_job(
        TrainingJobName=job,
        AlgorithmSpecification={"TrainingImage": URI, "TrainingInputMode": "File"},
        RoleArn=ROLE,
        OutputDataConfig={"S3OutputPath": "s3://models/"},
        ResourceConfig={"InstanceType": "ml.c5.2xlarge", "InstanceCount": 2, "VolumeSizeInGB": 30},
        StoppingCondition={"MaxRuntimeInSeconds": 60},
    )
    aws.print(job, "algo-1", *map(str, range(LONG)), at=1)
    aws.print(job, "algo-2", "before", at=0)
    aws.print(job, "algo-2", "after", at=2)

    def hear(line: str) -> None:
        session.written.append(line.partition("│ ")[2])
        counts.append(aws.calls("GetLogEvents"))

    telling = replace(session.telling, output=hear)
    follow_job(session.workspace, job, REGION, telling, session.pace)
    assert session.written == ["before", *map(str, range(LONG)), "after"]
    assert counts[0] < counts[-1]


def test_an_interrupt_loses_no_line(session: Session) -> None:
    aws, job = session.aws, "lines"
    session.steps = [lambda: aws.print(job, "algo-1", "one", "two", "three", at=1)]
    hear = session.written.append

    def interrupted(line: str) -> None:
        if line.endswith("two") and not aws.stopped:
            raise KeyboardInterrupt
        hear(line)

    session.telling = replace(session.telling, output=interrupted)
    session.launch(job, stop_on_interrupt=True)
    assert session.written == [f"algo-1   │ {word}" for word in ("one", "two", "three")]


# Interrupts


def interrupt() -> None:
    raise KeyboardInterrupt


def test_an_interrupt_leaves_the_job_alone(session: Session) -> None:
    session.steps = [interrupt]
    result = session.launch("alone-then")

    assert (result.status, result.exit_code, session.aws.stopped) == (None, 130, [])
    assert launch_report.text(result) == COMEBACK.format(job="alone-then", why="").replace("  because \n", "")


def test_an_interrupt_stops_the_job_where_it_is_to(session: Session) -> None:
    session.steps = [interrupt]
    result = session.launch("stops", stop_on_interrupt=True)

    assert (result.status, result.exit_code, session.aws.stopped) == (Status.STOPPED, 6, ["stops"])
    assert session.messages[2:] == [
        "stops: asked SageMaker to stop the job; interrupt again to exit",
        "stops: Stopping: Stopping the training job",
        "stops: Stopped: Training job stopped",
    ]


def test_a_job_is_stopped_even_if_the_output_is_closed(session: Session) -> None:
    """Ctrl-C ends what the output is piped to as well."""

    def cut() -> None:
        def say(_: str) -> None:
            raise BrokenPipeError

        session.report = say
        interrupt()

    session.steps = [cut]
    with pytest.raises(BrokenPipeError):
        session.launch("unheard", stop_on_interrupt=True)

    assert session.aws.stopped == ["unheard"]


def test_a_second_interrupt_leaves_a_job_that_is_stopping(session: Session) -> None:
    session.aws.stops_at_once = False
    session.steps = [interrupt, interrupt]
    try:
        result = session.launch("stopping", stop_on_interrupt=True)
    finally:
        session.aws.stops_at_once = True

    assert (result.status, result.exit_code, session.aws.stopped) == (None, 130, ["stopping"])
    assert launch_report.text(result) == (
        "stopping: is stopping in eu-west-1; Bakehouse no longer follows it\n"
        "  to follow it  bake launch --follow stopping --region eu-west-1\n"
    )


def test_a_failed_stop_is_reported(session: Session) -> None:
    text = "User: x is not authorized to perform: sagemaker:StopTrainingJob on resource: y"
    session.aws.refuse("StopTrainingJob", "AccessDeniedException", text)
    session.steps = [interrupt]
    result = session.launch("not-mine", stop_on_interrupt=True)

    assert (result.status, result.exit_code) == (None, LaunchError.exit_code)
    assert "not allowed to stop the job `not-mine`" in launch_report.text(result)


def test_a_rejected_stop_is_reported(session: Session) -> None:
    session.aws.refuse("StopTrainingJob", "ValidationException", "1 validation error detected")
    session.steps = [interrupt]
    result = session.launch("goes-on", stop_on_interrupt=True)

    assert (result.status, result.exit_code, result.stopping) == (None, LaunchError.exit_code, False)
    assert launch_report.text(result) == COMEBACK.format(
        job="goes-on",
        why="could not stop the job `goes-on`\n  answer  ValidationException: 1 validation error detected",
    )


@pytest.mark.parametrize(("stops", "code"), [(False, 130), (True, 130)])
def test_an_interrupt_while_a_job_is_sent(
    session: Session, monkeypatch: pytest.MonkeyPatch, stops: bool, code: int
) -> None:
    """SageMaker may have accepted the job, so the command that stops it is printed or run."""
    job = f"half-sent-{stops}"
    sends = TrainingService.create

    def interrupted(service: TrainingService, request: Mapping[str, object]) -> None:
        sends(service, request)
        interrupt()

    monkeypatch.setattr(TrainingService, "create", interrupted)
    result = session.launch(job, stop_on_interrupt=stops)

    assert (result.status, result.exit_code) == (None, code)
    assert session.messages[-1] == f"{job}: interrupted while sending the job, which may be running"
    assert session.aws.stopped == [job] * stops
    assert result.stopping is stops


def test_a_half_sent_job_is_stopped_even_if_the_output_is_closed(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    sends = TrainingService.create

    def interrupted(service: TrainingService, request: Mapping[str, object]) -> None:
        sends(service, request)

        def say(_: str) -> None:
            raise BrokenPipeError

        session.report = say
        interrupt()

    monkeypatch.setattr(TrainingService, "create", interrupted)
    with pytest.raises(BrokenPipeError):
        session.launch("half-unheard", stop_on_interrupt=True)

    assert session.aws.stopped == ["half-unheard"]


def test_a_job_that_just_ended_is_reported(session: Session) -> None:
    text = "The request was rejected because the training job is in status Completed."
    session.aws.refuse("StopTrainingJob", "ValidationException", text)

    def end() -> None:
        session.aws.play("just", "Completed")
        interrupt()

    session.steps = [end]
    assert session.launch("just", stop_on_interrupt=True).status is Status.COMPLETED


# Coming back


def test_a_job_is_followed_again_from_its_first_line(session: Session) -> None:
    session.launch("again", detach=True)
    session.aws.print("again", "algo-1", "one")
    session.aws.play("again", "Completed")
    result = follow_job(session.workspace, "again", REGION, session.telling, session.pace)

    assert (result.status, session.written) == (Status.COMPLETED, ["algo-1   │ one"])


def test_an_old_job_is_reported_at_once(session: Session) -> None:
    session.launch("long-ago", detach=True)
    session.aws.play("long-ago", "Completed")
    session.aws.played["long-ago"].more["TrainingEndTime"] = datetime(2020, 1, 1, tzinfo=UTC).timestamp()
    follow_job(session.workspace, "long-ago", REGION, session.telling, session.pace)

    assert session.waited == []


def test_throttled_logs_of_a_job_that_ended_long_ago_are_read_later(session: Session) -> None:
    aws, job = session.aws, "old-logs"
    session.launch(job, detach=True)
    aws.print(job, "algo-1", "one")
    aws.play(job, "Completed")
    aws.played[job].more["TrainingEndTime"] = datetime(2020, 1, 1, tzinfo=UTC).timestamp()
    # boto3 itself asks twice.
    aws.refuse("DescribeLogStreams", "ThrottlingException", "Rate exceeded", times=2)
    follow_job(session.workspace, job, REGION, session.telling, session.pace)

    assert (session.written, session.waited) == (["algo-1   │ one"], [1.0])


def test_a_job_that_is_not_there(session: Session) -> None:
    with pytest.raises(LaunchError, match="the training job `missing` does not exist in eu-west-1"):
        follow_job(session.workspace, "missing", REGION, session.telling, session.pace)


INSTANCES = {
    "ml.p4d.24xlarge": Instance("ml.p4d.24xlarge", gpus=8),
    "ml.c5.xlarge": Instance("ml.c5.xlarge", gpus=0),
}


def test_ranks_are_counted_as_the_toolkit_orders_hosts() -> None:
    described = {"ResourceConfig": {"InstanceType": "ml.p4d.24xlarge", "InstanceCount": 11}}
    ranks = first_ranks(described, INSTANCES)

    assert (ranks["algo-1"], ranks["algo-10"], ranks["algo-11"], ranks["algo-2"]) == (0, 8, 16, 24)


def test_a_job_without_instances_has_no_ranks() -> None:
    assert first_ranks({"ResourceConfig": {"VolumeSizeInGB": 1}}, {}) == {}


def test_unknown_ranks_per_host() -> None:
    group = {"InstanceType": "ml.c5.xlarge", "InstanceCount": 1}
    assert first_ranks({"ResourceConfig": {"InstanceGroups": [group, group]}}, INSTANCES) == {
        "algo-1": None,
        "algo-2": None,
    }
    assert first_ranks({"ResourceConfig": {**group, "InstanceType": "ml.new.xlarge"}}, INSTANCES) == {
        "algo-1": None
    }
    assert first_ranks({"ResourceConfig": group}, INSTANCES) == {"algo-1": 0}


# The command itself


LAUNCH_COMMAND = (
    *("launch", "pytorch-cpu", "--role", ROLE),
    *("--instance-type", "ml.c5.2xlarge", "--instance-count", "2"),
)


def environment(aws: TrainingFront) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return {**inherited, **aws.environment, "PYTHONPATH": str(HOME), "NO_COLOR": "1", "GITHUB_ACTIONS": ""}


@pytest.mark.parametrize("stops", [True, pytest.param(False, marks=pytest.mark.release)])
def test_ctrl_c_at_the_command(project: Path, aws: TrainingFront, stops: bool) -> None:
    """Send a real signal to a real process after it printed a line of a host."""
    job = f"ctrl-c-{stops}"
    options = ["--stop-on-interrupt"] if stops else []
    with started(
        [*BAKE, *LAUNCH_COMMAND, "--job-name", job, *options],
        env=environment(aws),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as process:
        assert process.stdout
        assert process.stderr
        assert aws.sent.wait(60)
        aws.print(job, "algo-1", "hello")
        for line in process.stderr:
            if "algo-1   │ hello" in line:
                break
        process.send_signal(signal.SIGINT)
        output, errors = process.stdout.read(), process.stderr.read()
    if stops:
        assert (process.returncode, aws.stopped) == (6, [job])
        assert f"{job}: Stopped" in output
    else:
        assert (process.returncode, aws.stopped) == (130, [])
        assert output == COMEBACK.format(job=job, why="").replace("  because \n", "")
    assert "Traceback" not in output + errors
    assert "canary" not in output + errors


def test_a_detached_job_at_the_command(project: Path, aws: TrainingFront) -> None:
    options = ("--job-name", "sent-only", "--channel", "train=s3://data/a", "--detach")
    result = bake(*LAUNCH_COMMAND, *options, cwd=project)

    assert (result.returncode, result.stdout) == (
        0,
        COMEBACK.format(job="sent-only", why="").replace("  because \n", ""),
    ), result.stderr
    assert aws.job("sent-only")["InputDataConfig"][0]["ChannelName"] == "train"


def test_a_job_file_at_the_command(project: Path, aws: TrainingFront) -> None:
    """Options win over the file, and further fields of the API are sent."""
    (project / "job.yaml").write_text(
        f"image: pytorch-cpu\nrole: {ROLE}\ninstance_type: ml.c5.2xlarge\nspot: true\nkeep_alive: 0\n"
        "hyperparameters: {lr: 0.1, epochs: 1}\nmax_run: 7200\nvolume_size: 100g\n"
        "channels: {train: s3://data/a}\n"
        "request:\n  CheckpointConfig: {S3Uri: s3://data/checkpoints}\n"
        "  VpcConfig: {Subnets: [subnet-1], SecurityGroupIds: [sg-1]}\n"
        "  StoppingCondition: {MaxWaitTimeInSeconds: 10000}\n"
    )
    words = ("--job", "job.yaml", "--job-name", "of-a-file", "--hyperparameter", "epochs=5", "--detach")
    result = bake("launch", *words, cwd=project)

    assert (result.returncode, result.stderr.count("warning")) == (0, 0), result.stderr
    job = aws.job("of-a-file")
    assert {name: hyperparameters(job)[name] for name in ("lr", "epochs")} == {"lr": 0.1, "epochs": 5}
    assert job["ResourceConfig"] == {
        "InstanceType": "ml.c5.2xlarge",
        "InstanceCount": 1,
        "VolumeSizeInGB": 100,
        "KeepAlivePeriodInSeconds": 0,
    }
    assert job["StoppingCondition"] == {"MaxRuntimeInSeconds": 7200, "MaxWaitTimeInSeconds": 10000}
    assert (job["EnableManagedSpotTraining"], job["CheckpointConfig"]) == (
        True,
        {"S3Uri": "s3://data/checkpoints"},
    )
    assert job["VpcConfig"] == {"Subnets": ["subnet-1"], "SecurityGroupIds": ["sg-1"]}
    assert [channel["ChannelName"] for channel in job["InputDataConfig"]] == ["train"]


def test_following_again_at_the_command(project: Path, aws: TrainingFront, session: Session) -> None:
    session.launch("cli-again", detach=True)
    aws.play("cli-again", "Failed", FailureReason="ClientError: no such image")
    aws.played["cli-again"].more["TrainingEndTime"] = datetime(2020, 1, 1, tzinfo=UTC).timestamp()
    result = bake("launch", "--follow", "cli-again", "--region", REGION, cwd=project)

    assert result.returncode == 6, result.stderr
    assert "  ClientError: no such image\n" in result.stdout


def test_what_is_wrong_at_the_command(project: Path, aws: TrainingFront) -> None:
    result = bake(*LAUNCH_COMMAND, "--entry-point", "missing.py", cwd=project)

    assert (result.returncode, result.stdout, aws.requests) == (64, "", [])
    assert result.stderr.startswith("error: `missing.py` does not exist\n")
