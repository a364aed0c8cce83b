"""Job files with the places of their values: YAML, JSON, or a table of `[tool.bakehouse.jobs]`."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bakehouse.catalog.project import ProjectSettings
from bakehouse.errors import Diagnostic, Location, Problems, Reason, RecipeError, UsageError
from bakehouse.util import yaml_reader
from bakehouse.util.files import read_bytes
from bakehouse.util.json_reader import parse_json, syntax_hint
from bakehouse.util.suggest import suggestion
from bakehouse.util.toml_table import key_location
from bakehouse.util.yaml_reader import Node, Scalar

Keys = tuple[str | int, ...]
"""Path of a value: keys of mappings and numbers of list items."""
_TABLE = "tool.bakehouse.jobs"
_SUFFIXES = (".json", ".yaml", ".yml")
_WORDS = {"true": True, "false": False, "null": None, "~": None, "": None}
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(r"[-+]?(0|[1-9][0-9]*|(?=\.))(\.[0-9]*)?([eE][-+]?[0-9]+)?")
_PAIR = re.compile(r"\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})", re.IGNORECASE)
"""A surrogate pair in JSON: a character beyond U+FFFF, which YAML writes in another way."""


@dataclass(frozen=True, slots=True)
class JobDocument:
    """The values of a job file, as written."""

    values: Mapping[str, Any]
    title: str
    """The name of the file or table in messages."""
    directory: Path
    """Directory that relative paths start at."""
    place: Callable[[Keys], Location]
    """Returns the location of a key or a list item."""


def open_document(project: ProjectSettings, job: str) -> JobDocument:
    """Return the job of `--job`: one of the project by name, a file, or JSON.

    Raises UsageError with all mistakes in its syntax, and all values that are given twice.
    """
    if job in project.jobs:
        return _read_table(project, job)
    if job.lstrip().startswith("{"):
        return _parse(job.encode(), Path("--job"))
    path = Path(job)
    if path.suffix.lower() in _SUFFIXES or "/" in job or path.exists():
        return _read_file(path)
    hint = suggestion(job, project.jobs) or "name a table of [tool.bakehouse.jobs], or a YAML or JSON file"
    raise UsageError(f"unknown job `{job}`", hint=hint)


def _read_table(project: ProjectSettings, name: str) -> JobDocument:
    path, table = project.root / "pyproject.toml", f"{_TABLE}.{name}"

    def place(keys: Keys) -> Location:
        *parents, key = [str(key) for key in keys if isinstance(key, str)] or [name]
        return key_location(path, key, ".".join((table if keys else _TABLE, *parents)))

    return JobDocument(project.jobs[name], f"[{table}]", project.root, place)


def _read_file(path: Path) -> JobDocument:
    try:
        data = read_bytes(path)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError(
            f"cannot read `{path}`: {reason}", hint="set `--job` to a YAML or JSON file"
        ) from error
    return _parse(data, path)


def _parse(data: bytes, path: Path) -> JobDocument:
    if data.lstrip().startswith((b"{", b"[")) or path.suffix.lower() == ".json":
        try:
            parse_json(data)
        except ValueError as error:
            raise UsageError(f"`{path}` is not valid JSON: {error}", hint=syntax_hint(error)) from error
        data = _PAIR.sub(_as_yaml, data.decode("utf-8-sig", errors="replace")).encode()
    try:
        root = yaml_reader.parse(data, path)
    except RecipeError as error:
        raise UsageError.of(*error.diagnostics) from error
    problems = Problems()
    places: dict[Keys, Location] = {}
    values = _value(root, (), places, problems)
    problems.raise_as(UsageError)
    if not isinstance(values, dict):
        hint = "write names and values, such as `instance_type: ml.p4d.24xlarge`"
        raise UsageError(f"`{path}` is not a mapping", root.location, hint=hint)

    def place(keys: Keys) -> Location:
        return next(places[keys[:end]] for end in range(len(keys), -1, -1) if keys[:end] in places)

    return JobDocument(values, f"`{path}`", path.parent, place)


def _as_yaml(pair: re.Match[str]) -> str:
    high, low = (int(half, 16) for half in pair.groups())
    return f"\\U{0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00):08x}"


def _value(node: Node, keys: Keys, places: dict[Keys, Location], problems: Problems) -> Any:
    """Return the value of a node, and record the places of its keys and items."""
    places.setdefault(keys, node.location)
    if isinstance(node, Scalar):
        return _scalar(node)
    if isinstance(node, yaml_reader.Sequence):
        return [_value(item, (*keys, index), places, problems) for index, item in enumerate(node.items)]
    values: dict[str, Any] = {}
    for key, inner in node.entries:
        path = (*keys, key.text)
        if key.text in values:
            problems.add(given_twice(f"`{dotted(path)}`", key.location, places[path]))
        places.setdefault(path, key.location)
        values[key.text] = _value(inner, path, places, problems)
    return values


def given_twice(name: str, second: Location, first: Location) -> Diagnostic:
    """Return the error for a field that has two values in one file."""
    reasons = (Reason("the first value is here", first),)
    return Diagnostic(f"{name} is given twice", second, reasons=reasons, hint="remove one of them")


def dotted(keys: Sequence[str | int]) -> str:
    """Return a path as messages write it: `channels.train`, `InputDataConfig[0]`."""
    return "".join(_parts(keys)).removeprefix(".")


def _parts(keys: Sequence[str | int]) -> Iterator[str]:
    for key in keys:
        yield f"[{key}]" if isinstance(key, int) else f".{key}"


def _scalar(node: Scalar) -> object:
    """Return a scalar as JSON reads it: words without quotes that are not JSON are text."""
    text = node.text
    if not node.is_plain:
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text) and any(digit in text for digit in "0123456789"):
        return float(text)
    return text
