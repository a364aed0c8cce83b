"""Pushing with a real engine to a real registry, under the faults that registries show."""

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from bakehouse.builder.built_image import BuiltImage
from bakehouse.builder.pack import Packer
from bakehouse.engine import docker
from bakehouse.errors import Diagnostic, PublishError, Reason, RegistryAuthError, TagTakenError
from bakehouse.fetch.retry import RetryPolicy
from bakehouse.ledger.releases import load
from bakehouse.publish.push import PushOptions, publish
from bakehouse.publish.tags import PublishedImage
from bakehouse.registry.client import Repository
from bakehouse.registry.manifest import DOCKER_MANIFEST, GZIP_LAYER, OCI_MANIFEST, short
from bakehouse.registry.registry import Credentials, NamedRegistry
from bakehouse.util import terminal
from bakehouse.util.oci import Digest
from tests.integration.ports import kept_port
from tests.integration.tiny_images import built, passed
from tests.support import plans
from tests.support.data import text_of
from tests.support.programs import started
from tests.support.proxy import LOST, Forward, Proxy, Reply, Request, error_body
from tests.support.registry import registry_container

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

DAY = date(2026, 11, 20)
TAG = "mpi-cpu-20261120-7c1e44b0"
UPLOADS = "/blobs/uploads/"


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BuiltImage]:
    """The same for all: each test has a proxy and a repository of its own, so that all of it is sent."""
    with built(tmp_path_factory.mktemp("image"), "mpi-cpu") as image:
        yield image


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BuiltImage]:
    """Other content under the same name and key."""
    with built(tmp_path_factory.mktemp("other"), "mpi-cpu-other") as image:
        yield replace(image, image=plans.changed(image.image, name="mpi-cpu"))


class Push:
    """Publishes through a proxy, with short retries."""

    def __init__(self, directory: Path, host: str, login: Credentials | None = None) -> None:
        self.lines: list[str] = []
        self.directory = directory
        self.registry = NamedRegistry(host, lambda _: login)
        self.packer = Packer(docker.connect(), directory)
        self.publication = PushOptions(
            day=DAY,
            locks=directory / "locks",
            prefix=directory.name.lower().replace("_", "-").rstrip("-"),
            stall=20.0,
            settle=0.0,
            retry_policy=RetryPolicy(attempts=3, pause=0.1, timeout=5.0),
        )

    def __call__(self, image: BuiltImage) -> PublishedImage:
        return publish(image, passed(image), self.registry, self.packer, self.publication, self.lines.append)

    def repository(self, image: BuiltImage) -> Repository:
        name = f"{self.publication.prefix}/{image.image.name}"
        return Repository(self.registry, name, self.publication.retry_policy)


@pytest.fixture
def push(tmp_path: Path, registry_proxy: Proxy) -> Push:
    return Push(tmp_path, registry_proxy.host)


def tag_digest(push: Push, image: BuiltImage, tag: str = TAG) -> Digest | None:
    """The configuration that a tag names."""
    manifest = push.repository(image).manifest(tag)
    return manifest.config.digest if manifest and manifest.config else None


def test_the_tested_image_is_in_the_registry_in_the_format_of_sagemaker(
    push: Push, image: BuiltImage
) -> None:
    published = push(image)
    assert published.image_uri == f"{published.registry}/{published.repository}@{published.digest}"
    assert published.config == image.digest
    assert (published.tags, published.media_type) == ((TAG,), DOCKER_MANIFEST)
    manifest = push.repository(image).manifest(published.digest)
    assert manifest is not None
    assert [layer.media_type for layer in manifest.layers] == [GZIP_LAYER, GZIP_LAYER]
    assert published.bytes == manifest.bytes > 400_000


def test_a_push_is_one_line(push: Push, image: BuiltImage) -> None:
    push(image)
    assert push.lines == ["mpi-cpu: uploaded 0.4 MB"]


