"""Sizes of images that share layers, and a release of one of them."""

from bakehouse.analysis.sizes import ImageSize, LayerSize, parts_of
from bakehouse.ledger.releases import ReleasedComponent, ReleaseRecord

DIGEST = "sha256:" + "4f" * 32
CONFIG = "sha256:" + "c0" * 32
RECORD = ReleaseRecord(
    image="small",
    key="7c1e44b0",
    digest=DIGEST,
    config=CONFIG,
    registry="127.0.0.1:5050",
    repository="bakehouse/small",
    tags=("small-1",),
    image_uri=f"127.0.0.1:5050/bakehouse/small@{DIGEST}",
    date="2026-11-20",
    tested=True,
    transport="gloo",
    checks=(),
    parts=(ReleasedComponent("torch", "2.8.0", "cpu"), ReleasedComponent("sshd", "9.2", "")),
    gpu=False,
    launchers=(),
    training_module="",
    entry_point="",
    media_type="m",
    bytes=150,
)


def layer(owner: str, digest: str, stored: int) -> LayerSize:
    return LayerSize(owner, digest, stored, 3 * stored, 1, "COPY")


def image(name: str, *layers: LayerSize) -> ImageSize:
    stored, unpacked = (
        sum(numbers)
        for numbers in zip(*((numbers.stored, numbers.unpacked) for numbers in layers), strict=True)
    )
    return ImageSize(
        *(name, DIGEST, CONFIG, stored, unpacked, parts_of(layers), layers), (), ()
    )  # fmt: skip


BASE, TORCH = layer("debian", "sha256:base", 60), layer("torch", "sha256:torch", 200)
SMALL = image("small", BASE, layer("mpi", "sha256:mpi", 5))
LARGE = image("large", BASE, TORCH)
OTHER = image("other", BASE, TORCH, layer("dali", "sha256:dali", 10))
