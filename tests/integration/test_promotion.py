"""From a candidate to a release, against an ECR made of moto and a real registry."""

import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any
from urllib.request import Request as UrlRequest
from urllib.request import urlopen

import pytest

from bakehouse.builder.built_image import BuiltImage
from bakehouse.builder.pack import Packer
from bakehouse.builder.verify import Outcome
from bakehouse.catalog.project import ProjectSettings
from bakehouse.cluster.smoke_report import CheckResult
from bakehouse.engine import docker
from bakehouse.errors import Diagnostic, PublishError, Reason, TagTakenError
from bakehouse.evidence.known_checks import KnownChecks
from bakehouse.fetch.retry import RetryPolicy
from bakehouse.ledger.image_uris import newest
from bakehouse.ledger.releases import ReleaseRecord, append
from bakehouse.plan.model import ImageKey
from bakehouse.publish.push import PushOptions, publish
from bakehouse.publish.record import record_of
from bakehouse.publish.retag import move_tag, tag_release
from bakehouse.publish.tags import PublishedImage
from bakehouse.publish.verify import require_all, verify
from bakehouse.registry.ecr import EcrRegistry
from bakehouse.registry.manifest import DOCKER_MANIFEST, KINDS, short
from tests.integration.tiny_images import built, published_digest
from tests.support import plans
from tests.support.built_images import DATE
from tests.support.ecr import EcrStub
from tests.support.proxy import LOST, Forward, Reply, Request

pytestmark = [pytest.mark.engine, pytest.mark.timeout(120)]

DAY = date(2026, 11, 20)
TAG = "mpi-cpu-20261120-7c1e44b0"
GPU = CheckResult("nccl_all_reduce", Outcome.PASSED, 12.0, ranks=8, date=DATE)
NO_GPU = replace(GPU, outcome=Outcome.NOT_TESTED, reason="no GPU was given", ranks=0)
TRAINED = CheckResult("train_success", Outcome.PASSED, 1.0, date=DATE)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BuiltImage]:
    """One whose recipe requires a GPU."""
    with built(tmp_path_factory.mktemp("image"), "mpi-cpu") as image:
        yield replace(image, image=replace(image.image, required=("nccl_all_reduce",)))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BuiltImage]:
    """Other content under the same name and key."""
    with built(tmp_path_factory.mktemp("other"), "mpi-cpu-other") as image:
        yield replace(image, image=plans.changed(image.image, name="mpi-cpu", required=("nccl_all_reduce",)))


def report(image: BuiltImage, *checks: CheckResult) -> KnownChecks:
    return KnownChecks("mpi-cpu", image.content, checks, required=image.image.required)


class Team:
    """A machine that builds and one that has GPUs, with one ledger."""

    def __init__(self, directory: Path, host: str) -> None:
        self.directory = directory
        self.lines: list[str] = []
        self.registry = EcrRegistry(host=host, create=True)
        self.packer = Packer(docker.connect(), directory)
        self.publication = PushOptions(
            day=DAY,
            locks=directory / "locks",
            prefix=directory.name.lower().replace("_", "-").rstrip("-"),
            stall=20.0,
            retry_policy=RetryPolicy(attempts=3, pause=0.1, timeout=5.0),
            settle=0.0,
        )

    @property
    def repository(self) -> str:
        return f"{self.publication.prefix}/mpi-cpu"

    def stage(self, image: BuiltImage) -> ReleaseRecord:
        publication = replace(self.publication, candidate=True)
        smoke = report(image, TRAINED, NO_GPU)
        published = publish(image, smoke, self.registry, self.packer, publication, self.lines.append)
        return self.recorded(record_of(published, image.image, smoke, DAY))

    def recorded(self, record: ReleaseRecord) -> ReleaseRecord:
        append(self.directory / "images" / "mpi-cpu" / "releases.json", record, self.directory / "locks")
        return record

    def promote(self, candidate: ReleaseRecord, image: BuiltImage, *checks: CheckResult) -> PublishedImage:
        smoke = report(image, *(checks or (TRAINED, GPU)))
        return tag_release(candidate, image.image, smoke, self.registry, self.publication, self.lines.append)


