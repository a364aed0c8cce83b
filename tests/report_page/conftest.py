"""A project with the small image, whose records the tests write."""

import json
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from bakehouse.catalog.project import Project
from bakehouse.ledger.releases import ReleaseRecord, text_of
from bakehouse.plan.model import Image
from bakehouse.plan.workspace import Workspace, render_images, select
from bakehouse.report_page.fleet import Fleet, ImageReport, read_fleet
from bakehouse.util.files import write_whole
from tests.conftest import Tree, templates
from tests.ledger.test_releases import a_record

INSTANCE = """\
summary: Instance types
releases:
  - version: "2026.11"
    variants:
      - {name: ml.c5.2xlarge, provides: {gpus: "0", vcpus: "8"}}
      - {name: ml.g5.xlarge, provides: {gpus: "1", gpu-architecture: "8.6", vcpus: "4"}}
      - {name: ml.p9.xlarge, provides: {gpus: "1"}}
      - {name: ml.c7g.large, provides: {gpus: "0"}}
"""


class Site:
    """The project, and what `bake report` reads in it."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree

    @property
    def workspace(self) -> Workspace:
        tree = self.tree
        return Workspace(Project(tree.root, (tree.root,)), tree.catalog(), tree.recipes(), templates())

    @property
    def planned(self) -> Image:
        [image] = select(self.workspace, ["small"]).plan.images
        return image

    def render(self) -> None:
        workspace = self.workspace
        render_images(workspace, select(workspace, ["small"]).plan, lambda line: None)

    def fleet(self, *patterns: str) -> Fleet:
        return read_fleet(self.workspace, patterns)

    def image(self) -> ImageReport:
        [image] = self.fleet("small").images
        return image

    def publish(self, *changes: dict[str, Any]) -> None:
        """Write the ledger of the image: records of its present build key, each with some changes."""
        record = replace(a_record(), image="small", key=self.planned.key)
        records = [_numbered(replace(record, **change), number) for number, change in enumerate(changes)]
        write_whole(self.tree.root / "images/small/releases.json", text_of(records))


def _numbered(record: ReleaseRecord, number: int) -> ReleaseRecord:
    digest = f"sha256:{number:064x}"
    return replace(record, digest=digest, image_uri=f"{record.registry}/{record.repository}@{digest}")


@pytest.fixture
def site(tree: Tree) -> Site:
    tree.component("instance", INSTANCE)
    return Site(tree)


class Html(HTMLParser):
    """Elements of a page with their attributes, its text, and its scripts and styles."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.raw: dict[str, list[str]] = {"script": [], "style": []}
        self._open = ""
        self.feed(page.decode())
        self.close()

    @property
    def data(self) -> Any:
        return json.loads(self.raw["script"][0])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._open = tag
        if tag in self.raw:
            self.raw[tag].append("")

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open in self.raw:
            self.raw[self._open][-1] += data
        else:
            self.text += data
