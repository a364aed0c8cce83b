"""Publishing to several regions of an account, against an ECR made of moto and a real registry."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bakehouse.builder.built_image import BuiltImage
from bakehouse.catalog.project import ProjectSettings
from bakehouse.catalog.registry_settings import RegistrySettings
from bakehouse.errors import PublishError, RecipeError, RegistryAuthError
from bakehouse.evidence import check_rows
from bakehouse.ledger import image_uris
from bakehouse.ledger.releases import ReleasedRegion
from bakehouse.ledger.store import open_ledger
from bakehouse.plan.model import ImageKey
from bakehouse.publish import image_push, promote
from bakehouse.publish.options import PublishOptions
from bakehouse.publish.verify import require_all, verify_releases
from bakehouse.registry import destination
from tests.integration.tiny_images import built, published_digest
from tests.support import plans
from tests.support.built_images import results
from tests.support.ecr import ACCOUNT, REGIONS, EcrStub
from tests.support.proxy import Reply, Request, error_body

pytestmark = [pytest.mark.engine, pytest.mark.timeout(120)]

EU, US = REGIONS
TO_TEAM = PublishOptions(registry="team", create=True)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BuiltImage]:
    with built(tmp_path_factory.mktemp("image"), "mpi-cpu") as image:
        yield image


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BuiltImage]:
    with built(tmp_path_factory.mktemp("newer"), "mpi-cpu-newer") as image:
        key = plans.changed(image.image, name="mpi-cpu", key=ImageKey("ab" * 32))
        yield replace(image, image=key)


@pytest.fixture
def project(tmp_path: Path, ecr_stub: EcrStub, monkeypatch: pytest.MonkeyPatch) -> ProjectSettings:
    """One whose settings name a registry with two regions."""

    def host(account: str, region: str, **_: bool) -> str:
        assert account == ACCOUNT
        return ecr_stub.registries[region].host

    monkeypatch.setattr(destination, "registry_host", host)
    team = RegistrySettings("team", account=ACCOUNT, regions=REGIONS, prefix=tmp_path.name.replace("_", "-"))
    return ProjectSettings(tmp_path, (), registries={"team": team})


def push(
    project: ProjectSettings,
    image: BuiltImage,
    lines: list[str] | None = None,
    terms: PublishOptions = TO_TEAM,
) -> None:
    check_rows.record(project.state, image.content, results(image.image))
    image_push.push_images(project, [image], (lines if lines is not None else []).append, terms)


def repository(project: ProjectSettings) -> str:
    return f"{project.registries['team'].prefix}/mpi-cpu"


def test_each_region_has_the_image_and_one_record_tells_its_addresses(
    project: ProjectSettings, ecr_stub: EcrStub, image: BuiltImage
) -> None:
    push(project, image)
    [record] = open_ledger(project).records("mpi-cpu")
    [tag] = record.tags
    at = {
        region: f"{front.host}/{repository(project)}@{published_digest(image)}"
        for region, front in ecr_stub.registries.items()
    }
    assert record.image_uri == at[EU]
    assert record.regions == (ReleasedRegion(EU, at[EU], tag), ReleasedRegion(US, at[US], tag))
    for region in REGIONS:
        assert ecr_stub.images(repository(project), region) == {published_digest(image): [tag]}
        assert image_uris.retrieve("mpi-cpu", region=region, ledger=project.images) == at[region]
    require_all(verify_releases(project, [record], print))


def test_a_region_that_fails_is_reported_and_completed_by_the_same_command(
    project: ProjectSettings, ecr_stub: EcrStub, image: BuiltImage
) -> None:
    text = "User: x is not authorized to perform: ecr:InitiateLayerUpload"
    registry = ecr_stub.registries[US]
    registry.fail("POST", "/blobs/uploads/", 403, error_body("DENIED", text))
    with pytest.raises(RegistryAuthError) as caught:
        push(project, image)
    [diagnostic] = caught.value.diagnostics
    assert diagnostic.message == f"not allowed to push to `{registry.host}/{repository(project)}`"
    assert diagnostic.facts == (("region", US), ("published in", EU))
    [record] = open_ledger(project).records("mpi-cpu")
    assert [region.region for region in record.regions] == [EU]

    registry.faults.clear()
    lines: list[str] = []
    push(project, image, lines)
    assert any(line.startswith("mpi-cpu: already published as") for line in lines)
    records = open_ledger(project).records("mpi-cpu")
    assert [[region.region for region in record.regions] for record in records] == [[EU], [EU, US]]


def test_where_the_first_region_fails_the_other_is_recorded(
    project: ProjectSettings, ecr_stub: EcrStub, image: BuiltImage
) -> None:
    ecr_stub.registry.fail("POST", "/blobs/uploads/", 403, error_body("DENIED", "no"))
    with pytest.raises(RegistryAuthError):
        push(project, image)
    [record] = open_ledger(project).records("mpi-cpu")
    assert record.registry == ecr_stub.registries[US].host
    assert image_uris.retrieve("mpi-cpu", region=US, ledger=project.images) == record.image_uri


def test_a_candidate_is_released_in_each_region_and_a_failure_completed(
    project: ProjectSettings, ecr_stub: EcrStub, image: BuiltImage
) -> None:
    push(project, image, terms=replace(TO_TEAM, candidate=True))
    registry = ecr_stub.registries[US]
    registry.fail("PUT", "/manifests/", 403, error_body("DENIED", "no"))
    with pytest.raises(PublishError):
        promote.promote_image(project, image.image, print, PublishOptions())
    registry.faults.clear()
    released = promote.promote_image(project, image.image, print, PublishOptions())
    assert [region.region for region in released.regions] == [EU, US]
    [tag] = released.tags
    assert all(
        tag in ecr_stub.images(repository(project), region)[published_digest(image)] for region in REGIONS
    )
    assert promote.promote_image(project, image.image, print, PublishOptions()) == released
    assert [record.candidate for record in open_ledger(project).records("mpi-cpu")] == [True, False, False]


def test_an_older_release_that_is_published_again_stays_the_older_one(
    project: ProjectSettings, image: BuiltImage, newer: BuiltImage
) -> None:
    push(project, image)
    push(project, newer)
    lines: list[str] = []
    push(project, image, lines)
    [first, second] = open_ledger(project).records("mpi-cpu")
    assert image_uris.newest(project, "mpi-cpu") == second
    assert lines[-1] == (
        f"mpi-cpu: {first.digest[:19]} was released before {second.digest[:19]} of {second.date}, "
        "which `bake uri mpi-cpu` still returns"
    )


def test_an_image_that_a_lifecycle_rule_would_expire_is_kept_out_of_the_ledger(
    project: ProjectSettings, ecr_stub: EcrStub, image: BuiltImage
) -> None:
    selection = {"tagStatus": "any", "countType": "imageCountMoreThan", "countNumber": 3}
    policy = {"rules": [{"rulePriority": 1, "selection": selection, "action": {"type": "expire"}}]}
    for region in REGIONS:
        client = ecr_stub.client_in(region)
        client.create_repository(repositoryName=repository(project))
        client.put_lifecycle_policy(
            repositoryName=repository(project), lifecyclePolicyText=json.dumps(policy)
        )
    with pytest.raises(PublishError) as caught:
        push(project, image)
    assert caught.value.diagnostics[0].message == (
        f"`{ecr_stub.host}/{repository(project)}` would expire the image: "
        "rule 1 expires any images, all but the newest 3"
    )
    assert open_ledger(project).records("mpi-cpu") == ()


@pytest.mark.parametrize("operation", ["GetLifecyclePolicy", "DescribeRepositories"])
def test_a_question_that_is_not_answered_after_the_push_keeps_nothing_out_of_the_ledger(
    project: ProjectSettings, ecr_stub: EcrStub, image: BuiltImage, operation: str
) -> None:
    def refuse(request: Request) -> Reply | None:
        if not request.headers.get("X-Amz-Target", "").endswith(f".{operation}"):
            return None
        return Reply(400, {}, json.dumps({"__type": "InvalidParameterException", "message": "no"}).encode())

    ecr_stub.aws.answers.insert(0, refuse)
    lines: list[str] = []
    push(project, image, lines)
    [record] = open_ledger(project).records("mpi-cpu")
    assert [region.region for region in record.regions] == [EU, US]
    location = f"`{ecr_stub.host}/{repository(project)}`"
    warnings = {
        "GetLifecyclePolicy": f"could not read the lifecycle policy of {location}; not checked: ",
        "DescribeRepositories": f"{location}: not compared with the settings: ",
    }
    assert any(line.startswith(f"mpi-cpu: warning: {warnings[operation]}") for line in lines)


def test_a_damaged_ledger_is_reported_before_anything_is_pushed(
    project: ProjectSettings, ecr_stub: EcrStub, image: BuiltImage
) -> None:
    ledger = project.images / "mpi-cpu" / "releases.json"
    ledger.parent.mkdir(parents=True)
    ledger.write_text("{]")
    with pytest.raises(RecipeError, match="the ledger of releases is damaged"):
        push(project, image)
    assert ecr_stub.registry.seen("POST|PUT|PATCH", f"/v2/{repository(project)}/") == 0


def test_an_interrupt_while_something_is_attached_leaves_the_record(
    project: ProjectSettings, image: BuiltImage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(image_push, "attest", interrupted)
    with pytest.raises(KeyboardInterrupt):
        push(project, image, terms=replace(TO_TEAM, attest=True))
    [record] = open_ledger(project).records("mpi-cpu")
    assert record.digest == published_digest(image)


def test_no_secret_is_in_the_ledger(project: ProjectSettings, ecr_stub: EcrStub, image: BuiltImage) -> None:
    push(project, image)
    ledgers = "".join(path.read_text() for path in project.root.rglob("*.json"))
    secrets = (*ecr_stub.aws.issued, ecr_stub.environment["AWS_SECRET_ACCESS_KEY"])
    assert secrets[:-1]
    assert not any(secret in ledgers for secret in secrets)
