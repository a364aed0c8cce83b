"""Pushing under what registries do to those who push: what passes is outlasted, what doesn't is named."""

import contextlib
import json
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.request import Request as UrlRequest
from urllib.request import urlopen

import pytest

from bakehouse.builder.built_image import BuiltImage
from bakehouse.builder.pack import Packer
from bakehouse.engine import docker
from bakehouse.errors import (
    BakehouseError,
    Diagnostic,
    PublishError,
    Reason,
    RegistryAuthError,
    TagTakenError,
)
from bakehouse.fetch.retry import Retries, RetryPolicy
from bakehouse.publish.push import PushOptions, publish
from bakehouse.publish.tags import PublishedImage
from bakehouse.registry.manifest import DOCKER_MANIFEST, FORMS, Manifest, short
from bakehouse.registry.registry import Credentials, NamedRegistry
from bakehouse.util.file_lock import exclusive
from tests.integration import push_faults
from tests.integration.push_faults import ENDING, FAULTS, UPLOADS, Layout, Scene
from tests.integration.pushing import DAY, TAG, PushCommand
from tests.integration.tiny_images import built, passed
from tests.support.programs import started
from tests.support.proxy import LOST, Forward, Reply, Request, error_body

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

REPOSITORY = "bakehouse/mpi-cpu"
AGAIN = "run `bake push mpi-cpu` again; uploaded layers are reused"
BY_NAME = {fault.name: fault for fault in FAULTS}


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, BuiltImage]]:
    """One, and other content under the same name and key."""
    with (
        built(tmp_path_factory.mktemp("same"), "mpi-cpu") as same,
        built(tmp_path_factory.mktemp("other"), "mpi-cpu", revision="3be01c4") as other,
    ):
        yield {"same": same, "other": other}


@pytest.fixture(scope="module")
def image(images: dict[str, BuiltImage]) -> BuiltImage:
    return images["same"]


@pytest.fixture(scope="module")
def layouts(images: dict[str, BuiltImage], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Layout]:
    directory = tmp_path_factory.mktemp("layouts")
    return {name: push_faults.layout(directory / name, image) for name, image in images.items()}


class Pushing:
    """Publishes with pauses of a tenth of a second."""

    def __init__(self, directory: Path, scene: Scene) -> None:
        self.scene = scene
        self.lines: list[str] = []
        self.location = f"{scene.location}/{REPOSITORY}"
        self.publication = PushOptions(
            day=DAY,
            locks=directory / "locks",
            stall=20.0,
            settle=0.0,
            retry_policy=RetryPolicy(attempts=3, pause=0.1, timeout=5.0),
            revision="8802d51",
        )
        self.packer = Packer(docker.connect(), directory)
        self.registry = NamedRegistry(scene.location, self._login)

    def _login(self, host: str) -> Credentials | None:
        return Credentials(push_faults.USER, self.scene.token.read_text())

    def __call__(self, image: BuiltImage) -> PublishedImage:
        report = self.lines.append
        return publish(image, passed(image), self.registry, self.packer, self.publication, report)

    def manifest(self, image: BuiltImage) -> Manifest:
        """Manifest of the image as it is pushed."""
        return self.packer.pack(image, FORMS["docker"], lambda _: None).manifest

    def refused(self, image: BuiltImage, kind: type[BakehouseError] = PublishError) -> Diagnostic:
        with pytest.raises(kind) as caught:
            self(image)
        assert type(caught.value) is kind
        [diagnostic] = caught.value.diagnostics
        return diagnostic


@pytest.fixture
def pushing(request: pytest.FixtureRequest, tmp_path: Path, layouts: dict[str, Layout]) -> Iterator[Pushing]:
    """In front of the fault that it is given the name of, or of none."""
    fault = BY_NAME[getattr(request, "param", "none")]
    with push_faults.scene(fault, tmp_path, REPOSITORY, layouts) as scene:
        yield Pushing(tmp_path, scene)


