"""Tools of maintainers are left out of the wheel, and commands that need them say so."""

import ast
import tomllib
from pathlib import Path

import pytest

from bakehouse.catalog.project import HOME
from bakehouse.cli import main
from bakehouse.cli.tasks import declare

PACKAGE = HOME / "bakehouse"


def test_the_wheel_leaves_them_out() -> None:
    wheel = tomllib.loads((HOME / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]

    assert (wheel["packages"], wheel["exclude"]) == (["bakehouse"], ["/bakehouse/maintain"])
    assert (PACKAGE / "maintain/selftest.py").is_file()


@pytest.mark.parametrize(
    "command",
    [["test", "--pure", "--release"], ["rehearse", "no-such-image"], ["reproduce", "no-such-image"]],
    ids=lambda command: str(command[0]),
)
def test_a_command_says_that_it_needs_a_checkout(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(declare.TASKS, command[0])

    assert main.run(command) == 64
    assert capsys.readouterr().err == (
        f"error: `{command[0]}` is not part of the installed package\n\n"
        f"hint: run `./bake {command[0]}` in a checkout of Bakehouse\n"
    )


def users(path: Path) -> list[str]:
    """Return the functions of a module that import the package; an empty name for the module itself."""
    text = path.read_text(encoding="utf-8")
    if "bakehouse.maintain" not in text:
        return []
    tree = ast.parse(text)
    owners = {
        id(node): function.name
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
    }
    return [
        owners.get(id(node), "")
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bakehouse.maintain")
    ]


def test_only_commands_of_a_checkout_import_them() -> None:
    paths = [path for path in PACKAGE.rglob("*.py") if path.parent.name != "maintain"]
    found = {(str(path.relative_to(PACKAGE)), name) for path in paths for name in users(path)}

    assert found == {
        ("cli/tasks/checkout.py", "rehearse"),
        ("cli/tasks/checkout.py", "reproduce"),
        ("cli/tasks/checkout.py", "test"),
    }
