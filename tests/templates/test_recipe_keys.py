"""Recipe keys that scripts of images and messages name."""

import json
import re
from collections.abc import Iterator
from typing import Any

from bakehouse.catalog.project import HOME

_NAMED = re.compile(r"`(?P<key>[a-z_]+)(?::[^`]*)?\\?` (?:of|in|to) (?:the|a|your) recipe\b")


def test_all_named_keys_exist() -> None:
    keys = {*_keys(json.loads((HOME / "schema/recipe.schema.json").read_text()))}
    named = {
        (match["key"], path.relative_to(HOME).as_posix())
        for directory in ("templates", "recipes/components", "bakehouse")
        for path in (HOME / directory).rglob("*")
        if path.is_file() and path.suffix not in (".pyc", ".json")
        for match in _NAMED.finditer(path.read_text(encoding="utf-8", errors="replace"))
    }

    assert ("packages", "templates/bin/require-apt-sources") in named
    assert {(key, path) for key, path in named if key not in keys} == set()


def _keys(schema: Any) -> Iterator[str]:
    """Yield the keys of a recipe and of its mappings."""
    if isinstance(schema, dict):
        yield from schema.get("properties", ())
        for part in schema.values():
            yield from _keys(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from _keys(part)
