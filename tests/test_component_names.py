"""Names of components in code: rules read them from data, so their number may only fall."""

import ast
import json
from collections import Counter

import pytest

from bakehouse.catalog.project import HOME

RECORD = HOME / "tests/component_names.json"


def test_the_quoted_names_of_components_only_become_fewer(request: pytest.FixtureRequest) -> None:
    """`pytest --update-snapshots` writes a smaller number."""
    names = {path.name for path in (HOME / "recipes/components").iterdir()}
    found = {
        path.relative_to(HOME).as_posix(): Counter(
            node.value in names
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        )[True]
        for path in sorted((HOME / "bakehouse").rglob("*.py"))
    }
    found = {path: number for path, number in found.items() if number}
    known: dict[str, int] = json.loads(RECORD.read_text())
    assert {path: number for path, number in found.items() if number > known.get(path, 0)} == {}
    if request.config.getoption("--update-snapshots"):
        RECORD.write_text(json.dumps(found, indent=1) + "\n")

    assert found == json.loads(RECORD.read_text())
