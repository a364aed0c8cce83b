"""Publishing to an ECR made of moto, a real registry, and what ECR does in front of it."""

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest

from bakehouse.builder.built_image import BuiltImage
from bakehouse.builder.pack import Packer
from bakehouse.catalog.project import ProjectSettings
from bakehouse.engine import docker
from bakehouse.errors import Diagnostic, PublishError, Reason, RegistryAuthError, TagTakenError
from bakehouse.fetch.retry import RetryPolicy
from bakehouse.plan.model import ImageKey
from bakehouse.publish import preflight
from bakehouse.publish.push import PushOptions, publish
from bakehouse.publish.tags import PublishedImage
from bakehouse.registry import destination
from bakehouse.registry.ecr import EcrRegistry
from bakehouse.registry.ecr_repository import SIGNATURES
from bakehouse.registry.manifest import short
from tests.integration.tiny_images import built, passed, upload
from tests.support import plans
from tests.support.ecr import ACCOUNT, REGION, EcrStub
from tests.support.proxy import Forward, Reply, Request, error_body

pytestmark = [pytest.mark.engine, pytest.mark.timeout(120)]

TAG = "mpi-cpu-20261120-7c1e44b0"


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BuiltImage]:
    with built(tmp_path_factory.mktemp("image"), "mpi-cpu") as image:
        yield image


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BuiltImage]:
    """Other content under the same name and key."""
    with built(tmp_path_factory.mktemp("other"), "mpi-cpu-other") as image:
        yield replace(image, image=plans.changed(image.image, name="mpi-cpu"))


def later(other: BuiltImage) -> BuiltImage:
    """The same with a key of its own, as after a change of the recipe."""
    return replace(other, image=replace(other.image, key=ImageKey("ab" * 32)))


class Push:
    """Publishes the way that these tests do."""

    def __init__(self, directory: Path, host: str) -> None:
        self.lines: list[str] = []
        self.host = host
        self.packer = Packer(docker.connect(), directory)
        self.publication = PushOptions(
            day=date(2026, 11, 20),
            locks=directory / "locks",
            prefix=directory.name.lower().replace("_", "-").rstrip("-"),
            stall=20.0,
            retry_policy=RetryPolicy(attempts=3, pause=0.1, timeout=5.0),
            settle=0.0,
        )

    def __call__(self, image: BuiltImage, *, create: bool = True, **changed: Any) -> PublishedImage:
        registry = EcrRegistry(host=self.host, create=create)
        publication = replace(self.publication, **changed)
        return publish(image, passed(image), registry, self.packer, publication, self.lines.append)

    @property
    def repository(self) -> str:
        return f"{self.publication.prefix}/mpi-cpu"


@pytest.fixture
def push(tmp_path: Path, ecr_stub: EcrStub) -> Push:
    return Push(tmp_path, ecr_stub.host)


def test_ecr_lists_what_was_published(ecr_stub: EcrStub, push: Push, image: BuiltImage) -> None:
    published = push(image)
    assert published.image_uri == f"{ecr_stub.host}/{push.repository}@{published.digest}"
    assert ecr_stub.images(push.repository) == {published.digest: [TAG]}


def test_a_repository_that_is_made_has_immutable_tags_but_for_the_alias_and_signatures(
    ecr_stub: EcrStub, push: Push, image: BuiltImage
) -> None:
    push(image)
    (repository,) = ecr_stub.client.describe_repositories(repositoryNames=[push.repository])["repositories"]
    assert repository["imageTagMutability"] == "IMMUTABLE_WITH_EXCLUSION"
    filters = [rule["filter"] for rule in repository["imageTagMutabilityExclusionFilters"]]
    assert filters == ["mpi-cpu", *SIGNATURES]


def test_a_missing_repository_is_not_made_unasked(ecr_stub: EcrStub, push: Push, image: BuiltImage) -> None:
    with pytest.raises(PublishError) as caught:
        push(image, create=False)
    assert caught.value.diagnostics == (
        Diagnostic(
            f"there is no repository `{push.repository}` in `{ecr_stub.host}`",
            hint="add `--create`, or ask the owner of the account to create it",
        ),
    )


def access(ecr_stub: EcrStub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, create: bool) -> None:
    """Ask the registry as `release` does before a build."""
    registry = EcrRegistry(host=ecr_stub.host, create=create)
    monkeypatch.setattr(destination, "registries", lambda *_, **__: (registry,))
    project = ProjectSettings(tmp_path, (), repository_prefix=tmp_path.name.replace("_", "-"))
    preflight.check_access(project, ecr_stub.host, ["mpi-cpu"], create=create)


