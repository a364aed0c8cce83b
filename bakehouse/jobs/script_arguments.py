"""Hyperparameters as arguments of a script and as variables, and their check with its argument parser."""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from bakehouse.jobs import rules
from bakehouse.jobs.rules import RuleViolation
from bakehouse.util import python_source
from bakehouse.util.files import read_bytes

_FLAGS = ("store_true", "store_false", "store_const", "append_const", "count", "BooleanOptionalAction")
"""Actions of argparse that take no value."""


def argument_text(value: object) -> str:
    """Return a hyperparameter as SageMaker's toolkit writes it in an argument."""
    if isinstance(value, Mapping):
        return ",".join(f"{key}={item}" for key, item in value.items())
    return str(value)


def variable_name(prefix: str, name: str) -> str:
    """Return the variable of a channel or hyperparameter, with `_` for what shells do not allow."""
    return prefix + re.sub("[^A-Z0-9_]", "_", name.upper(), flags=re.ASCII)


def flag_findings(script: Path, hyperparameters: Iterable[str]) -> Iterator[RuleViolation]:
    """Yield a warning for each hyperparameter that a Python script reads as a flag.

    Scripts that cannot be read or parsed are not checked.
    """
    try:
        tree = python_source.parse(read_bytes(script))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    flags = {name for call in ast.walk(tree) for name in _flag_names(call)}
    for name in hyperparameters:
        if name in flags:
            message = f"`{script.name}` reads `--{name}` as a flag, but a hyperparameter always has a value"
            hint = "declare it with a value, such as `type=json.loads`, and set it to true or false"
            yield RuleViolation(rules.FLAG, message, hint)


def _flag_names(call: ast.AST) -> Iterator[str]:
    """Yield the names of an option that takes no value."""
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return
    if call.func.attr != "add_argument":
        return
    actions = [keyword.value for keyword in call.keywords if keyword.arg == "action"]
    if any(_word(action) in _FLAGS for action in actions):
        for word in call.args:
            if isinstance(word, ast.Constant) and isinstance(word.value, str):
                yield word.value.lstrip("-")


def _word(node: ast.expr) -> object:
    """Return a text, or the last name of an expression such as `argparse.BooleanOptionalAction`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else getattr(node, "value", None)
