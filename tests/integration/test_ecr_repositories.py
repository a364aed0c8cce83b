"""Repositories as the settings want them, against moto."""

import json
from pathlib import Path

import pytest

from bakehouse.catalog.registry_settings import Creation
from bakehouse.registry.ecr import EcrRegistry
from bakehouse.registry.ecr_repository import pull_policy
from bakehouse.util.aws import Aws
from tests.support.ecr import EcrStub

pytestmark = [pytest.mark.engine, pytest.mark.timeout(60)]

KEY = "arn:aws:kms:eu-west-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
CREATION = Creation(
    scan_on_push=True,
    encryption=KEY,
    tags={"team": "ml"},
    untagged_days=14,
    pull_accounts=("210987654321",),
    pull_organization="o-a1b2c3d4e5",
)


@pytest.fixture
def name(tmp_path: Path) -> str:
    return f"{tmp_path.name.replace('_', '-').rstrip('-')}/mpi-cpu"


def registry(ecr_stub: EcrStub, creation: Creation) -> EcrRegistry:
    return EcrRegistry(host=ecr_stub.host, create=True, creation=creation)


def differences(ecr_stub: EcrStub, name: str, creation: Creation | None = None) -> list[str]:
    differences = registry(ecr_stub, creation or Creation()).differences(name, "mpi-cpu")
    return [reason.text for reason in differences]


def test_a_repository_is_made_as_the_settings_say(ecr_stub: EcrStub, name: str) -> None:
    registry(ecr_stub, CREATION).create_repository(name, "mpi-cpu")
    client = ecr_stub.client
    [repository] = client.describe_repositories(repositoryNames=[name])["repositories"]
    assert repository["imageTagMutability"] == "IMMUTABLE_WITH_EXCLUSION"
    assert [rule["filter"] for rule in repository["imageTagMutabilityExclusionFilters"]] == [
        "mpi-cpu",
        "sha256-*.sig",
        "sha256-*.att",
        "sha256-*.sbom",
    ]
    assert repository["imageScanningConfiguration"] == {"scanOnPush": True}
    assert repository["encryptionConfiguration"] == {"encryptionType": "KMS", "kmsKey": KEY}
    tags = client.list_tags_for_resource(resourceArn=repository["repositoryArn"])["tags"]
    assert tags == [{"Key": "team", "Value": "ml"}]
    policy = client.get_lifecycle_policy(repositoryName=name)["lifecyclePolicyText"]
    assert [rule["selection"]["tagStatus"] for rule in json.loads(policy)["rules"]] == ["untagged"]
    allowed = json.loads(client.get_repository_policy(repositoryName=name)["policyText"])
    assert allowed == pull_policy(CREATION)
    assert differences(ecr_stub, name, CREATION) == []


def test_who_may_pull() -> None:
    pull = ["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"]
    assert pull_policy(CREATION, "aws-cn") == {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Sid": "BakehousePull",
                "Effect": "Allow",
                "Principal": {"AWS": ["arn:aws-cn:iam::210987654321:root"]},
                "Action": pull,
            },
            {
                "Sid": "BakehousePullOrganization",
                "Effect": "Allow",
                "Principal": "*",
                "Action": pull,
                "Condition": {"StringEquals": {"aws:PrincipalOrgID": "o-a1b2c3d4e5"}},
            },
        ],
    }
    assert pull_policy(Creation()) == {}


def test_a_lifecycle_policy_of_a_file_is_taken_as_it_is(ecr_stub: EcrStub, name: str, tmp_path: Path) -> None:
    days = {"tagStatus": "untagged", "countType": "imageCountMoreThan", "countNumber": 5}
    text = json.dumps({"rules": [{"rulePriority": 7, "selection": days, "action": {"type": "expire"}}]})
    (tmp_path / "policy.json").write_text(text)
    creation = Creation(lifecycle=tmp_path / "policy.json")
    registry(ecr_stub, creation).create_repository(name, "mpi-cpu")
    policy = ecr_stub.client.get_lifecycle_policy(repositoryName=name)["lifecyclePolicyText"]
    assert json.loads(policy) == json.loads(text)


def test_tags_that_can_move_are_reported(ecr_stub: EcrStub, name: str) -> None:
    ecr_stub.client.create_repository(repositoryName=name)
    assert differences(ecr_stub, name) == ["its tags are mutable, so a push can move a release's tag"]


def test_tags_that_can_not_move_are_reported(ecr_stub: EcrStub, name: str) -> None:
    ecr_stub.client.create_repository(repositoryName=name, imageTagMutability="IMMUTABLE")
    assert differences(ecr_stub, name) == [
        "its tags are immutable without an exception for `mpi-cpu`, so `--move-tag` fails",
        "its tags are immutable without an exception for `sha256-*.sig`, `sha256-*.att`, `sha256-*.sbom`, "
        "so an image can be signed only once",
    ]


def test_an_exception_that_lets_releases_move_is_reported(ecr_stub: EcrStub, name: str) -> None:
    ecr_stub.client.create_repository(
        repositoryName=name,
        imageTagMutability="IMMUTABLE_WITH_EXCLUSION",
        imageTagMutabilityExclusionFilters=[{"filterType": "WILDCARD", "filter": "*"}],
    )
    assert differences(ecr_stub, name) == [
        "an exception to its immutability matches releases, so their tags can be moved"
    ]


def test_the_identity_is_requested_only_for_pull_accounts(
    ecr_stub: EcrStub, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(Aws, "identity")
    registry(ecr_stub, Creation(pull_organization="o-a1b2c3d4e5")).create_repository(name, "mpi-cpu")
    assert ecr_stub.client.get_repository_policy(repositoryName=name)["policyText"]


def test_who_may_not_look_at_a_repository_may_push(ecr_stub: EcrStub, name: str) -> None:
    ecr_stub.client.create_repository(repositoryName=name)
    text = "User: x is not authorized to perform: ecr:DescribeRepositories"
    ecr_stub.aws.refuse("DescribeRepositories", "AccessDeniedException", text)
    assert differences(ecr_stub, name) == []


def test_a_repository_that_is_not_there_differs_in_nothing(ecr_stub: EcrStub, name: str) -> None:
    assert differences(ecr_stub, name) == []
