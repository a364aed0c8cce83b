"""A candidate in several registries, and the registries."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bakehouse.ledger.releases import ReleasedRegion, ReleaseRecord
from tests.support.fake_registry import DIGEST, FakeRegistry, holding
from tests.support.proxy import Proxy
from tests.support.release_records import a_record


def candidate(*proxies: Proxy) -> ReleaseRecord:
    at = [f"{proxy.host}/team/image@{DIGEST}" for proxy in proxies]
    return replace(
        a_record(),
        digest=DIGEST,
        registry=proxies[0].host,
        repository="team/image",
        image_uri=at[0],
        tags=("mpi-cpu-candidate",),
        candidate=True,
        regions=tuple(ReleasedRegion("", uri, "mpi-cpu-candidate") for uri in at),
    )


@pytest.fixture
def fake_registries() -> tuple[FakeRegistry, FakeRegistry]:
    both = FakeRegistry(), FakeRegistry()
    for shelf in both:
        holding(shelf)
    return both


@pytest.fixture
def proxies(
    fake_registries: tuple[FakeRegistry, FakeRegistry], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Proxy, Proxy]]:
    """Two registries, both of which have the candidate."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    with Proxy(1).running() as first, Proxy(1).running() as second:
        first.answers.append(fake_registries[0].answer)
        second.answers.append(fake_registries[1].answer)
        yield first, second
