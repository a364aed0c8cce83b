"""Uploads of blobs to Debian's docker-registry, through a proxy that fails."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bakehouse.fetch.retry import RetryPolicy
from bakehouse.registry.client import Repository
from bakehouse.registry.http_errors import RegistryError
from bakehouse.registry.manifest import digest_of
from bakehouse.registry.registry import NamedRegistry
from bakehouse.registry.upload import CHUNK_BYTES, Blob, Sent, Uploader
from tests.integration.push_faults import ENDING, UPLOADS, Scene, corrupted, local_registry, restarted
from tests.support.proxy import LOST, Forward, Proxy, Reply, Request, error_body

SMALL = b"a small blob"
LARGE = os.urandom(CHUNK_BYTES) + os.urandom(CHUNK_BYTES) + b"the end"


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with local_registry(tmp_path) as registry, Proxy(registry.port).running() as proxy:
        yield Scene(registry, proxy, tmp_path / "token")


def uploader(
    scene: Scene, moved: Callable[[int], None] = lambda count: None, name: str = "team/image"
) -> Uploader:
    policy = RetryPolicy(attempts=5, pause=0.1, timeout=3.0)
    repository = Repository(NamedRegistry(scene.location, lambda _: None), name, policy)
    return Uploader(repository, moved)


def blob(content: bytes) -> Blob:
    return Blob(digest_of(content), len(content), content)


@pytest.mark.parametrize("content", [SMALL, LARGE, b""])
def test_a_blob_arrives_once(scene: Scene, content: bytes) -> None:
    assert uploader(scene).upload(blob(content)) is Sent.UPLOADED
    assert uploader(scene).repository.blob(digest_of(content), 2 * len(LARGE)) == content
    assert uploader(scene).upload(blob(content)) is Sent.EXISTED


def test_a_blob_of_another_repository_is_mounted(scene: Scene) -> None:
    uploader(scene).upload(blob(LARGE))
    other = uploader(scene, name="team/other")
    assert other.upload(blob(LARGE), ["team/image"]) is Sent.MOUNTED
    assert other.repository.has_blob(digest_of(LARGE), len(LARGE))


def test_a_mount_that_is_not_possible_becomes_an_upload(scene: Scene) -> None:
    assert uploader(scene).upload(blob(SMALL), ["team/nothing"]) is Sent.UPLOADED


def cut(scene: Scene) -> None:
    """The connection is cut while the second chunk is in progress."""
    seen = []

    def answer(request: Request, forward: Forward) -> Reply:
        seen.append(request)
        return LOST if len(seen) == 2 else forward(request)

    scene.proxy.do("PATCH", UPLOADS, answer)


def halved(scene: Scene) -> None:
    """The registry stores half of the second chunk, and discards the upload for that later."""
    seen = []

    def answer(request: Request, forward: Forward) -> Reply:
        seen.append(request)
        if len(seen) != 2:
            return forward(request)
        request.body = request.body[: len(request.body) // 2]
        request.headers.pop("Content-Range")
        forward(request)
        return LOST

    scene.proxy.do("PATCH", UPLOADS, answer)


def lost_chunk(scene: Scene) -> None:
    scene.proxy.lose_reply("PATCH", UPLOADS)


def lost_end(scene: Scene) -> None:
    scene.proxy.lose_reply("PUT", UPLOADS)


def failing(scene: Scene) -> None:
    scene.proxy.fail(ENDING, UPLOADS, 503, error_body("UNAVAILABLE", "busy"), times=2)


def forgotten(scene: Scene) -> None:
    scene.proxy.fail("PATCH", UPLOADS, 404, error_body("BLOB_UPLOAD_UNKNOWN", "no such upload"), times=1)


@pytest.mark.parametrize(
    "arrange",
    [cut, halved, lost_chunk, lost_end, failing, forgotten, restarted, lambda scene: corrupted(scene, 1)],
)
def test_an_upload_goes_on_after(scene: Scene, arrange: Callable[[Scene], object]) -> None:
    arrange(scene)
    assert uploader(scene).upload(blob(LARGE)) is Sent.UPLOADED
    assert uploader(scene).repository.blob(digest_of(LARGE), 2 * len(LARGE)) == LARGE


def test_a_cut_upload_repeats_one_chunk_alone(scene: Scene) -> None:
    cut(scene)
    sent: list[int] = []
    uploader(scene, sent.append).upload(blob(LARGE))
    assert len(LARGE) < sum(sent) <= len(LARGE) + CHUNK_BYTES


@pytest.mark.parametrize(("status", "code"), [(500, "UNKNOWN"), (507, "UNKNOWN"), (403, "DENIED")])
def test_an_error_that_stays_is_raised(scene: Scene, status: int, code: str) -> None:
    scene.proxy.fail(ENDING, UPLOADS, status, error_body(code, "no space left on device"))
    with pytest.raises(RegistryError) as raised:
        uploader(scene).upload(blob(LARGE))
    assert (raised.value.status, raised.value.text) == (status, "no space left on device")


@pytest.mark.parametrize("content", [SMALL, LARGE[CHUNK_BYTES:]])
def test_damage_at_every_attempt_is_raised(scene: Scene, content: bytes) -> None:
    corrupted(scene, 1000)
    with pytest.raises(RegistryError) as raised:
        uploader(scene).upload(blob(content))
    assert raised.value.code == "DIGEST_INVALID"


def test_an_exception_of_the_observer_ends_the_upload(scene: Scene) -> None:
    def interrupt(count: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        uploader(scene, interrupt).upload(blob(SMALL))
