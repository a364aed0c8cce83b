"""Entries of releases in a `component.yaml`: the text of the next one, made from the text of the one before.

The rest of the file stays as it is, byte by byte.
"""

import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from packaging.version import Version
from ruamel.yaml import YAML
from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.resolver import VersionedResolver
from ruamel.yaml.scalarstring import DoubleQuotedScalarString, ScalarString
from ruamel.yaml.tokens import ScalarToken

from bakehouse.catalog.component import Component, Release
from bakehouse.errors import BuildError

_VERSIONED = ("source", "lock", "url", "file", "pypi", "name", "image", "build_image")
"""Keys whose text may contain the version of the release."""
_INDENT = "  "
_COMMENT = re.compile(r"(?m)^[ \t]*#.*\n|[ \t]+#.*")


@dataclass
class Entry:
    """The fields of a release as written, which can be changed; its text keeps the style of the file."""

    fields: Any
    version: str

    @property
    def variants(self) -> list[Any]:
        """The variants as written; the release itself if it has none."""
        return list(self.fields.get("variants") or [self.fields])

    @property
    def levels(self) -> list[Any]:
        """The release and its variants as written."""
        return [self.fields, *(self.fields.get("variants") or ())]

    def text(self, indent: int) -> str:
        """Return the entry as an item of a list whose dashes have this indentation."""
        stream = io.StringIO()
        _yaml().dump(self.fields, stream)
        lines = stream.getvalue().splitlines()
        margin = " " * indent
        first, *rest = lines
        return "".join(
            f"{line}\n" for line in (f"{margin}- {first}", *(_indented(line, margin) for line in rest))
        )


def _indented(line: str, margin: str) -> str:
    return f"{margin}{_INDENT}{line}" if line else line


class _TextResolver(VersionedResolver):
    """Every scalar stays text, as in the catalogue, so that version `3.10` is not the number 3.1."""

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        return self.DEFAULT_SCALAR_TAG if kind is ScalarNode else super().resolve(kind, value, implicit)


def _yaml() -> YAML:
    yaml = YAML()
    yaml.Resolver = _TextResolver
    yaml.preserve_quotes = True
    yaml.width = 4096
    yaml.indent(mapping=2, sequence=4, offset=2)
    return yaml


def entry_text(text: str, release: Release) -> tuple[str, int]:
    """Return the text of a release in its file, and the indentation of its dash.

    Raises BuildError if the release does not start a line.
    """
    lines = text.splitlines(keepends=True)
    start = release.location.line - 1
    if not lines[start].lstrip().startswith("- "):
        raise BuildError(f"release {release.version} is not a line that starts with `- `", release.location)
    indent = _depth(lines[start])
    end = start + 1
    for number, line in enumerate(lines[end:], end):
        if _depth(line) > indent and line.strip():
            end = number + 1
        elif line.strip() and not line.lstrip().startswith("#"):
            break
    return "".join(lines[start:end]), indent


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


def read_entry(text: str, release: Release) -> Entry:
    """Read the entry of a release, without its comments, which are about that release."""
    own, indent = entry_text(text, release)
    lines = [line[indent + 2 :] for line in _without_comments(own).splitlines()]
    return Entry(_yaml().load("\n".join(lines) + "\n"), release.version)


def _without_comments(text: str) -> str:
    """Return YAML without its comments; a `#` in a scalar does not start one."""
    tokens = YAML(typ="safe", pure=True).scan(text)
    scalars = [
        (token.start_mark.index, token.end_mark.index) for token in tokens if isinstance(token, ScalarToken)
    ]
    kept, position, end = [], 0, 0
    for start, stop in (*scalars, (len(text), len(text))):
        for match in _COMMENT.finditer(text, end, start):
            kept.append(text[position : match.start()])
            position = match.end()
        end = stop
    return "".join([*kept, text[position:]])


def with_version(entry: Entry, version: str) -> None:
    """Replace the version of an entry in all texts that contain it, such as URLs and names of locks."""
    rename(entry, _pattern(entry.version), version, _VERSIONED)
    set_text(entry.fields, "version", version)
    entry.version = version


def _pattern(version: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![0-9])(?<![0-9]\.){re.escape(version)}(?!\.?[0-9])")


def rename(entry: Entry, pattern: re.Pattern[str], text: str, keys: tuple[str, ...]) -> None:
    """Replace a pattern in the values of some keys, and in requirements."""
    _walk(entry.fields, lambda old: pattern.sub(text, old), keys)


def _walk(node: Any, change: Callable[[str], str], keys: tuple[str, ...]) -> None:
    for key, value in node.items():
        if isinstance(value, dict):
            _walk(value, change, keys)
        elif isinstance(value, list):
            for number, item in enumerate(value):
                if isinstance(item, dict):
                    _walk(item, change, keys)
                elif isinstance(item, str) and key == "requirements":
                    value[number] = _like(item, change(item))
        elif isinstance(value, str) and key in keys:
            node[key] = _like(value, change(value))


def replace_values(entry: Entry, pattern: re.Pattern[str], text: str) -> bool:
    """Replace all values that match as a whole; return whether there are any."""
    return _replaced(entry.fields, pattern, text)


def _replaced(node: Any, pattern: re.Pattern[str], text: str) -> bool:
    is_changed = False
    items = node.items() if isinstance(node, dict) else enumerate(node)
    for key, value in [*items]:
        if isinstance(value, (dict, list)):
            is_changed |= _replaced(value, pattern, text)
        elif isinstance(value, str) and pattern.fullmatch(value):
            node[key] = _like(value, text)
            is_changed = True
    return is_changed


def _like(old: Any, new: str) -> Any:
    """Return a text in the quotes of another one."""
    return type(old)(new) if isinstance(old, ScalarString) else new


def set_text(mapping: Any, key: str, text: str) -> None:
    """Set a value in the quotes of the old one, else in double quotes."""
    old = mapping.get(key)
    mapping[key] = _like(old, text) if isinstance(old, ScalarString) else DoubleQuotedScalarString(text)


def mappings(entry: Entry, key: str) -> Iterator[Any]:
    """Yield the mappings of a key at the level of the release and of its variants."""
    yield from (level[key] for level in entry.levels if level.get(key))


def insert(text: str, component: Component, entry: Entry) -> str:
    """Return the text of a component with one more release, above the next older one."""
    lines = text.splitlines(keepends=True)
    older = [release for release in component.releases if Version(release.version) < Version(entry.version)]
    newest_first = max(older, key=lambda release: Version(release.version))
    _, indent = entry_text(text, newest_first)
    start = newest_first.location.line - 1
    is_first = all(newest_first.location.line <= release.location.line for release in component.releases)
    # A comment above an entry is about it; above the first one it may be about all
    while not is_first and lines[start - 1].lstrip().startswith("#") and _depth(lines[start - 1]) == indent:
        start -= 1
    return "".join((*lines[:start], entry.text(indent), *lines[start:]))
