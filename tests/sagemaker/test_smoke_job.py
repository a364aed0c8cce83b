"""Smoke tests as training jobs, with moto behind a proxy that plays the job."""

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bakehouse.builder.verify import Outcome
from bakehouse.catalog.trust_settings import Policy
from bakehouse.cli.diagnostics import failure_text
from bakehouse.cluster import smoke_report
from bakehouse.cluster.job_report import Status
from bakehouse.cluster.smoke_report import SmokeReport
from bakehouse.errors import BakehouseError, SmokeError, TrustError, UsageError
from bakehouse.evidence import check_rows
from bakehouse.evidence.known_checks import MAX_AGE
from bakehouse.jobs.job_spec import JobSpec
from bakehouse.ledger.releases import ReleaseRecord
from bakehouse.ledger.store import open_ledger
from bakehouse.pipeline.smoke import SmokeOptions, smoke_on_sagemaker
from bakehouse.plan.workspace import Workspace, select
from bakehouse.publish import promote
from bakehouse.sagemaker import smoke_job
from bakehouse.sagemaker.client import TrainingService
from bakehouse.sagemaker.follow import Pace
from bakehouse.sagemaker.launch import JobCallbacks
from bakehouse.sagemaker.launch_report import LaunchReport
from bakehouse.sagemaker.smoke_job import RESULTS
from bakehouse.trust import signed_report
from tests.support.errors import raised
from tests.support.fake_engine import CONTENT
from tests.support.release_records import a_record
from tests.support.remote_smoke import plan_of, run_of
from tests.support.sagemaker_releases import DIGEST, HOST, ROLE, put
from tests.support.signing_keys import make_key
from tests.support.training_front import REGION, TrainingFront
from tests.support.training_replay import channels_of, request_of, upload_model

pytestmark = pytest.mark.timeout(120)

URI = f"{HOST}/team/mpi-cpu@{DIGEST}"
JOB = JobSpec(role=ROLE, instance_type="ml.c5.2xlarge", instance_count=1, max_run=3600, name="smoke-1")
CHECK = ("train_success",)


class Session:
    """A project with a candidate, and jobs that end as `play` says."""

    def __init__(self, workspace: Workspace, directory: Path, aws: TrainingFront) -> None:
        project = replace(workspace.project, root=directory, state_directory=directory / "build")
        self.workspace = replace(workspace, project=project)
        self.aws = aws
        self.lines: list[str] = []
        self.pace = Pace(interval=1.0, timeout=10.0, wait=self.wait)
        self.play: Callable[[], object] = lambda: None
        self.waits = 0

    def wait(self, seconds: float) -> None:
        self.waits += 1
        assert self.waits < 30, self.lines
        if self.waits == 1:
            self.play()

    def candidate(self, **changed: Any) -> ReleaseRecord:
        [image] = select(self.workspace, ["mpi-cpu"]).plan.images
        fields: dict[str, Any] = {
            **{"image": "mpi-cpu", "key": image.key, "digest": DIGEST, "registry": HOST},
            **{"repository": "team/mpi-cpu", "image_uri": URI, "candidate": True, "tested": False},
            **{"parts": (), "config": "", **changed},
        }
        record = replace(a_record(), **fields)
        put(self.workspace.project.root, record)
        return record

    def smoke(
        self, job: JobSpec = JOB, only: tuple[str, ...] = CHECK, **options: Any
    ) -> tuple[LaunchReport, SmokeReport | None]:
        callbacks = JobCallbacks(self.lines.append, self.lines.append)
        selection = select(self.workspace, ["mpi-cpu"])
        return smoke_on_sagemaker(selection, job, callbacks, SmokeOptions(only, **options), self.pace)

    def document(self, **results: Any) -> dict[str, Any]:
        """Return results of the script that was sent."""
        [script] = channels_of(self.aws, request_of(self.aws))["smoke"].values()
        plan = plan_of(_Script(script))  # type: ignore[arg-type]
        fields = {"id": plan["id"], "image": plan["image"], "startup": "train toolkit", "keys": []}
        return {**fields, "results": results, "interrupted": "", "finished": 1795430000}

    def end(self, status: str, files: dict[str, bytes] | None = None, **more: Any) -> None:
        if files is not None:
            more["ModelArtifacts"] = {"S3ModelArtifacts": upload_model(self.aws, files)}
        self.aws.play(request_of(self.aws)["TrainingJobName"], status, **more)

    def complete(self, **results: Any) -> None:
        text = json.dumps({**self.document(**results), "finished": _now()})
        self.end("Completed", {RESULTS: text.encode()}, BillableTimeInSeconds=412)


class _Script:
    def __init__(self, content: bytes) -> None:
        self._content = content

    def script(self) -> bytes:
        return self._content


def _now() -> int:
    from datetime import datetime

    return int(datetime.fromisoformat(smoke_report.now()).timestamp())


