"""Shared layers of images, and size differences between images."""

from bakehouse.analysis.fleet_sizes import fleet_size
from tests.support.fleet_sizes import LARGE, OTHER, SMALL, image, layer


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
