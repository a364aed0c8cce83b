"""Builds of images whose files have no recorded checksum, and the layers that builds record."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bakehouse.catalog.project import ProjectSettings
from bakehouse.errors import BuildError
from bakehouse.evidence import step_layers
from bakehouse.pipeline.build import pinned_plan, record_layers
from bakehouse.plan.image_layer import ImageLayer
from bakehouse.plan.workspace import open_workspace, raise_failures, select
from bakehouse.registry.manifest import content_id, digest_of
from tests.support import fake_engine
from tests.support.errors import refusal
from tests.support.known_layers import digest
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

    assert refusal(BuildError, pinned_plan, workspace, select(workspace, ["open"]).plan) == ERROR


def test_it_fails_after_the_others(project: Tree) -> None:
    workspace = open_workspace(project.root)

    plan = pinned_plan(workspace, select(workspace, ["open", "small"]).plan)

    assert [image.name for image in plan.images] == ["small"]
    with pytest.raises(BuildError, match=r"`open` needs `f\.tgz`, which has no recorded checksum"):
        raise_failures(workspace)


class Engine(fake_engine.FakeEngine):
    """Engine with one image, which counts how often its configuration is read."""

    def __init__(self, *layers: str) -> None:
        super().__init__(lambda _: fake_engine.Run())
        history = [{"created_by": f"COPY {layer}"} for layer in layers]
        document = {"rootfs": {"diff_ids": [*map(digest, layers)]}, "history": history}
        self.config, self.reads = json.dumps(document).encode(), 0

    def read_config(self, reference: str) -> bytes:
        self.reads += 1
        return self.config


def test_a_build_records_its_layers_and_reads_a_known_content_once(tmp_path: Path) -> None:
    project = ProjectSettings(tmp_path, (), state_directory=tmp_path)
    layers = (ImageLayer("1" * 32), ImageLayer("2" * 32))
    image = replace(fake_engine.image("small"), layer_keys=layers)
    engine, other = Engine("1", "2"), Engine("1", "3")
    for each in (engine, engine, other):
        content, stored = content_id(each.config), digest_of(each.config)
        built = replace(fake_engine.built(image), content=content, stored=stored)
        record_layers(project, [built], each)

    assert (engine.reads, other.reads) == (1, 1)
    rows = sorted(row for row in step_layers.read(tmp_path) if row.key in ("1" * 32, "2" * 32))
    assert [row.digest for row in rows] == [digest("1"), *sorted([digest("2"), digest("3")])]


def test_a_build_of_what_nothing_pins_is_not_read(tmp_path: Path) -> None:
    project = ProjectSettings(tmp_path, (), state_directory=tmp_path)
    image = replace(fake_engine.image("small"), layer_keys=(ImageLayer("a" * 32, is_pinned=False),))
    engine = Engine("1")
    record_layers(project, [fake_engine.built(image)], engine)

    assert (engine.reads, step_layers.read(tmp_path)) == (0, frozenset())
