"""Malformed recipes and components: real ones with mutated lines and values."""

import copy
import json
import re
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import yaml

from bakehouse.catalog.catalog import Catalog, checked, read_component
from bakehouse.catalog.project import HOME
from bakehouse.catalog.recipe import Recipe, load_recipes
from bakehouse.cli.diagnostics import failure_text
from bakehouse.errors import BakehouseError, Diagnostic, Problems, RecipeError
from bakehouse.plan import dockerfile
from bakehouse.plan.planner import make_plan
from bakehouse.plan.workspace import read_templates
from bakehouse.resolve import conflict_report
from bakehouse.resolve.resolver import Unsatisfiable, resolve
from bakehouse.util.yaml_fields import Fields
from bakehouse.util.yaml_reader import load
from tests.support import own_recipes

MATRIX = """\
summary: PyTorch ${pytorch|minor} for ${python|tag}
status: ${status}
name: mutated-${pytorch|minor}-py${python|tag}
matrix:
  pytorch: ["2.13.0", "2.10.0"]
  stack:
    - {os: "12", status: current}
    - {os: "12.1", status: legacy}
  python: ["3.11", "3.12"]
  exclude: [{pytorch: "2.10*", os: "12.1"}]
  include: [{pytorch: "2.8.0", os: "12", status: frozen, python: "3.11"}]
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

_ODD = json.loads((HOME / "tests" / "support" / "mutations.json").read_text(encoding="utf-8"))
KEYS = tuple(_ODD["keys"])
WORDS = (*_ODD["words"], "9" * 5_000, "x" * 300, "x" * 17_000)
_SCALAR = re.compile(r'"[^"\n]*"|\'[^\'\n]*\'|[A-Za-z0-9.<>=*][A-Za-z0-9.<>=*|${}-]*')

_CALLS = 3
"""Calls of the resolver that search for a way out: the messages are tested, not the search."""

Mutation = Callable[[list[str], Random], None]


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
        if random.random() < 0.5:
            name, text = "", mutated(random.choice(self.recipes), random)
        else:
            name, whole = random.choice(self.components)
            text = mutated(whole, random)
        return self.outcome(text, name)

    def outcome(self, text: str, name: str = "") -> Outcome:
        """Return the result of the text of a recipe or a component."""
        try:
            self.take(text.encode(errors="surrogatepass"), name)
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
        return list(load_recipes([self._directory], catalog).values())

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


def mutated(text: str, random: Random) -> str:
    """A text after one mutation or a few: of its lines, or of the tree that they mean."""
    count = random.choice((1, 1, 1, 2, 3, 6))
    if random.random() < 0.7:
        tree: list[Any] = [yaml.load(text, yaml.CBaseLoader)]
        for _ in range(count):
            _change_tree(tree, random)
        return json.dumps(tree[0], indent=1, ensure_ascii=random.random() < 0.5)
    lines = text.splitlines(keepends=True)
    for _ in range(count):
        random.choice(_MUTATIONS)(lines, random)
        if not lines:
            break
    return "".join(lines)


def _change_tree(tree: list[Any], random: Random) -> None:
    """Change one value, key or item; what is below is as likely as what is above."""
    nodes = list(_places(tree))
    holder, key = random.choice(nodes)
    match random.choice(
        ("word", "version", "version", "version", "take out", "exchange", "rename", "again", "add")
    ):
        case "word":
            holder[key] = random.choice((*WORDS, None, True, 1, 1.5, [], {}, [[]], {"a": ["b"]}))
        case "version" if isinstance(holder[key], str):
            holder[key] = _other_version(holder[key], random)
        case "take out" if holder is not tree:
            del holder[key]
        case "exchange":
            other, other_key = random.choice(nodes)
            holder[key] = copy.deepcopy(other[other_key])
        case "rename" if isinstance(holder, dict):
            holder[random.choice((*KEYS, *WORDS))] = holder.pop(key)
        case "again" if isinstance(holder, list) and holder is not tree:
            holder.extend([holder[key]] * random.choice((1, 2, 50)))
        case "add" if isinstance(holder[key], dict):
            node = random.choice(nodes)
            holder[key][random.choice(KEYS)] = copy.deepcopy(node[0][node[1]])


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], (dict, list)):
            yield from _places(value[key])


def _other_version(text: str, random: Random) -> str:
    """One number of it changed, or its comparison."""
    numbers = list(re.finditer(r"[0-9]+|[<>=!~]=?", text))
    if not numbers:
        return text + random.choice(("*", "-1", ".1", " "))
    number = random.choice(numbers)
    put = (
        str(max(0, int(number[0][:9]) + random.choice((-1, 1, 10))))
        if number[0].isdigit()
        else random.choice(("<", ">=", "=="))
    )
    return text[: number.start()] + put + text[number.end() :]


def _spot(lines: list[str], random: Random) -> int:
    return random.randrange(len(lines))


def _delete(lines: list[str], random: Random) -> None:
    start = _spot(lines, random)
    del lines[start : start + random.choice((1, 1, 1, 2, 5))]


def _duplicate(lines: list[str], random: Random) -> None:
    start = _spot(lines, random)
    block = lines[start : start + random.choice((1, 1, 3))]
    lines[start:start] = block * random.choice((1, 1, 1, 2, 300))


def _swap(lines: list[str], random: Random) -> None:
    number, other = _spot(lines, random), _spot(lines, random)
    lines[number], lines[other] = lines[other], lines[number]


def _indent(lines: list[str], random: Random) -> None:
    number = _spot(lines, random)
    lines[number] = random.choice((" ", "  ", "\t", "- ", "    ")) + lines[number]


def _outdent(lines: list[str], random: Random) -> None:
    number = _spot(lines, random)
    lines[number] = lines[number].removeprefix(" " * random.choice((1, 2, 4)))


def _word(lines: list[str], random: Random) -> None:
    """Another value, or another key, in the place of one."""
    number = _spot(lines, random)
    scalars = list(_SCALAR.finditer(lines[number]))
    if scalars:
        scalar = random.choice(scalars)
        word = random.choice(KEYS if random.random() < 0.25 else WORDS)
        lines[number] = lines[number][: scalar.start()] + word + lines[number][scalar.end() :]


def _exchange(lines: list[str], random: Random) -> None:
    """A value of this file in the place of another one."""
    number, other = _spot(lines, random), _spot(lines, random)
    old, new = _SCALAR.findall(lines[number]), _SCALAR.findall(lines[other])
    if old and new:
        lines[number] = lines[number].replace(random.choice(old), random.choice(new), 1)


def _insert(lines: list[str], random: Random) -> None:
    number = _spot(lines, random)
    depth = len(lines[number]) - len(lines[number].lstrip(" "))
    lines.insert(number, f"{' ' * depth}{random.choice(KEYS)}: {random.choice(WORDS)}\n")


def _axis(lines: list[str], random: Random) -> None:
    """Axes of all sizes, some whose product is far too large."""
    count, size = random.choice(((1, 1), (1, 3), (3, 2), (3, 40), (12, 10)))
    axes = [f"a{number}: [{', '.join(str(value) for value in range(size))}]" for number in range(count)]
    number = _spot(lines, random)
    depth = len(lines[number]) - len(lines[number].lstrip(" "))
    lines.insert(number, f"{' ' * depth}matrix: {{{', '.join(axes)}}}\n")


def _cut(lines: list[str], random: Random) -> None:
    text = "".join(lines)
    text = text[: random.randrange(len(text) + 1)]
    lines[:] = text.splitlines(keepends=True)


def _characters(lines: list[str], random: Random) -> None:
    number = _spot(lines, random)
    line = lines[number]
    position = random.randrange(len(line) + 1)
    put = chr(random.choice((*range(0x20, 0x7F), 0, 9, 0x85, 0x2028, 0xFEFF, 0x1F600, 0xD800)))
    lines[number] = line[:position] + put + line[position + random.choice((0, 1)) :]


_MUTATIONS: tuple[Mutation, ...] = (
    *(_delete, _duplicate, _swap, _indent, _outdent),
    *(_word, _word, _word, _word, _exchange, _insert, _insert, _axis, _cut, _characters),
)
