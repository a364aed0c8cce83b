"""Hundreds of payloads in every field: each is refused with its place, or adds no instruction.

All fields hold the payload at once; what is refused gets its usual value back, until the rest is taken.
"""

import json
import re
import shlex
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from bakehouse.catalog.catalog import load_catalog
from bakehouse.catalog.recipe import load_recipes
from bakehouse.errors import BakehouseError, Problems, RecipeError
from bakehouse.maintain import json_schema
from bakehouse.plan import dockerfile
from bakehouse.plan.planner import make_plan
from bakehouse.resolve import conflict_report
from bakehouse.resolve.resolver import Unsatisfiable, resolve
from bakehouse.util.yaml_reader import parse
from tests.support.data import text_of
from tests.support.dockerfiles import Instruction, instructions, pairs
from tests.support.payloads import PAYLOADS, each_payload
from tests.support.trees import Tree, templates

RECIPE = text_of(__file__, "recipe")
PART = text_of(__file__, "part")
BASE = text_of(__file__, "base")
INSTANCE = """\
summary: Instance types
releases:
  - version: "1"
    variants:
      - name: ml.p3.2xlarge
        provides: {gpus: @gpus=1}
"""
PYTHON = """\
summary: Python
stage_order: 10
releases:
  - version: "3.11"
    path: [/opt/venv/bin]
"""
TEMPLATE = text_of(__file__, "template")
TEMPLATES = templates()
FILES = {
    "images/small.yaml": RECIPE,
    "components/part/component.yaml": PART,
    "components/pulled/component.yaml": BASE,
    "components/instance/component.yaml": INSTANCE,
}
WITHOUT_PAYLOAD = {
    "accepted": "reasons that only tables of images contain",
    "allow": "patterns of files, which no rendered file contains",
    "before": "one of a few words",
    "bootstrap": "the name of a suite; `base` has either it or `image`, which is here",
    "build_requirements": "what only `lock` passes to uv; no rendered file contains it",
    "by_hand": "as `git`",
    "bytes": "a number",
    "checksums": "as `git`",
    "date": "as `git`",
    "efa_bandwidth": "a number",
    "extras": "as `build_requirements`",
    "frozen": "Python packages of a base, which no rendered file contains",
    "git": "`upstream` has either it or `pypi`, which is here; no rendered file contains it",
    "gpu_check": "as `registries_of`",
    "groups": "as `build_requirements`",
    "include": "values of the axes of `matrix`, which are here",
    "in": "the name of an axis of `matrix`",
    "network": "true or false",
    "newest": "a number",
    "none": "as `git`",
    "page": "as `git`",
    "pattern": "as `git`",
    "platforms": "linux/amd64 or linux/arm64",
    "purpose": "one of a few words",
    "registries_of": "the name of a component",
    "renamed_from": "names of images, which no rendered file contains",
    "severity": "one of a few words",
    "tag": "as `git`",
    "tested": "as `frozen`",
    "until": "a date",
    "untested_imports": "names and reasons, which only reports contain",
}
"""Keys without a field here, and why."""
_SLOT = re.compile(r"@([a-z_0-9]+)=([^\n,\]}]*?)(?=:\s|[,\]}\n]|$)")
_KEYS = re.compile(r"\b[0-9a-f]{8}\b|\b[0-9a-f]{64}\b")
_DIRECTIVE = re.compile(r"#\s*[A-Za-z][A-Za-z0-9]*\s*=")


_USES = {"directory": "entry_point", "variable": "${axis", "other_variable": "${other", "each": "${axis"}


def slots() -> dict[str, set[tuple[str, int]]]:
    """The location of each field. Some errors may name the place of use instead."""
    lines_of: dict[str, set[tuple[str, int]]] = {}
    for file, text in FILES.items():
        lines = list(enumerate(text.splitlines(), 1))
        for number, line in lines:
            for match in _SLOT.finditer(line):
                uses = [used for used, content in lines if match[1] in _USES and _USES[match[1]] in content]
                lines_of[match[1]] = {(file, line_number) for line_number in (number, *uses)}
    return lines_of


SLOTS = slots()


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    tree = Tree(tmp_path_factory.mktemp("injection"))
    tree.component(
        "python", PYTHON, "{% block build %}\nFROM toolchain AS python\nRUN finish python\n{% endblock %}\n"
    )
    tree.write("components/part/install.j2", TEMPLATE)
    for path in ("images/note.txt", "images/src/train.py", "images/own.lock", "components/part/own.lock"):
        tree.write(path, "")
    return tree


def put(tree: Tree, payload: str, fields: frozenset[str]) -> None:
    """The payload in some fields, and what is usual in the others; two variables need two names."""

    def value(match: re.Match[str]) -> str:
        own = payload + ("_" if match[1] == "part_key" else "")
        return json.dumps(own if match[1] in fields else match[2])

    for file, text in FILES.items():
        tree.write(file, _SLOT.sub(value, text))