def under(fault: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("pushing", [fault], indirect=True, ids=[""])


def lies_there(pushing: Pushing, image: BuiltImage) -> bool:
    """Asked of the registry itself."""
    path = f"http://127.0.0.1:{pushing.scene.registry.port}/v2/{REPOSITORY}/manifests/{TAG}"
    with urlopen(UrlRequest(path, headers={"Accept": DOCKER_MANIFEST})) as response:
        return bool(json.load(response)["config"]["digest"] == image.digest)


@under("corrupt byte, once")
def test_bytes_that_change_on_their_way_are_sent_again(pushing: Pushing, image: BuiltImage) -> None:
    pushing(image)
    assert lies_there(pushing, image)
    assert any("upload interrupted, resuming: " in line for line in pushing.lines)


@pytest.mark.release
@under("corrupt byte, always")
def test_bytes_that_always_change_are_reported_as_corruption(pushing: Pushing, image: BuiltImage) -> None:
    diagnostic = pushing.refused(image)
    assert diagnostic.message == f"`{pushing.location}` received corrupted data"
    assert diagnostic.facts == (("registry", "HTTP 400: provided digest did not match uploaded content"),)
    assert diagnostic.hint == "check the proxy and the network path to the registry"


@under("registry killed, restarted")
def test_a_registry_that_is_restarted_gets_the_image(pushing: Pushing, image: BuiltImage) -> None:
    pushing.publication = replace(
        pushing.publication, retry_policy=RetryPolicy(attempts=9, pause=0.1, timeout=5.0)
    )
    pushing(image)
    assert lies_there(pushing, image)


@pytest.mark.release
def test_an_outage_is_outlasted(pushing: Pushing, image: BuiltImage) -> None:
    push_faults.outage(pushing.scene, 2.0)
    pushing.publication = replace(
        pushing.publication, retry_policy=RetryPolicy(attempts=9, pause=0.1, timeout=5.0)
    )
    pushing(image)
    assert lies_there(pushing, image)


def test_pauses_outlast_a_registry_that_is_restarted() -> None:
    waited: list[float] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "sleep", waited.append)
        retries = Retries(RetryPolicy())
        while retries.add(may_pass=True):
            retries.wait()
    assert 16 < sum(waited) < 60


@pytest.mark.release
def test_a_slow_connection_is_not_a_stall(pushing: Pushing, tmp_path: Path) -> None:
    """All of it takes longer than nothing may move; a part of it fits into the sockets' buffers."""
    with (
        push_faults.slow_line(pushing.scene, 750_000),
        built(tmp_path, "mpi-cpu", bytes_=6_000_000) as large,
    ):
        slow = Pushing(tmp_path, pushing.scene)
        slow.publication = replace(slow.publication, stall=8.0)
        began = time.monotonic()
        slow(large)
        assert time.monotonic() - began > slow.publication.stall
        assert lies_there(pushing, large)


def test_the_registry_says_when_to_come_back(pushing: Pushing, image: BuiltImage) -> None:
    push_faults.throttled(pushing.scene, 1.0, "2")
    began = time.monotonic()
    pushing(image)
    assert time.monotonic() - began >= 2.0
    assert lies_there(pushing, image)
    assert pushing.lines.count("mpi-cpu: upload interrupted, resuming in 2 s: HTTP 429: Rate exceeded") == 1


@pytest.mark.release
def test_no_pause_is_longer_than_the_deadline(pushing: Pushing, image: BuiltImage) -> None:
    push_faults.throttled(pushing.scene, 60.0, "3600")
    pushing.publication = replace(pushing.publication, until=time.monotonic() + 30.0)
    diagnostic = pushing.refused(image)
    assert diagnostic.message == f"the push to `{pushing.location}` failed"
    assert diagnostic.facts == (("registry", "HTTP 429: Rate exceeded"), ("retry after", "3600 s"))
    assert diagnostic.hint == f"check the registry's log and disk, then {AGAIN}"


@under("token expires during the push")
def test_a_login_that_expires_during_the_push_is_renewed(pushing: Pushing, image: BuiltImage) -> None:
    pushing(image)
    assert lies_there(pushing, image)


@under("401, stale login")
def test_an_expired_login_is_reported(pushing: Pushing, image: BuiltImage) -> None:
    diagnostic = pushing.refused(image, RegistryAuthError)
    assert diagnostic == Diagnostic(
        f"`{pushing.scene.location}` does not accept the credentials",
        reasons=(Reason("it answered docker's login `ci`: authentication required"),),
        hint="log in, then run `bake push mpi-cpu`; the built image is reused",
    )


@under("tag taken by the same digest")
def test_an_immutable_tag_that_names_it_already_is_success(pushing: Pushing, image: BuiltImage) -> None:
    published = pushing(image)
    assert published.was_there
    assert pushing.lines == [f"mpi-cpu: already published as {short(published.digest)}"]


