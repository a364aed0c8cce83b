"""Builds of images whose files have no recorded checksum."""

import pytest

from bakehouse.errors import BuildError
from bakehouse.pipeline.build import pinned_plan
from bakehouse.plan.workspace import open_workspace, raise_failures, select
from tests.support.errors import error_text
from tests.support.trees import IMAGE, Tree

ERROR = """\
error: `open` needs `f.tgz`, which has no recorded checksum
  --> components/spare/component.yaml:2:86
   |
 2 | releases: [{version: "1", artifacts: {file: {url: "https://x.example/f.tgz", sha256: unknown}}}]
   |                                                                                      ^^^^^^^

hint: run `bake lock open`, and compare the sha256 with the publisher's
"""


@pytest.fixture
def project(tree: Tree) -> Tree:
    tree.write("pyproject.toml", '[tool.bakehouse]\nrecipes = ["."]\n')
    artifact = '{url: "https://x.example/f.tgz", sha256: unknown}'
    tree.component("spare", f'summary: x\nreleases: [{{version: "1", artifacts: {{file: {artifact}}}}}]\n')
    tree.image(IMAGE.replace("components: {", 'components: {spare: "*", '), "open")
    return tree


def test_an_image_with_an_unknown_checksum_is_not_built(project: Tree) -> None:
    workspace = open_workspace(project.root)

    with pytest.raises(BuildError) as caught:
        pinned_plan(workspace, select(workspace, ["open"]).plan)

    assert error_text(caught.value) == ERROR


def test_it_fails_after_the_others(project: Tree) -> None:
    workspace = open_workspace(project.root)

    plan = pinned_plan(workspace, select(workspace, ["open", "small"]).plan)

    assert [image.name for image in plan.images] == ["small"]
    with pytest.raises(BuildError, match=r"`open` needs `f\.tgz`, which has no recorded checksum"):
        raise_failures(workspace)
