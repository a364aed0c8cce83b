"""Commands of shell text, as the grammar of shfmt sees them, and words of a Dockerfile's instructions.

shfmt rejects what is not shell text. Bakehouse has no parser of its own for it; `bashlex` is under the GPL.
"""

import json
import os
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache
from typing import Any

from bakehouse.errors import UsageError

_VARIABLE = re.compile(r"\$(?:\{(?P<braced>\w+)(?P<operation>[^}]*)\}|(?P<plain>[A-Za-z_]\w*))")
_WORD_PART = re.compile(
    r"\\(?P<escaped>.?)|'(?P<single>[^']*)'?|\"(?P<double>(?:\\.|[^\"\\])*)\"?"
    r"|(?P<plain>(?:\$\{[^}]*\}|\$\((?:[^()]|\([^()]*\))*\)|[^\\'\"])+)",
    re.DOTALL,
)
"""An escaped character, a quoted text or plain text, as BuildKit reads words."""
_UNKNOWN_FLAGS = ("Negated", "Background", "Coprocess", "Disown")
Node = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """A command of a list: a plain one, or all of a pipeline, group, loop or condition."""

    text: str
    """As written."""
    start: int
    follows: str
    """`&&`, `;`, or empty for the first."""
    node: Node
    calls: tuple[Node, ...]
    """The plain commands in it, in their order."""
    is_plain: bool
    """One program with its arguments; its output goes to the log or to /dev/null."""
    is_list: bool
    """Only plain commands, joined by `&&`, `||` or pipes."""


@lru_cache(maxsize=256)
def split_commands(text: str) -> tuple[ShellCommand, ...] | None:
    """Return the commands of a shell text; None if it is none."""
    path = os.pathsep.join((sysconfig.get_path("scripts"), os.environ.get("PATH", "")))
    program = shutil.which("shfmt", path=path)
    if program is None:
        raise UsageError("the program `shfmt` is missing", hint="install the Python package shfmt-py")
    result = subprocess.run(
        [program, "--to-json", "-ln", "bash"], input=text.encode(), capture_output=True, check=False
    )
    if result.returncode:
        return None
    content = text.encode()
    commands: list[ShellCommand] = []
    root = json.loads(result.stdout)
    for variable in (node for node in _nodes(root) if node.get("Type") == "ParamExp"):
        span = slice(variable["Pos"]["Offset"], variable["End"]["Offset"])
        variable["Text"] = content[span].decode(errors="replace")
    for statement in root.get("Stmts") or ():
        for follows, node in _joined(statement, ";"):
            start, end = node["Pos"]["Offset"], node["End"]["Offset"]
            shown = content[start:end].decode(errors="replace").rstrip("; \n")
            calls = tuple(call for call in _nodes(node) if call.get("Type") in ("CallExpr", "DeclClause"))
            follows = follows if commands else ""
            position = len(content[:start].decode(errors="replace"))
            plain, listed = _is_plain(node), _is_list(node)
            commands.append(ShellCommand(shown, position, follows, node, calls, plain, listed))
    return tuple(commands)


def _joined(node: Node, follows: str) -> Iterator[tuple[str, Node]]:
    """Yield the statements of a list joined by `&&`."""
    command = node.get("Cmd") or {}
    is_and = command.get("Type") == "BinaryCmd" and command["Op"] == "&&"
    if is_and and not node.get("Redirs") and not any(node.get(flag) for flag in _UNKNOWN_FLAGS):
        yield from _joined(command["X"], follows)
        yield from _joined(command["Y"], "&&")
    else:
        yield follows, node


def _nodes(node: object) -> Iterator[Node]:
    """Yield all nodes below a node, in the order of the text."""
    if isinstance(node, dict):
        yield node
    values = node if isinstance(node, list) else node.values() if isinstance(node, dict) else ()
    for value in values:
        yield from _nodes(value)


def redirected(node: Node) -> list[Node]:
    """Return the targets of all redirections below a node."""
    return [item["Word"] for below in _nodes(node) for item in below.get("Redirs") or ()]


def _is_plain(node: Node) -> bool:
    if any(node.get(flag) for flag in _UNKNOWN_FLAGS):
        return False
    command = node.get("Cmd") or {}
    if command.get("Type") == "DeclClause":
        return command["Variant"]["Value"] == "export" and not node.get("Redirs")
    return command.get("Type") == "CallExpr" and all(
        word_values(item["Word"], {}) in (["/dev/null"], ["1"], ["2"]) for item in node.get("Redirs") or ()
    )


def _is_list(node: Node) -> bool:
    """Return whether a shell that stops at the first error does the same as one that does not."""
    command = node.get("Cmd") or {}
    if command.get("Type") == "BinaryCmd":
        return _is_list(command["X"]) and _is_list(command["Y"])
    return (
        command.get("Type") == "CallExpr"
        and not node.get("Negated")
        and not any(below.get("Type") == "CmdSubst" for below in _nodes(node))
    )


