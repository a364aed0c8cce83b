"""Releases that SageMaker jobs use."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from bakehouse.ledger.releases import ReleasedComponent, ReleaseRecord, text_of
from tests.support.release_records import a_record
from tests.support.training_front import ACCOUNT, REGION

HOST = f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com"
DIGEST = "sha256:" + "4f" * 32
URI = f"{HOST}/team/pytorch-cpu@{DIGEST}"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/SageMakerRole"


def released(**changed: Any) -> ReleaseRecord:
    record = replace(
        a_record(),
        image="pytorch-cpu",
        digest=DIGEST,
        registry=HOST,
        repository="team/pytorch-cpu",
        image_uri=URI,
        parts=(ReleasedComponent("pytorch", "2.9.1", "cpu"),),
        launchers=("mpirun", "torchrun"),
        training_module="sagemaker_pytorch_container.training:main",
    )
    return replace(record, **changed)


def put(project: Path, record: ReleaseRecord) -> None:
    path = project / "images" / record.image / "releases.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text_of([record]))
