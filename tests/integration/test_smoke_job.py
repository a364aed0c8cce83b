"""A smoke test as a training job of two hosts: the request, replayed on local containers."""

import threading
from pathlib import Path

import pytest

from bakehouse.builder.verify import Outcome
from bakehouse.cluster.remote_smoke import RemoteSmoke
from bakehouse.engine import docker
from bakehouse.jobs.job_spec import JobSpec
from bakehouse.plan.workspace import Workspace
from bakehouse.sagemaker.follow import Pace
from bakehouse.sagemaker.launch import JobCallbacks
from bakehouse.sagemaker.smoke_job import smoke_on_sagemaker
from tests.support.training_front import ACCOUNT, REGION, training_front
from tests.support.training_replay import replay

pytestmark = [pytest.mark.engine, pytest.mark.timeout(180)]

ROLE = f"arn:aws:iam::{ACCOUNT}:role/SageMakerRole"


@pytest.mark.parametrize(
    ("fixture", "checks", "transport"),
    [
        ("mpi_cpu", ("components", "train_failure", "no_private_keys"), "none"),
        ("pytorch_cpu", ("torchrun_2x2",), "gloo"),
    ],
)
def test_the_checks_of_an_image_pass_as_a_job_of_two_hosts(
    workspace: Workspace,
    request: pytest.FixtureRequest,
    fixture: str,
    checks: tuple[str, ...],
    transport: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    image, built = request.getfixturevalue(fixture)
    uri = f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/team/{image.name}@{built.digest}"
    remote = RemoteSmoke(image, uri, built.content, hosts=2, only=checks)
    with training_front() as front:
        for name, value in front.environment.items():
            monkeypatch.setenv(name, value)

        def play() -> None:
            front.sent.wait()
            replay(front, docker.connect(), built.stored, tmp_path)

        sagemaker = threading.Thread(target=play)
        sagemaker.start()
        _, report = smoke_on_sagemaker(
            remote,
            JobSpec(role=ROLE, instance_type="ml.c5.2xlarge", instance_count=2, max_run=3600),
            workspace.catalog,
            {},
            tmp_path / "smoke",
            JobCallbacks(),
            Pace(interval=0.5),
        )
        sagemaker.join()

    assert report
    assert [
        f"{check.name}: {check.reason}" for check in report.checks if check.outcome is Outcome.FAILED
    ] == []
    passed = {check.name for check in report.checks if check.outcome is Outcome.PASSED}
    # Each component has a check of its own
    assert {*passed, *(name.partition(".")[0] for name in passed)} >= {*checks}
    assert (report.transport, report.unfinished) == (transport, ())
    if transport == "gloo":
        log = tmp_path / "smoke/torchrun_2x2/algo-2-rank-3.log"
        assert "rank 3 of 4 on algo-2 has arrived" in log.read_text()
