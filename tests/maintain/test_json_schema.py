"""The schemas say what the reading code asks: nothing less, and nothing it would take is refused."""

import json
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from bakehouse.catalog.catalog import load_catalog
from bakehouse.catalog.project import HOME
from bakehouse.catalog.recipe import load_recipes
from bakehouse.errors import RecipeError
from bakehouse.maintain import json_schema
from tests.support.damage import PART, RICH, damaged
from tests.support.mistakes import MISTAKES
from tests.support.trees import COMPONENTS, IMAGE, Tree

ABOUT_SHAPES = (
    "unknown key",
    "must be a list",
    "must be a mapping",
    "must be one text",
    "has no `",
    "has an empty `",
    "needs one of",
    "must be `true` or `false`",
    "must be a whole number",
    "is not a valid `status`",
    "is not a valid `confidence`",
    "is not a valid package name",
    "`base` must be a component name",
)
"""Problems that a schema can find too: it knows no other file and no duplicate keys."""
NOT_SEEN = ("`base` needs either", "has no releases", "has no version range", "has no axes")
EVERY = [*HOME.glob("recipes/images/*.yaml"), *HOME.glob("recipes/components/*/component.yaml")]
MISTAKEN = sorted(path for path in MISTAKES.rglob("recipes/**/*.yaml") if path.is_file())


class Loader(yaml.CSafeLoader):
    """As editors read YAML: numbers and flags are such, dates are texts."""


Loader.yaml_implicit_resolvers = {
    sign: [one for one in found if one[0] != "tag:yaml.org,2002:timestamp"]
    for sign, found in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


@cache
def validator(name: str) -> Draft7Validator:
    text = (HOME / json_schema.DIRECTORY / f"{name}.schema.json").read_text(encoding="utf-8")
    return Draft7Validator(json.loads(text))


@pytest.mark.parametrize("name", ["recipe", "component"])
def test_an_editor_shows_what_each_key_means(name: str) -> None:
    properties = json.loads(json_schema.texts()[f"{name}.schema.json"])["properties"]
    assert [key for key, shape in properties.items() if " " not in shape.get("description", "")] == []


def complaints(text: bytes, name: str) -> list[str]:
    value: Any = yaml.load(text, Loader)
    return [error.message for error in validator(name).iter_errors(value)]


def kind(path: Path) -> str:
    return "component" if path.name == "component.yaml" else "recipe"


def test_the_committed_schemas_are_those_of_the_code(request: pytest.FixtureRequest) -> None:
    """`pytest --update-snapshots` writes them anew."""
    directory = HOME / json_schema.DIRECTORY
    if request.config.getoption("--update-snapshots"):
        json_schema.write(directory)
    committed = {path.name: path.read_text(encoding="utf-8") for path in sorted(directory.iterdir())}

    assert committed == json_schema.texts()


@pytest.mark.parametrize("name", ["component", "recipe"])
def test_they_are_schemas(name: str) -> None:
    Draft7Validator.check_schema(validator(name).schema)


@pytest.mark.parametrize("path", EVERY, ids=[str(path.relative_to(HOME / "recipes")) for path in EVERY])
def test_what_bakehouse_brings_is_taken(path: Path) -> None:
    assert complaints(path.read_bytes(), kind(path)) == []


@pytest.mark.parametrize("path", MISTAKEN, ids=[str(path.relative_to(MISTAKES)) for path in MISTAKEN])
def test_a_mistake_of_shape_is_seen(path: Path, empty: Tree) -> None:
    """In a file that stands alone in a catalogue, as an editor sees it."""
    try:
        is_seen = bool(complaints(path.read_bytes(), kind(path)))
    except yaml.YAMLError:
        return
    messages = [message for message in mistakes(path.read_bytes(), kind(path), empty) if is_of_shape(message)]

    assert is_seen >= bool(messages), messages


@pytest.mark.parametrize("name", ["component", "recipe"])
def test_whatever_is_written_both_say_the_same_of_its_shape(name: str, empty: Tree) -> None:
    """In 300 damaged files no mistake of shape is missed, and nothing is refused that would be read."""
    random = Random(name)
    whole = yaml.safe_load(RICH if name == "recipe" else PART)
    counts = {"refused": 0, "taken": 0}
    for _ in range(300):
        data = json.dumps(damaged(whole, random, random.choice([0.01, 0.03, 0.1]))).encode()
        refused = complaints(data, name)
        messages = mistakes(data, name, empty)
        shapes = [message for message in messages if is_of_shape(message)]
        assert bool(refused) >= bool(shapes), (data, shapes)
        assert bool(messages) >= bool(refused), (data, refused)
        counts["refused" if refused else "taken"] += 1
    assert min(counts.values()) > 30, counts


def test_a_matrix_and_variants_for_each_value_are_taken() -> None:
    recipe = b"""\
summary: PyTorch ${pytorch|minor}
purpose: ${purpose}
name: pytorch-${pytorch|minor|tag}
matrix:
  pytorch: [2.9.1, "2.10"]
  stack: [{cuda: 12.6, purpose: cpu}]
  exclude: [{pytorch: 2.9*}]
  include: [{pytorch: "2.8", cuda: "12.6", purpose: archive}]
base: {nvidia-cuda: "${cuda}"}
packages: ["lib${cuda|tag}"]
targets: {instances: [ml.p4d.24xlarge], driver: 550.163.01}
"""
    component = b"""\
summary: A part
releases:
- version: 2.9.1
  conflicts: [{with: {nccl: ">=2.19"}, reason: it hangs, source: "https://example.org", confidence: low}]
  variants:
  - name: py${python|tag}
    matrix: {python: ["3.10", 3.11]}
    gpu: ${gpu}
"""
    assert complaints(recipe, "recipe") == []
    assert complaints(component, "component") == []
    assert complaints(recipe.replace(b"name: pytorch-${pytorch|minor|tag}\n", b""), "recipe")
    assert complaints(
        recipe.replace(b"stack: [{", b"stack: {a: {").replace(b"}]\n  ex", b"}}\n  ex"), "recipe"
    )
    assert complaints(component.replace(b"reason: it hangs, ", b""), "component")


def is_of_shape(message: str) -> bool:
    return any(phrase in message for phrase in ABOUT_SHAPES) and not any(
        phrase in message for phrase in NOT_SEEN
    )


def mistakes(data: bytes, name: str, tree: Tree) -> list[str]:
    """Return the messages about one file of a small catalogue."""
    for component in ("debian", "python"):
        tree.component(component, COMPONENTS[component])
    tree.image(IMAGE if name == "component" else data.decode(errors="surrogateescape"))
    if name == "component":
        tree.write("components/part/component.yaml", data)
    try:
        load_recipes([tree.root], load_catalog([tree.root]))
    except RecipeError as error:
        names = {"component.yaml", "small.yaml"}
        return [
            diagnostic.message
            for diagnostic in error.diagnostics
            if diagnostic.location and diagnostic.location.path.name in names
        ]
    return []
