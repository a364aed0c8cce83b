"""ECR without requests to it; the rest is in tests/integration/test_ecr.py."""

import subprocess
import sys

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError  # type: ignore[import-untyped]

from bakehouse.errors import Diagnostic, PublishError, Reason, RegistryAuthError
from bakehouse.registry.ecr import EcrRegistry
from bakehouse.registry.ecr_endpoints import check_host, is_ecr, registry_host
from bakehouse.util.aws import Aws, AwsError, regions, translate_errors
from tests.support.errors import raised

HINT = "set `region` in [tool.bakehouse], or AWS_DEFAULT_REGION"


@pytest.fixture(autouse=True)
def nothing_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_DEFAULT_REGION", "AWS_REGION", "AWS_PROFILE", "AWS_DEFAULT_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")


def test_a_denied_call_is_reported_without_a_known_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreached(aws: Aws) -> str:
        raise PublishError("no answer from STS")

    monkeypatch.setattr(Aws, "principal", unreached)
    message = "User: x is not authorized to perform: ecr:CreateRepository on y"
    with pytest.raises(RegistryAuthError) as caught, Aws("eu-west-1").translate_errors("make a repository"):
        raise ClientError(
            {"Error": {"Code": "AccessDeniedException", "Message": message}}, "CreateRepository"
        )
    assert caught.value.diagnostics[0].reasons == (
        Reason("the AWS session is valid but lacks ecr:CreateRepository"),
    )


def test_a_refusal_is_reported_without_a_known_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreached(aws: Aws) -> str:
        raise PublishError("no answer from STS")

    monkeypatch.setattr(Aws, "principal", unreached)
    assert EcrRegistry(region="eu-west-1").principal() == "the AWS session"


@pytest.mark.parametrize(
    ("region", "why"),
    [
        ("not a region", "Provided region_name 'not a region' doesn't match a supported format."),
        (
            "eu-west-1",
            "Parameter validation failed: Invalid type for parameter repositoryNames, type: <class 'str'>, "
            "valid types: <class 'list'>, <class 'tuple'>",
        ),
    ],
)
def test_values_that_boto3_rejects_are_reported_without_their_content(
    monkeypatch: pytest.MonkeyPatch, region: str, why: str
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    aws = Aws(region)
    with pytest.raises(PublishError) as caught, aws.translate_errors("ask"):
        aws.client("ecr").describe_repositories(repositoryNames="hunter2")
    [diagnostic] = caught.value.diagnostics
    assert diagnostic.facts == (("because", why),)


@pytest.mark.parametrize(
    ("region", "host"),
    [
        ("eu-west-1", "123456789012.dkr.ecr.eu-west-1.amazonaws.com"),
        ("cn-north-1", "123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn"),
        ("us-gov-west-1", "123456789012.dkr.ecr.us-gov-west-1.amazonaws.com"),
        ("us-iso-east-1", "123456789012.dkr.ecr.us-iso-east-1.c2s.ic.gov"),
        ("us-isob-east-1", "123456789012.dkr.ecr.us-isob-east-1.sc2s.sgov.gov"),
        ("eusc-de-east-1", "123456789012.dkr.ecr.eusc-de-east-1.amazonaws.eu"),
        ("eu-west-99", "123456789012.dkr.ecr.eu-west-99.amazonaws.com"),
    ],
)
def test_every_partition_has_an_ending_of_its_own(region: str, host: str) -> None:
    assert registry_host("123456789012", region) == host
    assert is_ecr(host)


@pytest.mark.parametrize(
    ("region", "hint"),
    [
        ("europe", "use the name of a region, such as `eu-west-1`"),
        ("eu-wset-1", "did you mean `eu-west-1`?"),
        ("eu_west_1", "did you mean `eu-west-1`?"),
        ("us-gov-wst-1", "did you mean `us-gov-west-1`?"),
    ],
)
def test_an_unknown_region(region: str, hint: str) -> None:
    error = raised(PublishError, registry_host, "123456789012", region)
    assert error.diagnostics == (Diagnostic(f"unknown AWS region `{region}`", hint=hint),)


@pytest.mark.parametrize(
    ("region", "host"),
    [
        ("us-east-1", "123456789012.dkr.ecr-fips.us-east-1.amazonaws.com"),
        ("us-gov-west-1", "123456789012.dkr.ecr-fips.us-gov-west-1.amazonaws.com"),
    ],
)
def test_where_there_is_fips(region: str, host: str) -> None:
    assert registry_host("123456789012", region, fips=True) == host
    check_host(host)


def test_a_region_without_fips() -> None:
    error = raised(PublishError, registry_host, "123456789012", "eu-west-1", fips=True)
    regions = "us-east-1, us-east-2, us-gov-east-1, us-gov-west-1, us-west-1, us-west-2"
    message = "Amazon ECR has no FIPS endpoint in `eu-west-1`"
    assert error.diagnostics == (Diagnostic(message, hint=f"use a region with FIPS endpoints: {regions}"),)


@pytest.mark.parametrize(
    ("region", "fips", "host"),
    [
        ("eu-west-1", False, "123456789012.dkr-ecr.eu-west-1.on.aws"),
        ("us-east-1", True, "123456789012.dkr-ecr-fips.us-east-1.on.aws"),
        ("cn-north-1", False, "123456789012.dkr-ecr.cn-north-1.on.amazonwebservices.com.cn"),
    ],
)
def test_dual_stack_addresses(region: str, fips: bool, host: str) -> None:
    assert registry_host("123456789012", region, fips=fips, dual_stack=True) == host
    check_host(host)


@pytest.mark.parametrize(
    ("host", "hint"),
    [
        (
            "123456789012.dkr.ecr.cn-north-1.amazonaws.com",
            "in `cn-north-1`, use `123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn`",
        ),
        (
            "123456789012.dkr.ecr.eu-west-1.amazonaws.co",
            "in `eu-west-1`, use `123456789012.dkr.ecr.eu-west-1.amazonaws.com`",
        ),
        (
            "12345678901.dkr.ecr.eu-west-1.amazonaws.com",
            "use `<12 digits>.dkr.ecr.<region>.amazonaws.com` (outside China)",
        ),
    ],
)
def test_an_address_that_can_not_be_is_refused_unasked(host: str, hint: str) -> None:
    error = raised(PublishError, check_host, host)
    assert error.diagnostics == (Diagnostic(f"`{host}` is not a valid host of Amazon ECR", hint=hint),)


@pytest.mark.parametrize(
    "host",
    [
        "123456789012.dkr.ecr-fips.us-east-1.amazonaws.com",
        "123456789012.dkr-ecr.eu-west-1.on.aws",
        "123456789012.dkr-ecr.cn-north-1.on.amazonwebservices.com.cn",
    ],
)
def test_other_addresses_of_ecr_are_known(host: str) -> None:
    assert is_ecr(host)
    assert EcrRegistry(host=host).host == host


@pytest.mark.parametrize("host", ["127.0.0.1:5050", "registry.example.com", "public.ecr.aws"])
def test_other_registries_are_not_taken_for_ecr(host: str) -> None:
    assert not is_ecr(host)


def test_without_a_region(monkeypatch: pytest.MonkeyPatch) -> None:
    error = raised(PublishError, EcrRegistry().credentials)
    assert error.diagnostics == (Diagnostic("no AWS region is set", hint=HINT),)


def test_a_profile_that_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "missing")
    assert raised(RegistryAuthError, EcrRegistry(region="eu-west-1").credentials).diagnostics == (
        Diagnostic(
            "AWS profile `missing` does not exist",
            hint="set AWS_PROFILE to one of `aws configure list-profiles`",
        ),
    )