@pytest.fixture
def session(
    no_aws: None, catalogue: Workspace, tmp_path: Path, fronts: TrainingFront, monkeypatch: pytest.MonkeyPatch
) -> Session:
    monkeypatch.setattr(promote, "content_in_registry", lambda *_: CONTENT)
    for name, value in fronts.environment.items():
        monkeypatch.setenv(name, value)
    for name in list(fronts.played):
        del fronts.played[name]
    fronts.requests.clear()
    fronts.stopped.clear()
    session = Session(catalogue, tmp_path, fronts)
    session.candidate()
    return session


def job_named(name: str, **changed: Any) -> JobSpec:
    return replace(JOB, name=name, **changed)


def message(error: BakehouseError) -> str:
    return "\n".join(failure_text(diagnostic) for diagnostic in error.diagnostics)


def test_the_request_names_the_candidate_s_digest_and_is_valid(session: Session) -> None:
    from botocore.session import Session as Botocore  # type: ignore[import-untyped]
    from botocore.validate import ParamValidator  # type: ignore[import-untyped]

    session.aws.client("s3").create_bucket(
        Bucket="ours", CreateBucketConfiguration={"LocationConstraint": REGION}
    )
    session.play = lambda: session.complete(train_success=run_of(0))
    session.smoke(job_named("request", spot=True, max_run=900, instance_count=2, output="s3://ours/tests/"))

    request = request_of(session.aws)
    assert request == {
        "TrainingJobName": "request",
        "RoleArn": ROLE,
        "AlgorithmSpecification": {
            "TrainingImage": URI,
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["python3", "/opt/ml/input/data/smoke/smoke.py"],
        },
        "HyperParameters": {},
        "ResourceConfig": {"InstanceType": "ml.c5.2xlarge", "InstanceCount": 2, "VolumeSizeInGB": 30},
        "InputDataConfig": [
            {
                "ChannelName": "smoke",
                "DataSource": {
                    "S3DataSource": {
                        "S3DataType": "S3Prefix",
                        "S3Uri": "s3://ours/tests/request/smoke/",
                        "S3DataDistributionType": "FullyReplicated",
                    }
                },
            }
        ],
        "OutputDataConfig": {"S3OutputPath": "s3://ours/tests/"},
        "EnableManagedSpotTraining": True,
        "StoppingCondition": {"MaxRuntimeInSeconds": 900, "MaxWaitTimeInSeconds": 4500},
    }
    shape = Botocore().get_service_model("sagemaker").operation_model("CreateTrainingJob").input_shape
    assert not ParamValidator().validate(request, shape).has_errors()


def test_a_report_comes_back_and_is_stored_for_promote(session: Session) -> None:
    session.play = lambda: session.complete(train_success=run_of(0))

    launched, report = session.smoke(job_named("done"))

    assert (launched.status, launched.exit_code) == (Status.COMPLETED, 0)
    assert report
    assert report.passed
    assert report.machine == "sagemaker 1 x ml.c5.2xlarge"
    assert report.origin == "training job done in eu-west-1, 412 s billed for each host"
    assert check_rows.load(session.workspace.project.state, CONTENT) == report.checks
    no_price = "no price of ml.c5.2xlarge in [tool.bakehouse.prices]"
    assert session.lines[:2] == [
        f"done: 1 x ml.c5.2xlarge in {REGION}; "
        f"at most 3,600 billable instance seconds (1 x 3600); {no_price}",
        f"done: sent to SageMaker in {REGION}; Ctrl-C stops the job",
    ]
    assert session.lines[-1] == f"done: billed 412 billable instance seconds (1 x 412); {no_price}"


def test_a_candidate_of_the_team_s_ledger_is_tested(session: Session) -> None:
    session.aws.client("s3").create_bucket(
        Bucket="ledger", CreateBucketConfiguration={"LocationConstraint": REGION}
    )
    project = replace(session.workspace.project, ledger="s3://ledger/releases", region=REGION)
    session.workspace = replace(session.workspace, project=project)
    open_ledger(project).add(session.candidate())
    # Another machine pushed it.
    shutil.rmtree(project.images)
    session.play = lambda: session.complete(train_success=run_of(0))

    launched, _ = session.smoke(job_named("team"))

    assert launched.status is Status.COMPLETED


def test_a_price_of_the_project_gives_the_cost() -> None:
    job = replace(JOB, instance_count=2, max_run=1800)

    assert smoke_job.estimate(job, {"ml.c5.2xlarge": 5.0}) == (
        "at most 3,600 billable instance seconds (2 x 1800): 5.00 at 5 an hour"
    )
    assert smoke_job.estimate(replace(job, spot=True), {"ml.c5.2xlarge": 5.0}).endswith(", less on Spot")


def test_a_failed_check_is_an_error_and_is_stored(session: Session) -> None:
    session.play = lambda: session.complete(train_success=run_of(3))

    error = raised(SmokeError, session.smoke, job_named("failing"))

    assert message(error).startswith("error: check `train_success` failed\n")
    [stored] = check_rows.load(session.workspace.project.state, CONTENT)
    assert stored.outcome is Outcome.FAILED


