"""A small catalogue in a temporary directory, extended by each test."""

import contextlib
import os
import signal
from pathlib import Path

import hypothesis
import pytest

from bakehouse.catalog.base_image_lock import read_locks
from bakehouse.catalog.catalog import Catalog, load_catalog
from bakehouse.catalog.project import HOME
from bakehouse.catalog.recipe import Recipe, load_recipes
from bakehouse.cli.diagnostics import failure_text
from bakehouse.errors import BakehouseError
from bakehouse.plan import dockerfile as rendering
from bakehouse.plan.model import Image, Plan
from bakehouse.plan.planner import make_plan
from bakehouse.resolve import conflict_report
from bakehouse.resolve.resolver import Resolution, Unsatisfiable, resolve

pytest_plugins = ["tests.support.plugin", "tests.support.counts"]

# The local registry ends with the last process that uses it. Tests of `push` would leave theirs running.
os.environ["BAKEHOUSE_KEEP_REGISTRY"] = "0"
# `./bake test` sets the name of the command that messages show.
os.environ.pop("BAKEHOUSE_COMMAND", None)

# A shell's background job ignores interrupts, and so would all that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The pure tests are run at every change: a third of hypothesis's default is what they have time for.
# On a busy machine an example may be slow; time is not what these tests are about.
hypothesis.settings.register_profile(
    "quick",
    max_examples=33,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("quick")

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
        return load_recipes([self.root], self.catalog())

    def resolve(self, name: str = "small") -> Resolution:
        catalog = self.catalog()
        return resolve(load_recipes([self.root], catalog)[name], catalog)

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
            resolve(load_recipes([self.root], catalog)[name], catalog)
        return error_text(conflict_report.conflict_error(caught.value.conflict, catalog))

    def mistakes(self) -> str:
        """Return the error text of files that cannot be read."""
        with pytest.raises(BakehouseError) as caught:
            self.recipes()
        return error_text(caught.value)


def templates() -> dict[str, str]:
    return rendering.read_templates(HOME / "templates")


def error_text(error: BakehouseError) -> str:
    return "\n".join(failure_text(diagnostic) for diagnostic in error.diagnostics)


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """A directory without recipes. It is the current directory, so messages contain paths relative to it."""
    monkeypatch.chdir(tmp_path)
    return Tree(tmp_path)


@pytest.fixture
def tree(empty: Tree) -> Tree:
    """Four components and an image."""
    for name, text in COMPONENTS.items():
        is_base = name == "debian"
        empty.component(name, text, None if is_base else TEMPLATE.format(name=name))
    empty.image(IMAGE)
    return empty


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Stop registries that a test left running, and fail."""
    factory = getattr(session.config, "_tmp_path_factory", None)
    if factory is None or hasattr(session.config, "workerinput"):
        return
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            command = entry.read_bytes().decode(errors="replace")
            if "registry_keeper" in command and f"{factory.getbasetemp()}/" in command:
                os.kill(int(entry.parent.name), signal.SIGTERM)
                print(f"\na test left a registry running: {command.split(chr(0))[3]}")
                session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-snapshots", action="store_true", help="write the expected answers anew")
