"""The request that printed code sends goes through the same checks as the job."""

from dataclasses import replace

import pytest

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.project import HOME
from bakehouse.errors import UsageError
from bakehouse.jobs import rules
from bakehouse.jobs.api_fields import ApiField, python_pattern
from bakehouse.jobs.job_spec import JobSpec, check_job
from bakehouse.jobs.snippets import preview
from bakehouse.jobs.training_request import LaunchImage
from bakehouse.plan.workspace import open_workspace

IMAGE = LaunchImage(
    "image",
    "",
    {"pytorch": "2.9.1", "python": "3.11", "sagemaker-training": "5.1.4"},
    ("torchrun",),
    "sagemaker_pytorch_container.training:main",
)
JOB = JobSpec(
    role="arn:aws:iam::123456789012:role/SageMakerRole", instance_type="ml.c5.xlarge", instance_count=1
)
REPOSITORY = "000000000000.dkr.ecr.eu-west-1.amazonaws.com/bakehouse/image"
PREFERENCES = "ResourceConfig.InstancePreferences"


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return open_workspace(HOME).catalog


def code(job: JobSpec, catalog: Catalog) -> str:
    return preview(IMAGE, job, catalog, REPOSITORY).code


def field(path: str, value: object) -> ApiField:
    return ApiField(path, path, value)


def test_preferences_replace_type_and_count(catalog: Catalog) -> None:
    preferred = [
        {"InstanceType": "ml.c5.xlarge", "InstanceCount": 1},
        {"InstanceType": "ml.m5.xlarge", "InstanceCount": 2},
    ]
    job = replace(JOB, instance_type="", instance_count=None, request=(field(PREFERENCES, preferred),))
    trainer = code(replace(job, sdk="v3"), catalog)

    assert (
        'compute=Compute(instance_preferences=[InstancePreference(instance_type="ml.c5.xlarge", '
        'instance_count=1), InstancePreference(instance_type="ml.m5.xlarge", instance_count=2)]),'
    ) in trainer
    assert "from sagemaker.core.shapes import InstancePreference\n" in trainer
    assert '"ResourceConfig": {"VolumeSizeInGB": 30, "InstancePreferences": [' in code(
        replace(job, sdk="boto3"), catalog
    )


def test_an_empty_tag_is_for_version_2(catalog: Catalog) -> None:
    job = replace(JOB, request=(field("Tags", [{"Key": "a", "Value": ""}]),))

    assert "Not for version 3: SDK v3 drops the empty value of a tag" in code(job, catalog)
    baked = replace(IMAGE, entry_point="train.py")
    for image in (IMAGE, baked):
        with pytest.raises(UsageError, match="SDK v3 drops the empty value of a tag"):
            preview(image, replace(job, sdk="v3"), catalog, REPOSITORY)


def test_a_text_of_several_lines_is_json(catalog: Catalog) -> None:
    job = replace(JOB, hyperparameters={"text": "a\nb", "plain": "a b"})

    assert '"text": "\\"a\\\\nb\\"", "plain": "a b"' in code(replace(job, sdk="v3"), catalog)
    assert '"text": "a\\nb", "plain": "a b"' in code(replace(job, sdk="v2"), catalog)


@pytest.mark.parametrize("sdk", ["v2", "v3", "boto3"])
def test_what_the_api_refuses_is_refused_before_code_is_printed(sdk: str, catalog: Catalog) -> None:
    job = replace(JOB, sdk=sdk, role="role")
    [finding, *_] = check_job(IMAGE, job, catalog).findings
    assert (finding.rule, finding.message) == (rules.FIELD, "`RoleArn` has 4 characters")
    long = replace(JOB, sdk=sdk, hyperparameters={"a": "b" * 2501})
    messages = [error.message for error in check_job(IMAGE, long, catalog).errors]
    assert any("2501 characters" in message or "2503" in message for message in messages)


def test_a_dot_of_a_pattern_is_no_line_break() -> None:
    assert python_pattern(".*").fullmatch("a b")
    assert not any(python_pattern(".*").fullmatch(f"a{end}b") for end in "\n\r\x85\u2028\u2029")
    assert python_pattern(r"[\S\s]*\.").fullmatch("a\n.")


def test_parameter_servers_in_an_image_of_unknown_content_are_not_refused(catalog: Catalog) -> None:
    unknown = LaunchImage("registry.example/team/image:1", "registry.example/team/image:1", is_known=False)
    servers = {"parameter_server": {"enabled": True}}
    for sdk in ("", "v2", "boto3"):
        job = replace(JOB, sdk=sdk, instance_count=2, distribution=servers, entry_point="train.py")
        assert check_job(unknown, job, catalog).errors == ()
    text = preview(unknown, job, catalog, REPOSITORY).code
    assert "sagemaker_parameter_server_enabled" in text
    estimator = preview(unknown, replace(job, sdk="v2"), catalog, REPOSITORY).code
    assert "from sagemaker.tensorflow import TensorFlow\n" in estimator
    assert "framework_version" not in estimator


def test_a_number_has_the_limit_of_its_type_in_the_api(catalog: Catalog) -> None:
    fields = (field("ResourceConfig.VolumeSizeInGB", 10**30),)
    errors = check_job(IMAGE, replace(JOB, request=fields), catalog).errors

    assert [(error.message, error.hint) for error in errors] == [
        (f"`ResourceConfig.VolumeSizeInGB` is {10**30}", "use at most 2147483647")
    ]
