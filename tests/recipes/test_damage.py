"""Values where they don't belong: refused in words, or taken, never a traceback."""

import contextlib
import json
from random import Random

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bakehouse.cli.diagnostics import failure_text
from bakehouse.errors import BakehouseError
from bakehouse.resolve import conflict_report
from bakehouse.resolve.resolver import Unsatisfiable
from tests.conftest import COMPONENTS, IMAGE, Tree

RICH = (
    IMAGE
    + """\
packages: [htop]
environment: {A: "1"}
run: [echo a]
files: [{from: src/train.py, to: /opt/train.py}]
code: {directory: src, entry_point: train.py}
requirements: own.lock
exclude: [cuda]
"""
)
PART = """\
summary: A part
stage_order: 5
launchers: [mpirun]
builds_on: [debian]
packages: [curl]
path: [/opt/bin]
entrypoint: [start]
environment: {A: "1"}
facts: {make: all}
releases:
- version: "1.0"
  lock: own.lock
  requires: {glibc: "2.36"}
  provides: {cuda: "13.0"}
  variants:
  - name: upstream
    gpu: true
    artifacts: {a: {url: "https://example.org/a", sha256: unknown, confidence: low}}
"""
ODD: list[object] = [
    *("", None, [], {}, [[]], [{}], {"a": {"b": []}}, {"": ""}, -1, 0, True, "9" * 30, "x" * 300, "a\nb"),
    *("*", "unknown", "..", ".", "/", "a/b", "a b", "é", "'", '"', "${A}", "src", "===x", ">=2,<1"),
    *("1.0+x", "python", ["python"], {"python": "*"}, {"python": []}, {"version": "1"}, [{"name": "x"}]),
    *({"bootstrap": ""}, {"bootstrap": "sid", "image": "x"}),
]


def damaged(value: object, random: Random, share: float) -> object:
    """A value with some of its parts, or keys, replaced by odd ones."""
    if random.random() < share:
        return random.choice(ODD)
    if isinstance(value, dict):
        keys = [
            random.choice([*value, "requires", "x"]) if random.random() < share / 2 else key for key in value
        ]
        return {key: damaged(item, random, share) for key, item in zip(keys, value.values(), strict=True)}
    if isinstance(value, list):
        return [damaged(item, random, share) for item in value]
    return value


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    tree = Tree(tmp_path_factory.mktemp("damaged"))
    for name in ("debian", "python"):
        tree.component(name, COMPONENTS[name])
    tree.write("images/src/train.py", "pass\n")
    tree.write("images/own.lock", "")
    tree.write("components/part/own.lock", "")
    return tree


@settings(max_examples=120)
@example(seed=806)  # a range that nothing is in, which says `===x`
@given(seed=st.integers(0, 2**32))
def test_nothing_that_yaml_can_say_is_a_traceback(seed: int, directory: Tree) -> None:
    random = Random(seed)
    share = random.choice([0.02, 0.05, 0.15])
    which = random.choice(["image", "part"])
    image = (
        RICH.replace('torch: "*", toolkit: "*"', 'part: "*"').replace("torch", "part").replace("cpu-*", "up*")
    )
    texts = {"image": image, "part": PART.replace("builds_on: [debian]\n", "")}
    texts[which] = json.dumps(damaged(yaml.safe_load(texts[which]), random, share))
    directory.image(texts["image"])
    directory.component("part", texts["part"])
    with contextlib.suppress(BakehouseError):
        try:
            directory.dockerfile()
        except Unsatisfiable as nothing:
            error = conflict_report.conflict_error(nothing.conflict, directory.catalog())
            assert all(failure_text(diagnostic) for diagnostic in error.diagnostics)