def test_access_is_asked_for_before_a_build(
    ecr_stub: EcrStub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = f"{tmp_path.name.replace('_', '-')}/mpi-cpu"
    with pytest.raises(PublishError, match=f"there is no repository `{repository}`"):
        access(ecr_stub, tmp_path, monkeypatch, create=False)
    access(ecr_stub, tmp_path, monkeypatch, create=True)
    access(ecr_stub, tmp_path, monkeypatch, create=False)
    text = "User: arn:aws:iam::1:user/x is not authorized to perform: ecr:InitiateLayerUpload"
    ecr_stub.registry.fail("POST", "/blobs/uploads/", 403, error_body("DENIED", text))
    with pytest.raises(RegistryAuthError, match=f"not allowed to push to `{ecr_stub.host}/{repository}`"):
        access(ecr_stub, tmp_path, monkeypatch, create=False)


def test_without_credentials_nothing_is_built(
    ecr_stub: EcrStub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(RegistryAuthError, match="no AWS credentials were found"):
        access(ecr_stub, tmp_path, monkeypatch, create=True)


def test_a_repository_that_vanishes_during_the_push_is_made_again(
    ecr_stub: EcrStub, push: Push, image: BuiltImage
) -> None:
    ecr_stub.client.create_repository(repositoryName=push.repository)

    def vanish(request: Request, forward: Forward) -> Reply:
        ecr_stub.client.delete_repository(repositoryName=push.repository, force=True)
        return ecr_stub.registry.answers[1](request) or forward(request)

    ecr_stub.registry.do("POST", "/blobs/uploads/", vanish, 1)
    published = push(image)
    assert ecr_stub.images(push.repository) == {published.digest: [TAG]}


def test_an_expired_login_is_renewed_once(ecr_stub: EcrStub, push: Push, image: BuiltImage) -> None:
    ecr_stub.client.create_repository(repositoryName=push.repository)

    def expire(request: Request, forward: Forward) -> Reply:
        ecr_stub.registry.expire_tokens()
        text = "Your authorization token has expired. Reauthenticate and try again."
        return Reply(403, {}, error_body("DENIED", text))

    ecr_stub.registry.do("POST", "/blobs/uploads/", expire, 1)
    published = push(image)
    assert len(ecr_stub.aws.issued) == 2
    assert ecr_stub.images(push.repository) == {published.digest: [TAG]}


def test_an_expired_login_is_renewed_when_reading_too(
    ecr_stub: EcrStub, push: Push, image: BuiltImage
) -> None:
    ecr_stub.client.create_repository(repositoryName=push.repository)

    def expire(request: Request, forward: Forward) -> Reply:
        ecr_stub.registry.expire_tokens()
        return ecr_stub.registry.answers[0](request) or forward(request)

    ecr_stub.registry.do("GET", "/tags/list", expire, 1)
    push(image)
    assert len(ecr_stub.aws.issued) == 2


def test_an_immutable_tag_is_never_overwritten(
    ecr_stub: EcrStub, push: Push, image: BuiltImage, other: BuiltImage
) -> None:
    """A rival pushes after we looked."""
    ecr_stub.client.create_repository(repositoryName=push.repository, imageTagMutability="IMMUTABLE")
    rivals: list[str] = []

    def overtake(request: Request, forward: Forward) -> Reply:
        registry = EcrRegistry(host=ecr_stub.host)
        rivals.append(upload(other, registry, push.repository, TAG, push.publication.locks).digest)
        assert ecr_stub.images(push.repository) == {rivals[0]: [TAG]}
        return ecr_stub.registry.answers[2](request) or forward(request)

    ecr_stub.registry.do("PUT", "/manifests/", overtake, 1)
    with pytest.raises(TagTakenError) as caught:
        push(image)
    facts = dict(caught.value.diagnostics[0].facts)
    assert facts["there, manifest"] == rivals[0]
    assert re.fullmatch(
        r"20[0-9-]{8} [0-9:]{5} UTC; CloudTrail's PutImage names the user", facts["there, pushed"]
    )
    assert ecr_stub.images(push.repository) == {rivals[0]: [TAG]}


def test_missing_rights_to_push_name_the_identity(ecr_stub: EcrStub, push: Push, image: BuiltImage) -> None:
    ecr_stub.client.create_repository(repositoryName=push.repository)
    text = "User: arn:aws:iam::1:user/x is not authorized to perform: ecr:InitiateLayerUpload"
    ecr_stub.registry.fail("POST", "/blobs/uploads/", 403, error_body("DENIED", text))
    with pytest.raises(RegistryAuthError) as caught:
        push(image)
    assert caught.value.diagnostics == (
        Diagnostic(
            f"not allowed to push to `{ecr_stub.host}/{push.repository}`",
            reasons=(
                Reason(f"the AWS user `moto` is valid but not authorized: {text}"),
                Reason(f"no tag was set; the image is built as {short(image.digest)}"),
            ),
            hint="use credentials with push permission, then run `bake push mpi-cpu`; "
            "the built image is reused",
        ),
    )


def test_a_role_is_named_with_its_session(ecr_stub: EcrStub, monkeypatch: pytest.MonkeyPatch) -> None:
    sts = boto3.client("sts", region_name=REGION)
    role = f"arn:aws:iam::{ACCOUNT}:role/BakehouseReader"
    session = sts.assume_role(RoleArn=role, RoleSessionName="ci-render")["Credentials"]
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", session["AccessKeyId"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", session["SecretAccessKey"])
    monkeypatch.setenv("AWS_SESSION_TOKEN", session["SessionToken"])
    assert EcrRegistry().principal() == "the AWS session `ci-render` (role BakehouseReader)"


def test_who_may_push_but_not_list_can_publish(ecr_stub: EcrStub, push: Push, image: BuiltImage) -> None:
    ecr_stub.client.create_repository(repositoryName=push.repository)
    ecr_stub.registry.fail("GET", "/tags/list", 403, error_body("DENIED", "not authorized: ecr:ListImages"))
    push(image)
    assert push(image).was_there


def test_a_login_that_ecr_does_not_know(ecr_stub: EcrStub, push: Push, image: BuiltImage) -> None:
    ecr_stub.registry.fail("GET", "/v2/", 401, b"Not Authorized")
    with pytest.raises(RegistryAuthError) as caught:
        push(image)
    assert caught.value.diagnostics == (
        Diagnostic(
            f"`{ecr_stub.host}` does not accept the credentials",
            reasons=(Reason("it answered the AWS user `moto`: HTTP 401 Unauthorized"),),
            hint="log in, then run `bake push mpi-cpu`; the built image is reused",
        ),
    )


@pytest.mark.parametrize(
    ("code", "diagnostic"),
    [
        (
            "ExpiredTokenException",
            Diagnostic(
                "the AWS session has expired",
                hint="log in again (`aws sso login`, or your CI's login step)",
            ),
        ),
        (
            "UnrecognizedClientException",
            Diagnostic(
                "AWS rejected the credentials",
                reasons=(Reason("AWS answered `UnrecognizedClientException`"),),
                hint="run `aws sts get-caller-identity` to see which credentials are used",
            ),
        ),
        (
            "AccessDeniedException",
            Diagnostic(
                "not allowed to log in to Amazon ECR",
                reasons=(Reason("the AWS user `moto` is valid but lacks ecr:GetAuthorizationToken"),),
                hint="use a role with that permission",
            ),
        ),
        (
            "ServerException",
            Diagnostic(
                "could not log in to Amazon ECR",
                facts=(("answer", "ServerException: User: x is not authorized to perform: "),),
            ),
        ),
    ],
)
def test_aws_refuses_the_login(
    ecr_stub: EcrStub, push: Push, image: BuiltImage, code: str, diagnostic: Diagnostic
) -> None:
    text = "User: x is not authorized to perform: "
    if code == "AccessDeniedException":
        text += "ecr:GetAuthorizationToken on resource: *"
    ecr_stub.aws.refuse("GetAuthorizationToken", code, text)
    with pytest.raises(PublishError) as caught:
        push(image)
    assert caught.value.diagnostics == (diagnostic,)


def test_without_aws_credentials(
    ecr_stub: EcrStub, push: Push, image: BuiltImage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(RegistryAuthError) as caught:
        push(image)
    assert caught.value.diagnostics == (
        Diagnostic(
            "no AWS credentials were found",
            reasons=(Reason("there are none in the environment, in ~/.aws or from the instance role"),),
            hint="run `aws configure sso`, or set AWS_PROFILE",
        ),
    )


def test_the_address_is_made_of_account_and_region(ecr_stub: EcrStub) -> None:
    assert EcrRegistry().host == f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com"


def test_no_secret_is_printed(ecr_stub: EcrStub, push: Push, image: BuiltImage) -> None:
    ecr_stub.client.create_repository(repositoryName=push.repository)

    def gossip(request: Request, forward: Forward) -> Reply:
        return Reply(403, {}, error_body("DENIED", f"AWS:{ecr_stub.aws.issued[-1]} may not"))

    ecr_stub.registry.do("POST", "/blobs/uploads/", gossip)
    with pytest.raises(RegistryAuthError) as caught:
        push(image)
    text = f"{caught.value.diagnostics} {push.lines} {caught.value.__cause__}"
    assert "AWS:*** may not" in text
    assert not any(
        secret in text for secret in (*ecr_stub.aws.issued, ecr_stub.environment["AWS_SECRET_ACCESS_KEY"])
    )
