"""The directories of commands: each can be deleted with its task, and everything else still works."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from bakehouse.catalog.project import HOME
from tests.support.syntax import tree

COMMANDS = sorted(path.parent.name for path in HOME.glob("bakehouse/commands/*/__init__.py"))
TASKS = HOME / "bakehouse/cli/tasks"
HIDE = """\
import importlib, sys

class Hidden:
    def __init__(self, shown):
        self.shown = shown

    def find_spec(self, name, path=None, target=None):
        if name.startswith("bakehouse.commands.") and f"{name}.".split(".")[2] != self.shown:
            raise ModuleNotFoundError(f"{name} is hidden")

for argument in sys.argv[1:]:
    command, _, name = argument.rpartition("/")
    sys.meta_path[:0] = [Hidden(command)]
    importlib.import_module(name)
    del sys.meta_path[0]
"""
"""A program that imports modules, each while the directories of all commands but its own are hidden."""


def module_name(path: Path) -> str:
    return str(path.relative_to(HOME).with_suffix("")).removesuffix("/__init__").replace("/", ".")


def error_of_imports(modules: Iterable[tuple[str, str]]) -> str:
    """Import modules, each without the directories of all commands but the one that it comes with."""
    program = [sys.executable, "-c", HIDE, *(f"{command}/{name}" for command, name in modules)]
    return subprocess.run(program, cwd=HOME, capture_output=True, text=True, check=False).stderr


def imports_of_commands(source: ast.AST, *, early: bool = False) -> Iterator[str]:
    """Yield the commands whose modules a file imports, if `early`, only where it is imported itself."""
    nodes = source.body if early and isinstance(source, ast.Module) else ast.walk(source)
    for node in nodes:
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            if match := re.match(r"(?:bakehouse|tests)\.commands\.(\w+)", name):
                yield match[1]


def test_the_directories_of_commands_are_found() -> None:
    assert "security" in COMMANDS


def test_each_module_can_be_imported_without_the_directories_of_other_commands() -> None:
    paths = [path for path in sorted(HOME.glob("bakehouse/**/*.py")) if path.parent.name != "probes"]
    names = [module_name(path) for path in paths if path.stem != "__main__"]
    commands = [f"{name}..".split(".")[2] if ".commands." in name else "" for name in names]

    assert {*COMMANDS} < {*commands}
    assert error_of_imports(sorted(zip(commands, names, strict=True))) == ""


def test_a_module_that_needs_a_hidden_directory_is_found() -> None:
    assert "is hidden" in error_of_imports([("ci", "bakehouse.errors"), ("ci", "bakehouse.commands.report")])


def test_only_tasks_import_a_command_and_only_when_they_run() -> None:
    users = {
        (path.relative_to(HOME).as_posix(), command)
        for path in HOME.glob("bakehouse/**/*.py")
        if ".commands" in path.read_text(encoding="utf-8")
        for command in imports_of_commands(tree(path), early=path.parent == TASKS)
        if not path.is_relative_to(HOME / "bakehouse/commands" / command)
    }

    assert users == set()


def test_tests_of_a_command_are_in_its_directory() -> None:
    """Tests of several commands are above their directories, and those with an engine have their names."""
    users = {
        (path.relative_to(HOME).as_posix(), command)
        for path in HOME.glob("tests/**/*.py")
        if path.parent != HOME / "tests/commands"
        if ".commands" in path.read_text(encoding="utf-8")
        for command in imports_of_commands(tree(path))
        if not path.is_relative_to(HOME / "tests/commands" / command)
        and path != HOME / f"tests/integration/test_{command}.py"
    }

    assert users == set()


def test_imports_of_each_form_are_found() -> None:
    source = ast.parse(
        "import bakehouse.commands.a.b\nfrom bakehouse.commands.c import d\n"
        "from bakehouse.commands import e\ndef f():\n    from bakehouse.commands.g import h\n"
    )

    assert [*imports_of_commands(source)] == ["a", "c", "e", "g"]
    assert [*imports_of_commands(source, early=True)] == ["a", "c", "e"]
