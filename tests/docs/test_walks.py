"""The walks of ARCHITECTURE.md name functions that exist."""

import importlib
import re

import pytest

from bakehouse.catalog.project import HOME

_SECTION = (HOME / "ARCHITECTURE.md").read_text().partition("\n## Walks\n")[2].partition("\n## ")[0]
_STEP = re.compile(r"^- `([a-z_.]+)\.([a-z_]+)`: (.+)$", re.MULTILINE)
STEPS = [match.groups() for match in _STEP.finditer(_SECTION)]


def test_each_line_of_the_lists_is_a_function_with_a_phrase() -> None:
    assert len(re.findall("(?m)^- ", _SECTION)) == len(STEPS) > 20


@pytest.mark.parametrize(("module", "function"), [step[:2] for step in STEPS])
def test_each_function_exists(module: str, function: str) -> None:
    assert callable(getattr(importlib.import_module(f"bakehouse.{module}"), function))
