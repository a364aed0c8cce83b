"""Malformed recipes and components: real ones with mutated lines and values."""

import re
import shutil
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from random import Random

from bakehouse.catalog.catalog import Catalog, checked, read_component
from bakehouse.catalog.project import HOME
from bakehouse.catalog.recipe import Recipe, load_recipes
from bakehouse.cli.diagnostics import failure_text
from bakehouse.errors import BakehouseError, Diagnostic, Problems, RecipeError
from bakehouse.plan import dockerfile
from bakehouse.plan.planner import make_plan
from bakehouse.plan.workspace import conflict_text, read_templates
from bakehouse.resolve import conflict_report
from bakehouse.resolve.resolver import Unsatisfiable, resolve
from bakehouse.util.yaml_fields import Fields
from bakehouse.util.yaml_reader import load
from tests.support import own_recipes
from tests.support.mutants import mutant

MATRIX = """\
summary: PyTorch ${pytorch|minor} for ${python|tag}
purpose: ${purpose}
name: mutated-${pytorch|minor}-py${python|tag}
matrix:
  pytorch: ["2.13.0", "2.10.0"]
  stack:
    - {os: "12", purpose: cpu}
    - {os: "12.1", purpose: gpu}
  python: ["3.11", "3.12"]
  exclude: [{pytorch: "2.10*", os: "12.1"}]
  include: [{pytorch: "2.8.0", os: "12", purpose: archive, python: "3.11"}]
base: {debian: "${os}"}
components: {pytorch: "${pytorch}", python: "${python}", sagemaker-training: "*"}
variants: {pytorch: "cpu-*"}
exclude: [jit]
packages: [htop, "libgomp1"]
environment: {A: "1", B: "$HOME ${python}"}
run: ["echo a", "test -d /opt"]
files: [{from: train.py, to: /opt/train.py}]
code: {directory: src, entry_point: train.py}
requirements: own.lock
targets: {instances: ["ml.p4d.24xlarge"], driver: "550.163.01"}
"""
COMPONENT = """\
summary: A part
stage_order: 45
launchers: [torchrun]
packages: [curl]
path: [/opt/bin]
library_path: [/opt/lib]
entrypoint: [start]
environment: {A: "1"}
facts: {make: all}
recommends: {jit: "*"}
releases:
  - version: "2.0"
    source: https://example.org/changes
    confidence: medium
    conflicts:
      - with: {nccl: ">=2.19", efa: "<1.29"}
        reason: its plugin hangs
        source: https://example.org/issues/1
        confidence: low
    variants:
      - name: cu${cuda|minor|tag}-py${python|tag}
        matrix:
          python: ["3.11", "3.12"]
          stack: [{cuda: "12.8.1", gpu: "true"}, {cuda: "13.0", gpu: "false"}]
        requires: {python: "${python}"}
        constraints: {cuda: "${cuda|minor}"}
        gpu: ${gpu}
        lock: own.lock
        artifacts:
          wheel: {url: "https://example.org/a-${python|tag}.whl", sha256: unknown, confidence: low}
          source: {debian: "curl=1.0", file: curl.tar.gz, sha256: unknown}
  - version: "1.0"
    requires: {glibc: ">=2.28"}
    provides: {nccl: "2.19.3"}
    build_packages: [gcc]
    artifacts: {wheel: {pypi: "a==1.0", file: a.whl, sha256: unknown}}
"""
USER = 'summary: Uses it\nbase: {debian: "12"}\ncomponents: {mutated: "*", python: "3.11"}\n'
TEMPLATE = "{% block build %}\nFROM toolchain AS mutated\nRUN finish mutated {{ version }}\n{% endblock %}\n"

_CALLS = 3
"""Calls of the resolver that search for a way out: the messages are tested, not the search."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of one mutated text."""

    text: str
    diagnostics: tuple[Diagnostic, ...]
    """Empty where it was taken."""

    @property
    def is_placed(self) -> bool:
        return all(diagnostic.location for diagnostic in self.diagnostics)


