"""Check that the commands and imports in docs, help and messages exist."""

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from invoke.collection import Collection

import tasks
from tests.docs.prose import HOME
from tests.support.documents import _BLOCK, blocks, documents, sources

COMMANDS = Collection.from_module(tasks)
_COMMAND = re.compile(r"(?<![\w/.-])(?<!buildx )(?:\./)?bake (?P<task>[a-z][a-z-]*)(?P<words>[^\n`]*)")
_INLINE = re.compile(r"`(?:\./)?bake [^`]+`")


def commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each `bake` command in shell code as its task and its options."""
    for match in _COMMAND.finditer(re.sub(r"\\+\n\s*", " ", text)):
        words = re.split(r"&&|\||;|[)\"]$", re.sub(r"'[^']*'", "X", match["words"]))[0]
        options = re.findall(r"(?<!\S)(--[a-z][a-z-]*)", words.partition(" # ")[0])
        yield match["task"], options


def mistakes(text: str) -> list[str]:
    """Return the unknown tasks and options in shell code."""
    unknown = []
    for name, options in commands(text):
        if name not in COMMANDS.task_names:
            unknown.append(f"no task {name}")
            continue
        names = {long for argument in COMMANDS[name].get_arguments() for long in argument.names}
        valid = {f"--{long.replace('_', '-')}" for long in names} | {"--help"}
        unknown += [f"no option {name} {option}" for option in options if option not in valid]
    return unknown


@pytest.mark.parametrize("page", documents(), ids=lambda page: str(page.relative_to(HOME)))
def test_commands_in_docs_exist(page: Path) -> None:
    code = [code for language, code in blocks(page) if language != "python"]
    inline = _INLINE.findall(_BLOCK.sub("", page.read_text(encoding="utf-8")))
    assert mistakes("\n".join([*code, *inline])) == []


def test_commands_in_help_and_messages_exist() -> None:
    unknown = {
        f"{path.relative_to(HOME)}: {mistake}"
        for path in sources()
        for command in _INLINE.findall(path.read_text(encoding="utf-8"))
        for mistake in mistakes(command)
    }
    assert sorted(unknown) == []


@pytest.mark.parametrize("page", documents(), ids=lambda page: str(page.relative_to(HOME)))
def test_python_examples_import_existing_names(page: Path) -> None:
    for language, code in blocks(page):
        if language != "python":
            continue
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "bakehouse":
                module = importlib.import_module(str(node.module))
                for alias in node.names:
                    assert hasattr(module, alias.name) or importlib.import_module(
                        f"{node.module}.{alias.name}"
                    )
