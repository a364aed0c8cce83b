"""Fields of a request, checked with the API's model."""

from collections.abc import Iterator
from typing import Any

import pytest

from bakehouse.jobs import api_fields
from bakehouse.jobs.api_fields import ApiField, field_problems, find_shape, flatten, python_pattern


def patterns(shape: Any) -> Iterator[str]:
    """Yield all patterns below a shape."""
    if pattern := shape.metadata.get("pattern"):
        yield pattern
    inner = {"structure": "members", "list": "member", "map": "key value"}.get(shape.type_name, "")
    for name in inner.split():
        below = getattr(shape, name)
        for part in below.values() if isinstance(below, dict) else [below]:
            yield from patterns(part)


def test_all_patterns_of_the_model_are_understood() -> None:
    found = {*patterns(find_shape(""))}
    assert len(found) > 20
    for pattern in found:
        assert r"\p" not in python_pattern(pattern).pattern


@pytest.mark.parametrize(
    ("path", "value", "problems"),
    [
        ("TrainingJobName", "a-b", []),
        (
            "TrainingJobName",
            "a_b",
            [
                (
                    "`x` is `a_b`, which is not a valid TrainingJobName",
                    "match `[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}`",
                )
            ],
        ),
        (
            "TrainingJobName",
            "",
            [
                ("`x` has 0 characters", "use at least 1"),
                (
                    "`x` is ``, which is not a valid TrainingJobName",
                    "match `[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}`",
                ),
            ],
        ),
        ("RetryStrategy.MaximumRetryAttempts", 31, [("`x` is 31", "use at most 30")]),
        ("RetryStrategy.MaximumRetryAttempts", 0, [("`x` is 0", "use at least 1")]),
        ("RetryStrategy.MaximumRetryAttempts", True, [("`x` must be a whole number", "")]),
        (
            "AlgorithmSpecification.TrainingInputMode",
            "file",
            [("`x` is `file`, which the API does not have", "use Pipe, File, FastFile")],
        ),
        ("VpcConfig.Subnets", ["a"] * 17, [("`x` has 17 elements", "use at most 16")]),
        ("VpcConfig.Subnets", [1], [("`x[0]` must be a string", "")]),
        ("Tags", [{"Key": "Größe 1", "Value": "a"}], []),
        (
            "Tags",
            [{"Key": "a;b", "Value": "x" * 257}],
            [
                (
                    "`x[0].Key` is `a;b`, which is not a valid TagKey",
                    r"match `([\p{L}\p{Z}\p{N}_.:/=+\-@]*)`",
                ),
                ("`x[0].Value` has 257 characters", "use at most 256"),
            ],
        ),
        ("HyperParameters", {"a": "x" * 2501}, [("`x.a` has 2501 characters", "use at most 2500")]),
        (
            "Environment",
            {"A-B": ""},
            [
                (
                    "`x (name)` is `A-B`, which is not a valid TrainingEnvironmentKey",
                    "match `[a-zA-Z_][a-zA-Z0-9_]*`",
                )
            ],
        ),
        (
            "InputDataConfig.DataSource.S3DataSource.S3Uri",
            "bucket/data",
            [("`x` is `bucket/data`, which is not a valid S3Uri", "match `(https|s3)://([^/]+)/?(.*)`")],
        ),
        ("ResourceConfig.InstanceGroups", [{"InstanceType": "ml.p99.xlarge"}], []),
    ],
)
def test_a_value_of_a_field(path: str, value: object, problems: list[tuple[str, str]]) -> None:
    found = [(problem.message, problem.hint) for problem in field_problems(ApiField(path, "x", value))]
    assert found == problems


def test_many_choices_are_not_all_listed() -> None:
    assert [
        *field_problems(ApiField("ResourceConfig.InstanceGroups", "x", [{"InstanceType": "ml.huge"}]))
    ] == []
    [problem] = field_problems(ApiField("DebugRuleConfigurations", "x", [{"InstanceType": "ml.huge"}]))
    assert problem.message == "`x[0].InstanceType` is `ml.huge`, which the API does not have"
    assert api_fields._choices([*"abcdefgh"]) == "use a, b, c, d, e, f, g, h"
    assert api_fields._choices([*"abcdefghi"]) == "use a, b, c, d, e, f, g, h or another of the API's model"


def test_the_fields_of_a_request() -> None:
    content = {
        "TrainingJobName": "a",
        "ResourceConfig": {"VolumeSizeInGB": 1, "InstanceGroups": []},
        "Unknown": 1,
    }
    assert [(field.path, field.name, field.value) for field in flatten(content)] == [
        ("TrainingJobName", "TrainingJobName", "a"),
        ("ResourceConfig.VolumeSizeInGB", "ResourceConfig.VolumeSizeInGB", 1),
        ("ResourceConfig.InstanceGroups", "ResourceConfig.InstanceGroups", []),
    ]


def test_the_fields_of_a_structure_of_version_3() -> None:
    content = {"volume_size_in_gb": 1}
    [field] = flatten(content, "ResourceConfig", "compute", snake_case=True)
    assert field == ApiField("ResourceConfig.VolumeSizeInGB", "compute.volume_size_in_gb", 1)