class Mutations:
    """Takes case after case through the pure pipeline, in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._templates = read_templates(HOME / "templates")
        self._catalog = own_recipes.catalog()
        self.recipes = [MATRIX, *self._own_files()]
        self.components = [("mutated", COMPONENT)]
        for path in sorted((HOME / "recipes" / "components").glob("*/component.yaml")):
            shutil.copytree(path.parent, directory / "components" / path.parent.name, symlinks=True)
            self.components.append((path.parent.name, head(path.read_text(encoding="utf-8"))))
        self._users = {"mutated": (USER, self._parts(USER.replace("mutated", "pytorch")))}
        for text in self.recipes[1:]:
            parts = self._parts(text)
            for name in parts:
                self._users.setdefault(name, (text, parts))

    def _own_files(self) -> list[str]:
        """Return the texts of the real recipes, with the files that they name."""
        images, own = self._directory / "images", self._directory / "components" / "mutated"
        shutil.copytree(HOME / "recipes" / "images", images)
        (images / "src").mkdir()
        own.mkdir(parents=True)
        for path in (images / "src" / "train.py", images / "train.py", images / "own.lock", own / "own.lock"):
            path.write_text("")
        (own / "install.j2").write_text(TEMPLATE)
        for path in images.rglob("*.lock"):
            # A lock names its images, and the mutated recipe is another one
            text = path.read_text(encoding="utf-8")
            path.write_text(re.sub(r"^(# of .* for .*)$", r"\1, mutated", text, flags=re.MULTILINE))
        paths = sorted(images.glob("*.yaml"))
        texts = [path.read_text(encoding="utf-8") for path in paths]
        for path in paths:
            path.unlink()
        return texts

    def _parts(self, text: str) -> tuple[str, ...]:
        """Return the names of the components of the first image of a recipe."""
        recipe = self._load(text.encode(), self._catalog)[0]
        resolution = resolve(recipe, self._catalog)
        return tuple(choice.name for choice in (resolution.base, *resolution.choices))

    def run(self, seed: int) -> Outcome:
        """One case: the same number gives the same one. Errors other than BakehouseError are raised."""
        random = Random(seed)
        name, text = random.choice((("", random.choice(self.recipes)), random.choice(self.components)))
        return self.outcome(mutant(text.encode(), "yaml", random).decode(errors="surrogateescape"), name)

    def outcome(self, text: str, name: str = "") -> Outcome:
        """Return the result of the text of a recipe or a component."""
        try:
            self.take(text.encode(errors="surrogateescape"), name)
        except BakehouseError as error:
            for diagnostic in error.diagnostics:
                failure_text(diagnostic)
            return Outcome(text, error.diagnostics)
        return Outcome(text, ())

    def take(self, content: bytes, name: str = "") -> None:
        """Read, resolve and render a recipe, or a component of that name with an image that uses it."""
        if not name:
            for recipe in self._load(content, self._catalog)[:3]:
                self._image(recipe, self._catalog)
            return
        directory = self._directory / "components" / name
        problems = Problems()
        (directory / "component.yaml").write_bytes(content)
        root = load(directory / "component.yaml")
        component = read_component(Fields(root, f"component `{name}`", problems), directory)
        user, parts = self._users.get(name, (USER.replace("mutated", name), self._users["mutated"][1]))
        others = {part: self._catalog.components[part] for part in parts}
        unread = self._catalog.provided_names - {name}
        catalog = checked({**others, name: component}, unread, defaultdict(lambda: problems))
        problems.raise_as(RecipeError)
        self._image(self._load(user.encode(), catalog)[0], catalog)

    def _load(self, content: bytes, catalog: Catalog) -> list[Recipe]:
        path = self._directory / "images" / "mutated.yaml"
        path.write_bytes(content)
        return list(load_recipes([self._directory], catalog, refusal_of=conflict_text).values())

    def _image(self, recipe: Recipe, catalog: Catalog) -> None:
        try:
            resolution = resolve(recipe, catalog)
        except Unsatisfiable as nothing:
            raise conflict_report.conflict_error(nothing.conflict, catalog, calls=_CALLS) from nothing
        dockerfile.render(make_plan([resolution], self._templates), self._templates)


def head(text: str) -> str:
    """As much of a component as is read fast: its first releases."""
    lines = text.splitlines(keepends=True)
    starts = [number for number, line in enumerate(lines[:150]) if line.startswith("  - version:")]
    return "".join(lines[: starts[-1]] if len(lines) > 150 and len(starts) > 1 else lines)