@under("tag taken by another")
def test_a_conflict_names_both_sides(
    pushing: Pushing, images: dict[str, BuiltImage], layouts: dict[str, Layout]
) -> None:
    other = layouts["other"].manifest.digest
    ledger = "released 2026-11-19, revision 3be01c4"
    pushing.publication = replace(
        pushing.publication, history=lambda name, digest: ledger if digest == other else ""
    )
    diagnostic = pushing.refused(images["same"], TagTakenError)
    assert diagnostic.message == f"tag `{TAG}` is taken by a different image"
    facts = dict(diagnostic.facts)
    assert re.fullmatch(r"20\d\d-\d\d-\d\d \d\d:\d\d", facts.pop("there, created"))
    assert facts == {
        "in repository": pushing.location,
        "there, manifest": other,
        "there, ledger": ledger,
        "there, revision": "3be01c4",
        "here, configuration": images["same"].digest,
        "here, revision": "8802d51",
        "to use it": f"{pushing.location}@{other}",
    }


@under("quota")
def test_a_quota_is_reported(pushing: Pushing, image: BuiltImage) -> None:
    diagnostic = pushing.refused(image)
    assert diagnostic.message == f"`{pushing.location}` is out of space (quota or disk)"
    assert diagnostic.hint == "free space or raise the quota, then run `bake push mpi-cpu`"


@pytest.mark.release
def test_a_quota_hit_by_the_manifest_is_reported_with_the_answer_of_the_registry(
    pushing: Pushing, image: BuiltImage
) -> None:
    message = "the repository may hold 10,000 images: limit exceeded"
    pushing.scene.proxy.fail("PUT", "/manifests/", 400, error_body("LIMIT_EXCEEDED", message))
    diagnostic = pushing.refused(image)
    assert diagnostic.message == f"`{pushing.location}` is out of space (quota or disk)"
    assert diagnostic.facts == (("registry", f"HTTP 400: {message}"),)


@under("registry's disk full")
def test_a_full_disk_at_the_registry_is_reported(pushing: Pushing, image: BuiltImage) -> None:
    diagnostic = pushing.refused(image)
    assert diagnostic.message == f"`{pushing.location}` is out of space (quota or disk)"


@under("repository missing")
def test_a_repository_that_is_not_there_is_named(pushing: Pushing, image: BuiltImage) -> None:
    diagnostic = pushing.refused(image)
    assert diagnostic.message == f"there is no repository `{REPOSITORY}` in `{pushing.scene.location}`"
    assert (
        "registry",
        "HTTP 404: The repository with that name does not exist in the registry",
    ) in diagnostic.facts
    assert diagnostic.hint == "create it, then run `bake push mpi-cpu`"


@under("name unknown to DNS")
def test_an_unknown_host_name(pushing: Pushing, image: BuiltImage) -> None:
    hint = "check the name; `getent hosts registry.invalid` looks it up"
    diagnostic = Diagnostic("cannot resolve `registry.invalid`", hint=hint)
    assert pushing.refused(image) == diagnostic


@under("TLS not trusted")
def test_an_untrusted_certificate(pushing: Pushing, image: BuiltImage) -> None:
    host = pushing.scene.location
    assert pushing.refused(image) == Diagnostic(
        f"`{host}` is not trusted",
        facts=(("because", "its certificate is not trusted: self-signed certificate"),),
        hint="set `ca` in [tool.bakehouse] to its CA certificate",
    )


def late(pushing: Pushing, image: BuiltImage, seconds: float = 2.0) -> None:
    """The push has to end; each of the awaited operations lasts a minute."""
    began = time.monotonic()
    pushing.publication = replace(pushing.publication, stall=60.0, until=began + seconds)
    diagnostic = pushing.refused(image)
    assert time.monotonic() - began < 30
    message = f"the push to `{pushing.location}` was stopped: the deadline passed"
    assert (diagnostic.message, diagnostic.hint) == (message, AGAIN)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        pytest.param("GET", "/tags/list", id="before", marks=pytest.mark.release),
        pytest.param(ENDING, UPLOADS, id="layers"),
        pytest.param("PUT", "/manifests/", id="manifest", marks=pytest.mark.release),
        pytest.param("HEAD", "/blobs/.*#after", id="after", marks=pytest.mark.release),
    ],
)
def test_nothing_hangs_past_the_deadline(pushing: Pushing, image: BuiltImage, method: str, path: str) -> None:
    path, _, after = path.partition("#")
    if after:
        # The engine asks for each layer too, before.
        pushing(image)
    pushing.publication = replace(pushing.publication, retry_policy=RetryPolicy(timeout=60.0))
    pushing.scene.proxy.stall(method, path)
    late(pushing, image)


@pytest.mark.release
def test_an_answer_that_comes_byte_by_byte_does_not_outlast_the_deadline(
    pushing: Pushing, image: BuiltImage
) -> None:
    def drip(request: Request, _: Forward) -> Reply:
        with contextlib.suppress(OSError):
            request.connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 60\r\n\r\n")
            for _second in range(60):
                request.connection.sendall(b" ")
                time.sleep(1)
        return LOST

    pushing.scene.proxy.do("GET", "/tags/list", drip)
    late(pushing, image)


