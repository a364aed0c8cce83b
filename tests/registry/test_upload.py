"""Uploads to registries that fail in every way; over HTTP, on loopback, in chunks of four bytes."""

from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import pytest

from bakehouse.fetch.retry import RetryPolicy
from bakehouse.registry import upload
from bakehouse.registry.client import Repository
from bakehouse.registry.http_errors import RegistryError
from bakehouse.registry.manifest import digest_of
from bakehouse.registry.registry import Credentials, NamedRegistry
from bakehouse.registry.upload import Blob, Sent, Uploader
from tests.support.proxy import LOST, Forward, Proxy, Reply, Request, error_body

SMALL, LARGE = b"abc", b"0123456789"
UPLOADS = "/blobs/uploads/"


class Registry:
    """A registry in memory; the location of an upload contains its offset, and no other one is accepted."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.received = b""

    def answer(self, request: Request) -> Reply:
        address = urlsplit(request.path)
        if request.method == "HEAD":
            blob = self.blobs.get(address.path.rpartition("/")[2])
            return Reply(404) if blob is None else Reply(200, {"Content-Length": str(len(blob))})
        if request.method == "POST":
            self.received = b""
        elif request.method != "GET" and parse_qs(address.query)["offset"] != [str(len(self.received))]:
            return Reply(404, {}, error_body("BLOB_UPLOAD_INVALID", "wrong offset"))
        self.received += request.body
        if request.method == "PUT":
            digest = parse_qs(address.query)["digest"][0]
            if digest != digest_of(self.received):
                return Reply(400, {}, error_body("DIGEST_INVALID", "another digest"))
            self.blobs[digest] = self.received
            return Reply(201)
        offset = len(self.received)
        location = f"/v2/team/image/blobs/uploads/1?offset={offset}"
        return Reply(202, {"Location": location, "Range": f"0-{max(offset - 1, 0)}"})


@pytest.fixture
def registry() -> Registry:
    return Registry()


@pytest.fixture
def proxy(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    monkeypatch.setattr(upload, "CHUNK_BYTES", 4)
    with Proxy(1).running() as running:
        running.answers.append(registry.answer)
        yield running


def uploader(proxy: Proxy, timeout: float = 5.0) -> Uploader:
    policy = RetryPolicy(attempts=3, pause=0.001, timeout=timeout)
    login = Credentials("ci", "hunter2")
    return Uploader(Repository(NamedRegistry(proxy.host, lambda _: login), "team/image", policy))


def blob(content: bytes) -> Blob:
    return Blob(digest_of(content), len(content), content)


def failure(proxy: Proxy, content: bytes) -> RegistryError:
    with pytest.raises(RegistryError) as raised:
        uploader(proxy).upload(blob(content))
    return raised.value


@pytest.mark.parametrize("content", [SMALL, LARGE])
def test_a_blob_is_sent_once(registry: Registry, proxy: Proxy, content: bytes) -> None:
    assert uploader(proxy).upload(blob(content)) is Sent.UPLOADED
    assert uploader(proxy).upload(blob(content)) is Sent.EXISTED
    assert registry.blobs == {digest_of(content): content}


@pytest.mark.parametrize("content", [SMALL, LARGE])
def test_damaged_data_is_sent_as_often_as_the_retry_policy_allows(proxy: Proxy, content: bytes) -> None:
    proxy.fail("PUT", UPLOADS, 400, error_body("DIGEST_INVALID", "another digest"))
    assert failure(proxy, content).is_corrupted
    assert proxy.seen("PUT", UPLOADS) == 3


@pytest.mark.parametrize("status", [404, 500])
def test_chunks_that_are_sent_again_are_not_progress(proxy: Proxy, status: int) -> None:
    proxy.fail("PUT", UPLOADS, status)
    proxy.fail("GET", UPLOADS, 404)
    assert failure(proxy, LARGE).status == status
    assert proxy.seen("PUT", UPLOADS) == 3


def test_every_new_chunk_is_progress(proxy: Proxy) -> None:
    seen: list[Request] = []

    def every_other(request: Request, forward: Forward) -> Reply:
        seen.append(request)
        return Reply(500) if len(seen) % 2 else proxy.answers[0](request) or LOST

    proxy.do("PATCH", UPLOADS, every_other)
    assert uploader(proxy).upload(blob(LARGE * 3)) is Sent.UPLOADED


def test_a_registry_that_stores_no_chunk_is_reported(proxy: Proxy) -> None:
    proxy.do("PATCH", UPLOADS, lambda _, __: Reply(202, {"Range": "0-0"}))
    assert failure(proxy, LARGE).text == "the registry accepted a chunk, but did not store it"
    assert proxy.seen("PATCH", UPLOADS) == 1


def test_an_upload_continues_within_a_chunk(registry: Registry, proxy: Proxy) -> None:
    """The registry names the new location in its response to the question for the offset."""

    def half(request: Request, forward: Forward) -> Reply:
        registry.received += request.body[:2]
        return LOST

    proxy.do("PATCH", UPLOADS, half, times=1)
    assert uploader(proxy).upload(blob(LARGE)) is Sent.UPLOADED
    assert [request.body for request in proxy.requests if request.method == "PATCH"] == [
        b"0123",
        b"2345",
        b"6789",
    ]


def test_a_small_blob_starts_again(registry: Registry, proxy: Proxy) -> None:
    def half(request: Request, forward: Forward) -> Reply:
        registry.received += request.body[:2]
        return LOST

    proxy.do("PUT", UPLOADS, half, times=1)
    assert uploader(proxy).upload(blob(SMALL)) is Sent.UPLOADED


def test_a_new_upload_without_a_location_is_reported(proxy: Proxy) -> None:
    proxy.do("POST", UPLOADS, lambda _, __: Reply(202))
    assert failure(proxy, SMALL).text == "the response to a new upload has no location"


def test_a_blob_that_appears_when_an_upload_starts_again_is_there(proxy: Proxy) -> None:
    """Another push sent it meanwhile, and the registry mounts it by itself."""
    proxy.do("POST", UPLOADS, lambda request, _: proxy.answers[0](request) or LOST, times=1)
    proxy.do("POST", UPLOADS, lambda _, __: Reply(201))
    proxy.fail("PUT", UPLOADS, 404, error_body("BLOB_UPLOAD_UNKNOWN", "no such upload"))
    assert uploader(proxy).upload(blob(SMALL)) is Sent.MOUNTED


@pytest.mark.parametrize("methods", ["HEAD", "POST", "PUT", "PUT|HEAD|GET"])
def test_a_silent_registry_is_asked_twice(proxy: Proxy, methods: str) -> None:
    seen: list[Request] = []

    def silent(request: Request, forward: Forward) -> Reply:
        # The first request checks whether the blob exists.
        if methods == "PUT|HEAD|GET" and len(proxy.requests) == 1:
            return Reply(404)
        seen.append(request)
        request.connection.settimeout(5)
        request.connection.recv(1)
        return LOST

    proxy.do(methods, "/blobs/", silent)
    with pytest.raises(RegistryError) as raised:
        uploader(proxy, timeout=1).upload(blob(SMALL))
    assert raised.value.is_stalled
    assert len(seen) == 2


def test_a_missing_repository_is_not_retried(proxy: Proxy) -> None:
    proxy.fail("POST", UPLOADS, 404, error_body("NAME_UNKNOWN", "no such repository"))
    assert failure(proxy, SMALL).code == "NAME_UNKNOWN"
    assert proxy.seen("POST", UPLOADS) == 1


@pytest.mark.parametrize("content", [SMALL, LARGE])
def test_a_redirected_upload_has_its_content_but_not_the_login(
    registry: Registry, proxy: Proxy, content: bytes
) -> None:
    with Proxy(1).running() as storage:
        storage.answers.append(registry.answer)

        def elsewhere(request: Request, _: Forward) -> Reply:
            return Reply(307, {"Location": f"http://{storage.host}{request.path}"})

        proxy.do("PUT|PATCH", UPLOADS, elsewhere)
        assert uploader(proxy).upload(blob(content)) is Sent.UPLOADED
    assert registry.blobs == {digest_of(content): content}
    assert not any("Authorization" in request.headers for request in storage.requests)
