"""Roles that are assumed, against moto."""

import pytest

from bakehouse.errors import Diagnostic, PublishError, Reason, RegistryAuthError
from bakehouse.registry.ecr import EcrRegistry
from bakehouse.util.aws import Access, Aws
from tests.support.ecr import ACCOUNT, REGION, EcrStub
from tests.support.proxy import Reply, Request

pytestmark = [pytest.mark.engine, pytest.mark.timeout(60)]

ROLE = f"arn:aws:iam::{ACCOUNT}:role/Pusher"


def test_a_role_is_assumed_and_named_with_its_session(
    ecr_stub: EcrStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Aws(REGION, Access(role=ROLE)).principal() == "the AWS session `bakehouse` (role Pusher)"
    monkeypatch.setenv("AWS_ROLE_SESSION_NAME", "ci-42")
    assert Aws(REGION, Access(role=ROLE)).principal() == "the AWS session `ci-42` (role Pusher)"


def test_a_role_of_another_account_has_that_account_s_registry(ecr_stub: EcrStub) -> None:
    other = EcrRegistry(region=REGION, access=Access(role="arn:aws:iam::210987654321:role/Pusher"))
    assert other.host == f"210987654321.dkr.ecr.{REGION}.amazonaws.com"
    assert other.credentials().username == "AWS"


def test_a_role_that_may_not_be_assumed(ecr_stub: EcrStub) -> None:
    message = "User: arn:aws:iam::1:user/x is not authorized to perform: sts:AssumeRole on resource: y"

    def refuse(request: Request) -> Reply | None:
        if b"Action=AssumeRole" not in request.body:
            return None
        error = f"<Error><Code>AccessDenied</Code><Message>{message}</Message></Error>"
        return Reply(403, {}, f"<ErrorResponse>{error}</ErrorResponse>".encode())

    ecr_stub.aws.answers.insert(0, refuse)
    with pytest.raises(RegistryAuthError) as caught:
        EcrRegistry(region=REGION, access=Access(role=ROLE)).credentials()
    assert caught.value.diagnostics == (
        Diagnostic(
            f"not allowed to assume the role `{ROLE}`",
            reasons=(Reason("the AWS user `moto` is valid but lacks sts:AssumeRole"),),
            hint="allow it in the role's trust policy too",
        ),
    )


def test_a_profile_of_the_settings_that_does_not_exist(ecr_stub: EcrStub) -> None:
    with pytest.raises(RegistryAuthError) as caught:
        EcrRegistry(region=REGION, access=Access(profile="missing")).credentials()
    assert caught.value.diagnostics[0].message == "AWS profile `missing` does not exist"


def test_a_role_without_credentials_to_assume_it(ecr_stub: EcrStub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(PublishError) as caught:
        EcrRegistry(region=REGION, access=Access(role=ROLE)).credentials()
    assert caught.value.diagnostics[0].message == "no AWS credentials were found"


@pytest.mark.parametrize(
    ("region", "access", "endpoint"),
    [
        ("us-east-1", Access(fips=True), "https://ecr-fips.us-east-1.amazonaws.com"),
        ("us-gov-west-1", Access(fips=True), "https://ecr-fips.us-gov-west-1.amazonaws.com"),
        ("eu-west-1", Access(dual_stack=True), "https://ecr.eu-west-1.api.aws"),
        ("cn-north-1", Access(), "https://api.ecr.cn-north-1.amazonaws.com.cn"),
        ("us-iso-east-1", Access(), "https://api.ecr.us-iso-east-1.c2s.ic.gov"),
    ],
)
def test_the_api_is_called_at_the_configured_endpoint(
    ecr_stub: EcrStub,
    monkeypatch: pytest.MonkeyPatch,
    region: str,
    access: Access,
    endpoint: str,
) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    assert Aws(region, access).client("ecr").meta.endpoint_url == endpoint
