"""Layers that are built without their images, and the images that have all steps that are left."""

from collections.abc import Iterable
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from bakehouse.catalog.project import HOME
from bakehouse.fetch.required_files import RequiredFile
from bakehouse.maintain import single_layers
from bakehouse.maintain.rehearse import uncovered
from bakehouse.maintain.single_layers import SingleLayer
from bakehouse.plan.image_layer import ImageLayer
from bakehouse.plan.model import Image
from bakehouse.plan.workspace import open_workspace, select
from bakehouse.util.oci import Sha256
from tests.support import fake_engine

names = st.sampled_from([f"{number:032x}" for number in range(8)])


def planned(*images: str) -> tuple[Image, ...]:
    return select(open_workspace(HOME), images).plan.images


def found(images: Iterable[Image], *known: str, here: bool = False) -> tuple[SingleLayer, ...]:
    return single_layers.single_layers(images, {*known}, lambda file: here)


def test_a_layer_of_several_images_is_built_once_after_cheaper_ones() -> None:
    images = planned("mpi-cpu", "mpi5-cpu")
    layers = found(images)

    keys = [item.layer.key for item in layers]
    assert {*keys} == {layer.key for image in images for layer in image.layer_keys}
    assert len({*keys}) == len(keys)
    assert [item.cost for item in layers] == sorted(item.cost for item in layers)
    assert found(images, *keys[1:]) == layers[:1]


def test_a_layer_is_the_copy_of_its_stage_onto_nothing() -> None:
    [image] = planned("mpi-cpu")
    [item] = [item for item in found([image]) if item.name == "mpi-cpu:python"]

    assert item.dockerfile.endswith("\nFROM scratch AS single-layer\nCOPY --link --from=python /out/ /\n")
    assert " AS image\n" not in item.dockerfile


def test_what_is_not_pinned_or_only_on_a_web_site_is_not_built() -> None:
    [fabric, pinned] = planned("fabric-cpu", "mpi-cpu")
    layers = found([fabric])
    loose = tuple(replace(layer, is_pinned=False) for layer in pinned.layer_keys)

    libraries = {"fabric-cpu:libfabric", "fabric-cpu:hwloc"}
    assert not libraries & {item.name for item in layers}
    assert libraries <= {item.name for item in found([fabric], here=True)}
    assert found([replace(pinned, layer_keys=loose)]) == ()
    assert found(planned("pytorch-2.10-cu128-py312-efa")) == ()


def test_a_group_is_small_unless_a_layer_alone_is_large() -> None:
    [image] = planned("mpi-cpu")
    first, *_ = found([image])
    sizes = [30, 30, 50, 200, 10, 10, 10]
    layers = [
        replace(first, files=frozenset({RequiredFile("wheel", str(number), Sha256("0"), size, "")}))
        for number, size in enumerate(sizes)
    ]
    groups = single_layers.groups(layers, 2, 100)

    assert [[sizes[layers.index(item)] for item in group] for group in groups] == (
        [[30, 30], [50], [200], [10, 10], [10]]
    )


def test_what_is_compiled_does_not_wait_with_what_is_downloaded() -> None:
    [image] = planned("mpi-cpu")
    wheels, *_, compiled = [
        [item.layer.stages[0] for item in group]
        for group in single_layers.groups(found([image]), 8, 1_000_000_000)
    ]

    assert {"mpi4py", "open-mpi"} <= {*wheels}
    assert compiled == ["sagemaker-training"]


@given(st.lists(st.frozensets(names, max_size=4), max_size=6), st.frozensets(names, max_size=3))
def test_the_rehearsed_images_have_all_steps_that_are_left(
    layers: list[frozenset[str]], known: frozenset[str]
) -> None:
    images = [
        replace(
            fake_engine.image(f"image-{number}"),
            layer_keys=tuple(map(ImageLayer, sorted(keys))) or (ImageLayer("f" * 32),),
        )
        for number, keys in enumerate(layers)
    ]
    left = {layer.key for image in images for layer in image.layer_keys} - known
    chosen = uncovered(images, {*known})

    for image in chosen:
        keys = {layer.key for layer in image.layer_keys}
        assert keys & left
        left -= keys
    assert not left
