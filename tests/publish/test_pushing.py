"""Pushes to a registry in memory."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date, timedelta
from pathlib import Path
from typing import cast

import pytest

from bakehouse.builder.built_image import BuiltImage
from bakehouse.builder.pack import PackedImage, Packer
from bakehouse.errors import Diagnostic, PublishError, TagTakenError
from bakehouse.fetch.http_client import HttpReply, HttpRequest
from bakehouse.fetch.retry import RetryPolicy
from bakehouse.publish.diagnostics import PushDiagnostics
from bakehouse.publish.push import PushOptions, publish
from bakehouse.publish.queue import PushQueue
from bakehouse.publish.tags import PublishedImage, ReleaseTags, immutable_tag
from bakehouse.publish.target import ReleaseTarget
from bakehouse.registry.client import Repository
from bakehouse.registry.layer_cache import CompressedLayer
from bakehouse.registry.manifest import DOCKER_MANIFEST, FORMS, Form, digest_of, parse, unfit
from bakehouse.registry.registry import NamedRegistry
from bakehouse.util.deadline import OverdueError
from bakehouse.util.oci import Digest
from bakehouse.util.terminal import Reporter
from tests.support import plans
from tests.support.built_images import BUILT, PASSED
from tests.support.errors import raised
from tests.support.fake_registry import CONFIG, DIGEST, LAYER, MANIFEST, FakeRegistry, holding
from tests.support.proxy import Forward, Proxy, Reply, Request, error_body

DAY = date(2026, 11, 20)
IMAGE = plans.changed(BUILT.image, name="image")
TAG = immutable_tag("image", DAY, IMAGE.key)
ECR = "123456789012.dkr.ecr.eu-west-1.amazonaws.com"
OTHERS = MANIFEST.replace(digest_of(CONFIG).encode(), digest_of(b"another").encode())
NAMED = f"/manifests/{TAG}$"


@dataclass
class FakePacker:
    """Packs the image of these tests."""

    directory: Path
    stored: bytes = LAYER
    """Content of the file of its layer."""

    def config(self, built: BuiltImage) -> bytes:
        return CONFIG

    def pack(self, built: BuiltImage, form: Form, report: Reporter, until: float) -> PackedImage:
        path = self.directory / "layer"
        path.write_bytes(self.stored)
        document = json.loads(MANIFEST) | {"mediaType": form.manifest}
        document["layers"] = [layer | {"mediaType": form.layer} for layer in document["layers"]]
        content = MANIFEST if form is FORMS["docker"] else json.dumps(document).encode()
        return PackedImage(
            parse(content), CONFIG, (CompressedLayer(digest_of(LAYER), digest_of(LAYER), len(LAYER), path),)
        )


@pytest.fixture
def fake_registry() -> FakeRegistry:
    return FakeRegistry()


@pytest.fixture
def proxy(fake_registry: FakeRegistry) -> Iterator[Proxy]:
    def tags(request: Request, forward: Forward) -> Reply:
        names = [name for name in fake_registry.manifests if not name.startswith("sha256:")]
        return Reply(200, {}, json.dumps({"tags": names}).encode())

    with Proxy(1).running() as running:
        running.answers.append(fake_registry.answer)
        running.do("GET", "/tags/list", tags)
        yield running


def push(
    directory: Path,
    registry: NamedRegistry,
    queue: PushQueue | None = None,
    stored: bytes = LAYER,
    form: str = "docker",
    *,
    day: date = DAY,
    candidate: bool = False,
) -> PublishedImage:
    retry_policy = RetryPolicy(attempts=3, pause=0.01, timeout=5)
    publication = PushOptions(
        day, directory, prefix="team", candidate=candidate, settle=0.0, retry_policy=retry_policy
    )
    built = replace(BUILT, digest=digest_of(CONFIG), image=replace(IMAGE, format=form))
    packer = cast("Packer", FakePacker(directory, stored))
    return publish(built, PASSED, registry, packer, publication, print, queue)


def test_an_image_is_uploaded_and_tagged(tmp_path: Path, fake_registry: FakeRegistry, proxy: Proxy) -> None:
    published = push(tmp_path, NamedRegistry(proxy.host, lambda _: None))
    assert (published.digest, published.config) == (DIGEST, digest_of(CONFIG))
    assert fake_registry.manifests[TAG] == (DOCKER_MANIFEST, MANIFEST)
    assert fake_registry.blobs == {digest_of(CONFIG): CONFIG, digest_of(LAYER): LAYER}
    assert published.sent == len(LAYER)


@pytest.mark.parametrize(
    ("change", "is_same"), [({"Labels": {"title": "a"}}, True), ({"Cmd": ["sh"]}, False)]
)
def test_an_image_with_other_labels_is_the_published_one(
    tmp_path: Path, fake_registry: FakeRegistry, proxy: Proxy, change: dict[str, object], is_same: bool
) -> None:
    document = json.loads(CONFIG)
    config = json.dumps({**document, "config": {**document.get("config", {}), **change}}).encode()
    manifest = MANIFEST.replace(digest_of(CONFIG).encode(), digest_of(config).encode())
    manifest = manifest.replace(f'"size": {len(CONFIG)}'.encode(), f'"size": {len(config)}'.encode())
    fake_registry.blobs.update({digest_of(config): config, digest_of(LAYER): LAYER})
    fake_registry.manifests[TAG] = (DOCKER_MANIFEST, manifest)

    if is_same:
        published = push(tmp_path, NamedRegistry(proxy.host, lambda _: None))
        assert (published.digest, published.was_there, published.sent) == (digest_of(manifest), True, 0)
    else:
        with pytest.raises(TagTakenError):
            push(tmp_path, NamedRegistry(proxy.host, lambda _: None))


def test_an_image_that_another_machine_pushed_meanwhile_is_published(
    tmp_path: Path, fake_registry: FakeRegistry, proxy: Proxy
) -> None:
    def pushed_by_another(request: Request, forward: Forward) -> Reply:
        fake_registry.blobs.update({digest_of(CONFIG): CONFIG, digest_of(LAYER): LAYER})
        fake_registry.manifests[TAG] = DOCKER_MANIFEST, MANIFEST
        return Reply(403, {}, error_body("DENIED", "the tag exists"))

    proxy.do("PUT", "/blobs/uploads/", pushed_by_another)
    published = push(tmp_path, NamedRegistry(proxy.host, lambda _: None))
    assert (published.digest, published.sent) == (DIGEST, 0)


def test_a_damaged_layer_is_removed_from_the_cache(tmp_path: Path, proxy: Proxy) -> None:
    proxy.fail("PUT", "/blobs/uploads/1.*" + digest_of(LAYER), 400, error_body("DIGEST_INVALID", "damaged"))
    with pytest.raises(PublishError) as caught:
        push(tmp_path, NamedRegistry(proxy.host, lambda _: None), stored=LAYER[:-1] + b"?")
    assert caught.value.diagnostics == (
        Diagnostic(
            f"the compressed layer {digest_of(LAYER)[:19]} in the cache was damaged; it was removed",
            hint="run `bake push image` to compress it again",
        ),
    )
    assert not (tmp_path / "layer").exists()


@pytest.mark.parametrize("candidate", [False, True])
def test_a_changed_format_is_published_under_another_tag(
    tmp_path: Path, proxy: Proxy, candidate: bool
) -> None:
    registry = NamedRegistry(proxy.host, lambda _: None)
    tags = {"docker": list[str](), "oci-zstd": list[str]()}
    for day, form in ((DAY, "docker"), (DAY + timedelta(1), "oci-zstd")):
        for _ in range(2):
            published = push(tmp_path, registry, form=form, day=day, candidate=candidate)
            assert published.media_type == FORMS[form].manifest
            tags[form] += published.tags
    assert len({*tags["docker"]}) == len({*tags["oci-zstd"]}) == 1
    assert tags["docker"][0] != tags["oci-zstd"][0]


def test_a_changed_format_under_todays_tag_is_reported(tmp_path: Path, proxy: Proxy) -> None:
    registry = NamedRegistry(proxy.host, lambda _: None)
    push(tmp_path, registry)
    assert raised(TagTakenError, push, tmp_path, registry, form="oci").diagnostics == (
        Diagnostic(
            f"tag `{TAG}` is taken by the same image in another format",
            reasons=unfit(parse(MANIFEST), FORMS["oci"]),
            facts=(("in repository", f"{proxy.host}/team/image"), ("there, manifest", DIGEST)),
            hint="set the previous `format` of `image`, or push under tomorrow's tag",
        ),
    )


def test_a_lost_upload_is_not_a_missing_repository(tmp_path: Path, proxy: Proxy) -> None:
    proxy.fail("PUT", "/blobs/uploads/", 404, error_body("BLOB_UPLOAD_UNKNOWN", "no such upload"))
    assert raised(PublishError, push, tmp_path, NamedRegistry(proxy.host, lambda _: None)).diagnostics == (
        Diagnostic(
            f"the push to `{proxy.host}/team/image` failed",
            facts=(("registry", "HTTP 404: no such upload"),),
            hint="check the registry's log, then run `bake push image`",
        ),
    )
    assert proxy.seen("PUT", "/blobs/uploads/") == 3


def test_overwriting_a_tag_after_a_push_to_ecr_is_reported(
    tmp_path: Path, fake_registry: FakeRegistry, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Repositories that Bakehouse has not made may have tags that can be overwritten."""
    exchange = Repository._exchange

    def relayed(self: Repository, request: HttpRequest) -> HttpReply:
        address = request.url.replace(f"https://{ECR}/", f"http://{proxy.host}/")
        return exchange(self, replace(request, url=address))

    kind = {"Content-Type": DOCKER_MANIFEST}
    proxy.do("GET", NAMED, lambda _, __: Reply(200, kind, MANIFEST), times=1)
    proxy.do("GET", NAMED, lambda _, __: Reply(200, kind, OTHERS))
    monkeypatch.setattr(Repository, "_exchange", relayed)
    error = raised(TagTakenError, push, tmp_path, NamedRegistry(ECR, lambda _: None))
    assert ("there, manifest", digest_of(OTHERS)) in error.diagnostics[0].facts


class Overdue(NamedRegistry):
    """A registry that cannot return the push date in time."""

    def pushed(self, repository: str, digest: Digest) -> str:
        raise OverdueError


def test_a_conflict_is_reported_even_past_the_deadline(fake_registry: FakeRegistry, proxy: Proxy) -> None:
    holding(fake_registry)
    registry = Overdue(proxy.host, lambda _: None)
    target = ReleaseTarget("mpi-cpu", IMAGE.key, DIGEST, registry, "team/image", TAG)
    repository = Repository(registry, "team/image", RetryPolicy())
    tags = ReleaseTags(repository, target, PushDiagnostics(target))
    diagnostic = tags.taken(parse(OTHERS)).diagnostics[0]
    assert diagnostic.message == f"tag `{TAG}` is taken by a different image"
