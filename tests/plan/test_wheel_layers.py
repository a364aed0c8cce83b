"""The layers of wheels: a function of the lock, in which one change rewrites one layer."""

import random
from dataclasses import replace
from pathlib import Path

from bakehouse.catalog.project import HOME
from bakehouse.catalog.python_lock import Package
from bakehouse.errors import Location
from bakehouse.plan import image_keys
from bakehouse.plan.wheel_layers import LARGE_BYTES, wheel_layers
from tests.support.trees import Tree


def package(name: str, size: int, version: str = "1") -> Package:
    return Package(name, version, "a" * 64, f"{name}.whl", size, Location(Path("lock"), 1, 1))


def locks() -> list[list[Package]]:
    choose = random.Random(3)
    return [
        [
            package(f"Pkg.{number}", int(10 ** choose.uniform(3, 8.5)))
            for number in range(choose.randint(0, 90))
        ]
        for _ in range(60)
    ]


def test_each_package_is_in_one_layer_and_their_order_does_not_matter() -> None:
    for packages in locks():
        layers = wheel_layers("own", packages)
        assert sorted(item.name for group in layers.values() for item in group) == sorted(
            item.name for item in packages
        )
        assert wheel_layers("own", [*reversed(packages)]) == layers
        assert 2 * len(layers) <= 60


def test_a_large_wheel_has_a_layer_of_its_own() -> None:
    layers = wheel_layers("own", [package("Big_One", LARGE_BYTES), package("small", LARGE_BYTES - 1)])
    assert [*layers] == ["own~big-one", "own~small_1"] or [*layers] == ["own~big-one", "own~small_2"]


def test_one_change_rewrites_one_layer() -> None:
    for packages in locks():
        before = wheel_layers("own", packages)
        for old in packages[:5]:
            new = package(old.name, old.bytes, "2")
            after = wheel_layers("own", [new if item is old else item for item in packages])
            changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
            assert len(changed) == 1


def test_source_distributions_have_a_layer_of_their_own() -> None:
    sdist = replace(package("built", LARGE_BYTES), file="built-1.tar.gz")
    layers = wheel_layers("own", [package("big", LARGE_BYTES), sdist, package("small", 1)])
    assert [*layers] == ["own~from_sdists", "own~big", "own~small_1"]
    assert layers["own~from_sdists"] == (sdist,)


def test_small_wheels_and_byte_code_of_a_component_are_a_layer_each() -> None:
    """The wheel of PyTorch comes from a URL, and has a layer of its own."""
    image = Tree(HOME / "recipes").plan("pytorch-cpu").images[0]
    stages = {stage.name: stage for stage in image.stages}

    copied = " ".join(stages["pytorch"].copied)
    assert copied == "files/pytorch~torch/ files/pytorch~small_1/ byte-code/pytorch~modules/"
    listed = stages["pytorch"].inputs[stages["pytorch"].requirements]
    assert listed.startswith(b"# layer pytorch~torch pytorch~modules\n# wheel torch\n")


def test_no_image_has_more_than_60_layers_above_its_base() -> None:
    counts = {name: len(keys.layers) for name, keys in image_keys.read(HOME / "images").items() if keys}
    assert {name: count for name, count in counts.items() if count > 60} == {}