@pytest.fixture
def team(tmp_path: Path, ecr_stub: EcrStub) -> Team:
    return Team(tmp_path, ecr_stub.host)


def test_a_candidate_has_a_tag_of_its_own(ecr_stub: EcrStub, team: Team, image: BuiltImage) -> None:
    staged = team.stage(image)
    tag = f"mpi-cpu-candidate-{image.digest[7:23]}"
    assert (staged.candidate, staged.tested, staged.tags) == (True, False, (tag,))
    assert ecr_stub.images(team.repository) == {staged.digest: [tag]}
    assert team.stage(image) == staged
    assert team.lines[-1] == f"mpi-cpu: already staged as {staged.digest[:19]}"


def test_what_may_not_be_released_is_not_pushed_but_staged(team: Team, image: BuiltImage) -> None:
    smoke = report(image, TRAINED, NO_GPU)
    with pytest.raises(PublishError) as caught:
        publish(image, smoke, team.registry, team.packer, team.publication, team.lines.append)
    assert caught.value.diagnostics == (
        Diagnostic(
            "`mpi-cpu` has not passed its smoke test",
            reasons=(Reason("`nccl_all_reduce` is required but was not tested: no GPU was given"),),
            facts=(("content", image.content),),
            hint=(
                "run `bake smoke mpi-cpu`, or publish it as a candidate with `bake push --candidate mpi-cpu`"
            ),
        ),
    )


def test_the_same_digest_is_released(ecr_stub: EcrStub, team: Team, image: BuiltImage) -> None:
    staged = team.stage(image)
    released = team.promote(staged, image)
    assert (released.tags, released.digest, released.candidate) == ((TAG,), staged.digest, False)
    assert ecr_stub.images(team.repository) == {staged.digest: sorted([*staged.tags, TAG])}
    record = team.recorded(record_of(released, image.image, report(image, TRAINED, GPU), DAY))
    assert newest(ProjectSettings(team.directory, ()), "mpi-cpu") == record


def test_a_skipped_check_that_is_required_keeps_it_a_candidate(
    ecr_stub: EcrStub, team: Team, image: BuiltImage
) -> None:
    staged = team.stage(image)
    with pytest.raises(PublishError) as caught:
        team.promote(staged, image, TRAINED, NO_GPU)
    assert caught.value.diagnostics == (
        Diagnostic(
            "`mpi-cpu` cannot be released yet",
            reasons=(Reason("`nccl_all_reduce` is required but was not tested: no GPU was given"),),
            facts=(("candidate", staged.image_uri),),
            hint=(
                f"run `bake smoke mpi-cpu --image-uri {staged.image_uri} --report FILE` where these checks "
                "can run, then `bake promote mpi-cpu --report FILE` here"
            ),
        ),
    )
    assert ecr_stub.images(team.repository) == {staged.digest: [*staged.tags]}


def test_promoting_again_on_another_day_changes_nothing(
    ecr_stub: EcrStub, team: Team, image: BuiltImage
) -> None:
    staged = team.stage(image)
    first = team.promote(staged, image)
    team.publication = replace(team.publication, day=date(2027, 1, 2))
    assert team.promote(staged, image) == replace(first, was_there=True)
    assert team.lines[-1] == f"mpi-cpu: {staged.digest[:19]} is released already, as {TAG}"


def test_a_lost_answer_is_looked_up(ecr_stub: EcrStub, team: Team, image: BuiltImage) -> None:
    staged = team.stage(image)

    def lose(request: Request, forward: Forward) -> Reply:
        forward(request)
        return LOST

    ecr_stub.registry.do("PUT", "/manifests/", lose, 1)
    assert team.promote(staged, image).tags == (TAG,)


