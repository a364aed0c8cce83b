"""Pushes by an engine of a few lines to a registry in memory."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

import pytest

from bakehouse.errors import TagTakenError
from bakehouse.publish.diagnostics import PushDiagnostics
from bakehouse.publish.push import PushOptions, publish
from bakehouse.publish.tags import PublishedImage, ReleaseTags, immutable_tag
from bakehouse.publish.target import ReleaseTarget
from bakehouse.registry.client import Repository, RetryPolicy
from bakehouse.registry.manifest import DOCKER_MANIFEST, Manifest, digest_of, parse
from bakehouse.registry.registry import Credentials, NamedRegistry
from bakehouse.registry.transfer import StallPolicy
from bakehouse.util.deadline import OverdueError
from bakehouse.util.oci import Digest
from bakehouse.util.terminal import Reporter
from tests.publish.test_publish import CONFIG, DIGEST, MANIFEST, holding
from tests.publish.test_push import BUILT, PASSED
from tests.registry.test_referrers import FakeRegistry
from tests.support.proxy import Proxy, Reply

DAY = date(2026, 11, 20)
IMAGE = replace(BUILT.image, name="image")
TAG = immutable_tag("image", DAY, IMAGE.key)
ECR = "123456789012.dkr.ecr.eu-west-1.amazonaws.com"
OTHERS = MANIFEST.replace(b'"schemaVersion": 2', b'"schemaVersion":  2')
NAMED = f"/manifests/{TAG}$"


@dataclass
class Engine:
    """An engine that pushes the image, then calls a function."""

    shelf: FakeRegistry
    then: Callable[[], object] = lambda: None

    def manifest(self, image: Digest) -> Manifest | None:
        return None

    def push(
        self,
        image: Digest,
        reference: str,
        credentials: Credentials | None,
        watch: StallPolicy,
        progress: Reporter,
    ) -> Digest:
        holding(self.shelf)
        self.shelf.manifests[reference.rpartition(":")[2]] = (DOCKER_MANIFEST, MANIFEST)
        self.then()
        return DIGEST


@pytest.fixture
def fake_registry() -> FakeRegistry:
    return FakeRegistry()


@pytest.fixture
def proxy(fake_registry: FakeRegistry) -> Iterator[Proxy]:
    with Proxy(1).running() as running:
        running.answers.append(fake_registry.answer)
        yield running


def push(
    directory: Path, engine: Engine, registry: NamedRegistry, known_as: Digest = DIGEST
) -> PublishedImage:
    retry_policy = RetryPolicy(attempts=3, pause=0.01, timeout=5)
    publication = PushOptions(DAY, directory, prefix="team", settle=0.0, retry_policy=retry_policy)
    built = replace(BUILT, digest=known_as, image=IMAGE)
    return publish(built, replace(PASSED, digest=known_as), registry, engine, publication, print)


def test_an_engine_that_makes_its_manifest_as_it_pushes_is_believed_by_the_configuration(
    tmp_path: Path, fake_registry: FakeRegistry, proxy: Proxy
) -> None:
    """Also where the registry does not answer at once."""
    busy = Engine(fake_registry, lambda: proxy.fail("GET", NAMED, 503, times=2))
    published = push(tmp_path, busy, NamedRegistry(proxy.host, lambda _: None), digest_of(CONFIG))
    assert (published.digest, published.config) == (DIGEST, digest_of(CONFIG))


def test_overwriting_a_tag_after_a_push_to_ecr_is_reported(
    tmp_path: Path, fake_registry: FakeRegistry, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Repositories that Bakehouse has not made may have tags that can be overwritten."""
    exchange = Repository._exchange

    def relayed(self: Repository, method: str, url: str, *arguments: object) -> object:
        address = url.replace(f"https://{ECR}/", f"http://{proxy.host}/")
        return exchange(self, method, address, *arguments)  # type: ignore[arg-type]

    def overwritten() -> None:
        kind = {"Content-Type": DOCKER_MANIFEST}
        proxy.do("GET", NAMED, lambda _, __: Reply(200, kind, MANIFEST), times=1)
        proxy.do("GET", NAMED, lambda _, __: Reply(200, kind, OTHERS))

    monkeypatch.setattr(Repository, "_exchange", relayed)
    with pytest.raises(TagTakenError) as caught:
        push(tmp_path, Engine(fake_registry, overwritten), NamedRegistry(ECR, lambda _: None))
    assert ("there", digest_of(OTHERS)) in caught.value.diagnostics[0].facts


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