def test_verbose_progress_is_printed_in_plain_lines(
    push: Push, image: BuiltImage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "_is_verbose", True)
    published = push(image)
    what = f"{short(published.digest)} (2 layers, 0.4 MB)"
    assert push.lines[2] == f"mpi-cpu: pushing {what} to {published.registry}/{published.repository}:{TAG}"
    assert sum(" uploaded (" in line and line.startswith("mpi-cpu: layer ") for line in push.lines) == 2


def test_publishing_again_changes_nothing_and_says_so(push: Push, image: BuiltImage) -> None:
    first = push(image)
    push.lines.clear()
    push.publication = replace(push.publication, day=date(2027, 1, 2))
    assert push(image) == replace(first, was_there=True, sent=0)
    assert push.lines == [f"mpi-cpu: already published as {short(first.digest)}"]
    assert push.repository(image).tags() == (TAG,)


def test_a_taken_tag_is_not_overwritten(push: Push, image: BuiltImage, other: BuiltImage) -> None:
    published = push(image)
    with pytest.raises(TagTakenError) as caught:
        push(other)
    repository = f"{published.registry}/{published.repository}"
    cause = "both have the build key 7c1e44b0 but different content: the build is not reproducible"
    [diagnostic] = caught.value.diagnostics
    assert diagnostic.message == f"tag `{TAG}` is taken by a different image"
    assert diagnostic.reasons == (Reason(cause),)
    assert [fact for fact in diagnostic.facts if fact[0] != "there, created"] == [
        ("in repository", repository),
        ("there, manifest", published.digest),
        ("here, configuration", other.digest),
        ("to use it", f"{repository}@{published.digest}"),
    ]
    assert diagnostic.hint == "use the existing image, or push under tomorrow's tag"
    assert tag_digest(push, image) == image.digest


def test_a_concurrent_push_of_other_content_is_reported(
    push: Push, registry_proxy: Proxy, registry_port: int, image: BuiltImage, other: BuiltImage
) -> None:
    """This registry lets both push; what is read back afterwards decides."""

    def store_and_overwrite(request: Request, forward: Forward) -> Reply:
        reply = forward(request)
        registry = NamedRegistry(f"127.0.0.1:{registry_port}", lambda _: None)
        manifest = push.repository(other).manifest("other")
        assert manifest
        Repository(registry, push.repository(image).name, RetryPolicy()).tag(manifest, TAG)
        return reply

    push.publication = replace(push.publication, candidate=True)
    candidate = push(other)
    manifest = push.repository(other).manifest(candidate.digest)
    assert manifest
    push.repository(other).tag(manifest, "other")
    push.publication = replace(push.publication, candidate=False)

    registry_proxy.do("PUT", "/manifests/", store_and_overwrite, 1)
    with pytest.raises(TagTakenError):
        push(image)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("PUT", UPLOADS, 500),
        ("POST", UPLOADS, 429),
        ("PUT", "/manifests/", 503),
        ("GET", "/manifests/", 502),
    ],
)
def test_one_failure_of_the_registry_is_outlasted(
    push: Push, registry_proxy: Proxy, image: BuiltImage, method: str, path: str, status: int
) -> None:
    fault = registry_proxy.fail(method, path, status, times=1)
    push(image)
    assert (tag_digest(push, image), fault.seen) == (image.digest, 1)


def test_a_broken_connection_is_outlasted(push: Push, registry_proxy: Proxy, image: BuiltImage) -> None:
    fault = registry_proxy.do("PUT", UPLOADS, lambda _, __: LOST, 1)
    push(image)
    assert (tag_digest(push, image), fault.seen) == (image.digest, 1)
    assert any(line.startswith("mpi-cpu: upload interrupted, resuming: ") for line in push.lines)


