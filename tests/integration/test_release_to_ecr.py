"""The whole way to Amazon ECR, at ECR's own address: from a recipe to jobs that name the digest."""

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bakehouse.catalog.project import HOME
from bakehouse.ledger.releases import ReleaseRecord
from bakehouse.ledger.store import open_ledger
from bakehouse.plan.workspace import Workspace
from tests.integration.ecr_address import at_address
from tests.integration.fleet import Fleet
from tests.integration.sagemaker_sdk import ROLE, V2, V3, installed, moto_for_aws
from tests.support.canaries import watched
from tests.support.ecr import ACCOUNT, REGION, EcrStub
from tests.support.registry import PASSWORD

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it gives this machine ECR's name for a while"),
]

HOST = f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com"
IMAGE = "pytorch-cpu"


@dataclass
class Released:
    """One run of `./bake release`, and what it could have given away."""

    record: ReleaseRecord
    printed: str
    secrets: tuple[str, ...]
    leaked: list[str]
    """Command lines of processes that held a secret."""


@pytest.fixture(scope="module")
def released(
    workspace: Workspace, fleet: Fleet, session_ecr: EcrStub, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Released]:
    session_ecr.reset()
    directory = tmp_path_factory.mktemp("certificate")
    command = [str(HOME / "bake"), "release", IMAGE, "--registry", f"{HOST}/team", "--create"]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    with at_address(HOST, session_ecr.host, directory) as certificate:
        trust = {"REQUESTS_CA_BUNDLE": str(certificate)}
        environment = {**inherited, **session_ecr.environment, **trust}
        keys = (session_ecr.environment["AWS_SECRET_ACCESS_KEY"], PASSWORD)
        with watched(lambda: (*keys, *session_ecr.aws.issued)) as lines:
            result = subprocess.run(
                command, cwd=workspace.project.root, env=environment, capture_output=True, text=True
            )
        printed = result.stdout + result.stderr
        assert result.returncode == 0, printed[-3000:]
        record = open_ledger(workspace.project).records(IMAGE)[-1]
        yield Released(record, printed, (*keys, *session_ecr.aws.issued), lines)


def test_the_digest_is_at_the_address_of_ecr(released: Released, fleet: Fleet, session_ecr: EcrStub) -> None:
    digest = released.record.digest
    assert released.record.config == fleet.images[IMAGE].digest
    assert released.record.image_uri == f"{HOST}/team/{IMAGE}@{digest}"
    assert released.record.image_uri in released.printed.split()
    assert session_ecr.images(f"team/{IMAGE}") == {digest: [*released.record.tags]}


@pytest.mark.parametrize(
    ("options", "name", "lock"), [((), "ModelTrainer(", V3), (("--sdk", "v2"), "PyTorch(", V2)]
)
def test_the_code_for_each_sdk_starts_a_job_with_that_digest(
    released: Released, workspace: Workspace, tmp_path: Path, options: tuple[str, ...], name: str, lock: Path
) -> None:
    result = subprocess.run(
        [str(HOME / "bake"), "estimator", IMAGE, *options, "--region", REGION, "--role", ROLE],
        cwd=workspace.project.root,
        capture_output=True,
        text=True,
        check=True,
    )
    assert name in result.stdout
    (tmp_path / "train.py").write_text("print('training')\n")
    # moto does not run the job, so the test does not wait for it.
    (tmp_path / "job.py").write_text(result.stdout.replace("trainer.train()", "trainer.train(wait=False)"))
    with moto_for_aws(tmp_path) as aws:
        aws.run(installed(lock), ["job.py"], tmp_path)
        [job] = aws.jobs().values()
    assert job["AlgorithmSpecification"]["TrainingImage"] == released.record.image_uri


def test_no_secret_is_printed(released: Released, workspace: Workspace) -> None:
    assert len(released.secrets) > 2
    assert [secret for secret in released.secrets if secret in released.printed] == []
    assert released.leaked == []


def test_no_secret_is_written_down(released: Released, workspace: Workspace) -> None:
    files = [path for path in workspace.project.root.rglob("*") if path.is_file()]
    assert any(path.name == "releases.json" for path in files)
    secrets = [secret.encode() for secret in released.secrets]
    assert [path for path in files if any(secret in path.read_bytes() for secret in secrets)] == []
