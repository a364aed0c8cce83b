"""Which images can be written without a build: those whose other layers are known to be the same."""

from dataclasses import replace

import pytest

from bakehouse.evidence.step_layers import StepLayer, by_key
from bakehouse.pipeline.compose import ChangedLayers, changed_layers
from bakehouse.plan.dockerfile import layer_owners
from bakehouse.plan.image_layer import ImageLayer
from bakehouse.plan.model import Image
from tests.support.stored_images import digest, stored
from tests.support.trees import IMAGE, Tree, templates

LAST = digest(99)
KINDS = ("files", "byte-code")
STEPS = {
    **{"debian": 1, "COPY /out/ / # python": 2, "COPY /out/ / # torch": 3, "COPY /out/ / # toolkit": 4},
    **{
        "COPY /out/files/requirements~small_1/ / # buildkit": 5,
        "COPY /out/byte-code/requirements~small_1/ / # buildkit": 6,
    },
}


@pytest.fixture
def image(tree: Tree) -> Image:
    """An image with three components and a wheel, all of whose layers are pinned."""
    tree.write("images/own.lock", f"mine==1 --hash=sha256:{'a' * 64}  # mine-1-py3-none-any.whl 5\n")
    tree.image(f"{IMAGE}requirements: own.lock\n")
    planned = tree.planned_image()
    return replace(planned, layer_keys=tuple(replace(key, is_pinned=True) for key in planned.layer_keys))


def changed(image: Image, *known: tuple[int, ...], steps: dict[str, int] = STEPS) -> ChangedLayers | None:
    """Return the change if the map has these layers of the steps above the base."""
    rows = [
        StepLayer(key.key, image.platform, digest(number))
        for key, numbers in zip(image.layer_keys, known, strict=False)
        for number in numbers
    ]
    return changed_layers(image, LAST, stored(steps), layer_owners(image, templates()), by_key(rows))


def test_only_wheels_are_written_if_the_map_has_all_other_layers(image: Image) -> None:
    change = changed(image, (2,), (3,), (4,))
    assert change
    assert change.stage is image.stages[-1]
    assert [layer.digest for layer in (*change.base, *change.others)] == [digest(n) for n in (1, 2, 3, 4)]
    assert [*change.wheels] == ["files/requirements~small_1", "byte-code/requirements~small_1"]


def test_known_wheels_are_not_opened(image: Image) -> None:
    change = changed(image, (2,), (3,), (4,), (5,), (6,))
    assert change
    assert change.stage is None


def test_an_unknown_or_different_layer_needs_a_build(image: Image) -> None:
    assert changed(image, (2,), (3,)) is None
    assert changed(image, (2,), (3,), (7,)) is None
    # A step with two results is not reproducible
    assert changed(image, (2,), (3, 8), (4,)) is None
    assert changed(image, (2,), (3,), (4,), steps={**STEPS, "COPY /out/ / # more": 7}) is None


def test_a_step_that_nothing_pins_needs_a_build(image: Image) -> None:
    keys = (replace(image.layer_keys[0], is_pinned=False), *image.layer_keys[1:])
    assert changed(replace(image, layer_keys=keys), (2,), (3,), (4,)) is None


def test_the_first_wheels_need_a_build(image: Image) -> None:
    without = {step: number for step, number in STEPS.items() if "~small_1/" not in step}
    assert changed(image, (2,), (3,), (4,), steps=without) is None


def test_a_layer_that_no_key_covers_must_be_training_code(image: Image) -> None:
    keys = (ImageLayer(""), *image.layer_keys[1:])
    assert changed(replace(image, layer_keys=keys), (2,), (3,), (4,)) is None
