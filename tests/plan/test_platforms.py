"""Bases, bake files and Dockerfiles of images for another platform."""

import json

import pytest

from bakehouse.plan import dockerfile as rendering
from bakehouse.plan.model import BootstrappedBase
from tests.support.trees import COMPONENTS, TEMPLATE, Tree, templates

BOTH = "platforms: [linux/amd64, linux/arm64]\n"


@pytest.fixture
def arm_tree(tree: Tree) -> Tree:
    tree.component("debian", COMPONENTS["debian"].replace("releases:\n", f"{BOTH}releases:\n", 1))
    python = COMPONENTS["python"].replace("releases:\n", f"{BOTH}releases:\n", 1)
    tree.component("python", python, TEMPLATE.format(name="python"))
    tree.image(f'summary: A small image\nbase: debian\n{BOTH}components: {{python: "3.11"}}\n')
    return tree


def rendered(tree: Tree, name: str) -> dict[str, str]:
    files = rendering.render(tree.plan(name), templates())
    return {file.path: file.content.decode() for file in files}


def test_a_platform_has_a_base_of_its_own(arm_tree: Tree) -> None:
    bases = [arm_tree.plan(name).images[0].base for name in ("small", "small-arm64")]

    references = [base.reference.rpartition("-")[0] for base in bases]
    assert references == ["bakehouse/debian:12", "bakehouse/debian:12-arm64"]
    assert [base.platform for base in bases if isinstance(base, BootstrappedBase)] == [
        "linux/amd64",
        "linux/arm64",
    ]
    assert bases[0].reference.rpartition("-")[2] != bases[1].reference.rpartition("-")[2]


def test_images_of_two_platforms_share_no_stage(arm_tree: Tree) -> None:
    [first], [second] = (arm_tree.plan(name).images for name in ("small", "small-arm64"))
    assert not {stage.key for stage in first.stages} & {stage.key for stage in second.stages}


def test_the_bake_file_names_the_platform(arm_tree: Tree) -> None:
    text = rendered(arm_tree, "small-arm64")["small-arm64/docker-bake.json"]
    assert json.loads(text)["target"]["small-arm64"]["platforms"] == ["linux/arm64"]


def test_the_dockerfile_says_how_to_build_it_for_its_platform(arm_tree: Tree) -> None:
    text = rendered(arm_tree, "small-arm64")["small-arm64/Dockerfile"]

    assert "#   bake build debian-12-arm64 " in text
    assert "#   docker build --platform linux/arm64 --build-arg SOURCE_DATE_EPOCH=" in text
    assert "--platform" not in rendered(arm_tree, "small")["small/Dockerfile"]
