"""Requests of SageMaker's API."""

from typing import Any

from bakehouse.jobs.create_training_job import api_request
from bakehouse.jobs.instance_groups import InstanceGroup
from bakehouse.jobs.job_spec import JobSpec
from bakehouse.jobs.training_request import TrainingRequest
from tests.support.launch_cases import PYTORCH


def test_a_channel_is_sent_to_its_groups() -> None:
    job = TrainingRequest(
        groups=(InstanceGroup("ml.c5.xlarge", 1, "data"),), channels={"training": ("data",)}
    )
    inputs = {"training": "s3://our-data/flowers", "test": "s3://our-data/test"}
    settings = JobSpec(role="role", inputs=inputs)
    sent: Any = api_request(job, PYTORCH, settings, name="a", hyperparameters={}, output="s3://our-models/")
    sources = [channel["DataSource"]["S3DataSource"] for channel in sent["InputDataConfig"]]

    assert [source.get("InstanceGroupNames") for source in sources] == [["data"], None]


def test_a_job_waits_for_spot_capacity_beyond_its_limit() -> None:
    request = TrainingRequest(groups=(InstanceGroup("ml.c5.xlarge", 1),))
    names: dict[str, Any] = {"name": "a", "hyperparameters": {}, "output": "s3://our-models/"}
    sent: Any = [
        api_request(request, PYTORCH, JobSpec(role="role", max_run=900, spot=spot), **names)
        for spot in (False, True)
    ]

    assert [job.get("EnableManagedSpotTraining") for job in sent] == [None, True]
    assert [job["StoppingCondition"] for job in sent] == [
        {"MaxRuntimeInSeconds": 900},
        {"MaxRuntimeInSeconds": 900, "MaxWaitTimeInSeconds": 4500},
    ]
