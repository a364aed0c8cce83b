"""The layers of wheels: a function of the lock, in which one change rewrites one layer."""

import random
from dataclasses import replace
from pathlib import Path

from bakehouse.catalog.python_lock import Package
from bakehouse.errors import Location
from bakehouse.plan.wheel_layers import LARGE_BYTES, wheel_layers


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
        layers = wheel_layers(packages)
        assert sorted(item.name for group in layers.values() for item in group) == sorted(
            item.name for item in packages
        )
        assert wheel_layers([*reversed(packages)]) == layers
        assert 2 * len(layers) <= 60


def test_a_large_wheel_has_a_layer_of_its_own() -> None:
    layers = wheel_layers([package("Big_One", LARGE_BYTES), package("small", LARGE_BYTES - 1)])
    assert [*layers] == ["big-one", "small_1"] or [*layers] == ["big-one", "small_2"]


def test_one_change_rewrites_one_layer() -> None:
    for packages in locks():
        before = wheel_layers(packages)
        for old in packages[:5]:
            new = package(old.name, old.bytes, "2")
            after = wheel_layers([new if item is old else item for item in packages])
            changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
            assert len(changed) == 1


def test_source_distributions_have_a_layer_of_their_own() -> None:
    sdist = replace(package("built", LARGE_BYTES), file="built-1.tar.gz")
    layers = wheel_layers([package("big", LARGE_BYTES), sdist, package("small", 1)])
    assert [*layers] == ["from_sdists", "big", "small_1"]
    assert layers["from_sdists"] == (sdist,)
