"""Shared layers of images, and size differences between images."""

from dataclasses import replace

from bakehouse.analysis.fleet_sizes import fleet_size, size_difference
from bakehouse.analysis.sizes import ImageSize, LayerSize, parts_of
from bakehouse.cli.size_report import since_release
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
        *(name, DIGEST, CONFIG, stored, unpacked, parts_of(layers), layers), (), (), (), (), (), 0
    )  # fmt: skip


BASE, TORCH = layer("debian", "sha256:base", 60), layer("torch", "sha256:torch", 200)
SMALL = image("small", BASE, layer("mpi", "sha256:mpi", 5))
LARGE = image("large", BASE, TORCH)
OTHER = image("other", BASE, TORCH, layer("dali", "sha256:dali", 10))


def test_a_layer_of_several_images_is_stored_once() -> None:
    fleet = fleet_size([SMALL, LARGE, OTHER])

    assert (fleet.all_stored, fleet.once_stored) == (65 + 260 + 270, 60 + 5 + 200 + 10)
    assert (fleet.all_unpacked, fleet.once_unpacked) == (3 * 595, 3 * 275)
    assert [(layer.layer.owner, layer.images) for layer in fleet.layers] == [
        ("torch", ("large", "other")),
        ("debian", ("small", "large", "other")),
        ("dali", ("other",)),
        ("mpi", ("small",)),
    ]


def test_a_layer_that_an_image_has_twice_is_stored_once_as_well() -> None:
    empty = layer("drivers", "sha256:empty", 1)

    assert fleet_size([image("small", empty, empty)]).all_stored == 1


def test_images_are_compared_component_by_component() -> None:
    newer = image("newer", BASE, layer("torch", "sha256:newer", 240), layer("dali", "sha256:dali", 10))

    difference = size_difference(LARGE, newer)

    assert [(part.name, part.stored, part.unpacked) for part in difference.parts] == [
        ("torch", 40, 120),
        ("dali", 10, 30),
    ]
    assert (difference.stored, difference.unpacked) == (50, 150)
    assert (difference.shared_layers, difference.shared_stored) == (1, 60)


def test_a_release_is_compared_by_its_bytes_and_versions() -> None:
    difference = since_release(LARGE, [("torch", "2.9.0"), ("debian", "12")], RECORD)

    assert (difference.before, difference.after, difference.is_same) == (150, 260, True)
    assert difference.parts == (("torch", "2.8.0", "2.9.0"), ("sshd", "9.2", ""), ("debian", "", "12"))
    other = replace(LARGE, config="sha256:other")
    assert not since_release(other, [], RECORD).is_same
