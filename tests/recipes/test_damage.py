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
from tests.support.damage import PART, RICH, damaged
from tests.support.trees import COMPONENTS, Tree


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