def test_a_lost_reply_is_not_a_failure(push: Push, registry_proxy: Proxy, image: BuiltImage) -> None:
    registry_proxy.lose_reply("PUT", "/manifests/")
    push(image)
    assert registry_proxy.seen("PUT", "/manifests/") == 2


def test_failing_for_ever_ends_with_the_answer_of_the_registry(
    push: Push, registry_proxy: Proxy, image: BuiltImage
) -> None:
    registry_proxy.fail("PUT", UPLOADS, 500)
    with pytest.raises(PublishError) as caught:
        push(image)
    (diagnostic,) = caught.value.diagnostics
    repository = f"{registry_proxy.host}/{push.repository(image).name}"
    assert diagnostic.message == f"the push to `{repository}` failed"
    assert diagnostic.facts == (("registry", "HTTP 500 Internal Server Error"),)


def test_a_stall_is_noticed(push: Push, registry_proxy: Proxy, image: BuiltImage) -> None:
    registry_proxy.stall("PUT|PATCH", UPLOADS)
    push.publication = replace(push.publication, stall=3.0)
    began = time.monotonic()
    with pytest.raises(PublishError) as caught:
        push(image)
    assert time.monotonic() - began < 45
    repository = f"{registry_proxy.host}/{push.repository(image).name}"
    assert caught.value.diagnostics == (
        Diagnostic(
            f"the push to `{repository}` stalled and was stopped",
            hint="run `bake push mpi-cpu` again; uploaded layers are reused",
        ),
    )
    assert registry_proxy.hung_up.wait(10)


def test_all_attempts_together_have_a_deadline(push: Push, registry_proxy: Proxy, image: BuiltImage) -> None:
    registry_proxy.stall("PUT|PATCH", UPLOADS)
    push.publication = replace(push.publication, stall=60.0, until=time.monotonic() + 2.0)
    with pytest.raises(PublishError, match="was stopped: the deadline passed"):
        push(image)


def test_a_registry_that_is_not_there(tmp_path: Path, image: BuiltImage) -> None:
    push = Push(tmp_path, "127.0.0.1:1")
    with pytest.raises(PublishError) as caught:
        push(image)
    facts = (("answer", "is unreachable: connection refused"),)
    hint = "check that it runs and is reachable from here, then run `bake push mpi-cpu`"
    assert caught.value.diagnostics == (Diagnostic("`127.0.0.1:1` does not answer", facts=facts, hint=hint),)


def test_missing_permissions_are_reported_with_the_answer_of_the_registry(
    push: Push, registry_proxy: Proxy, image: BuiltImage
) -> None:
    """The engine says `403 Forbidden` and no more."""
    registry_proxy.fail(
        "POST", UPLOADS, 403, error_body("DENIED", "requested access to the resource is denied")
    )
    with pytest.raises(RegistryAuthError) as caught:
        push(image)
    repository = f"{registry_proxy.host}/{push.repository(image).name}"
    assert caught.value.diagnostics == (
        Diagnostic(
            f"not allowed to push to `{repository}`",
            reasons=(
                Reason("not logged in: requested access to the resource is denied"),
                Reason(f"no tag was set; the image is built as {short(image.digest)}"),
            ),
            hint="use credentials with push permission, then run `bake push mpi-cpu`; "
            "the built image is reused",
        ),
    )


def test_wrong_credentials_are_distinguished_from_missing_permissions(
    registry_reference: str, tmp_path: Path, image: BuiltImage
) -> None:
    with registry_container(registry_reference, locked=True) as port, Proxy(port).running() as proxy:
        push = Push(tmp_path, proxy.host, Credentials("AWS", "not-the-password"))
        with pytest.raises(RegistryAuthError) as caught:
            push(image)
        assert caught.value.diagnostics == (
            Diagnostic(
                f"`{proxy.host}` does not accept the credentials",
                reasons=(Reason("it answered docker's login `AWS`: authentication required"),),
                hint="log in, then run `bake push mpi-cpu`; the built image is reused",
            ),
        )