def attempt(tree: Tree) -> str | set[tuple[str, int]]:
    """The image's Dockerfile, or the places of what is wrong."""
    problems = Problems()
    catalog = load_catalog([tree.root], problems)
    try:
        recipes = load_recipes([tree.root], catalog, problems=problems)
        problems.raise_as(RecipeError)
        plan = make_plan([resolve(recipes[min(recipes)], catalog)], TEMPLATES)
        return dockerfile.render_image(plan.images[0], TEMPLATES)[0].content.decode()
    except BakehouseError as error:
        diagnostics = error.diagnostics
    except Unsatisfiable as nothing:
        diagnostics = conflict_report.conflict_error(nothing.conflict, catalog, calls=0).diagnostics
    spots = [diagnostic.location for diagnostic in diagnostics] + [
        reason.location for diagnostic in diagnostics for reason in diagnostic.reasons
    ]
    return {(str(location.path.relative_to(tree.root)), location.line) for location in spots if location}


def taken(tree: Tree, payload: str, fields: frozenset[str]) -> tuple[str, frozenset[str]]:
    """The Dockerfile with a payload in all fields that take it, and these fields."""
    while True:
        put(tree, payload, fields)
        result = attempt(tree)
        if isinstance(result, str):
            return result, fields
        refused = {name for name in fields if SLOTS[name] & result}
        assert refused, (payload, result)
        fields -= refused


def skeleton(steps: list[Instruction]) -> list[tuple[str, int]]:
    return [(step.word, len(step.heredocs)) for step in steps]


def test_payloads_are_many() -> None:
    assert len(PAYLOADS) >= 300


def test_each_key_of_the_schemas_has_a_field_here() -> None:
    """A new key needs a field with payloads, or a reason in `WITHOUT_PAYLOAD`."""
    keys = {key for text in json_schema.texts().values() for key in property_names(json.loads(text))}
    here = {key for text in FILES.values() for key in re.findall(r"[a-z0-9_]+(?=:)", _SLOT.sub("x", text))}

    assert sorted(keys - here) == sorted(WITHOUT_PAYLOAD)


def property_names(schema: Any) -> Iterator[str]:
    """Yield the names of all properties in a schema and below it."""
    if isinstance(schema, dict):
        yield from schema.get("properties", {})
    if isinstance(schema, (dict, list)):
        for value in schema.values() if isinstance(schema, dict) else schema:
            yield from property_names(value)


@each_payload
def test_a_payload_is_refused_with_its_place_or_adds_no_instruction(
    tree: Tree, payloads: tuple[str, ...]
) -> None:
    usual = instructions(taken(tree, "", frozenset())[0])
    for payload in payloads:
        if hidden(payload):
            continue
        text, fields = taken(tree, payload, frozenset(SLOTS))
        steps = instructions(text)
        assert not _DIRECTIVE.match(text), payload
        assert skeleton(steps) == skeleton(usual), (payload, sorted(fields))
        check_values(payload, fields, steps)


def test_what_no_text_can_hold_is_refused_in_each_field(tree: Tree) -> None:
    """Before anything is asked of it: one field for each payload is enough, and all of them come."""
    names = cycle(sorted(SLOTS))
    for payload in filter(hidden, PAYLOADS):
        name = next(names)
        assert taken(tree, payload, frozenset([name]))[1] == frozenset(), (name, payload)


def hidden(payload: str) -> bool:
    try:
        parse(json.dumps(payload).encode(), Path("payload.yaml"))
    except RecipeError:
        return True
    return False


def check_values(payload: str, fields: frozenset[str], parsed: list[Instruction]) -> None:
    """Free text is rendered unchanged."""
    environment = {
        name: value for step in parsed if step.word == "ENV" for name, value in pairs(step.rest).items()
    }
    [labels] = [pairs(step.rest) for step in parsed if step.word == "LABEL"]
    for name, key in {"value": "A", "part_value": "B"}.items():
        if name in fields:
            assert environment[key] == payload
    if "each" in fields:
        assert environment["EACH"] == payload
    if "variable" in fields:
        assert environment["AXIS"] == payload
    if "summary" in fields:
        assert labels["org.opencontainers.image.description"] == " ".join(payload.splitlines())
    steps = [step for step in parsed if step.word == "RUN" and step.heredocs and step.rest.startswith("<<")]
    if "step" in fields:
        assert steps[-2].heredocs[0] == f"set -e\n{payload.rstrip(chr(10))}\n"
    [entrypoint] = [json.loads(step.rest) for step in parsed if step.word == "ENTRYPOINT"]
    if "entrypoint" in fields:
        assert entrypoint == [payload, "two"]
    for run in steps:
        if "fact" in fields and "1.0" in run.heredocs[0]:
            assert shlex.split(run.heredocs[0].partition("echo ")[2])[0] == payload
