"""Reads the options of jobs."""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bakehouse.errors import UsageError
from bakehouse.util.files import read_text
from bakehouse.util.json_reader import parse_json, syntax_hint

if TYPE_CHECKING:
    from bakehouse.cluster.job import Group

# SageMaker allows all characters in the name of a group. Types have no `=`, so the last one ends the name
_GROUP = re.compile(r"(?P<name>.{1,64})=(?P<type>[a-z0-9.-]+)(?::(?P<count>[0-9]+))?")
_GROUP_HINT = "write `--group data=ml.c5.18xlarge:2`, with a name of at most 64 characters"
_KILL = re.compile(r"(?P<host>algo-[0-9]+)@(?:(?P<seconds>[0-9]+(?:\.[0-9]+)?)s?|/(?P<text>.+)/)")
_LAUNCHER = re.compile("[a-z_]+")
_MAX_GROUPS = 5


def named_groups(words: Sequence[str]) -> "tuple[Group, ...]":
    """Return the groups of `--group name=type:count`."""
    groups = tuple(_group(word) for word in words)
    names = [group.name for group in groups]
    if len(set(names)) < len(names):
        raise UsageError("two groups have the same name", hint="SageMaker requires unique names")
    if len(groups) > _MAX_GROUPS:
        raise UsageError(f"{len(groups)} groups", hint=f"SageMaker allows at most {_MAX_GROUPS}")
    return groups


def hyperparameters(words: Sequence[str]) -> dict[str, object]:
    """Return `name=value` pairs. Values are parsed as JSON, as the SDK does; others are strings."""
    values: dict[str, object] = {}
    for name, text in pairs(words, "--hyperparameter").items():
        try:
            values[name] = json.loads(text)
        except (ValueError, RecursionError):
            values[name] = text
    return values


def read_distribution(text: str) -> Mapping[str, object] | None:
    """Return the value of `--distribution`: JSON, the name of a JSON file, or of a launcher to enable.

    None if it is not set.
    """
    if not text:
        return None
    path = Path(text)
    if _LAUNCHER.fullmatch(text) and not path.exists():
        return {text: {"enabled": True}}
    if not text.lstrip().startswith("{"):
        try:
            text = read_text(path)
        except (OSError, UnicodeDecodeError) as error:
            hint = "use a launcher such as `torch_distributed`, JSON or a JSON file"
            raise UsageError(f"cannot read `{path}` as a distribution", hint=hint) from error
    try:
        settings = parse_json(text)
    except ValueError as error:
        raise UsageError(f"`--distribution` is not valid JSON: {error}", hint=syntax_hint(error)) from error
    if not isinstance(settings, dict):
        raise UsageError("`--distribution` is not a JSON object", hint='such as `{"mpi": {"enabled": true}}`')
    return settings


def command(text: str, entry_point: str) -> tuple[str, ...]:
    """Return the words of a command, split as in a shell."""
    if text and entry_point:
        raise UsageError(
            "`--command` cannot be combined with `--entry-point`",
            hint="name the script in the command: /opt/ml/code/…",
        )
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        message = f"`--command` cannot be split into words: {error}"
        raise UsageError(message, hint="quote it as in a shell") from error


def kills(words: Sequence[str]) -> dict[str, float | str]:
    """Return when each host is killed: seconds from `algo-2@10s`, text of a log from `algo-2@/epoch 3/`."""
    moments: dict[str, float | str] = {}
    for word in words:
        match = _KILL.fullmatch(word)
        if match is None:
            hint = "write `--kill algo-2@10s`, or `--kill 'algo-2@/epoch 3/'` for a text in the log"
            raise UsageError(f"`--kill {word}` does not name a host and a time", hint=hint)
        moments[match["host"]] = match["text"] or float(match["seconds"])
    return moments


def _group(word: str) -> "Group":
    from bakehouse.cluster.job import Group

    match = _GROUP.fullmatch(word)
    if match is None or match["count"] == "0":
        raise UsageError(f"invalid group `--group {word}`", hint=_GROUP_HINT)
    return Group(match["name"], match["type"], int(match["count"] or 1))


def pairs(words: Sequence[str], option: str) -> dict[str, str]:
    """Return the values of `name=value` options by name. Refuse names that are given twice."""
    values: dict[str, str] = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not sign or not name:
            raise UsageError(f"`{option} {word}` has no `=`", hint=f"write `{option} name=value`")
        if name in values:
            raise UsageError(f"`{option}` gives `{name}` twice", hint="remove one of them")
        values[name] = value
    return values
