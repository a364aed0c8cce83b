"""Hanging artifacts on an image, in registries with and without the referrers API; over HTTP, on loopback."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from bakehouse.fetch.retry import RetryPolicy
from bakehouse.registry.http_errors import RegistryError
from bakehouse.registry.manifest import DOCKER_MANIFEST, OCI_INDEX, OCI_MANIFEST, Manifest, digest_of, parse
from bakehouse.registry.referrers import ArtifactRepository, AttachedDocument, fallback_tag
from bakehouse.registry.registry import NamedRegistry
from bakehouse.util.oci import Digest
from tests.support.errors import raised
from tests.support.fake_registry import IMAGE, FakeRegistry
from tests.support.proxy import LOST, Proxy, Reply, Request, error_body
from tests.support.referrers import Referrers

NOTE = AttachedDocument("application/vnd.note+json", b'{"note": 1}', "note.json", {"about": "tests"})
OTHER = AttachedDocument("application/vnd.other+json", b'{"other": 1}', "other.json")


@pytest.fixture
def fake_registry() -> FakeRegistry:
    return FakeRegistry()


@pytest.fixture
def proxy(fake_registry: FakeRegistry) -> Iterator[Proxy]:
    with Proxy(1).running() as running:
        running.answers.append(fake_registry.answer)
        yield running


@pytest.fixture
def remote(proxy: Proxy) -> ArtifactRepository:
    registry = NamedRegistry(proxy.host, lambda _: None)
    return ArtifactRepository(registry, "team/image", RetryPolicy(attempts=3, pause=0.01, timeout=5))


@pytest.fixture
def with_referrers(fake_registry: FakeRegistry, proxy: Proxy) -> None:
    proxy.answers.insert(0, Referrers(fake_registry.answer).answer)


def subject() -> Manifest:
    return parse(IMAGE)


def listed(shelf: FakeRegistry) -> list[str]:
    kind, content = shelf.manifests[fallback_tag(subject().digest)]
    assert kind == OCI_INDEX
    return [entry["digest"] for entry in json.loads(content)["manifests"]]


def sent(proxy: Proxy) -> list[str]:
    return [
        f"{request.method} {request.path}"
        for request in proxy.requests
        if request.method not in ("GET", "HEAD")
    ]


def test_an_artifact_is_a_manifest_of_its_own_that_names_the_image(
    fake_registry: FakeRegistry, remote: ArtifactRepository
) -> None:
    [attached] = remote.attach(subject(), [NOTE])
    kind, content = fake_registry.manifests[attached.digest]
    document = json.loads(content)
    assert (kind, document["artifactType"]) == (OCI_MANIFEST, NOTE.media_type)
    assert document["subject"] == {
        "mediaType": DOCKER_MANIFEST,
        "digest": digest_of(IMAGE),
        "size": len(IMAGE),
    }
    [layer] = document["layers"]
    assert layer["annotations"] == {"org.opencontainers.image.title": "note.json"}
    assert fake_registry.blobs[layer["digest"]] == NOTE.content
    assert fake_registry.blobs[document["config"]["digest"]] == b"{}"
    assert fake_registry.manifests["v1"] == (DOCKER_MANIFEST, IMAGE)


def test_a_registry_with_referrers_gets_no_tag(
    fake_registry: FakeRegistry, remote: ArtifactRepository, with_referrers: None
) -> None:
    attached = remote.attach(subject(), [NOTE, OTHER])
    assert remote.referrers(subject().digest) == tuple(artifact.digest for artifact in attached)
    assert fallback_tag(subject().digest) not in fake_registry.manifests


def test_a_registry_that_says_it_lists_it_is_believed_though_its_list_is_late(
    fake_registry: FakeRegistry, proxy: Proxy, remote: ArtifactRepository, with_referrers: None
) -> None:
    late = Reply(200, {"Content-Type": OCI_INDEX}, b'{"manifests": []}')
    proxy.answers.insert(0, lambda request: late if "/referrers/" in request.path else None)
    remote.attach(subject(), [NOTE])
    assert fallback_tag(subject().digest) not in fake_registry.manifests


def test_a_registry_without_gets_a_list_under_the_tag_of_the_specification(
    fake_registry: FakeRegistry, remote: ArtifactRepository
) -> None:
    attached = remote.attach(subject(), [NOTE, OTHER])
    assert remote.referrers(subject().digest) is None
    _, content = fake_registry.manifests[subject().digest.replace("sha256:", "sha256-")]
    first, second = json.loads(content)["manifests"]
    size = len(fake_registry.manifests[attached[0].digest][1])
    assert first == {
        "mediaType": OCI_MANIFEST,
        "digest": attached[0].digest,
        "size": size,
        "artifactType": NOTE.media_type,
        "annotations": {"about": "tests"},
    }
    assert second["digest"] == attached[1].digest


def test_what_is_in_the_list_stays_in_it(fake_registry: FakeRegistry, remote: ArtifactRepository) -> None:
    [first] = remote.attach(subject(), [NOTE])
    [second] = remote.attach(subject(), [OTHER])
    assert listed(fake_registry) == [first.digest, second.digest]


@pytest.mark.parametrize("referrers", [True, False])
def test_what_is_attached_already_is_not_sent_again(
    fake_registry: FakeRegistry, proxy: Proxy, remote: ArtifactRepository, referrers: bool
) -> None:
    if referrers:
        proxy.answers.insert(0, Referrers(fake_registry.answer).answer)
    first = remote.attach(subject(), [NOTE, OTHER])
    proxy.requests.clear()
    again = remote.attach(subject(), [NOTE, OTHER])
    assert sent(proxy) == []
    assert [artifact.digest for artifact in again] == [artifact.digest for artifact in first]
    assert [artifact.was_there for artifact in (*first, *again)] == [False, False, True, True]


def test_what_was_stored_without_being_listed_is_listed(
    fake_registry: FakeRegistry, proxy: Proxy, remote: ArtifactRepository
) -> None:
    [attached] = remote.attach(subject(), [NOTE])
    del fake_registry.manifests[fallback_tag(subject().digest)]
    remote.attach(subject(), [NOTE])
    assert listed(fake_registry) == [attached.digest]


def replaces_the_list(
    shelf: FakeRegistry, times: int
) -> Callable[[Request, Callable[[Request], Reply]], Reply]:
    """Another client that overwrites the list right after us, without our entry."""
    other = {"mediaType": OCI_MANIFEST, "digest": "sha256:" + "0" * 64, "size": 1}
    other_list = json.dumps({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [other]}).encode()
    rest = [other_list] * times

    def answer(request: Request, _: Callable[[Request], Reply]) -> Reply:
        reply = shelf.answer(request)
        if rest:
            shelf.manifests[fallback_tag(subject().digest)] = OCI_INDEX, rest.pop()
        return reply

    return answer


def test_a_concurrently_replaced_list_is_extended_again(
    fake_registry: FakeRegistry, proxy: Proxy, remote: ArtifactRepository
) -> None:
    proxy.do("PUT", "/manifests/sha256-", replaces_the_list(fake_registry, 1))
    [attached] = remote.attach(subject(), [NOTE])
    assert listed(fake_registry) == ["sha256:" + "0" * 64, attached.digest]


def test_a_list_that_is_replaced_all_the_time_is_given_up(
    fake_registry: FakeRegistry, proxy: Proxy, remote: ArtifactRepository
) -> None:
    proxy.do("PUT", "/manifests/sha256-", replaces_the_list(fake_registry, 99))
    with pytest.raises(RegistryError, match=r"other clients replaced the list `sha256-[0-9a-f]{64}` 5 times"):
        remote.attach(subject(), [NOTE])


def test_a_tag_of_that_name_that_is_not_a_list_is_kept(
    fake_registry: FakeRegistry, remote: ArtifactRepository
) -> None:
    tag = fallback_tag(subject().digest)
    fake_registry.manifests[tag] = (DOCKER_MANIFEST, IMAGE)
    error = raised(RegistryError, remote.attach, subject(), [NOTE])
    assert error.text == f"the list of artifacts is `{DOCKER_MANIFEST}`, not `{OCI_INDEX}`"
    assert fake_registry.manifests[tag] == (DOCKER_MANIFEST, IMAGE)


def test_an_upload_whose_answer_is_lost_is_there(
    fake_registry: FakeRegistry, proxy: Proxy, remote: ArtifactRepository
) -> None:
    def lose(request: Request, _: Callable[[Request], Reply]) -> Reply:
        fake_registry.answer(request)
        return LOST

    proxy.do("PUT", "/blobs/uploads/", lose, times=1)
    unknown = error_body("BLOB_UPLOAD_UNKNOWN", "blob upload unknown to registry")
    proxy.fail("PUT", "/blobs/uploads/", 404, unknown, times=1)
    remote.attach(subject(), [NOTE])
    assert set(fake_registry.blobs.values()) == {b"{}", NOTE.content}


def test_a_passing_trouble_is_outlasted(
    fake_registry: FakeRegistry, proxy: Proxy, remote: ArtifactRepository
) -> None:
    proxy.fail("PUT", "/manifests/sha256:", 503, times=2)
    [attached] = remote.attach(subject(), [NOTE])
    assert listed(fake_registry) == [attached.digest]


def test_a_front_that_answers_everything_has_no_referrers(proxy: Proxy, remote: ArtifactRepository) -> None:
    proxy.answers.insert(0, lambda _: Reply(200, {}, b"<html>welcome</html>"))
    assert remote.referrers(Digest("sha256:" + "1" * 64)) is None


@pytest.mark.parametrize("referrers", [True, False])
def test_the_documents_of_a_media_type_are_read(
    fake_registry: FakeRegistry, proxy: Proxy, remote: ArtifactRepository, referrers: bool
) -> None:
    if referrers:
        proxy.answers.insert(0, Referrers(fake_registry.answer).answer)
    assert remote.contents(subject().digest, NOTE.media_type) == {}
    note, _ = remote.attach(subject(), [NOTE, OTHER])
    assert remote.contents(subject().digest, NOTE.media_type) == {note.digest: NOTE.content}


def test_a_document_that_the_list_gives_another_type_is_read(
    fake_registry: FakeRegistry, remote: ArtifactRepository
) -> None:
    """As cosign lists its bundles in registries without the referrers API."""
    [note] = remote.attach(subject(), [NOTE])
    tag = fallback_tag(subject().digest)
    _, content = fake_registry.manifests[tag]
    other = content.replace(NOTE.media_type.encode(), b"application/vnd.oci.empty.v1+json")
    fake_registry.manifests[tag] = OCI_INDEX, other
    assert other != content
    assert remote.contents(subject().digest, NOTE.media_type) == {note.digest: NOTE.content}


def test_a_document_that_is_gone_or_too_large_is_left_out(
    fake_registry: FakeRegistry, remote: ArtifactRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    note, _ = remote.attach(subject(), [NOTE, replace(NOTE, content=b"{}" * 50)])
    monkeypatch.setattr("bakehouse.registry.referrers._MAX_DOCUMENT_BYTES", 99)
    assert remote.contents(subject().digest, NOTE.media_type) == {note.digest: NOTE.content}
    del fake_registry.manifests[note.digest]
    assert remote.contents(subject().digest, NOTE.media_type) == {}