def test_a_login_that_does_not_end_does_not_outlast_the_deadline(pushing: Pushing, image: BuiltImage) -> None:
    ended = threading.Event()

    def login(host: str) -> Credentials | None:
        ended.wait(60)
        return None

    pushing.registry = NamedRegistry(pushing.scene.location, login)
    late(pushing, image)
    ended.set()


def test_another_push_of_it_does_not_outlast_the_deadline(pushing: Pushing, image: BuiltImage) -> None:
    with exclusive(pushing.publication.locks / "push-mpi-cpu.lock"):
        late(pushing, image)
    assert pushing.lines == ["mpi-cpu: waiting for another push of it on this machine"]


@pytest.mark.release
def test_failures_before_the_deadline_are_reported(pushing: Pushing, image: BuiltImage) -> None:
    pushing.scene.proxy.fail("PUT", "/manifests/", 503, times=1)
    pushing.scene.proxy.stall("PUT", "/manifests/")
    pushing.publication = replace(pushing.publication, stall=60.0, until=time.monotonic() + 4.0)
    [(name, text)] = pushing.refused(image).facts
    assert name == "previous attempt"
    assert text.endswith("HTTP 503 Service Unavailable")


def test_a_concurrent_push_after_the_first_check_is_reported(
    pushing: Pushing, image: BuiltImage, layouts: dict[str, Layout]
) -> None:
    """This registry lets both push; the other is there by the time that the layers are asked for."""
    scene = pushing.scene

    def overtake(request: Request, forward: Forward) -> Reply:
        if scene.proxy.seen("PUT", "/manifests/"):
            layouts["other"].put(scene, REPOSITORY)
        return forward(request)

    scene.proxy.do("HEAD", "/blobs/", overtake)
    diagnostic = pushing.refused(image, TagTakenError)
    assert ("there, manifest", layouts["other"].manifest.digest) in diagnostic.facts


def test_a_layer_that_the_registry_lacks_is_named(pushing: Pushing, image: BuiltImage) -> None:
    manifest = pushing.manifest(image)
    lost = manifest.layers[1].digest
    pushing(image)
    pushing.scene.proxy.fail("HEAD", lost, 404)
    diagnostic = pushing.refused(image)
    assert diagnostic == Diagnostic(
        f"`{pushing.location}` accepted the push, but lacks 1 of 3 blobs",
        facts=(("digest", image.digest), ("blob 1", lost)),
        hint="run `bake push mpi-cpu` again to upload the missing blobs",
    )


def test_a_layer_that_the_registry_has_lost_is_sent_again(pushing: Pushing, image: BuiltImage) -> None:
    pushing(image)
    manifest = pushing.manifest(image)
    lost = manifest.layers[0].digest
    name = lost.removeprefix("sha256:")
    [blob] = pushing.publication.locks.parent.glob(f"data/**/{name}/data")
    blob.unlink()
    pushing.lines.clear()
    assert not pushing(image).was_there
    assert f"mpi-cpu: the registry has lost {short(lost)}: pushing again" in pushing.lines
    assert blob.exists()


@pytest.mark.release
def test_lost_layers_are_not_there_because_the_manifest_is(pushing: Pushing, image: BuiltImage) -> None:
    pushing(image)
    manifest = pushing.manifest(image)
    name = manifest.layers[0].digest.removeprefix("sha256:")
    [blob] = pushing.publication.locks.parent.glob(f"data/**/{name}/data")
    blob.unlink()
    pushing.scene.proxy.fail("POST", "/blobs/uploads/", 500, times=1)
    pushing.lines.clear()
    pushing(image)
    assert "mpi-cpu: the push failed, but the registry has the whole image" not in pushing.lines
    assert blob.exists()


@pytest.mark.parametrize("blow", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.release)])
def test_a_push_that_is_ended_can_be_repeated(
    pushing: Pushing, image: BuiltImage, blow: signal.Signals
) -> None:
    proxy, directory = pushing.scene.proxy, pushing.publication.locks.parent / "killed"
    proxy.stall(ENDING, UPLOADS)
    [*_, stall] = proxy.faults
    command = PushCommand(pushing.scene.location, image.digest, image.stored, directory).command()
    with started(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while not stall.seen and process.poll() is None:
            time.sleep(0.05)
        process.send_signal(blow)
    assert process.returncode == (130 if blow is signal.SIGINT else -blow)
    assert proxy.hung_up.wait(20)
    stall.times = 0
    subprocess.run(command, check=True, capture_output=True)
    assert lies_there(pushing, image)
