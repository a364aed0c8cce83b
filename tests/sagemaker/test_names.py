"""Patterns and limits of names, compared with the model of SageMaker's API in botocore."""

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from botocore.session import get_session  # type: ignore[import-untyped]

from bakehouse.catalog import user_smoke
from bakehouse.cli import job_options
from bakehouse.errors import UsageError
from bakehouse.jobs import instance_groups, request_checks
from bakehouse.sagemaker import launch
from bakehouse.util import oci

NAMES = (
    *("data", "data_group", "data-group", "data.group", "Data2", "2data", "_data", "-data", "data-", "a--b"),
    *("a..b", "a__b", "a/b", "a b", "a:b", "a+b", "Gruppe Süd", "größe", "a\n", "x" * 63, "x" * 64),
    *("x" * 65, "x" * 129, "x" * 256, "x" * 257),
)
ROLES = (
    *("arn:aws:iam::123456789012:role/R", "arn:aws-cn:iam::123456789012:role/service-role/A_b+c=d,e.f@g-h"),
    *("arn:aws:iam::12345678901:role/R", "arn:aws:iam::123456789012:user/R"),
    *("arn:aws:iam::123456789012:role/a b", "arn:aws:iam::123456789012:role/ä", "R", "x" * 2049),
)


service_model = cache(get_session().get_service_model)
"""The model of a service, which takes long to read."""


def shape(path: str, service: str = "sagemaker", operation: str = "CreateTrainingJob") -> Any:
    """Return the part of a request at a path; lists have a `member`, mappings a `key` and a `value`."""
    part = service_model(service).operation_model(operation).input_shape
    for name in path.split("."):
        part = part.members[name] if part.type_name == "structure" else getattr(part, name)
    return part


def is_valid(text: str, path: str, **model: str) -> bool:
    """Return whether the API accepts a text: its length and its pattern."""
    rules = shape(path, **model).metadata
    is_long_enough = rules.get("min", 0) <= len(text) <= rules.get("max", len(text))
    return is_long_enough and re.fullmatch(rules.get("pattern", "(?s:.*)"), text) is not None


def is_group_option(name: str) -> bool:
    try:
        [group] = job_options.named_groups([f"{name}=ml.c5.xlarge:2"])
    except UsageError:
        return False
    return group.name == name and group.count == 2


def has(pattern: re.Pattern[str]) -> Callable[[str], bool]:
    return lambda text: pattern.fullmatch(text) is not None


@pytest.mark.parametrize(
    ("check", "path"),
    [
        (has(launch._NAME), "TrainingJobName"),
        (has(user_smoke.CHANNEL_NAME), "InputDataConfig.member.ChannelName"),
        (is_group_option, "ResourceConfig.InstanceGroups.member.InstanceGroupName"),
    ],
)
def test_the_names_of_a_job_are_those_of_the_api(check: Callable[[str], bool], path: str) -> None:
    assert {name: check(name) for name in NAMES} == {name: is_valid(name, path) for name in NAMES}


def test_a_role_is_one_of_the_api() -> None:
    assert {role: has(launch._ROLE)(role) for role in ROLES} == {
        role: is_valid(role, "RoleArn") for role in ROLES
    }


def test_the_variables_of_a_job_are_those_of_the_api() -> None:
    assert {name: has(request_checks._VARIABLE)(name) for name in NAMES} == {
        name: is_valid(name, "Environment.key") for name in NAMES
    }


def test_the_repositories_of_ecr_are_accepted() -> None:
    model = {"service": "ecr", "operation": "CreateRepository"}
    names = (*NAMES, "team/a", "team//a", "a.b/c_d/e-f", "x", "a_b")
    valid = [name for name in names if is_valid(name, "repositoryName", **model)]

    assert "a.b/c_d/e-f" in valid
    for name in valid:
        oci.check_names("123456789012.dkr.ecr.eu-west-1.amazonaws.com", name)


@pytest.mark.parametrize("name", [".", ".."])
def test_a_channel_must_not_name_another_directory(name: str) -> None:
    assert user_smoke.CHANNEL_NAME.fullmatch(name) is None


@pytest.mark.parametrize(
    ("limit", "path"),
    [
        (instance_groups.MAX_GROUPS, "ResourceConfig.InstanceGroups"),
        (job_options._MAX_GROUPS, "ResourceConfig.InstanceGroups"),
        (instance_groups._MAX_NAME, "ResourceConfig.InstanceGroups.member.InstanceGroupName"),
        (launch._MAX_CHANNELS, "InputDataConfig"),
        (request_checks.MAX_URI, "AlgorithmSpecification.TrainingImage"),
        (request_checks._MAX_PARAMETERS, "HyperParameters"),
        (request_checks._MAX_NAME, "HyperParameters.key"),
        (request_checks._MAX_VALUE, "HyperParameters.value"),
        (request_checks._MAX_VARIABLES, "Environment"),
        (request_checks._MAX_VARIABLE, "Environment.key"),
        (request_checks._MAX_VARIABLE, "Environment.value"),
        (request_checks._MAX_KEEP_ALIVE, "ResourceConfig.KeepAlivePeriodInSeconds"),
    ],
)
def test_the_limits_are_those_of_the_api(limit: int, path: str) -> None:
    assert limit == shape(path).metadata["max"]
