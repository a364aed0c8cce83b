"""Reader of a table of a TOML file, which collects all mistakes with their locations.

Locations are found by text search because tomllib keeps no positions.
"""

import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from bakehouse.errors import Diagnostic, Location, Problems
from bakehouse.util.files import read_text
from bakehouse.util.suggest import suggestion


class TomlTable:
    """A table whose values are read by type; a wrong one is reported and replaced by a neutral value."""

    def __init__(self, values: Mapping[str, Any], name: str, path: Path, problems: Problems) -> None:
        self.values, self.name, self.path = values, name, path
        self.problems = problems

    def report(self, key: str, message: str, hint: str = "") -> None:
        self.problems.add(Diagnostic(message, key_location(self.path, key, self.name), hint=hint))

    def check_keys(self, keys: Collection[str]) -> None:
        """Report unknown keys."""
        for key in self.values:
            if key not in keys:
                self.report(key, f"unknown key `{key}` in [{self.name}]", suggestion(key, keys))

    def text(self, key: str, default: str = "", *, pattern: str = "", hint: str = "") -> str:
        value = self.values.get(key, default)
        if not isinstance(value, str):
            self.report_type(key, "a string")
        elif value and pattern and not re.fullmatch(pattern, value):
            self.report(key, f"`{key}` in [{self.name}] is invalid: `{value}`", hint)
        else:
            return value
        return default

    def texts(
        self, key: str, is_valid: Callable[[str], object] = lambda item: True, hint: str = ""
    ) -> tuple[str, ...]:
        value = self.values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self.report_type(key, "a list of strings")
            return ()
        for item in value:
            if not is_valid(item):
                self.report(key, f"`{key}` in [{self.name}] has an invalid item: `{item}`", hint)
        return tuple(dict.fromkeys(item for item in value if is_valid(item)))

    def flag(self, key: str) -> bool:
        value = self.values.get(key, False)
        if not isinstance(value, bool):
            self.report_type(key, "true or false")
            return False
        return value

    def number(self, key: str, default: int, numbers: range, kind: str) -> int:
        """Read one of `numbers`, which `kind` describes in messages."""
        value = self.values.get(key, default)
        if type(value) is not int or (key in self.values and value not in numbers):
            self.report_type(key, kind)
            return default
        return value

    def pairs(self, key: str) -> dict[str, str]:
        value = self.values.get(key, {})
        if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
            self.report_type(key, "a table of names and strings")
            return {}
        return dict(value)

    def child(self, key: str, kind: str = "a table") -> "TomlTable":
        """Return the table at `key`, empty if there is none."""
        value = self.values.get(key, {})
        if not isinstance(value, dict):
            self.report_type(key, kind)
            value = {}
        return TomlTable(value, f"{self.name}.{key}", self.path, self.problems)

    def dotted(self, key: str) -> str:
        """Return a key joined with the keys of tables in it, because TOML splits unquoted names at dots."""
        names, value = [key], self.values.get(key)
        while isinstance(value, dict) and len(value) == 1:
            [(name, value)] = value.items()
            names.append(name)
        return ".".join(names)

    def report_type(self, key: str, kind: str) -> None:
        self.report(key, f"`{key}` in [{self.name}] must be {kind}")


def key_location(path: Path, key: str, table: str) -> Location:
    """Return the location of a key in or below a table, otherwise of the table or the start of the file."""
    # `splitlines` would also split at characters that do not end lines in TOML, such as U+2028
    lines = read_text(path).split("\n") if path.is_file() else []
    inside = False
    table_location = None
    for number, line in enumerate(lines, 1):
        words = line.strip()
        if words.startswith("["):
            header = words.strip("[] \t").replace('"', "").replace("'", "")
            if header == f"{table}.{key}":
                return _word_location(path, number, line, key)
            inside = header == table or header.startswith(f"{table}.")
            if inside and table_location is None:
                table_location = _word_location(path, number, line, header.split(".")[-1])
        if inside and key in line:
            name = line.split("=")[0].strip().strip("\"'")
            if name == key or words.startswith(f"{key}."):
                return _word_location(path, number, line, key)
    if table_location is None and "." in table:
        # It may be an inline table of its parent.
        parent, _, name = table.rpartition(".")
        return key_location(path, name, parent)
    return table_location or Location(path, 1, 1)


def _word_location(path: Path, number: int, line: str, word: str) -> Location:
    return Location(path, number, max(line.find(word), 0) + 1, len(word), line)