def test_ctrl_c_stops_the_job_and_the_rest_is_unfinished(session: Session, tmp_path: Path) -> None:
    session.aws.stops_at_once = False

    def interrupt() -> None:
        session.play = lambda: None
        text = json.dumps({**session.document(), "interrupted": "stopped by SIGTERM"})
        # SageMaker uploads the model of a stopped job.
        uri = upload_model(session.aws, {RESULTS: text.encode()})
        session.aws.played["stopped"].more["ModelArtifacts"] = {"S3ModelArtifacts": uri}
        session.aws.stops_at_once = True
        raise KeyboardInterrupt

    session.play = interrupt
    launched, report = session.smoke(job_named("stopped"), report_file=tmp_path / "seen.json")

    assert session.aws.stopped == ["stopped"]
    assert (launched.status, launched.exit_code) == (Status.STOPPED, 6)
    assert report
    assert (report.unfinished, report.interrupted) == (CHECK, "stopped by SIGTERM")
    assert check_rows.load(session.workspace.project.state, CONTENT) == ()
    with pytest.raises(SmokeError, match="is incomplete: 1 check did not run"):
        smoke_report.read_file(tmp_path / "seen.json", "mpi-cpu", CONTENT, MAX_AGE)


def with_key(session: Session, key: Path) -> None:
    project = replace(session.workspace.project, key_address=str(key))
    session.workspace = replace(session.workspace, project=project)


def test_the_report_for_another_machine_is_signed(session: Session, tmp_path: Path) -> None:
    key = make_key(tmp_path, "tester")
    with_key(session, key.private)
    session.play = lambda: session.complete(train_success=run_of(0))

    session.smoke(report_file=tmp_path / "seen.json")

    verify = signed_report.verifier(Policy((key.public,)))
    smoke_report.read_file(tmp_path / "seen.json", "mpi-cpu", CONTENT, MAX_AGE, verify)


def test_an_unusable_key_is_reported_before_the_job_is_sent(session: Session, tmp_path: Path) -> None:
    with_key(session, tmp_path / "gone.pem")

    with pytest.raises(TrustError, match="cannot read the key"):
        session.smoke(report_file=tmp_path / "seen.json")
    assert session.aws.requests == []


def test_ctrl_c_stops_a_job_that_is_being_sent(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    create = TrainingService.create

    def interrupted(service: TrainingService, request: Mapping[str, Any]) -> None:
        create(service, request)
        raise KeyboardInterrupt

    monkeypatch.setattr(TrainingService, "create", interrupted)
    launched, report = session.smoke(job_named("half-sent"))

    assert session.aws.stopped == ["half-sent"]
    assert (launched.exit_code, report) == (130, None)


def test_a_failed_job_has_no_report(session: Session) -> None:
    session.play = lambda: session.end("Failed", FailureReason="algo-2 did not join within 900 s")

    launched, report = session.smoke(job_named("lost"))

    assert (launched.status, launched.reason) == (Status.FAILED, "algo-2 did not join within 900 s")
    assert report is None


@pytest.mark.parametrize(
    ("files", "text"),
    [
        (
            {"model.pt": b""},
            "error: the model of the job `odd-0` contains no `smoke-results.json`\n"
            f"  model  s3://sagemaker-{REGION}-123456789012/odd-0/output/model.tar.gz\n",
        ),
        (
            {RESULTS: b"{"},
            "error: `smoke-results.json` of the job `odd-1` contains no complete results of smoke checks\n",
        ),
    ],
)
def test_a_model_without_results_is_an_error(
    session: Session, files: dict[str, bytes], text: str, request: pytest.FixtureRequest
) -> None:
    session.play = lambda: session.end("Completed", files)

    error = raised(SmokeError, session.smoke, job_named("odd-1" if RESULTS in files else "odd-0"))

    assert message(error).startswith(text)


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        (
            {"role": ""},
            "error: no IAM role given\n\nhint: set `--role arn:aws:iam::123456789012:role/SageMakerRole`\n",
        ),
        ({"instance_type": ""}, "error: no instance type given\n\nhint: set `--instance-type`\n"),
        ({"instance_count": 0}, "error: the job has no host\n\nhint: set `--instance-count` to at least 1\n"),
        (
            {"max_run": 0},
            "error: invalid time limit of 0 seconds\n\nhint: set `max_run` of the job file to at least 1\n",
        ),
        (
            {"output": "bucket"},
            "error: `output: bucket` is not an S3 URI\n\nhint: use for example `s3://bucket/smoke`\n",
        ),
        (
            {"instance_type": "ml.c5.2xlrge"},
            "error: unknown instance type `ml.c5.2xlrge`\n\nhint: did you mean `ml.c5.2xlarge`?\n",
        ),
    ],
)
def test_an_invalid_job_is_not_sent(session: Session, changed: dict[str, Any], text: str) -> None:
    assert message(raised(UsageError, session.smoke, job_named("invalid", **changed))) == text
    assert session.aws.calls("CreateTrainingJob") == 0


def test_a_candidate_of_another_recipe_is_not_tested(session: Session) -> None:
    session.candidate(key="b" * 64)

    with pytest.raises(UsageError, match="the candidate of `mpi-cpu` was not built from this recipe"):
        session.smoke(job_named("other"))

    assert session.aws.calls("CreateTrainingJob") == 0
