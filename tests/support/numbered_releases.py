"""Releases of one image, one after another."""

from dataclasses import replace
from typing import Any

from bakehouse.ledger.releases import ReleaseRecord
from tests.support.release_records import a_record


def release(number: int, **values: Any) -> ReleaseRecord:
    """Return a release with its own digest and build key."""
    digest = f"sha256:{number:064x}"
    record = replace(a_record(), digest=digest, key=f"{number:064x}", tags=(f"tag-{number}",))
    return replace(record, image_uri=f"{record.registry}/{record.repository}@{digest}", **values)


LINE = tuple(release(number << 240) for number in range(1, 10))
