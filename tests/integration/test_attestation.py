"""Artifacts of published images in real registries: with the referrers API, without it, and on ECR."""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from bakehouse.analysis.packages import list_installed
from bakehouse.builder.built_image import BuiltImage
from bakehouse.builder.pack import Packer
from bakehouse.catalog.project import ProjectSettings
from bakehouse.engine import docker
from bakehouse.errors import Diagnostic, PublishError, Reason
from bakehouse.fetch.retry import RetryPolicy
from bakehouse.ledger.releases import ReleasedArtifact
from bakehouse.ledger.store import open_ledger
from bakehouse.plan.model import Image
from bakehouse.publish.attest import AttestSettings, attest
from bakehouse.publish.image_push import push_images
from bakehouse.publish.options import PublishOptions
from bakehouse.publish.push import PushOptions, publish
from bakehouse.publish.tags import PublishedImage
from bakehouse.registry.ecr import EcrRegistry
from bakehouse.registry.manifest import DOCKER_MANIFEST
from bakehouse.registry.referrers import ArtifactRepository, fallback_tag
from bakehouse.registry.registry import NamedRegistry, Registry
from tests.integration.tiny_images import built, passed
from tests.support.ecr import EcrStub
from tests.support.fake_engine import FakeEngine, Run
from tests.support.proxy import Proxy, error_body
from tests.support.referrers import Referrers

pytestmark = [pytest.mark.engine, pytest.mark.timeout(180)]

CYCLONEDX, IN_TOTO = "application/vnd.cyclonedx+json", "application/vnd.in-toto+json"
LISTED = {
    "system": {"ID": "debian", "VERSION_ID": "12"},
    "rpm": None,
    "debian": [{"name": "libc6", "version": "2.36-9", "architecture": "amd64"}],
    "python": [{"name": "six", "version": "1.17", "folder": "/opt/venv/lib/python3.11/site-packages"}],
}


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BuiltImage]:
    with built(tmp_path_factory.mktemp("image"), "mpi-cpu") as image:
        yield image


class Attest:
    """Publishes and attaches; a fake lists Python packages, which the images lack."""

    def __init__(self, directory: Path, registry: Registry) -> None:
        self.lines: list[str] = []
        self.registry = registry
        self.packer = Packer(docker.connect(), directory)
        self.engine = FakeEngine(lambda _: Run(prints=json.dumps(LISTED)))
        self.publication = PushOptions(
            day=date(2026, 11, 20),
            locks=directory / "locks",
            prefix=directory.name.lower().replace("_", "-").rstrip("-"),
            retry_policy=RetryPolicy(attempts=3, pause=0.1, timeout=5.0),
            revision="c0ffee",
        )

    def push(self, image: BuiltImage) -> PublishedImage:
        return publish(image, passed(image), self.registry, self.packer, self.publication, lambda _: None)

    def __call__(self, image: BuiltImage, published: PublishedImage) -> tuple[ReleasedArtifact, ...]:
        targets = [(self.registry, published)]
        attested = attest(
            image, targets, self.engine, self.publication, self.lines.append, AttestSettings(plain=True)
        )
        attested.require_all()
        return attested.artifacts

    def repository(self, published: PublishedImage) -> ArtifactRepository:
        return ArtifactRepository(self.registry, published.repository, self.publication.retry_policy)


@pytest.fixture
def attesting(tmp_path: Path, registry_proxy: Proxy) -> Attest:
    return Attest(tmp_path, NamedRegistry(registry_proxy.host, lambda _: None))


def documents(remote: ArtifactRepository, attached: tuple[ReleasedArtifact, ...]) -> list[dict[str, object]]:
    """Return the attached documents from the registry."""
    documents = []
    for artifact in attached:
        manifest = remote.manifest(artifact.digest)
        assert manifest
        [layer] = manifest.layers
        assert layer.media_type == artifact.media_type
        documents.append(json.loads(remote.blob(layer.digest)))
    return documents


@pytest.mark.parametrize("referrers", [True, False])
def test_the_image_stays_the_one_docker_manifest_that_it_was(
    attesting: Attest, image: BuiltImage, registry_proxy: Proxy, referrers: bool
) -> None:
    if referrers:
        registry_proxy.answers.append(Referrers(registry_proxy.forward).answer)
    published = attesting.push(image)
    remote = attesting.repository(published)
    before = remote.manifest(published.tags[0])
    attached = attesting(image, published)
    assert before == remote.manifest(published.tags[0]) == remote.manifest(published.digest)
    assert before
    assert (before.media_type, before.digest) == (DOCKER_MANIFEST, published.digest)
    assert [artifact.media_type for artifact in attached] == [CYCLONEDX, IN_TOTO]
    bom, statement = documents(remote, attached)
    assert bom["bomFormat"] == "CycloneDX"
    digest = {"sha256": published.digest.removeprefix("sha256:")}
    assert statement["subject"] == [{"name": "mpi-cpu", "digest": digest}]
    digests = tuple(artifact.digest for artifact in attached)
    if referrers:
        assert remote.referrers(published.digest) == digests
        assert remote.tags() == published.tags
    else:
        listed = remote.manifest(fallback_tag(published.digest))
        assert listed
        assert tuple(member.digest for member in listed.members) == digests
        assert set(remote.tags()) == {*published.tags, fallback_tag(published.digest)}


