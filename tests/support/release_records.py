"""The record of a release."""

from dataclasses import replace
from datetime import date

from bakehouse.ledger.releases import ReleaseRecord
from bakehouse.plan.model import InstalledComponent
from bakehouse.publish.record import record_of
from bakehouse.publish.tags import PublishedImage
from tests.support import plans
from tests.support.built_images import DIGEST, IMAGE, PASSED

DAY = date(2026, 11, 20)
PUBLISHED = PublishedImage(
    image="mpi-cpu",
    registry="127.0.0.1:5050",
    repository="bakehouse/mpi-cpu",
    tags=("mpi-cpu-20261120-7c1e44b0",),
    digest=DIGEST,
    media_type="application/vnd.docker.distribution.manifest.v2+json",
    bytes=595_000_000,
)


def a_record() -> ReleaseRecord:
    image = plans.changed(IMAGE, all_parts=(InstalledComponent("open-mpi", "4.1.8", "py311"),))
    return replace(record_of(PUBLISHED, image, PASSED, DAY), transport="mpi")