@pytest.mark.parametrize(
    ("exporter", "provenance"),
    [
        ("oci-mediatypes=true,compression=gzip,force-compression=true", False),
        ("oci-mediatypes=true,compression=zstd,force-compression=true", True),
    ],
    ids=["oci", "index"],
)
def test_the_form_in_the_store_does_not_matter(
    push: Push, tmp_path: Path, exporter: str, provenance: bool
) -> None:
    with built(tmp_path, "mpi-cpu", exporter=exporter, provenance=provenance) as image:
        published = push(image)
    manifest = push.repository(image).manifest(published.digest)
    assert manifest
    assert manifest.media_type == DOCKER_MANIFEST
    assert [layer.media_type for layer in manifest.layers] == [GZIP_LAYER, GZIP_LAYER]


@pytest.mark.parametrize(("format", "compression"), [("oci", "gzip"), ("oci-zstd", "zstd")])
def test_a_recipe_may_ask_for_another_format_with_a_warning(
    push: Push, tmp_path: Path, format: str, compression: str
) -> None:
    with built(tmp_path, "mpi-cpu") as image:
        published = push(replace(image, image=replace(image.image, format=format)))
    assert published.media_type == OCI_MANIFEST
    warning = (
        f"mpi-cpu: its recipe builds an OCI image with {compression} layers; SageMaker may reject it, "
        "but accepts Docker schema 2"
    )
    assert warning in push.lines


def test_an_image_for_another_platform_is_not_pushed(push: Push, tmp_path: Path) -> None:
    with (
        built(tmp_path, "mpi-cpu", platform="linux/arm64") as image,
        pytest.raises(PublishError) as caught,
    ):
        push(image)
    assert caught.value.diagnostics[0].reasons == (Reason("it is for linux/arm64, not linux/amd64"),)


def test_an_image_that_the_engine_lost_is_named(push: Push, image: BuiltImage) -> None:
    gone = replace(image, digest=Digest("sha256:" + "0" * 64), stored=Digest("sha256:" + "0" * 64))
    with pytest.raises(PublishError) as caught:
        push(gone)
    assert caught.value.diagnostics == (
        Diagnostic(
            "the engine no longer has the tested image sha256:000000000000",
            hint="run `bake release mpi-cpu`",
        ),
    )


def test_two_pushes_of_one_image_at_once_make_one_release(
    push: Push, image: BuiltImage, tmp_path: Path, registry_proxy: Proxy
) -> None:
    results: list[PublishedImage] = []
    threads = [threading.Thread(target=lambda: results.append(push(image))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(result.was_there for result in results) == [False, True, True]
    assert {result.image_uri for result in results} == {results[0].image_uri}
    assert "mpi-cpu: waiting for another push of it on this machine" in push.lines


RELEASE = text_of(__file__, "release")


@pytest.mark.parametrize(
    "seconds", [0.4, *(pytest.param(seconds, marks=pytest.mark.release) for seconds in (0.1, 0.7, 1.0))]
)
def test_a_release_killed_at_any_moment_is_repeated_and_leaves_no_trace(
    image: BuiltImage, tmp_path: Path, seconds: float
) -> None:
    with kept_port() as port:
        command = [sys.executable, "-c", RELEASE, str(tmp_path), image.digest, image.stored, str(port)]
        with started(command, stdout=subprocess.PIPE, text=True) as killed:
            assert killed.stdout
            assert killed.stdout.readline() == "begun\n"
            time.sleep(seconds)
            killed.kill()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        # The second run may have used the registry of the first, whose keeper stops it afterwards
        for _ in range(100):
            with socket.socket() as probe:
                if is_closed := probe.connect_ex(("127.0.0.1", port)) != 0:
                    break
            time.sleep(0.1)
        assert is_closed
    (record,) = load(tmp_path / "releases.json")
    assert (record.config, record.tags) == (image.digest, (TAG,))
