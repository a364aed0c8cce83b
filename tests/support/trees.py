"""A small catalogue in a directory, which each test changes."""

from pathlib import Path

import pytest

from bakehouse.catalog.base_image_lock import read_locks
from bakehouse.catalog.catalog import Catalog, load_catalog
from bakehouse.catalog.project import HOME
from bakehouse.catalog.recipe import Recipe, load_recipes
from bakehouse.errors import BakehouseError
from bakehouse.plan import dockerfile as rendering
from bakehouse.plan.model import Image, Plan
from bakehouse.plan.planner import make_plan
from bakehouse.plan.workspace import conflict_text, read_templates
from bakehouse.resolve import conflict_report
from bakehouse.resolve.resolver import Resolution, Unsatisfiable, resolve
from tests.support.errors import error_text

SHA = "0123456789abcdef" * 4

COMPONENTS = {
    "debian": """\
summary: Debian
stage_order: 0
releases:
  - version: "12"
    base: {bootstrap: bookworm, packages: [ca-certificates]}
    provides: {glibc: "2.36"}
    build_packages: [gcc]
""",
    "python": """\
summary: Python
stage_order: 10
releases:
  - version: "3.12"
    path: [/opt/venv/bin]
  - version: "3.11"
    path: [/opt/venv/bin]
""",
    "torch": """\
summary: PyTorch
stage_order: 40
launchers: [torchrun]
releases:
  - version: "2.9.0"
    requires: {glibc: ">=2.28"}
    variants:
      - name: cpu-py311
        requires: {python: "3.11"}
      - name: cu128-py311
        requires: {python: "3.11"}
        provides: {cuda: "12.8"}
        gpu: true
  - version: "2.8.0"
    requires: {python: ">=3.11"}
""",
    "toolkit": """\
summary: The training toolkit
stage_order: 50
releases:
  - version: "5.1"
    requires: {python: "*"}
    environment: {SAGEMAKER_TRAINING_MODULE: toolkit}
""",
}
TEMPLATE = """\
{{% block build %}}
FROM toolchain AS {name}
RUN finish {name} {{{{ version }}}}
{{% endblock %}}
"""
IMAGE = """\
summary: A small image
base: {debian: "12"}
components: {python: "3.11", torch: "*", toolkit: "*"}
variants: {torch: "cpu-*"}
"""


class Tree:
    """A directory of recipes, read and carried through the pipeline step by step."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, path: str, content: str | bytes) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file

    def component(self, name: str, text: str, template: str | None = None) -> None:
        self.write(f"components/{name}/component.yaml", text)
        if template is not None:
            self.write(f"components/{name}/install.j2", template)

    def image(self, text: str, name: str = "small") -> None:
        self.write(f"images/{name}.yaml", text)

    def catalog(self) -> Catalog:
        return load_catalog([self.root])

    def recipes(self) -> dict[str, Recipe]:
        return load_recipes([self.root], self.catalog(), refusal_of=conflict_text)

    def resolve(self, name: str = "small") -> Resolution:
        catalog = self.catalog()
        return resolve(self.recipes()[name], catalog)

    def chosen(self, name: str = "small") -> dict[str, str]:
        """Names, versions and variants, as one says them."""
        resolution = self.resolve(name)
        return {
            choice.name: str(choice.candidate).partition(" ")[2]
            for choice in (resolution.base, *resolution.choices)
        }

    def plan(self, *names: str) -> Plan:
        resolutions = [self.resolve(name) for name in names or ["small"]]
        return make_plan(resolutions, templates(), locks=read_locks([self.root]))

    def planned_image(self, name: str = "small") -> Image:
        [image] = self.plan(name).images
        return image

    def dockerfile(self, name: str = "small") -> str:
        return rendering.render_image(self.planned_image(name), templates())[0].content.decode()

    def conflict(self, name: str = "small") -> str:
        """Return the error text of an image that cannot be resolved."""
        catalog = self.catalog()
        with pytest.raises(Unsatisfiable) as caught:
            resolve(self.recipes()[name], catalog)
        return error_text(conflict_report.conflict_error(caught.value.conflict, catalog))

    def mistakes(self) -> str:
        """Return the error text of files that cannot be read."""
        with pytest.raises(BakehouseError) as caught:
            self.recipes()
        return error_text(caught.value)


def templates() -> dict[str, str]:
    return read_templates(HOME / "templates")


def keys(image: Image) -> dict[str, str]:
    return {"image": image.key, **{stage.name: stage.key for stage in image.stages}}
