"""Builds for the platform of an image, and releases without one."""

import pytest

from tests.support.trees import COMPONENTS, Tree

BOTH = "platforms: [linux/amd64, linux/arm64]\n"
HEAD = f'summary: A small image\nbase: {{debian: "12"}}\n{BOTH}'


@pytest.fixture
def arm_tree(tree: Tree) -> Tree:
    for name in ("debian", "python"):
        tree.component(name, COMPONENTS[name].replace("releases:\n", f"{BOTH}releases:\n", 1))
    return tree


def test_each_image_has_the_builds_for_its_platform(arm_tree: Tree) -> None:
    arm_tree.image(f'{HEAD}components: {{python: "3.11"}}\n')

    assert arm_tree.chosen("small") == {"debian": "12", "python": "3.11"}
    assert arm_tree.chosen("small-arm64") == {"debian": "12 (arm64)", "python": "3.11 (arm64)"}


def test_the_newest_release_with_a_build_is_chosen(arm_tree: Tree) -> None:
    old = '  - version: "2.8.0"\n'
    torch = COMPONENTS["torch"].replace(old, f"{old}    {BOTH}")
    arm_tree.component("torch", torch)
    arm_tree.image(f'{HEAD}components: {{python: "3.11", torch: "*"}}\n')

    assert arm_tree.chosen("small")["torch"] == "2.9.0 (cpu-py311)"
    assert arm_tree.chosen("small-arm64")["torch"] == "2.8.0 (arm64)"


def test_the_reason_against_a_newer_release_is_its_platform(arm_tree: Tree) -> None:
    old = '  - version: "2.8.0"\n'
    arm_tree.component("torch", COMPONENTS["torch"].replace(old, f"{old}    {BOTH}"))
    arm_tree.image(f'{HEAD}components: {{python: "3.11", torch: "*"}}\n')

    [torch] = [choice for choice in arm_tree.resolve("small-arm64").choices if choice.name == "torch"]

    assert [refusal.platform for refusal in torch.skipped] == ["linux/arm64", "linux/arm64"]


def test_a_component_without_a_build_is_explained(arm_tree: Tree) -> None:
    arm_tree.image(f'{HEAD}components: {{python: "3.11", torch: "2.9.0"}}\n')

    expected = """\
error: no versions satisfy image `small-arm64` on linux/arm64
  --> images/small.yaml:4:37
   |
 4 | components: {python: "3.11", torch: "2.9.0"}
   |                                     ^^^^^^^ requests torch 2.9.0
  because torch 2.9.0 has no build for linux/arm64   components/torch/component.yaml:8:15

hint: leave out `torch`
"""
    assert arm_tree.conflict("small-arm64") == expected


def test_a_base_without_a_build_is_explained(tree: Tree) -> None:
    tree.image(HEAD)

    assert "debian 12 has no build for linux/arm64" in tree.conflict("small-arm64")


def test_a_variant_is_named_without_its_architecture(arm_tree: Tree) -> None:
    arm_tree.component("torch", COMPONENTS["torch"].replace("releases:\n", f"{BOTH}releases:\n", 1))
    arm_tree.image(f'{HEAD}components: {{torch: "2.9.0"}}\nvariants: {{torch: cpu-py311}}\n')

    assert arm_tree.chosen("small-arm64")["torch"] == "2.9.0 (cpu-py311-arm64)"
