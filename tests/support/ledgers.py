"""Ledgers of images in several registries."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from bakehouse.ledger.releases import ReleasedName, ReleaseRecord, append
from tests.support.release_records import a_record

LOCAL, ECR = "127.0.0.1:5050", "123456789012.dkr.ecr.eu-west-1.amazonaws.com"
US = "123456789012.dkr.ecr.us-east-1.amazonaws.com"


def release(directory: Path, image: str = "mpi-cpu", registry: str = LOCAL, **changed: Any) -> ReleaseRecord:
    """Put a release into an image's ledger."""
    number = sum(1 for path in directory.glob("*/releases.json") for _ in path.read_text().split('"digest"'))
    digest = f"sha256:{number:064x}"
    uri = f"{registry}/bakehouse/{image}@{digest}"
    draft = replace(a_record(), image=image, digest=digest, registry=registry, image_uri=uri, **changed)
    record = replace(draft, repository=f"bakehouse/{image}")
    append(directory / image / "releases.json", record, directory / "locks")
    return record


def names(**versions: str) -> tuple[ReleasedName, ...]:
    return tuple(ReleasedName(name, version) for name, version in versions.items())


CPU: dict[str, Any] = {"provides": names(pytorch="2.9.1", python="3.11"), "gpu": False}
