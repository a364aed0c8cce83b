"""The reference pages list every task, option, key and exit code."""

import json
import re
from collections.abc import Iterator
from typing import Any

from invoke.collection import Collection

import tasks
from bakehouse import errors
from bakehouse.catalog import project
from bakehouse.catalog.project import HOME
from tests.docs.test_docs import table_rows

REFERENCE = HOME / "docs/reference"
COMMANDS = Collection.from_module(tasks)


def options() -> Iterator[tuple[str, str]]:
    """Yield the tasks with their options, without positional arguments and `--json`."""
    for name in COMMANDS.task_names:
        for argument in COMMANDS[name].get_arguments():
            option = "--" + str(argument.names[0]).replace("_", "-")
            if not argument.positional and option != "--json":
                yield name, option


def test_the_command_reference_lists_every_task_and_option() -> None:
    rows = table_rows((REFERENCE / "cli.md").read_text())
    names = {match[1] for row in rows if len(row) == 2 and (match := re.match("`([a-z][a-z-]*)", row[0]))}
    described = {
        (task, option)
        for row in rows
        if len(row) == 3
        for task in re.findall("`([a-z-]+)`", row[1])
        for option in re.findall("`(--[a-z-]+)`", row[0])
    }

    assert names == set(COMMANDS.task_names)
    assert described == set(options())


def test_the_references_list_every_key() -> None:
    for page, keys in {
        "recipes.md": set(properties("recipe")),
        "components.md": set(properties("component")),
        "settings.md": set(project._KEYS),
    }.items():
        listed = set(re.findall(r"[`.]([a-z_]+)`", (REFERENCE / page).read_text()))
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
