"""The reference pages list every task, key and exit code."""

import json
import re
from collections.abc import Iterator
from typing import Any

from bakehouse import errors
from bakehouse.catalog import project
from bakehouse.catalog.project import HOME
from bakehouse.cli.command_line import usage
from bakehouse.cli.tasks.collection import GROUPS
from tests.support.documents import table_rows

REFERENCE = HOME / "docs/reference"


def test_the_command_reference_lists_every_task_by_group() -> None:
    text = (REFERENCE / "cli.md").read_text()
    sections = {section.split("\n", 1)[0]: section for section in text.split("\n## ")[1:]}
    listed = {
        group: [row[0].strip("`") for row in table_rows(sections[group]) if len(row) == 2] for group in GROUPS
    }

    assert listed == {
        group: [usage(task).removeprefix("bake ").replace(" [OPTIONS]", "") for task in tasks]
        for group, tasks in GROUPS.items()
    }


def test_the_references_list_every_key() -> None:
    for page, keys in {
        "recipes.md": set(properties("recipe")),
        "components.md": set(properties("component")),
        "settings.md": set(project._KEYS),
    }.items():
        listed = set(re.findall(r"[`.]([a-z0-9_]+)`", (REFERENCE / page).read_text()))
        assert keys - listed == set(), page


def properties(schema: str) -> Iterator[str]:
    """Yield all keys of a schema."""
    nodes: list[Any] = [json.loads((HOME / f"schema/{schema}.schema.json").read_text())]
    for node in nodes:
        if isinstance(node, dict):
            yield from node.get("properties", ())
            nodes += node.values()
        elif isinstance(node, list):
            nodes += node


def test_the_command_reference_lists_every_exit_code() -> None:
    classes: list[type[errors.BakehouseError]] = [errors.BakehouseError]
    for error in classes:
        classes += error.__subclasses__()
    listed = {int(row[0]) for row in table_rows((REFERENCE / "cli.md").read_text()) if row[0].isdigit()}

    assert listed == {0, 130, *(error.exit_code for error in classes)}