def test_attaching_again_sends_nothing_and_says_so(
    attesting: Attest, image: BuiltImage, registry_proxy: Proxy
) -> None:
    published = attesting.push(image)
    first = attesting(image, published)
    registry_proxy.requests.clear()
    attesting.lines.clear()
    assert attesting(image, published) == first
    assert {request.method for request in registry_proxy.requests} <= {"GET", "HEAD"}
    assert attesting.lines == [
        f"mpi-cpu: {artifact.media_type} is attached already, as {artifact.digest[:19]}" for artifact in first
    ]


def test_a_registry_that_takes_no_such_artifact(
    attesting: Attest, image: BuiltImage, registry_proxy: Proxy
) -> None:
    published = attesting.push(image)
    invalid = error_body("MANIFEST_INVALID", "manifest invalid")
    registry_proxy.fail("PUT", "/manifests/sha256:", 400, invalid)
    with pytest.raises(PublishError) as caught:
        attesting(image, published)
    assert caught.value.diagnostics == (
        Diagnostic(
            "`mpi-cpu` is published, but its SBOM and provenance could not be attached",
            reasons=(Reason(f"`{registry_proxy.host}` answered HTTP 400: manifest invalid"),),
            facts=(("published", published.image_uri),),
            hint="run `bake push mpi-cpu --attest` again; the image is not pushed twice",
        ),
    )
    assert caught.value.exit_code == 7
    assert attesting.repository(published).tags() == published.tags


def test_a_registry_that_refuses_keeps_it_from_no_other(
    attesting: Attest, image: BuiltImage, registry_proxy: Proxy, registry_port: int
) -> None:
    published = attesting.push(image)
    with Proxy(registry_port).running() as refusing:
        refusing.fail("PUT", "/manifests/sha256:", 403, error_body("DENIED", "no artifacts here"))
        targets: list[tuple[Registry, PublishedImage]] = [
            (NamedRegistry(refusing.host, lambda _: None), replace(published, registry=refusing.host)),
            (attesting.registry, published),
        ]
        attested = attest(
            image,
            targets,
            attesting.engine,
            attesting.publication,
            attesting.lines.append,
            AttestSettings(plain=True),
        )
    assert [artifact.media_type for artifact in attested.artifacts] == [CYCLONEDX, IN_TOTO]
    [failure] = attested.failures
    [diagnostic] = failure.diagnostics
    assert diagnostic.reasons == (Reason(f"`{refusing.host}` answered HTTP 403: no artifacts here"),)


def test_on_ecr_with_immutable_tags_no_tag_is_needed(
    tmp_path: Path, ecr_stub: EcrStub, image: BuiltImage
) -> None:
    attesting = Attest(tmp_path, EcrRegistry(host=ecr_stub.host, create=True))
    published = attesting.push(image)
    attached = attesting(image, published)
    remote = attesting.repository(published)
    assert remote.referrers(published.digest) == tuple(artifact.digest for artifact in attached)
    assert remote.tags() == published.tags
    assert ecr_stub.images(published.repository) == {published.digest: list(published.tags)}
    assert attesting(image, published) == attached


@pytest.fixture
def project(tmp_path: Path) -> ProjectSettings:
    return ProjectSettings(tmp_path, (), repository_prefix=tmp_path.name.replace("_", "-").rstrip("-"))


def test_an_image_that_can_not_be_listed_is_published_and_written_down(
    project: ProjectSettings, image: BuiltImage, registry_proxy: Proxy
) -> None:
    terms = PublishOptions(registry=registry_proxy.host, candidate=True, attest=True)
    with pytest.raises(PublishError, match="is published, but its SBOM and provenance could not be attached"):
        push_images(project, [image], print, terms)
    [record] = open_ledger(project).records("mpi-cpu")
    assert (record.config, record.artifacts) == (image.digest, ())
    [pushed] = push_images(project, [image], print, replace(terms, attest=False))
    assert open_ledger(project).records("mpi-cpu") == (record,) == (replace(pushed, time=record.time),)


def test_the_ledger_tells_what_is_attached_and_does_not_forget_it(
    project: ProjectSettings, mpi_cpu: tuple[Image, BuiltImage], registry_proxy: Proxy
) -> None:
    terms = PublishOptions(registry=registry_proxy.host, candidate=True, attest=True)
    [record] = push_images(project, [mpi_cpu[1]], print, terms)
    assert [artifact.media_type for artifact in record.artifacts] == [CYCLONEDX, IN_TOTO]
    push_images(project, [mpi_cpu[1]], print, replace(terms, attest=False))
    bare, attested = open_ledger(project).records("mpi-cpu")
    assert (replace(bare, time=record.time), attested) == (replace(record, artifacts=()), record)


def test_what_is_installed_in_a_real_image_is_found(
    mpi_cpu: tuple[Image, BuiltImage], tmp_path: Path
) -> None:
    planned, image = mpi_cpu
    with contextlib.closing(docker.connect()) as engine:
        installed = list_installed(engine, planned, image.stored, tmp_path / "log")
    assert (installed.system, installed.system_version) == ("debian", "12")
    assert installed.packages
    assert {"libc6", "openssh-server"} <= {package.name for package in installed.packages}
    locked = {(wheel.name.lower(), wheel.version) for stage in planned.stages for wheel in stage.wheels}
    assert ("mpi4py", "4.1.2") in locked & {
        (distribution.name, distribution.version) for distribution in installed.distributions
    }
