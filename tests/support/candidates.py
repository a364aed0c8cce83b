"""The record of a candidate in several registries."""

from dataclasses import replace

from bakehouse.ledger.releases import ReleasedRegion, ReleaseRecord
from tests.support.fake_registry import DIGEST
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
