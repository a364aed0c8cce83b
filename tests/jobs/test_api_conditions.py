"""Conditions between the fields of a request, which the API's model cannot express."""

from typing import Any

import pytest

from bakehouse.jobs.api_conditions import check_fields
from bakehouse.jobs.api_fields import flatten
from bakehouse.jobs.instance_groups import InstanceGroup
from bakehouse.jobs.rules import Findings
from bakehouse.jobs.sdk_fields import estimator_fields, trainer_fields
from bakehouse.jobs.training_request import TrainingRequest

S3 = "s3://bucket/a"
SPOT = {"use_spot_instances": True, "checkpoint_s3_uri": S3}
API: dict[str, Any] = {"AlgorithmSpecification": {"TrainingImage": "x"}}


def said(request: TrainingRequest) -> list[tuple[str, str, str]]:
    findings = Findings()
    check_fields(request, findings)
    violations = (*findings.errors, *findings.warnings)
    return [(violation.rule.name, violation.message, violation.hint) for violation in violations]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"base_job_name": "a-b", "role": "Role", "tags": {"a": "b"}, "max_run": 28 * 86400}, []),
        (
            {"base_job_name": "a_b"},
            [
                (
                    "api-field",
                    "`base_job_name` is `a_b`, which is not a valid TrainingJobName",
                    "match `[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}`",
                )
            ],
        ),
        ({"base_job_name": "a" * 70}, []),
        ({"base_job_name": ""}, []),
        (
            {"max_run": 28 * 86400 + 1},
            [("max-run", "`max_run` is 2419201, but a job runs for at most 28 days", "use at most 2419200")],
        ),
        ({**SPOT, "max_run": 60, "max_wait": 60}, []),
        (
            {**SPOT, "max_run": 60},
            [
                (
                    "spot-wait",
                    "`use_spot_instances` needs `max_wait`",
                    "set `max_wait` to at least 60, the time limit of the job",
                )
            ],
        ),
        (
            {**SPOT, "max_wait": 3600},
            [
                (
                    "spot-wait",
                    "`max_wait` is 3600, but the job may run for 86400: the wait includes the run",
                    "use at least 86400",
                )
            ],
        ),
        (
            {**SPOT, "max_run": 61, "max_wait": 60},
            [
                (
                    "spot-wait",
                    "`max_wait` is 60, but `max_run` is 61: the wait includes the run",
                    "use at least 61",
                )
            ],
        ),
        (
            {"max_run": 60, "max_wait": 60},
            [
                (
                    "spot-unused",
                    "`max_wait` is for managed Spot training, which the job does not use",
                    "remove it, or set `use_spot_instances`",
                )
            ],
        ),
        (
            {**SPOT, "max_run": 60, "max_wait": 60, "keep_alive_period_in_seconds": 60},
            [
                (
                    "spot-warm-pool",
                    "`keep_alive_period_in_seconds` can't be used with `use_spot_instances`",
                    "remove one of them",
                )
            ],
        ),
        (
            {"use_spot_instances": True, "max_run": 60, "max_wait": 60},
            [
                (
                    "spot-checkpoints",
                    "`use_spot_instances` starts an interrupted job again without its checkpoints",
                    "set `checkpoint_s3_uri`",
                )
            ],
        ),
        (
            {"checkpoint_local_path": "/opt/ml/checkpoints"},
            [
                (
                    "checkpoints",
                    "`checkpoint_local_path` needs `checkpoint_s3_uri`",
                    "set `checkpoint_s3_uri`, such as `s3://bucket/a`",
                )
            ],
        ),
        (
            {"subnets": ["subnet-1"]},
            [("vpc", "`subnets` needs `security_group_ids`", "set `security_group_ids` too")],
        ),
        (
            {"security_group_ids": ["sg-1"]},
            [("vpc", "`security_group_ids` needs `subnets`", "set `subnets` too")],
        ),
        (
            {"training_repository_access_mode": "Vpc"},
            [
                (
                    "vpc",
                    "`training_repository_access_mode` is `Vpc`, but the job has no VPC",
                    "set subnets and security groups",
                )
            ],
        ),
        (
            {
                "training_repository_credentials_provider_arn": (
                    "arn:aws:lambda:eu-west-1:123456789012:function:login"
                )
            },
            [
                (
                    "private-repository",
                    "`training_repository_credentials_provider_arn` needs the access mode `Vpc`",
                    "set it, or remove this",
                )
            ],
        ),
        (
            {"inputs": {"a b": "bucket/data"}},
            [
                (
                    "api-field",
                    "`inputs` is `a b`, which is not a valid ChannelName",
                    r"match `[A-Za-z0-9\.\-_]+`",
                ),
                (
                    "api-field",
                    "`inputs.a b` is `bucket/data`, which is not a valid S3Uri",
                    "match `(https|s3)://([^/]+)/?(.*)`",
                ),
            ],
        ),
        (
            {"inputs": {str(number): {"s3_data": S3} for number in range(21)}},
            [("api-field", "`inputs` has 21 elements", "use at most 20")],
        ),
    ],
)
def test_arguments_of_version_2(arguments: dict[str, Any], expected: list[tuple[str, str, str]]) -> None:
    assert said(TrainingRequest(fields=tuple(estimator_fields(arguments)))) == expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"compute": {"volume_size_in_gb": 30, "enable_managed_spot_training": False}}, []),
        (
            {"compute": {"enable_managed_spot_training": True}, "checkpoint_config": {"s3_uri": S3}},
            [
                (
                    "spot-wait",
                    "`compute.enable_managed_spot_training` needs "
                    "`stopping_condition.max_wait_time_in_seconds`",
                    "set `stopping_condition.max_wait_time_in_seconds` to at least 3600, "
                    "the time limit of the job",
                )
            ],
        ),
        (
            {"networking": {"subnets": ["subnet_1"], "security_group_ids": ["sg-1"]}},
            [
                (
                    "api-field",
                    "`networking.subnets[0]` is `subnet_1`, which is not a valid SubnetId",
                    "match `[-0-9a-zA-Z]+`",
                )
            ],
        ),
        (
            {"input_data_config": [{"channel_name": "a b"}]},
            [
                (
                    "api-field",
                    "`input_data_config[0].channel_name` is `a b`, which is not a valid ChannelName",
                    r"match `[A-Za-z0-9\.\-_]+`",
                )
            ],
        ),
        (
            {"tags": [{"key": "", "value": "a"}]},
            [("api-field", "`tags[0].key` has 0 characters", "use at least 1")],
        ),
    ],
)
def test_arguments_of_version_3(arguments: dict[str, Any], expected: list[tuple[str, str, str]]) -> None:
    assert said(TrainingRequest(sender="ModelTrainer", fields=tuple(trainer_fields(arguments)))) == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (API, []),
        (
            {"TrainingJobName": "a"},
            [("algorithm-or-image", "the job has no image", "set `AlgorithmSpecification.TrainingImage`")],
        ),
        (
            {"AlgorithmSpecification": {"TrainingImage": "x", "AlgorithmName": "a"}},
            [("algorithm-or-image", "the job has both an image and an algorithm", "remove one of them")],
        ),
        (
            {
                **API,
                "ResourceConfig": {
                    "InstancePreferences": [{"InstanceType": "ml.c5.xlarge", "InstanceCount": 1}],
                    "InstanceGroups": [],
                },
            },
            [
                (
                    "instance-preferences",
                    "`ResourceConfig.InstancePreferences` can't be used with `ResourceConfig.InstanceGroups`",
                    "remove one of them",
                )
            ],
        ),
        (
            {**API, "ResourceConfig": {"SelectedInstanceCount": 1}},
            [
                (
                    "read-only",
                    "`ResourceConfig.SelectedInstanceCount` is only in responses of the API",
                    "remove it",
                )
            ],
        ),
        (
            {**API, "ResourceConfig": {"InstanceGroups": [], "InstanceCount": 1}},
            [
                (
                    "groups-or-type",
                    "the job has instance groups and also an instance count",
                    "remove `ResourceConfig.InstanceCount`",
                )
            ],
        ),
        # botocore reports the type.
        ({**API, "StoppingCondition": {"MaxRuntimeInSeconds": "60"}}, []),
    ],
)
def test_a_request_of_the_api(content: dict[str, Any], expected: list[tuple[str, str, str]]) -> None:
    assert said(TrainingRequest(sender="API", fields=tuple(flatten(content)))) == expected


def test_a_job_on_this_machine_does_not_reach_the_api() -> None:
    fields = tuple(estimator_fields({"base_job_name": "a_b", "output_path": "file:///tmp"}))
    assert said(TrainingRequest(groups=(InstanceGroup("local"),), fields=fields)) == []
    assert len(said(TrainingRequest(fields=fields))) == 2
