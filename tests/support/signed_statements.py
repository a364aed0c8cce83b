"""Signed statements about an image in a registry."""

from bakehouse.fetch.retry import RetryPolicy
from bakehouse.registry.referrers import ArtifactRepository
from bakehouse.registry.registry import NamedRegistry
from bakehouse.trust import bundle
from tests.support.fake_registry import DIGEST
from tests.support.proxy import Proxy
from tests.support.signing_keys import KeyFiles


def repository(proxy: Proxy) -> ArtifactRepository:
    registry = NamedRegistry(proxy.host, lambda _: None)
    return ArtifactRepository(registry, "team/image", RetryPolicy(attempts=2, pause=0.01, timeout=5))


def signed(proxy: Proxy, key: KeyFiles) -> list[str]:
    """The types of the statements that a key signed."""
    contents = repository(proxy).contents(DIGEST, bundle.MEDIA_TYPE).values()
    return [
        bundle.verify(content, DIGEST, ["mpi-cpu"], [key.public_key]).predicate_type for content in contents
    ]
