"""A project with the small image, the records of its builds, and pages about it."""

import json
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

from bakehouse.builder.built_image import BuiltImage
from bakehouse.builder.up_to_date import record_build
from bakehouse.builder.verify import Outcome
from bakehouse.catalog.project import ProjectSettings
from bakehouse.cluster.check_keys import definitions
from bakehouse.cluster.smoke_report import CheckResult
from bakehouse.commands.report.fleet import Fleet, ImageReport, read_fleet
from bakehouse.evidence import check_rows
from bakehouse.ledger.releases import ReleaseRecord, text_of
from bakehouse.plan.model import Image
from bakehouse.plan.workspace import Workspace, render_images, select
from bakehouse.util.files import write_whole
from bakehouse.util.oci import ContentId, Digest
from tests.support.built_images import DATE, TOOLKIT
from tests.support.release_records import a_record
from tests.support.trees import Tree, templates


class Site:
    """The project, and what `bake report` reads in it."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree

    @property
    def workspace(self) -> Workspace:
        tree = self.tree
        return Workspace(
            ProjectSettings(tree.root, (tree.root,)), tree.catalog(), tree.recipes(), templates()
        )

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


CONFIG = Digest("sha256:" + "c" * 64)
FAILED = CheckResult(
    "train_failure",
    Outcome.FAILED,
    41.23,
    "it hangs",
    4,
    "algo-2 rank 3",
    source="bakehouse/probes/mpi_allreduce.py:12",
    tail=("a", "b"),
)


CONTENT = ContentId("sha256:" + "c0" * 32)


def build(site: Site, *checks: CheckResult) -> None:
    """Record a build of the present recipe, and a smoke test of its result."""
    site.render()
    project, image = site.workspace.project, site.planned
    record_build(BuiltImage(image, CONFIG, CONFIG, 1, CONTENT), project)
    known = definitions(image, TOOLKIT, ())
    check_rows.record(
        project.state,
        CONTENT,
        (
            replace(check, key=known[check.name].key, setup=TOOLKIT, date=DATE, machine="host-1")
            for check in checks
        ),
    )


def lock(site: Site, **sizes: int) -> None:
    """Let the image install Python packages of these sizes."""
    lines = (f"{name}==1 --hash=sha256:{'a' * 64}  # {name}.whl {size}\n" for name, size in sizes.items())
    site.tree.write("images/own.lock", "".join(lines))
    recipe = site.tree.root.joinpath("images/small.yaml").read_text()
    site.tree.image(f"{recipe}requirements: own.lock\n")
