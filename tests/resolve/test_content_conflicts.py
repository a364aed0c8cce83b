"""Known conflicts of what a base contains: warnings about the base itself, refusals of what is added."""

import pytest

from bakehouse.evidence.image_state import ImageState
from bakehouse.evidence.known_checks import KnownChecks
from bakehouse.pipeline import image_page
from bakehouse.pipeline.image_page import ImagePage
from bakehouse.resolve.phrases import warnings_text
from bakehouse.util.oci import ContentId
from tests.support.data import text_of
from tests.support.trees import Tree

VENDOR = """\
summary: A vendor's image
stage_order: 0
releases:
  - version: "1"
    base: {image: "vendor.example/training:1", digest: unknown}
    provides: {fabric: "1.49.0", plugin: "1.20.0", nccl: "2.28.9", mpi: "4.1.7"}
"""
FABRIC = text_of(__file__, "fabric")
PLUGIN = """\
summary: The plugin, compiled
stage_order: 21
releases:
  - version: "1.20.0"
    conflicts: [{with: {fabric: "*"}, reason: two copies, source: "https://plugin.example/notes"}]
"""
IMAGE = 'summary: Mine\nbase: vendor\ncomponents: {python: "3.12"}\n'
WARNING = """\
warning: mine: vendor 1 with its fabric 1.49.0 and any nccl: its plugin hangs
  source: https://fabric.example/notes   components/fabric/component.yaml:9
"""


@pytest.fixture
def vendor(tree: Tree) -> Tree:
    tree.component("vendor", VENDOR)
    tree.component("fabric", FABRIC)
    tree.component("plugin", PLUGIN)
    tree.image(IMAGE, "mine")
    return tree


def test_a_conflict_inside_a_base_is_a_warning(vendor: Tree) -> None:
    resolution = vendor.resolve("mine")

    assert warnings_text([resolution]) == WARNING
    assert [warnings_text([resolution], name) for name in ("fabric", "nccl", "vendor", "python")] == [
        *([WARNING] * 3),
        "",
    ]


def test_the_page_of_an_image_has_its_known_problems(vendor: Tree) -> None:
    page = image_page.page(
        ImagePage(vendor.planned_image("mine"), ImageState(0), None, KnownChecks("mine", ContentId("")))
    )

    assert (
        "## Known problems\n\n- vendor 1 with its fabric 1.49.0 and any nccl: its plugin hangs "
        "([source](https://fabric.example/notes))\n" in page
    )


def test_a_component_that_conflicts_with_the_content_of_a_base_is_refused(vendor: Tree) -> None:
    vendor.image(IMAGE.replace("3.12", '3.11", torch: "2.9.0'), "mine")
    vendor.component("vendor", VENDOR.replace("mpi:", 'glibc: "2.36", mpi:'))

    assert "vendor 1 with its fabric 1.49.0: it crashes" in vendor.conflict("mine")


def test_other_versions_than_the_recorded_one_have_no_conflict(vendor: Tree) -> None:
    vendor.component("vendor", VENDOR.replace("1.49.0", "1.50.0").replace("1.20.0", "1.20.1"))

    assert vendor.resolve("mine").warnings == ()
