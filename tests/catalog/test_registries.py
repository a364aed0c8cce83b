"""Bases that each region has in a registry of its own."""

import pytest

from bakehouse.errors import RecipeError
from bakehouse.plan.model import RegistryBase
from bakehouse.plan.planner import make_plan
from tests.support.errors import refusal
from tests.support.trees import Tree, templates

BASE = """\
summary: A vendor's images
registries:
  us-east-1: 111122223333.dkr.ecr.us-east-1.amazonaws.com
  eu-west-1: 444455556666.dkr.ecr.eu-west-1.amazonaws.com
releases:
  - version: "2.0"
    base: {image: "training:2.0", build_image: "training:2.0-devel"}
"""
IMAGE = "summary: A small image\nbase: vendor\n"


@pytest.fixture
def regions(tree: Tree) -> Tree:
    tree.component("vendor", BASE)
    tree.image(IMAGE)
    return tree


def base_in(tree: Tree, region: str | None) -> tuple[str, str]:
    [image] = make_plan([tree.resolve()], templates(), region).images
    assert isinstance(image.base, RegistryBase)
    return image.base.reference, image.build_base


def test_the_projects_region_tells_the_registry(regions: Tree) -> None:
    host = "444455556666.dkr.ecr.eu-west-1.amazonaws.com"
    assert base_in(regions, "eu-west-1") == (f"{host}/training:2.0", f"{host}/training:2.0-devel")


def test_without_a_region_it_is_the_first(regions: Tree) -> None:
    assert base_in(regions, None)[0] == "111122223333.dkr.ecr.us-east-1.amazonaws.com/training:2.0"


def test_a_region_that_has_no_registry(regions: Tree) -> None:
    text = refusal(RecipeError, base_in, regions, "eu-west-2")
    assert "`vendor` is not available in region `eu-west-2`" in text
    assert "small.yaml:2" in text
    assert "vendor/component.yaml:3" in text
    assert "did you mean `eu-west-1`?" in text


def test_a_component_can_share_anothers_registries(regions: Tree) -> None:
    table = BASE.partition("registries:\n")[2].partition("releases:")[0]
    regions.component("other", BASE.replace("registries:\n" + table, "registries_of: vendor\n"))
    regions.image(IMAGE.replace("vendor", "other"))

    assert base_in(regions, "eu-west-1")[0].startswith("444455556666")


def test_registries_of_a_component_that_has_none(regions: Tree) -> None:
    table = BASE.partition("registries:\n")[2].partition("releases:")[0]
    regions.component("other", BASE.replace("registries:\n" + table, "registries_of: vendr\n"))

    assert "`vendr` has no table of `registries`" in regions.mistakes()
    assert "did you mean `vendor`?" in regions.mistakes()


def test_regions_and_hosts_are_plain_words(regions: Tree) -> None:
    regions.component("vendor", BASE.replace("eu-west-1:", "EU:").replace("1111", "a b/"))

    assert "`EU` is not the name of a region" in regions.mistakes()
    assert "is not the host of a registry" in regions.mistakes()
