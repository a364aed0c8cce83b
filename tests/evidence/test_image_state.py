"""The states of images follow from the records of their layers."""

from dataclasses import replace

import pytest

from bakehouse.evidence.image_state import ImageState, Level, state_of
from bakehouse.evidence.step_layers import by_key
from bakehouse.plan.image_layer import ImageLayer
from bakehouse.plan.model import Image, ImageKey
from tests.support import fake_engine
from tests.support.known_layers import made

IMAGE = replace(
    fake_engine.image("small"), layer_keys=tuple(ImageLayer(f"{number:032x}") for number in range(3))
)


def state(*runs: frozenset[object], image: Image = IMAGE) -> ImageState:
    return state_of(image, by_key(frozenset().union(*runs)))  # type: ignore[arg-type]


def part(image: Image, count: int, *stubs: str) -> frozenset[object]:
    return frozenset(made(replace(image, layer_keys=image.layer_keys[:count]), *stubs))


def test_an_image_is_built_once_all_its_layers_are_known() -> None:
    assert (state(made(IMAGE)).text, state(made(IMAGE)).level) == ("built", Level.BUILT)
    assert state(part(IMAGE, 2)).text == "rendered; 2 of 3 layers known"
    assert state().text == "rendered"


def test_layers_of_other_images_count() -> None:
    other = replace(IMAGE, recipe_key=ImageKey("1" * 64), layer_keys=IMAGE.layer_keys[::-1])

    assert state(made(other)).level is Level.BUILT


def test_an_image_is_rehearsed_if_the_other_layers_ran_with_stubs() -> None:
    rehearsed = state(part(IMAGE, 1), made(IMAGE, "efa", "nccl"))

    assert (rehearsed.text, rehearsed.stubs) == ("rehearsed; 1 of 3 layers known", ("efa", "nccl"))


def test_another_platform_does_not_count() -> None:
    assert state(made(replace(IMAGE, platform="linux/arm64"))).text == "rendered"


def test_an_edited_step_voids_its_layer_and_those_above() -> None:
    edited = replace(IMAGE, layer_keys=(IMAGE.layer_keys[0], ImageLayer("e" * 32), ImageLayer("f" * 32)))

    assert state(made(IMAGE), image=edited).text == "rendered; 1 of 3 layers known"


def test_what_is_not_pinned_is_never_built() -> None:
    open_layer = replace(IMAGE.layer_keys[1], is_pinned=False)
    image = replace(IMAGE, layer_keys=(IMAGE.layer_keys[0], open_layer, IMAGE.layer_keys[2]))

    assert state(made(IMAGE), image=image).text == "rehearsed; 2 of 3 layers known; not pinned"


@pytest.mark.parametrize("image", [IMAGE, replace(IMAGE, layer_keys=())])
def test_two_results_are_named(image: Image) -> None:
    found = state(made(image), made(image, run="2"), image=image)

    assert (found.level, found.text) == (Level.BUILT, "built; not reproducible")


def test_training_code_is_not_covered_and_an_image_of_nothing_else_is_its_content() -> None:
    code = replace(IMAGE, layer_keys=(ImageLayer(""),))

    assert state(image=code).text == "rendered"
    assert state(made(code), image=code).text == "built"