def test_a_release_tag_is_never_given_to_another_digest(
    ecr_stub: EcrStub, team: Team, image: BuiltImage, other: BuiltImage
) -> None:
    first, second = team.stage(image), team.stage(other)
    team.promote(first, image)
    ecr_stub.images(team.repository)
    with pytest.raises(TagTakenError):
        team.promote(second, other)
    assert TAG in ecr_stub.images(team.repository)[published_digest(image)]


def test_a_concurrent_tag_of_another_image_is_kept(
    ecr_stub: EcrStub, team: Team, image: BuiltImage, other: BuiltImage
) -> None:
    first, second = team.stage(image), team.stage(other)

    def overtake(request: Request, forward: Forward) -> Reply:
        rival = replace(team.publication, locks=team.directory / "elsewhere")
        tag_release(second, other.image, report(other, TRAINED, GPU), team.registry, rival, print)
        ecr_stub.images(team.repository)
        return ecr_stub.registry.answers[2](request) or forward(request)

    ecr_stub.registry.do("PUT", f"/manifests/{TAG}", overtake, 1)
    with pytest.raises(TagTakenError):
        team.promote(first, image)
    assert TAG in ecr_stub.images(team.repository)[published_digest(other)]


def test_a_candidate_that_is_gone(ecr_stub: EcrStub, team: Team, image: BuiltImage) -> None:
    staged = replace(team.stage(image), digest="sha256:" + "00" * 32)
    with pytest.raises(PublishError) as caught:
        team.promote(staged, image)
    assert caught.value.diagnostics[0].message.endswith("no longer has the candidate sha256:000000000000")


def test_the_alias_follows_releases_alone(
    ecr_stub: EcrStub, team: Team, image: BuiltImage, other: BuiltImage
) -> None:
    released = team.promote(team.stage(image), image)
    assert not any("mpi-cpu" in tags for tags in ecr_stub.images(team.repository).values())
    move_tag(released, team.registry, team.publication)
    later = replace(other, image=replace(other.image, key=ImageKey("ab" * 32)))
    second = team.promote(team.stage(later), later)
    assert "mpi-cpu" in ecr_stub.images(team.repository)[published_digest(image)]
    move_tag(second, team.registry, team.publication)
    listed = ecr_stub.images(team.repository)
    assert "mpi-cpu" in listed[published_digest(other)]
    assert TAG in listed[published_digest(image)]


def test_an_immutable_alias_is_reported_after_the_release(
    ecr_stub: EcrStub, team: Team, image: BuiltImage, other: BuiltImage
) -> None:
    ecr_stub.client.create_repository(repositoryName=team.repository, imageTagMutability="IMMUTABLE")
    move_tag(team.promote(team.stage(image), image), team.registry, team.publication)
    ecr_stub.images(team.repository)
    later = replace(other, image=replace(other.image, key=ImageKey("ab" * 32)))
    second = team.promote(team.stage(later), later)
    with pytest.raises(PublishError) as caught:
        move_tag(second, team.registry, team.publication)
    message = (
        f"The image tag 'mpi-cpu' already exists in the '{team.repository}' repository and cannot be "
        "overwritten because the tag is immutable."
    )
    assert caught.value.diagnostics == (
        Diagnostic(
            "`mpi-cpu` is released, but the moving tag `mpi-cpu` could not be set",
            facts=(("answer", message), ("released", second.image_uri)),
            hint="except `mpi-cpu` from the immutability of tags, or omit `--move-tag`",
        ),
    )


def get(ecr_stub: EcrStub, path: str, accept: str) -> Any:
    """Return the answer of the registry, read without code of Bakehouse."""
    token = EcrRegistry(host=ecr_stub.host).credentials()
    login = base64.b64encode(f"{token.username}:{token.password}".encode()).decode()
    headers = {"Authorization": f"Basic {login}", "Accept": accept}
    with urlopen(UrlRequest(f"http://{ecr_stub.host}/v2/{path}", headers=headers)) as response:
        return response.headers, json.loads(response.read())


