"""Shared layers of images, and size differences between images."""

from dataclasses import replace

from bakehouse.analysis.fleet_sizes import fleet_size, size_difference
from bakehouse.cli.size_report import since_release
from tests.support.fleet_sizes import BASE, LARGE, OTHER, RECORD, SMALL, image, layer


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
