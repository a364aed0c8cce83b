"""A ledger in S3, which a team shares."""

from dataclasses import replace
from typing import Any

from bakehouse.ledger.releases import ReleaseRecord
from bakehouse.ledger.s3_ledger import S3Ledger
from tests.support.release_records import a_record

BUCKET, REGION = "our-bucket", "eu-west-1"
ADDRESS = f"s3://{BUCKET}/team/releases"


def numbered(number: int, **changed: Any) -> ReleaseRecord:
    digest = f"sha256:{number:064x}"
    record = replace(a_record(), digest=digest, **changed)
    return replace(record, image_uri=f"{record.registry}/{record.repository}@{digest}")


def team() -> S3Ledger:
    return S3Ledger(ADDRESS, REGION)