def test_the_registry_ends_up_with_one_schema_2_manifest_of_gzip_layers(
    ecr_stub: EcrStub, team: Team, image: BuiltImage
) -> None:
    team.promote(team.stage(image), image)
    headers, manifest = get(ecr_stub, f"{team.repository}/manifests/{TAG}", ", ".join(KINDS))
    assert headers["Docker-Content-Digest"] == published_digest(image)
    assert (headers["Content-Type"], manifest["mediaType"]) == (DOCKER_MANIFEST, DOCKER_MANIFEST)
    kinds = {layer["mediaType"] for layer in manifest["layers"]}
    assert kinds == {"application/vnd.docker.image.rootfs.diff.tar.gzip"}
    _, config = get(ecr_stub, f"{team.repository}/blobs/{manifest['config']['digest']}", "*/*")
    assert (config["os"], config["architecture"]) == ("linux", "amd64")


@pytest.mark.parametrize(("status", "is_kept"), [("untagged", True), ("any", False)])
def test_an_expiring_lifecycle_rule_is_reported(
    ecr_stub: EcrStub, team: Team, image: BuiltImage, status: str, is_kept: bool
) -> None:
    released = team.promote(team.stage(image), image)
    team.registry.require_not_expiring(team.repository, released.tags, print)
    counts = {"countType": "sinceImagePushed", "countUnit": "days", "countNumber": 14}
    rule = {"rulePriority": 1, "selection": {"tagStatus": status, **counts}, "action": {"type": "expire"}}
    text = json.dumps({"rules": [rule]})
    ecr_stub.client.put_lifecycle_policy(repositoryName=team.repository, lifecyclePolicyText=text)
    if is_kept:
        team.registry.require_not_expiring(team.repository, released.tags, print)
        return
    with pytest.raises(PublishError) as caught:
        team.registry.require_not_expiring(team.repository, released.tags, print)
    assert caught.value.diagnostics == (
        Diagnostic(
            f"`{ecr_stub.host}/{team.repository}` would expire the image: "
            "rule 1 expires any images, after 14 days",
            hint="limit the rule to untagged images, because recorded images must stay",
        ),
    )


def test_the_registry_is_asked_for_what_the_ledger_says(
    ecr_stub: EcrStub, team: Team, image: BuiltImage
) -> None:
    staged = team.stage(image)
    gone = replace(staged, digest="sha256:" + "00" * 32)
    untagged = replace(staged, tags=("no-such-tag",))
    moved = replace(staged, tags=(*staged.tags, TAG))
    checked = verify([staged, gone, untagged, moved], lambda _: team.registry, team.publication.retry_policy)
    assert [release.missing for release in checked] == [
        (),
        (f"{ecr_stub.host} no longer has sha256:000000000000",),
        ("tag `no-such-tag` is missing",),
        (f"tag `{TAG}` is missing",),
    ]
    with pytest.raises(PublishError) as caught:
        require_all(checked)
    assert [diagnostic.message for diagnostic in caught.value.diagnostics] == [
        f"`mpi-cpu` of 2026-11-20: {release.missing[0]}" for release in checked[1:]
    ]
    require_all(checked[:1])


def test_a_tag_that_points_elsewhere_is_reported(
    ecr_stub: EcrStub, team: Team, image: BuiltImage, other: BuiltImage
) -> None:
    first, second = team.stage(image), team.stage(other)
    checked = verify(
        [replace(first, tags=second.tags)], lambda _: team.registry, team.publication.retry_policy
    )
    there, recorded = short(published_digest(other)), short(published_digest(image))
    message = f"tag `{second.tags[0]}` points to {there}, not {recorded}"
    assert checked[0].missing == (message,)