def assignments(call: Node, variables: Mapping[str, str]) -> dict[str, str | None]:
    """Return the variables that a command sets, with their values as far as they are known."""
    pairs = call.get("Assigns") or (call.get("Args") if call["Type"] == "DeclClause" else None) or ()
    known: dict[str, str | None] = {}
    for pair in pairs:
        if name := (pair.get("Name") or pair.get("Ref") or {}).get("Value", ""):
            values = word_values(pair["Value"], variables) if pair.get("Value") else [""]
            known[name] = " ".join(values) if values is not None else None
    return known


def words_of(node: Node) -> list[Node]:
    """Return all words below a node."""
    return [below for below in _nodes(node) if "Parts" in below and "Type" not in below]


def word_values(word: Node, variables: Mapping[str, str]) -> list[str] | None:
    """Return the values of a word, split as the shell does; None if only a shell knows them."""
    parts = word["Parts"]
    value = _value(parts, variables, quoted=False)
    if value is None:
        return None
    is_split = len(parts) == 1 and parts[0]["Type"] == "ParamExp"
    return value.split() if is_split else [value]


def _value(parts: list[Node], variables: Mapping[str, str], *, quoted: bool) -> str | None:
    values: list[str] = []
    for part in parts:
        kind, text = part["Type"], str(part.get("Value", ""))
        value: str | None = None
        if kind == "Lit" and quoted:
            value = re.sub(r'\\([\\"$`\n])', r"\1", text)
        elif kind == "Lit" and not re.search(r"(?<!\\)\{.*[,.].*\}", text):
            value = re.sub(r"\\(.)", r"\1", re.sub(r"^~(?=/|$)", "/root", text) if not values else text)
        elif kind == "SglQuoted" and not part.get("Dollar"):
            value = text
        elif kind == "DblQuoted" and not part.get("Dollar"):
            value = _value(part.get("Parts") or [], variables, quoted=True)
        elif kind == "ParamExp":
            known = expanded(part["Text"], variables)
            value = None if known == part["Text"] or has_variables(known) else known
        if value is None:
            return None
        values.append(value)
    return "".join(values)


def unquoted(raw: str, variables: Mapping[str, str]) -> str:
    """Return a word without quotes, with the known variables replaced; others stay as they are."""

    def value(match: re.Match[str]) -> str:
        if match["plain"] is not None:
            return expanded(match["plain"], variables)
        if match["double"] is not None:
            return re.sub(r'\\([\\"$`])', r"\1", expanded(match["double"], variables))
        return match["escaped"] if match["single"] is None else match["single"]

    return _WORD_PART.sub(value, raw)


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """Replace the known variables of a text, also with the usual operations of shells and Dockerfiles."""

    def value(match: re.Match[str]) -> str:
        name, operation = match["braced"] or match["plain"], match["operation"] or ""
        known = variables.get(name)
        if operation.startswith((":-", "-")):
            default = operation.lstrip(":")[1:]
            return (known or expanded(default, variables)) if name in variables else match[0]
        if operation.startswith((":+", "+")):
            return expanded(operation.lstrip(":")[1:], variables) if known else match[0]
        if known is None:
            return match[0]
        return _operated(known, operation) if operation else known

    def escaped(part: str) -> str:
        return _VARIABLE.sub(value, part)

    return "".join(part if part == "\\$" else escaped(part) for part in re.split(r"(\\\$)", text))


def _operated(value: str, operation: str) -> str:
    """Apply an operation of bash, such as `//v` or `%.*`, to the value of a variable."""
    if match := re.fullmatch(r"(//?)([^/]*)(?:/(.*))?", operation):
        pattern = translate(match[2])[:-2]
        return re.sub(pattern, match[3] or "", value, count=0 if match[1] == "//" else 1)
    if match := re.fullmatch(r"(##?|%%?)(.*)", operation):
        pattern = translate(match[2])[:-2]
        if match[1] == "#":
            pattern = re.sub(r"\.\*(?!\?)", ".*?", pattern)
        shortest = "?" if match[1] == "%%" else ""
        form = f"{pattern}(?s:(.*))" if "#" in match[1] else f"(?s:(.*{shortest})){pattern}"
        return rest[1] if (rest := re.fullmatch(form, value)) else value
    return value


def variables_in(text: str) -> list[str]:
    """Return the names of the variables in a text."""
    return re.findall(r"\$\{?([A-Za-z_]\w*)", text)


def has_variables(text: str) -> bool:
    """Return whether a text contains variables or commands that only a shell can replace."""
    return "$" in text or "`" in text
