"""A team that signs statements about an image in a registry."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from bakehouse.catalog.trust_settings import Policy
from bakehouse.errors import Diagnostic, TrustError
from bakehouse.fetch.retry import RetryPolicy
from bakehouse.registry.referrers import ArtifactRepository, AttachedDocument
from bakehouse.registry.registry import NamedRegistry
from bakehouse.trust import bundle, policy
from bakehouse.trust.bundle import Statement
from tests.support.fake_registry import DIGEST, FakeRegistry, holding
from tests.support.proxy import Proxy
from tests.support.release_records import a_record
from tests.support.signing_keys import KeyFiles, make_key

NOW = datetime.now(UTC).replace(microsecond=0)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, KeyFiles]:
    directory = tmp_path_factory.mktemp("keys")
    return {name: make_key(directory, name) for name in ("builder", "tester", "stranger")}


@contextlib.contextmanager
def image_in_registry() -> Iterator[Proxy]:
    shelf = FakeRegistry()
    holding(shelf)
    with Proxy(1).running() as running:
        running.answers.append(shelf.answer)
        yield running


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with image_in_registry() as running:
        yield running


class Team:
    """An image in a registry, keys that sign statements about it, and a policy that trusts two of them."""

    def __init__(self, proxy: Proxy, keys: dict[str, KeyFiles]) -> None:
        self.proxy, self.keys = proxy, keys
        self.registry = NamedRegistry(proxy.host, lambda _: None)
        self.retry_policy = RetryPolicy(attempts=2, pause=0.01, timeout=5)
        self.policy = Policy((keys["builder"].public, keys["tester"].public))
        uri = f"{proxy.host}/team/image@{DIGEST}"
        self.record = replace(
            a_record(), digest=DIGEST, registry=proxy.host, repository="team/image", image_uri=uri
        )

    @property
    def builder(self) -> str:
        return self.keys["builder"].public_key.name

    def sign(self, key: str, *statements: Statement) -> None:
        signer = self.keys[key].signer
        self.attach(*(bundle.sign(each.content, signer) for each in statements))

    def attach(self, *contents: bytes) -> None:
        remote = ArtifactRepository(self.registry, "team/image", self.retry_policy)
        subject = remote.manifest(DIGEST)
        assert subject
        remote.attach(
            subject, [AttachedDocument(bundle.MEDIA_TYPE, content, "bundle.json") for content in contents]
        )

    def check(self, *require: str, rebuilds: int = 0, max_age: timedelta | None = None) -> None:
        required = replace(self.policy, require=require, rebuilds=rebuilds)
        policy.check_image(required, self.record, self.registry, self.retry_policy, max_age)

    def refusal(self, *require: str, rebuilds: int = 0, max_age: timedelta | None = None) -> Diagnostic:
        with pytest.raises(TrustError) as caught:
            self.check(*require, rebuilds=rebuilds, max_age=max_age)
        [diagnostic] = caught.value.diagnostics
        return diagnostic

    def reasons(self, *require: str, rebuilds: int = 0, max_age: timedelta | None = None) -> list[str]:
        return [reason.text for reason in self.refusal(*require, rebuilds=rebuilds, max_age=max_age).reasons]


@pytest.fixture
def team(proxy: Proxy, keys: dict[str, KeyFiles]) -> Team:
    return Team(proxy, keys)