def test_half_of_the_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY", raising=False)
    error = raised(RegistryAuthError, EcrRegistry(region="eu-west-1").credentials)
    message = "the AWS credentials are incomplete: `AWS_SECRET_ACCESS_KEY` is missing"
    assert error.diagnostics == (Diagnostic(message),)


@pytest.mark.parametrize(
    ("host", "hint"),
    [
        ("our-bucket.s3.eu-wst-1.amazonaws.com", "check the region `eu-wst-1`; did you mean `eu-west-1`?"),
        ("api.ecr.nowhere-land-1.amazonaws.com", "check the region `nowhere-land-1`"),
        ("api.ecr.eu-west-1.amazonaws.com", ""),
        ("s3.cn-north-1.amazonaws.com.cn", ""),
        ("sts.amazonaws.com", ""),
        ("proxy.example.com", ""),
    ],
)
def test_an_unknown_region_is_suspected_if_aws_does_not_answer(host: str, hint: str) -> None:
    with pytest.raises(AwsError) as caught, translate_errors("read it"):
        raise EndpointConnectionError(endpoint_url=f"https://{host}/")

    facts = (("address", f"https://{host}/"),)
    assert caught.value.diagnostic == Diagnostic(
        "could not read it: AWS does not answer", facts=facts, hint=hint
    )


@pytest.mark.parametrize("code", ["PermanentRedirect", "AuthorizationHeaderMalformed"])
def test_a_bucket_of_another_region(code: str) -> None:
    with pytest.raises(AwsError) as caught, translate_errors("read it"):
        raise ClientError({"Error": {"Code": code, "Message": "wrong"}}, "ListObjectsV2")

    hint = "set `region` in [tool.bakehouse] to that of the bucket"
    facts = (("answer", f"{code}: wrong"),)
    assert caught.value.diagnostic == Diagnostic("could not read it", facts=facts, hint=hint)


def test_an_aws_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    assert raised(PublishError, EcrRegistry(region="eu-west-1").credentials).diagnostics == (
        Diagnostic(
            "could not log in to Amazon ECR: AWS does not answer", facts=(("address", "http://127.0.0.1:1/"),)
        ),
    )


def test_regions_are_listed_without_the_import_of_an_aws_client() -> None:
    names = "len(regions()), 'botocore.session' in sys.modules"
    code = f"import sys; from bakehouse.util.aws import regions; print({names})"
    listed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert listed == f"{len(regions())} False\n"
